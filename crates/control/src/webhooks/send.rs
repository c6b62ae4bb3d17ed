//! One request to one endpoint: bounded in time and size, never redirected.

use std::error::Error;
use std::time::Duration;

use daemon::files::read_bounded;
use http::header::CONTENT_TYPE;
use reqwest::{Client, RequestBuilder, Response, redirect};
use tokio::time::Instant;

use super::section::WebhooksConfig;
use super::target::{RefusedTarget, Targets};

/// Sends.
#[derive(Debug)]
pub(super) struct Sender {
    client: Client,
    pub(super) targets: Targets,
}

/// Why webhooks cannot be sent at all.
#[derive(Debug, thiserror::Error)]
#[error("webhooks: {0}")]
pub struct CannotSend(String);

/// How an attempt ended.
#[derive(Debug)]
pub(super) struct Report {
    pub(super) end: End,
    pub(super) took: Duration,
}

/// What came of an attempt.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum End {
    /// An answer, with the beginning of its body.
    Answered { status: u16, body: String },
    /// None in time.
    Timeout,
    /// Nobody was reached, or the connection broke.
    Unreachable,
    /// The address is none that webhooks go to.
    Refused,
}

impl End {
    /// Whether the receiver has it.
    pub(super) fn is_success(&self) -> bool {
        matches!(
            self,
            Self::Answered {
                status: 200..=299,
                ..
            }
        )
    }

    /// Whether the receiver wants nothing more (RFC 9110 section 15.5.11, as Standard Webhooks
    /// reads it).
    pub(super) fn is_gone(&self) -> bool {
        matches!(self, Self::Answered { status: 410, .. })
    }
}

impl Sender {
    pub(super) fn open(config: &WebhooksConfig) -> Result<Self, CannotSend> {
        let targets = Targets::new(&config.allowed_targets);
        let mut builder = Client::builder()
            .timeout(TIMEOUT)
            .connect_timeout(CONNECT_TIMEOUT)
            // An answer that points elsewhere would be followed past the check of the address.
            .redirect(redirect::Policy::none())
            // A proxy would resolve names by itself.
            .no_proxy()
            // Each attempt looks the name up, so that none goes where it does not point any more.
            .pool_max_idle_per_host(0)
            .https_only(true)
            .dns_resolver(targets.clone())
            .user_agent(concat!("svc-webhooks/", env!("CARGO_PKG_VERSION")));
        if let Some(path) = &config.ca_file {
            let failed = |message: String| CannotSend(format!("{}: {message}", path.display()));
            let pem =
                read_bounded(path, MAX_CA_BYTES).map_err(|error| failed(error.to_string()))?;
            let authorities = reqwest::Certificate::from_pem_bundle(&pem)
                .ok()
                .filter(|authorities| !authorities.is_empty())
                .ok_or_else(|| failed("no certificates in PEM".to_owned()))?;
            builder = builder.tls_certs_merge(authorities);
        }
        let client = builder
            .build()
            .map_err(|error| CannotSend(error.to_string()))?;
        Ok(Self { client, targets })
    }

    /// Sends a body with these header fields.
    pub(super) async fn send(
        &self,
        url: &str,
        headers: Vec<(&'static str, String)>,
        body: String,
    ) -> Report {
        let began = Instant::now();
        let end = match self.targets.parse(url) {
            // What was allowed when it was written may not be any more.
            Err(_) => End::Refused,
            Ok(url) => {
                let request = self
                    .client
                    .post(url)
                    .header(CONTENT_TYPE, "application/json");
                let request = headers.into_iter().fold(request, |request, (name, value)| {
                    request.header(name, value)
                });
                exchange(request.body(body)).await
            }
        };
        Report {
            end,
            took: began.elapsed(),
        }
    }
}

async fn exchange(request: RequestBuilder) -> End {
    match request.send().await {
        Ok(response) => End::Answered {
            status: response.status().as_u16(),
            body: beginning(response).await,
        },
        Err(error) if is_refused(&error) => End::Refused,
        Err(error) if error.is_timeout() => End::Timeout,
        Err(_) => End::Unreachable,
    }
}

/// The first bytes of an answer's body, as far as they come: the head has said what counts.
async fn beginning(mut response: Response) -> String {
    let mut bytes = Vec::new();
    while bytes.len() < MAX_BODY_BYTES
        && let Ok(Some(chunk)) = response.chunk().await
    {
        bytes.extend_from_slice(&chunk);
    }
    bytes.truncate(MAX_BODY_BYTES);
    // PostgreSQL has no texts with a NUL.
    String::from_utf8_lossy(&bytes).replace('\0', "\u{fffd}")
}

fn is_refused(error: &reqwest::Error) -> bool {
    let mut cause = error.source();
    while let Some(error) = cause {
        if error.is::<RefusedTarget>() {
            return true;
        }
        cause = error.source();
    }
    false
}

/// A whole attempt. Receivers are asked to take an event in and work on it afterwards.
const TIMEOUT: Duration = Duration::from_secs(15);

/// A connection that takes longer will not be quick either.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// What is kept of an answer: enough for an error message.
const MAX_BODY_BYTES: usize = 1_024;

/// Larger files are no certificates.
const MAX_CA_BYTES: u64 = 1024 * 1024;

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;

