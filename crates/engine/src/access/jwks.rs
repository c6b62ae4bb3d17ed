//! Keys from an address: a JWKS document (RFC 7517) that is fetched periodically.

use std::sync::Arc;
use std::time::Duration;

use reqwest::{Client, Url, redirect};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::tokens::Tokens;

/// The address of a JWKS.
#[derive(Debug, Clone)]
pub struct JwksSource {
    url: Url,
    client: Client,
}

/// Reasons why a JWKS was not read. The keys of the last successful read stay in use.
#[derive(Debug, thiserror::Error)]
pub enum JwksError {
    /// `auth.jwt.jwks_url` is not an address that keys may be fetched from.
    #[error("expected an https address (http only on loopback)")]
    Address,
    /// The message does not contain the address, which may contain a secret.
    #[error("the key set could not be fetched")]
    Fetch(#[source] reqwest::Error),
    #[error("the address of the key set responded with {0}")]
    Status(u16),
    #[error("the key set is larger than {MAX_DOCUMENT_BYTES} bytes")]
    TooLarge,
    #[error("the key set is not UTF-8")]
    NotText,
    #[error("the key set contains no usable keys")]
    Keys(#[from] credentials::BadKey),
}

impl JwksSource {
    /// Checks the address (`auth.jwt.jwks_url`). Keys from a plain HTTP connection could be an
    /// attacker's.
    pub fn new(url: &str) -> Result<Self, JwksError> {
        let url = Url::parse(url).map_err(|_| JwksError::Address)?;
        let loopback = url.host_str().is_some_and(is_loopback);
        if !(url.scheme() == "https" || (url.scheme() == "http" && loopback)) {
            return Err(JwksError::Address);
        }
        let mut builder = Client::builder()
            .timeout(FETCH_TIMEOUT)
            .redirect(redirect::Policy::none());
        if loopback {
            // A proxy of the environment would resolve loopback to its own machine.
            builder = builder.no_proxy();
        }
        let client = builder.build().map_err(JwksError::Fetch)?;
        Ok(Self { url, client })
    }

    /// Fetches the document once and starts to use its keys.
    pub async fn refresh(&self, tokens: &Tokens) -> Result<(), JwksError> {
        let document = self.fetch().await?;
        Ok(tokens.replace_jwks(document)?)
    }

    /// Keeps the keys fresh until `stop`. It fetches them immediately, then every ten minutes, and
    /// soon after a token with an unknown key arrives, but at most twice a minute.
    pub async fn keep_fresh(self, tokens: Arc<Tokens>, stop: CancellationToken) {
        loop {
            let refreshed = tokio::select! {
                () = stop.cancelled() => return,
                refreshed = self.refresh(&tokens) => refreshed,
            };
            crate::metrics::jwks_refreshed(refreshed.is_ok());
            let fetched = Instant::now();
            let next = match refreshed {
                Ok(()) => REFRESH_INTERVAL,
                Err(error) => {
                    let error = &error as &dyn std::error::Error;
                    tracing::warn!(
                        error,
                        "the key set was not refreshed, the known keys stay valid"
                    );
                    RETRY_INTERVAL
                }
            };
            tokio::select! {
                () = stop.cancelled() => return,
                () = sleep_until(fetched + next) => {}
                () = tokens.unknown_key() => {
                    tokio::select! {
                        () = stop.cancelled() => return,
                        () = sleep_until(fetched + SHORTEST_INTERVAL) => {}
                    }
                }
            }
        }
    }

    async fn fetch(&self) -> Result<String, JwksError> {
        let fetching = self.client.get(self.url.clone()).send();
        let mut response = fetching.await.map_err(quiet)?;
        if !response.status().is_success() {
            return Err(JwksError::Status(response.status().as_u16()));
        }
        let mut document = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(quiet)? {
            if document.len() + chunk.len() > MAX_DOCUMENT_BYTES {
                return Err(JwksError::TooLarge);
            }
            document.extend_from_slice(&chunk);
        }
        String::from_utf8(document).map_err(|_| JwksError::NotText)
    }
}

fn quiet(error: reqwest::Error) -> JwksError {
    JwksError::Fetch(error.without_url())
}

fn is_loopback(host: &str) -> bool {
    let address = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost"
        || address
            .parse::<std::net::IpAddr>()
            .is_ok_and(|address| address.is_loopback())
}

/// Limit of the whole fetch; a slower key server counts as down.
const FETCH_TIMEOUT: Duration = Duration::from_secs(10);
/// Time for which a withdrawn key may still be accepted.
const REFRESH_INTERVAL: Duration = Duration::from_mins(10);
/// Wait after a failure: a short outage at start must not lock out all users for long.
const RETRY_INTERVAL: Duration = Duration::from_mins(1);
/// Shortest interval between two fetches: senders of made-up tokens can cause fetches.
const SHORTEST_INTERVAL: Duration = Duration::from_secs(30);
/// Enough for hundreds of keys; a set of two is under 1 KiB.
const MAX_DOCUMENT_BYTES: usize = 256 * 1024;
