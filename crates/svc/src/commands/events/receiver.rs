//! Posts events to a receiver, one after the other, and retries each for a while.

use std::{
    fmt,
    net::{Ipv4Addr, Ipv6Addr, SocketAddr},
    time::{Duration, Instant},
};

use client::{Proxies, backoff::Backoff};
use http::header::CONTENT_TYPE;
use reqwest::{Client, Url, redirect};
use serde::Serialize;

use super::webhook::{Post, Signer};
use crate::{
    failure::{Code, Failure, chain},
    output, proxy,
};

/// The receiver that events are posted to.
#[derive(Debug)]
pub(super) struct Receiver {
    http: Client,
    url: Url,
    /// The URL without user name and password.
    display_url: String,
}

/// An event that the receiver accepted.
#[derive(Debug, Serialize)]
pub(super) struct DeliveredEvent {
    event_id: String,
    #[serde(rename = "type")]
    event_type: String,
    /// Status of the receiver's response.
    status: u16,
    attempts: u32,
    /// Duration of the successful attempt.
    duration_ms: u64,
    /// Headers of the request, if they are printed.
    #[serde(skip)]
    pub(super) headers: Option<Vec<(&'static str, String)>>,
}

impl fmt::Display for DeliveredEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} {} {} in {} ms",
            self.event_type, self.event_id, self.status, self.duration_ms
        )?;
        match self.attempts {
            1 => Ok(()),
            attempts => write!(f, ", attempt {attempts}"),
        }
    }
}

/// Failure of an attempt.
enum DeliveryError {
    /// A later attempt may succeed.
    Temporary(String),
    /// The same request will always be rejected.
    Permanent(u16),
}

impl Receiver {
    pub(super) fn new(url: Url, is_insecure: bool, proxies: &Proxies) -> Result<Self, Failure> {
        let builder = Client::builder()
            .user_agent(concat!("svc/", env!("CARGO_PKG_VERSION")))
            .timeout(ATTEMPT_TIMEOUT)
            // A signed request is only for the receiver that the user named.
            .redirect(redirect::Policy::none())
            .tls_danger_accept_invalid_certs(is_insecure);
        let mut builder = proxy::apply(builder, proxies, &url)?;
        let host = url.host_str().unwrap_or_default();
        if host == "localhost" || host.ends_with(".localhost") {
            // RFC 6761 section 6.3: some resolvers do not map these names to this machine.
            let loopback = [
                SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
                SocketAddr::from((Ipv6Addr::LOCALHOST, 0)),
            ];
            builder = builder.resolve_to_addrs(host, &loopback);
        }
        let http = builder
            .build()
            .map_err(|error| Failure::from_error("cannot set up a connection", error))?;
        let mut display_url = url.clone();
        // These calls fail only for a URL without a host.
        let _kept = display_url
            .set_username("")
            .and(display_url.set_password(None));
        display_url.set_query(None);
        Ok(Self {
            http,
            url,
            display_url: display_url.into(),
        })
    }

    /// Posts until the receiver accepts the event, or further attempts are pointless. Later events
    /// wait, so that the order is kept.
    pub(super) async fn deliver(
        &self,
        post: &Post,
        signer: Option<&Signer>,
    ) -> Result<DeliveredEvent, Failure> {
        let mut backoff = Backoff::new(FIRST, LONGEST);
        let mut attempts = 1;
        loop {
            // Each attempt is signed again, because receivers check the time.
            let headers = signer.map(|signer| signer.sign(post));
            let started = Instant::now();
            let missed = match self.attempt(post, headers.as_deref()).await {
                Ok(status) => {
                    return Ok(DeliveredEvent {
                        event_id: post.event_id.clone(),
                        event_type: post.event_type.clone(),
                        status,
                        attempts,
                        duration_ms: u64::try_from(started.elapsed().as_millis())
                            .unwrap_or(u64::MAX),
                        headers,
                    });
                }
                Err(missed) => missed,
            };
            let what = format!("{} {}", post.event_type, post.event_id);
            match missed {
                DeliveryError::Permanent(status) => {
                    let message = format!("{} answered {status} to {what}", self.display_url);
                    return Err(Failure::new(Code::Failed, message)
                        .named("receiver_refused")
                        .hint(
                            "the receiver rejected the event, so it is not sent again: see the \
                               receiver's log",
                        ));
                }
                DeliveryError::Temporary(why) if attempts == MAX_ATTEMPTS => {
                    let message = format!(
                        "{} did not accept {what} in {MAX_ATTEMPTS} attempts: {why}",
                        self.display_url
                    );
                    return Err(Failure::new(Code::Failed, message)
                        .named("receiver_unreachable")
                        .hint("is the receiver running, and is --forward-to its address?"));
                }
                DeliveryError::Temporary(why) => {
                    if attempts == 1 {
                        output::message(&format!("{}: {why}; trying again", self.display_url));
                    }
                    attempts += 1;
                    tokio::time::sleep(backoff.next_wait(client::backoff::random())).await;
                }
            }
        }
    }

    async fn attempt(
        &self,
        post: &Post,
        headers: Option<&[(&'static str, String)]>,
    ) -> Result<u16, DeliveryError> {
        let request = self
            .http
            .post(self.url.clone())
            .header(CONTENT_TYPE, "application/json");
        let request = headers
            .unwrap_or_default()
            .iter()
            .fold(request, |request, (name, value)| {
                request.header(*name, value)
            });
        match request.body(post.body.clone()).send().await {
            Ok(answer) => match answer.status().as_u16() {
                status @ 200..=299 => Ok(status),
                status @ (408 | 425 | 429 | 500..) => {
                    Err(DeliveryError::Temporary(format!("it answered {status}")))
                }
                status => Err(DeliveryError::Permanent(status)),
            },
            Err(error) => Err(DeliveryError::Temporary(chain(&error.without_url()))),
        }
    }
}

/// Parses the URL of a receiver.
pub(super) fn target(text: &str) -> Result<Url, String> {
    let url: Url = text.parse().map_err(|error| format!("{error}"))?;
    match url.scheme() {
        "http" | "https" if url.has_host() => Ok(url),
        _ => Err("an http or https address is needed".to_owned()),
    }
}

/// Time limit of one attempt. Receivers should accept an event first and process it afterwards.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(10);

/// With the pauses in between this takes about half a minute, enough for a receiver that is being
/// rebuilt.
const MAX_ATTEMPTS: u32 = 10;
const FIRST: Duration = Duration::from_millis(250);
const LONGEST: Duration = Duration::from_secs(10);
