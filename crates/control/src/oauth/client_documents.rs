//! Metadata documents of clients, fetched and cached. The address comes from a request, so the
//! platform sends requests to it from inside the network. The guards are those of webhooks.

use std::collections::HashMap;
use std::time::Duration;

use http::header::{ACCEPT, CONTENT_TYPE};
use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use reqwest::Response;
use tokio::sync::Semaphore;
use types::id::UserId;

use super::client_document::{self, BadDocument};
use super::clients::Client;
use super::document_url::DocumentUrl;
use crate::people::throttle::{Limits, Throttle, TooManyAttemptsError};
use crate::webhooks::{SenderError, Targets, WebhooksConfig, guarded_client};

/// Fetches documents, and caches the clients that they describe.
#[derive(Debug)]
pub(super) struct ClientDocuments {
    http: reqwest::Client,
    targets: Targets,
    cache: Mutex<HashMap<String, (Client, Timestamp)>>,
    /// Fetches, by the user that caused them.
    fetches: Throttle<UserId>,
    /// Limits the number of concurrent fetches.
    permits: Semaphore,
}

/// Reasons that there is no client at an address.
#[derive(Debug, thiserror::Error)]
pub(super) enum DocumentError {
    /// The user has caused many fetches.
    #[error("too many descriptions of clients were requested")]
    TooSoon(TooManyAttemptsError),
    /// Too many fetches are running.
    #[error("too many descriptions of clients are being requested")]
    Busy,
    /// The platform does not send requests to the address.
    #[error("its description is not at a public address")]
    Refused,
    /// The server did not answer, or not in time.
    #[error("the server with its description does not answer")]
    Unavailable,
    /// The answer is not 200. Redirects are not followed.
    #[error("the server with its description answers with status {0}")]
    Status(u16),
    /// The answer is not JSON by its type.
    #[error("its description is not JSON")]
    NotJson,
    /// The answer is too large.
    #[error("its description has more than {MAX_DOCUMENT_BYTES} bytes")]
    TooLarge,
    /// The document describes no client of this platform.
    #[error("its description is not accepted: {0}")]
    Bad(#[from] BadDocument),
}

impl ClientDocuments {
    /// # Errors
    /// The file of authorities cannot be used.
    pub(super) fn open(config: &WebhooksConfig) -> Result<Self, SenderError> {
        let targets = Targets::new(&config.allowed_targets);
        let builder = guarded_client(config, &targets)?
            .timeout(TIMEOUT)
            .connect_timeout(CONNECT_TIMEOUT)
            .user_agent(concat!("svc-oauth/", env!("CARGO_PKG_VERSION")));
        Ok(Self {
            http: builder.build()?,
            targets,
            cache: Mutex::default(),
            fetches: Throttle::new(FETCHES),
            permits: Semaphore::new(MAX_CONCURRENT),
        })
    }

    /// The client that the document at this address describes. Failures are not cached, so that a
    /// corrected document works immediately.
    pub(super) async fn client(
        &self,
        url: &DocumentUrl,
        user: UserId,
        now: Timestamp,
    ) -> Result<Client, DocumentError> {
        let known = self.cache.lock().get(url.as_str()).cloned();
        if let Some((client, at)) = known
            && is_fresh(at, now)
        {
            return Ok(client);
        }
        let recorded = self.fetches.record_attempt(&user, now);
        recorded.map_err(DocumentError::TooSoon)?;
        let permit = self.permits.try_acquire();
        let _permit = permit.map_err(|_| DocumentError::Busy)?;
        let client = self.fetch(url).await?;
        self.keep(url, client.clone(), now);
        Ok(client)
    }

    async fn fetch(&self, url: &DocumentUrl) -> Result<Client, DocumentError> {
        // Names are checked when they are resolved, for the connection itself.
        if !self.targets.permits_host(url.url()) {
            return Err(DocumentError::Refused);
        }
        let request = self.http.get(url.url().clone());
        let request = request.header(ACCEPT, "application/json");
        let mut response = request.send().await.map_err(|error| {
            if Targets::is_cause_of(&error) {
                DocumentError::Refused
            } else {
                DocumentError::Unavailable
            }
        })?;
        match response.status().as_u16() {
            200 => {}
            status => return Err(DocumentError::Status(status)),
        }
        if !is_json(&response) {
            return Err(DocumentError::NotJson);
        }
        let mut text = Vec::new();
        let unavailable = |_| DocumentError::Unavailable;
        while let Some(chunk) = response.chunk().await.map_err(unavailable)? {
            if text.len() + chunk.len() > MAX_DOCUMENT_BYTES {
                return Err(DocumentError::TooLarge);
            }
            text.extend_from_slice(&chunk);
        }
        Ok(client_document::read(&text, url)?)
    }

