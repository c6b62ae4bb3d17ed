//! Posts to a receiver: one event after the other, each tried for a while.

use std::{
    fmt,
    net::{Ipv4Addr, Ipv6Addr, SocketAddr},
    time::{Duration, Instant},
};

use client::backoff::Backoff;
use http::header::CONTENT_TYPE;
use reqwest::{Client, Url, redirect};
use serde::Serialize;

use super::webhook::{Post, Signer};
use crate::{
    failure::{Code, Failure, chain},
    output,
};

/// Where events are posted to.
#[derive(Debug)]
pub(super) struct Receiver {
    http: Client,
    url: Url,
    /// The address without what it may know of passwords.
    shown: String,
}

/// An event that was taken.
#[derive(Debug, Serialize)]
pub(super) struct DeliveredEvent {
    event_id: String,
    #[serde(rename = "type")]
    event_type: String,
    /// What the receiver answered.
    status: u16,
    attempts: u32,
    /// Of the attempt that it took.
    duration_ms: u64,
    /// What was sent beside the body.
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

/// How an attempt failed.
enum DeliveryError {
    /// It may be taken later.
    ForNow(String),
    /// The same request will not be taken later either.
    ForGood(u16),
}

impl Receiver {
    pub(super) fn new(url: Url, is_insecure: bool) -> Result<Self, Failure> {
        let mut builder = Client::builder()
            .user_agent(concat!("svc/", env!("CARGO_PKG_VERSION")))
            .timeout(ATTEMPT)
            // A signed request is for the one who was named.
            .redirect(redirect::Policy::none())
            .tls_danger_accept_invalid_certs(is_insecure);
        let host = url.host_str().unwrap_or_default();
        if host == "localhost" || host.ends_with(".localhost") {
            // RFC 6761 section 6.3: not every resolver knows that these names are this machine.
            let loopback = [
                SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
                SocketAddr::from((Ipv6Addr::LOCALHOST, 0)),
            ];
            builder = builder.resolve_to_addrs(host, &loopback).no_proxy();
        }
        let http = builder
            .build()
            .map_err(|error| Failure::of("no connection can be made", error))?;
        let mut shown = url.clone();
        // Only of an address without a host would these fail.
        let _kept = shown.set_username("").and(shown.set_password(None));
        shown.set_query(None);
        Ok(Self {
            http,
            url,
            shown: shown.into(),
        })
    }

    /// Posts until the receiver has taken it, as long as there is hope. The next event waits: the
    /// order is kept.
    pub(super) async fn deliver(
        &self,
        post: &Post,
        signer: Option<&Signer>,
    ) -> Result<DeliveredEvent, Failure> {
        let mut backoff = Backoff::new(FIRST, LONGEST);
        let mut attempts = 1;
        loop {
            // Signed anew: receivers look at the time.
            let headers = signer.map(|signer| signer.sign(post));
            let begun = Instant::now();
            let missed = match self.attempt(post, headers.as_deref()).await {
                Ok(status) => {
                    return Ok(DeliveredEvent {
                        event_id: post.event_id.clone(),
                        event_type: post.event_type.clone(),
                        status,
                        attempts,
                        duration_ms: u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX),
                        headers,
                    });
                }
                Err(missed) => missed,
            };
            let what = format!("{} {}", post.event_type, post.event_id);
            match missed {
                DeliveryError::ForGood(status) => {
                    let message = format!("{} answered {status} to {what}", self.shown);
                    return Err(Failure::new(Code::Failed, message)
                        .named("receiver_refused")
                        .hint("the receiver says no, so it is not tried again: see its log"));
                }
                DeliveryError::ForNow(why) if attempts == ATTEMPTS => {
                    let message = format!(
                        "{} did not take {what} in {ATTEMPTS} attempts: {why}",
                        self.shown
                    );
                    return Err(Failure::new(Code::Failed, message)
                        .named("receiver_unreachable")
                        .hint("is the receiver running, and is --forward-to its address?"));
                }
                DeliveryError::ForNow(why) => {
                    if attempts == 1 {
                        output::message(&format!("{}: {why}; trying again", self.shown));
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
                    Err(DeliveryError::ForNow(format!("it answered {status}")))
                }
                status => Err(DeliveryError::ForGood(status)),
            },
            Err(error) => Err(DeliveryError::ForNow(chain(&error.without_url()))),
        }
    }
}

/// Reads an address to post to.
pub(super) fn target(text: &str) -> Result<Url, String> {
    let url: Url = text.parse().map_err(|error| format!("{error}"))?;
    match url.scheme() {
        "http" | "https" if url.has_host() => Ok(url),
        _ => Err("an http or https address is needed".to_owned()),
    }
}

/// A whole attempt. Receivers are asked to take an event in and work on it afterwards.
const ATTEMPT: Duration = Duration::from_secs(10);

/// With the waits between them about half a minute: a receiver that is built anew is back by then.
const ATTEMPTS: u32 = 10;
const FIRST: Duration = Duration::from_millis(250);
const LONGEST: Duration = Duration::from_secs(10);
