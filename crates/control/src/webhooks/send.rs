//! One request to one endpoint. Its time and size are limited, and redirects are not followed.

use std::time::Duration;

use http::header::CONTENT_TYPE;
use reqwest::{Client, ClientBuilder, RequestBuilder, Response, redirect};
use tokio::time::Instant;

use super::section::WebhooksConfig;
use super::target::Targets;
use crate::runtime::authorities;

/// HTTP client for webhooks.
#[derive(Debug)]
pub(super) struct Sender {
    client: Client,
    pub(super) targets: Targets,
}

/// The HTTP client for webhooks cannot be created.
#[derive(Debug, thiserror::Error)]
#[error("webhooks: {0}")]
pub struct SenderError(String);

impl From<reqwest::Error> for SenderError {
    fn from(error: reqwest::Error) -> Self {
        Self(error.to_string())
    }
}

/// Outcome of an attempt, with its duration.
#[derive(Debug)]
pub(super) struct AttemptReport {
    pub(super) outcome: AttemptOutcome,
    pub(super) duration: Duration,
}

/// Outcome of an attempt.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum AttemptOutcome {
    /// A response, with the beginning of its body.
    Response { status: u16, body: String },
    /// No response in time.
    Timeout,
    /// The connection failed.
    Unreachable,
    /// Webhooks may not be sent to the address.
    Refused,
}

impl AttemptOutcome {
    /// True if the receiver accepted the event.
    pub(super) fn is_success(&self) -> bool {
        matches!(
            self,
            Self::Response {
                status: 200..=299,
                ..
            }
        )
    }

    /// True if the receiver wants no further events (RFC 9110 section 15.5.11, as Standard Webhooks
    /// defines it).
    pub(super) fn is_gone(&self) -> bool {
        matches!(self, Self::Response { status: 410, .. })
    }
}

impl Sender {
    pub(super) fn new(config: &WebhooksConfig) -> Result<Self, SenderError> {
        let targets = Targets::new(&config.allowed_targets);
        let builder = guarded_client(config, &targets)?
            .timeout(TIMEOUT)
            .connect_timeout(CONNECT_TIMEOUT)
            .user_agent(concat!("svc-webhooks/", env!("CARGO_PKG_VERSION")));
        let client = builder.build()?;
        Ok(Self { client, targets })
    }

    /// Sends a body with these headers.
    pub(super) async fn send(
        &self,
        url: &str,
        headers: Vec<(&'static str, String)>,
        body: String,
    ) -> AttemptReport {
        let started = Instant::now();
        let outcome = match self.targets.parse(url) {
            // The address was permitted when it was stored, but the configuration has changed.
            Err(_) => AttemptOutcome::Refused,
            Ok(url) => {
                let request = self
                    .client
                    .post(url)
                    .header(CONTENT_TYPE, "application/json");
                let request = headers.into_iter().fold(request, |request, (name, value)| {
                    request.header(name, value)
                });
                send_request(request.body(body)).await
            }
        };
        AttemptReport {
            outcome,
            duration: started.elapsed(),
        }
    }
}

/// An HTTP client for addresses that users choose. It sends requests only to permitted targets. The
/// caller sets the limits of time.
///
/// # Errors
/// The file of authorities cannot be used.
pub(crate) fn guarded_client(
    config: &WebhooksConfig,
    targets: &Targets,
) -> Result<ClientBuilder, SenderError> {
    let builder = Client::builder()
        // A redirect would bypass the check of the address.
        .redirect(redirect::Policy::none())
        // A proxy would resolve names without the check.
        .no_proxy()
        // Each attempt resolves the name again, so that it is sent to the current address.
        .pool_max_idle_per_host(0)
        .https_only(true)
        .dns_resolver(targets.clone());
    let Some(path) = &config.ca_file else {
        return Ok(builder);
    };
    let authorities = authorities::read(path).map_err(SenderError)?;
    Ok(builder.tls_certs_merge(authorities))
}

async fn send_request(request: RequestBuilder) -> AttemptOutcome {
    match request.send().await {
        Ok(response) => AttemptOutcome::Response {
            status: response.status().as_u16(),
            body: read_prefix(response).await,
        },
        Err(error) if Targets::is_cause_of(&error) => AttemptOutcome::Refused,
        Err(error) if error.is_timeout() => AttemptOutcome::Timeout,
        Err(_) => AttemptOutcome::Unreachable,
    }
}

/// The first bytes of a response body. Read errors are ignored, because the outcome depends only on
/// the status code.
async fn read_prefix(mut response: Response) -> String {
    let mut bytes = Vec::new();
    while bytes.len() < MAX_BODY_BYTES
        && let Ok(Some(chunk)) = response.chunk().await
    {
        bytes.extend_from_slice(&chunk);
    }
    bytes.truncate(MAX_BODY_BYTES);
    // PostgreSQL cannot store NUL in a text column.
    String::from_utf8_lossy(&bytes).replace('\0', "\u{fffd}")
}

/// Time limit for a whole attempt. Receivers should accept an event first and process it
/// afterwards.
const TIMEOUT: Duration = Duration::from_secs(15);

/// Time limit for connecting, including the TLS handshake.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Maximum number of bytes of a response body that are stored: enough for an error message.
const MAX_BODY_BYTES: usize = 1_024;

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
        Sender::new(&config).unwrap()
    }

    /// The client itself refuses a name that resolves to an internal address, even if the name was
    /// accepted before. Nothing arrives at the listener.
    #[tokio::test]
    async fn a_connection_uses_only_checked_addresses() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let post = async |allowed: &[&str]| {
            let sender = sender(allowed, None);
            let request = sender.client.post(format!("https://localhost:{port}/"));
            tokio::select! {
                end = send_request(request) => Some(end),
                _ = listener.accept() => None,
            }
        };
        assert_eq!(post(&[]).await, Some(AttemptOutcome::Refused));
        assert_eq!(post(&["10.0.0.0/8"]).await, Some(AttemptOutcome::Refused));
        assert_eq!(post(&["127.0.0.0/8"]).await, None);
    }

    /// The kernel accepts the connection, but the handshake gets no response.
    #[tokio::test(start_paused = true)]
    async fn a_connection_has_a_time_limit() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let sender = sender(&["127.0.0.0/8"], None);
        let url = format!("https://127.0.0.1:{port}/");
        let report = sender.send(&url, Vec::new(), String::new()).await;
        assert_eq!(
            (report.outcome, report.duration.as_secs()),
            (AttemptOutcome::Timeout, 5)
        );
    }

    /// The endpoint accepts the request and does not respond.
    #[tokio::test(start_paused = true)]
    async fn an_attempt_has_a_time_limit() {
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
        // The blocking task stops the paused clock until the request has arrived.
        let (clock_hold, dropped) = std::sync::mpsc::channel::<()>();
        tokio::task::spawn_blocking(move || dropped.recv());
        let endpoint = async {
            let (stream, _) = listener.accept().await.unwrap();
            let mut stream = acceptor.accept(stream).await.unwrap();
            stream.read_u8().await.unwrap();
            drop(clock_hold);
            std::future::pending::<()>().await;
        };
        let sender = sender(&["127.0.0.0/8"], Some(&ca_file));
        let url = format!("https://127.0.0.1:{port}/");
        let report = tokio::select! {
            report = sender.send(&url, Vec::new(), String::new()) => report,
            () = endpoint => unreachable!("it never ends"),
        };
        assert_eq!(
            (report.outcome, report.duration.as_secs()),
            (AttemptOutcome::Timeout, 15)
        );
    }
}
