//! A request to a published address, made from this machine like a program and not like a browser.

use std::{
    net::{Ipv4Addr, Ipv6Addr, SocketAddr},
    path::PathBuf,
    time::{Duration, Instant},
};

use client::Proxies;
use http::{HeaderName, HeaderValue, header};
use reqwest::{Client, Response, Url, redirect};
use serde::Serialize;
use serde_json::Value;
use types::{id::StreamId, query_credential};

use super::certificate::{Certificate, RecordingVerifier};
use crate::{
    failure::{Code, Failure, chain},
    proxy,
};

/// Settings of the request.
#[derive(Debug)]
pub(super) struct Visitor<'a> {
    pub(super) url: &'a Url,
    pub(super) token: Option<&'a str>,
    pub(super) headers: &'a [(HeaderName, HeaderValue)],
    /// The trusted CA certificates. Without a file, those of the system.
    pub(super) ca_file: Option<PathBuf>,
    pub(super) proxies: Proxies,
}

/// Results of the request: the response or the error, and the certificate.
#[derive(Debug, Serialize)]
pub(super) struct Visit {
    /// The URL without its query, which may contain a credential.
    pub(super) url: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) answer: Option<VisitResponse>,
    /// Reason why there is no response.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) error: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) certificate: Option<Certificate>,
}

/// A response.
#[derive(Debug, Default, Serialize)]
pub(super) struct VisitResponse {
    pub(super) status: u16,
    /// HTTP version of the connection.
    pub(super) version: String,
    /// The edge's reference of the visit, if the edge refused it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) reference: Option<String>,
    /// Code and detail of a problem (RFC 9457).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) code: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) detail: Option<String>,
    /// Target of a redirect, without its query.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) location: Option<String>,
    /// Milliseconds until the response head arrived, including the connection setup.
    pub(super) total_ms: f64,
    /// Milliseconds at the edge until the stream to the service was established.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) edge_ms: Option<f64>,
    /// Milliseconds from then until the edge received the start of the response.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) service_ms: Option<f64>,
}

impl Visitor<'_> {
    /// The token that the edge would check. A token in the URL takes precedence over one in the
    /// header (ED-1a).
    pub(super) fn effective_token(&self) -> Option<String> {
        let query = self.url.query().unwrap_or_default();
        let in_query = query_credential::extract(query, query_credential::COMPAT_NAMES);
        let in_query = in_query.ok().flatten().map(|found| found.token);
        in_query.or_else(|| self.token.map(str::to_owned))
    }

    /// Sends one request, and follows no redirect.
    pub(super) async fn send(&self) -> Result<Visit, Failure> {
        self.check()?;
        let recorder = RecordingVerifier::new(self.ca_file.as_deref())?;
        let client = self.client(&recorder)?;
        let mut request = client
            .get(self.url.clone())
            .header(header::ACCEPT, "application/json")
            .header("svc-debug", "timing");
        if let Some(token) = self.token {
            let mut value = HeaderValue::from_str(&format!("Bearer {token}"))
                .map_err(|_invalid| Failure::usage("--token is not a token"))?;
            value.set_sensitive(true);
            request = request.header(header::AUTHORIZATION, value);
        }
        // A given header replaces a default one.
        let given = self.headers.iter().cloned().collect();
        let started = Instant::now();
        let sent = request.headers(given).send().await;
        let total = started.elapsed();
        let certificate = recorder.recorded();
        let (answer, error) = match sent {
            Ok(response) => (Some(VisitResponse::read(response, total).await), None),
            Err(error) => {
                let text = chain(&error.without_url());
                // A certificate shows that an engine answered, so the error is a finding and not a
                // failure. Without TLS there is none.
                if certificate.is_none() {
                    return Err(unreachable(self.url, &text));
                }
                (None, Some(text))
            }
        };
        Ok(Visit {
            url: without_query(self.url.clone()),
            answer,
            error,
            certificate,
        })
    }

    fn check(&self) -> Result<(), Failure> {
        let query = self.url.query().unwrap_or_default();
        let has_token = self.token.is_some()
            || query_credential::is_present(query, query_credential::COMPAT_NAMES);
        if has_token && self.url.scheme() != "https" {
            return Err(Failure::usage("a token is not sent without TLS").hint("use https"));
        }
        let has_authorization = self
            .headers
            .iter()
            .any(|(name, _)| *name == header::AUTHORIZATION);
        if self.token.is_some() && has_authorization {
            return Err(Failure::usage(
                "--token and --header Authorization are the same field",
            ));
        }
        Ok(())
    }

    fn client(&self, recorder: &std::sync::Arc<RecordingVerifier>) -> Result<Client, Failure> {
        let builder = Client::builder()
            .user_agent(concat!("svc/", env!("CARGO_PKG_VERSION")))
            .tls_backend_preconfigured(recorder.client()?)
            .connect_timeout(CONNECT_TIMEOUT)
            .timeout(RESPONSE_TIMEOUT)
            .redirect(redirect::Policy::none());
        let mut builder = proxy::apply(builder, &self.proxies, self.url)?;
        let host = self.url.host_str().unwrap_or_default();
        if host == "localhost" || host.ends_with(".localhost") {
            // RFC 6761 section 6.3: some resolvers do not map these names to this machine.
            let loopback = [
                SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
                SocketAddr::from((Ipv6Addr::LOCALHOST, 0)),
            ];
            builder = builder.resolve_to_addrs(host, &loopback);
        }
        builder
            .build()
            .map_err(|error| Failure::from_error("cannot set up a connection", error))
    }
}

impl Visit {
    /// The reference of the edge's refusal.
    pub(super) fn reference(&self) -> Option<StreamId> {
        self.answer.as_ref()?.reference.as_ref()?.parse().ok()
    }
}