    use rustls::ServerConfig;
    use rustls::pki_types::PrivateKeyDer;
    use tokio::io::AsyncReadExt as _;
    use tokio::net::TcpListener;
    use tokio_rustls::TlsAcceptor;

    use super::*;

    fn sender(allowed: &[&str], ca_file: Option<&Path>) -> Sender {
        let config = WebhooksConfig {
            allowed_targets: allowed.iter().map(|net| net.parse().unwrap()).collect(),
            ca_file: ca_file.map(Path::to_owned),
        };
        Sender::open(&config).unwrap()
    }

    /// The client itself refuses a name that stands for an address inside, whatever was thought of
    /// the name before: nothing arrives at the listener.
    #[tokio::test]
    async fn a_connection_goes_only_where_the_address_was_checked() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let post = async |allowed: &[&str]| {
            let sender = sender(allowed, None);
            let request = sender.client.post(format!("https://localhost:{port}/"));
            tokio::select! {
                end = exchange(request) => Some(end),
                _ = listener.accept() => None,
            }
        };
        assert_eq!(post(&[]).await, Some(End::Refused));
        assert_eq!(post(&["10.0.0.0/8"]).await, Some(End::Refused));
        assert_eq!(post(&["127.0.0.0/8"]).await, None);
    }

    /// The kernel connects; nobody answers the handshake.
    #[tokio::test(start_paused = true)]
    async fn a_connection_has_a_time() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let sender = sender(&["127.0.0.0/8"], None);
        let url = format!("https://127.0.0.1:{port}/");
        let report = sender.send(&url, Vec::new(), String::new()).await;
        assert_eq!((report.end, report.took.as_secs()), (End::Timeout, 5));
    }

    /// The endpoint takes the request and answers nothing.
    #[tokio::test(start_paused = true)]
    async fn an_attempt_has_a_time() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let directory = tempfile::tempdir().unwrap();
        let ca_file = directory.path().join("receiver.pem");
        let certified = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
        std::fs::write(&ca_file, certified.cert.pem()).unwrap();
        let provider = rustls::crypto::aws_lc_rs::default_provider();
        let key = certified.signing_key.serialize_der();
        let config = ServerConfig::builder_with_provider(Arc::new(provider))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(
                vec![certified.cert.der().clone()],
                PrivateKeyDer::try_from(key).unwrap(),
            )
            .unwrap();
        let acceptor = TlsAcceptor::from(Arc::new(config));
        // The clock goes on by itself only while nothing blocks: when the request has come.
        let (clock, dropped) = std::sync::mpsc::channel::<()>();
        tokio::task::spawn_blocking(move || dropped.recv());
        let endpoint = async {
            let (stream, _) = listener.accept().await.unwrap();
            let mut stream = acceptor.accept(stream).await.unwrap();
            stream.read_u8().await.unwrap();
            drop(clock);
            std::future::pending::<()>().await;
        };
        let sender = sender(&["127.0.0.0/8"], Some(&ca_file));
        let url = format!("https://127.0.0.1:{port}/");
        let report = tokio::select! {
            report = sender.send(&url, Vec::new(), String::new()) => report,
            () = endpoint => unreachable!("it never ends"),
        };
        assert_eq!((report.end, report.took.as_secs()), (End::Timeout, 15));
    }
}