    /// Stores a client. If the cache is full, the oldest entry makes room.
    fn keep(&self, url: &DocumentUrl, client: Client, now: Timestamp) {
        let mut cache = self.cache.lock();
        cache.retain(|_, (_, at)| is_fresh(*at, now));
        if cache.len() >= MAX_CACHED {
            let oldest = cache.iter().min_by_key(|(_, (_, at))| *at);
            if let Some(id) = oldest.map(|(id, _)| id.clone()) {
                cache.remove(&id);
            }
        }
        cache.insert(url.as_str().to_owned(), (client, now));
    }
}

/// `application/json`, or another type with the syntax of JSON (RFC 6839 section 3.1).
fn is_json(response: &Response) -> bool {
    let declared = response.headers().get(CONTENT_TYPE);
    let declared = declared.and_then(|kind| kind.to_str().ok()).unwrap_or("");
    let kind = declared.split(';').next().unwrap_or_default().trim();
    let kind = kind.to_ascii_lowercase();
    kind == "application/json" || (kind.starts_with("application/") && kind.ends_with("+json"))
}

/// An entry of the future is one from before the clock was set back.
fn is_fresh(at: Timestamp, now: Timestamp) -> bool {
    at <= now && now.duration_since(at) < LIFETIME
}

/// A change of a document, such as a removed callback, takes effect within this time. It is long
/// enough for a user to sign in and decide without a second fetch.
const LIFETIME: SignedDuration = SignedDuration::from_mins(10);

/// Far more clients than the users of a platform have. An entry has at most some dozen kilobytes.
const MAX_CACHED: usize = 256;

/// Real documents have one or two kilobytes.
const MAX_DOCUMENT_BYTES: usize = 16 * 1024;

/// Time limit for a whole fetch, for which the user waits.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Time limit for connecting, including the TLS handshake.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);

/// Maximum number of concurrent fetches. Each lasts a few seconds at most.
const MAX_CONCURRENT: usize = 16;

/// Fetches that one user causes. A user connects a few clients, and a script must not use the
/// platform to send requests to others.
const FETCHES: Limits = Limits {
    free: 20,
    first_wait: 1,
    longest_wait: 300,
    reset_after: 3600,
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cache_has_a_limit_in_time_and_number() {
        let documents = ClientDocuments::open(&WebhooksConfig::default()).unwrap();
        let start = Timestamp::UNIX_EPOCH;
        let keep = |number: i64| {
            let url = DocumentUrl::parse(&format!("https://a.example/{number}")).unwrap();
            let now = start + SignedDuration::from_secs(number);
            documents.keep(&url, Client::of_document(&url), now);
        };
        let is_cached = |number: i64| {
            let cache = documents.cache.lock();
            cache.contains_key(&format!("https://a.example/{number}"))
        };
        for number in 0..256 {
            keep(number);
        }
        assert!(is_cached(0) && is_cached(255));
        keep(256);
        assert!(!is_cached(0) && is_cached(1) && is_cached(256));
        assert_eq!(documents.cache.lock().len(), 256);
        keep(255 + 600);
        assert!(!is_cached(255) && is_cached(256));
        assert!(!is_fresh(start + SignedDuration::from_secs(1), start));
    }

    /// All permits are in use, so that the next fetch does not start.
    #[tokio::test]
    async fn the_number_of_concurrent_fetches_is_limited() {
        let documents = ClientDocuments::open(&WebhooksConfig::default()).unwrap();
        let url = DocumentUrl::parse("https://127.0.0.1/client").unwrap();
        let user = UserId::new(0, [0; 10]);
        let fetch = || documents.client(&url, user, Timestamp::UNIX_EPOCH);
        let running = documents.permits.try_acquire_many(16).unwrap();
        assert!(matches!(fetch().await, Err(DocumentError::Busy)));
        drop(running);
        assert!(matches!(fetch().await, Err(DocumentError::Refused)));
    }
}