impl VisitResponse {
    async fn read(mut response: Response, total: Duration) -> Self {
        let text = |name: &str| {
            let value = response.headers().get(name)?;
            value.to_str().ok().map(str::to_owned)
        };
        let (edge_ms, service_ms) = text("server-timing").map_or((None, None), |timing| {
            (duration(&timing, "edge"), duration(&timing, "service"))
        });
        let location = text("location").map(|text| match text.parse() {
            Ok(url) => without_query(url),
            Err(_relative) => text.split(['?', '#']).next().unwrap_or_default().to_owned(),
        });
        let mut visit_response = Self {
            status: response.status().as_u16(),
            version: format!("{:?}", response.version()),
            reference: text("svc-reference"),
            location,
            total_ms: total.as_secs_f64() * 1000.0,
            edge_ms,
            service_ms,
            ..Self::default()
        };
        let is_problem = text("content-type").is_some_and(|kind| kind.contains("problem+json"));
        if is_problem {
            let problem: Value =
                serde_json::from_slice(&read_start(&mut response).await).unwrap_or_default();
            let member = |name: &str| problem.get(name)?.as_str().map(str::to_owned);
            (visit_response.code, visit_response.detail) = (member("code"), member("detail"));
        }
        visit_response
    }
}

/// Reads the start of a body. Problem details are short.
async fn read_start(response: &mut Response) -> Vec<u8> {
    let mut body = Vec::new();
    while let Ok(Some(chunk)) = response.chunk().await {
        body.extend_from_slice(&chunk);
        if body.len() > MAX_PROBLEM_BYTES {
            break;
        }
    }
    body
}

/// `dur` of a metric in `Server-Timing`.
fn duration(timing: &str, metric: &str) -> Option<f64> {
    timing.split(',').find_map(|part| {
        let mut parameters = part.split(';').map(str::trim);
        if parameters.next()? != metric {
            return None;
        }
        let value = parameters.find_map(|parameter| parameter.strip_prefix("dur="))?;
        value.parse().ok()
    })
}

fn without_query(mut url: Url) -> String {
    url.set_query(None);
    url.set_fragment(None);
    url.into()
}

fn unreachable(url: &Url, why: &str) -> Failure {
    let host = url.host_str().unwrap_or_default();
    let port = url.port_or_known_default().unwrap_or_default();
    Failure::new(Code::Failed, format!("cannot reach {host}:{port}: {why}")).hint(
        "is the engine running, and does the name resolve to it? this attempt is not in its \
         records",
    )
}

/// The endpoint in a published name of a managed engine: `<slug>-<endpoint>.t.<domain>`.
pub(super) fn endpoint_of(host: &str) -> Option<&str> {
    let (label, _domain) = host.split_once(".t.")?;
    let (_slug, endpoint) = label.rsplit_once('-')?;
    let is_hex = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    (endpoint.len() == 8 && endpoint.bytes().all(is_hex)).then_some(endpoint)
}

/// True if the host in `url` is a published name of `engine` (`host:port`). The engine's host is
/// `<domain>`, or `<endpoint>.<domain>` for a project of a cluster.
pub(super) fn is_of_engine(url: &Url, engine: &str) -> bool {
    let published = url.host_str().and_then(|host| host.split_once(".t."));
    let Some((_label, domain)) = published else {
        return false;
    };
    let host = engine.rsplit_once(':').map_or(engine, |(host, _port)| host);
    let cluster = host.split_once('.').map(|(_endpoint, domain)| domain);
    host == domain || cluster == Some(domain)
}

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(30);
const MAX_PROBLEM_BYTES: usize = 64 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_project_is_read_from_the_name() {
        assert_eq!(
            endpoint_of("my-web-e7e8a732.t.engine.example"),
            Some("e7e8a732")
        );
        for host in [
            "web.t.engine.example",
            "web-e7e8a732.engine.example",
            "a-E7E8A732.t.b",
        ] {
            assert_eq!(endpoint_of(host), None, "{host}");
        }
    }

    #[test]
    fn the_ca_of_an_engine_is_used_for_that_engine_alone() {
        let is = |url: &str, engine| is_of_engine(&url.parse().unwrap(), engine);
        assert!(is(
            "https://a-e7e8a732.t.engine.localhost/",
            "e7e8a732.engine.localhost:8443"
        ));
        assert!(is("https://a.t.engine.localhost/", "engine.localhost:8443"));
        assert!(!is("https://a.t.engine.example/", "engine.localhost:8443"));
        assert!(!is("https://example.com/", "example.com:443"));
    }

    #[test]
    fn timing_is_read_as_the_edge_writes_it() {
        let timing = "edge;desc=\"decision and stream\";dur=1.25, service;desc=\"answer\";dur=7";
        assert_eq!(duration(timing, "edge"), Some(1.25));
        assert_eq!(duration(timing, "service"), Some(7.0));
        assert_eq!(duration(timing, "other"), None);
    }

    #[test]
    fn a_token_is_never_sent_unencrypted_or_twice() {
        let clear: Url = "http://a.example/?svc.token=a.b.c".parse().unwrap();
        let visitor = |url, token| Visitor {
            url,
            token,
            headers: &[],
            ca_file: None,
            proxies: Proxies::default(),
        };
        assert!(visitor(&clear, None).check().is_err());
        let secure: Url = "https://a.example/?svc.token=a.b.c".parse().unwrap();
        assert!(visitor(&secure, None).check().is_ok());
        let token = visitor(&secure, Some("d.e.f")).effective_token();
        assert_eq!(token.as_deref(), Some("a.b.c"));
        assert_eq!(without_query(secure), "https://a.example/");
    }
}
