//! Reader of a service's response head.

use std::task::{Context, Poll, ready};
use std::time::Duration;

use http::Response;
use http1::{Limits, Progress, ResponseBody, ResponseHead, Slots, may_complete, parse_response};

use crate::edge::headers::translate;
use crate::edge::http1::exchange::{InterimCount, UNEXPECTED_UPGRADE};
use crate::edge::http1::upgrade::Upgrade;
use crate::edge::http2::requests::upload::Upload;
use crate::edge::http2::stream::InterimSender;
use crate::edge::upstream::Http1;

/// Waits for the head of the final response, and forwards the interim responses before it.
pub(super) struct ResponseReader<'v> {
    scanned: usize,
    visitor: &'v InterimSender,
    interim: InterimCount,
    is_head: bool,
    /// The upgrade that the request contained.
    upgrade: Option<Upgrade>,
}

/// A response head, ready for the visitor.
pub(super) struct UpstreamResponse {
    pub(super) response: Response<()>,
    pub(super) body: ResponseBody,
    /// True if the connection can be used again.
    pub(super) reusable: bool,
    /// The service closes the connection if it has been idle for this time.
    pub(super) announced: Option<Duration>,
    /// True if the service accepted the upgrade.
    pub(super) upgraded: bool,
}

pub(super) enum ResponseError {
    /// The connection closed before any response.
    NoResponse(String),
    /// The connection closed within the head of the response.
    Broken(String),
    Invalid(&'static str),
    VisitorGone,
}

impl<'v> ResponseReader<'v> {
    /// `is_head` is true for a `HEAD` request.
    pub(super) fn new(is_head: bool, upgrade: Option<Upgrade>, visitor: &'v InterimSender) -> Self {
        Self {
            upgrade,
            scanned: 0,
            visitor,
            interim: InterimCount::default(),
            is_head,
        }
    }

    /// Sends the request and waits for the response head.
    pub(super) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        upload: &mut Upload,
        upstream: &mut Http1,
    ) -> Poll<Result<UpstreamResponse, ResponseError>> {
        if upload.poll(cx, &mut upstream.io).is_err() {
            return Poll::Ready(Err(ResponseError::VisitorGone));
        }
        let head = self.poll_head(cx, upstream);
        if !self.interim.is_zero() {
            upload.end_replay();
        }
        upload.poll_replay_expiry(cx);
        head
    }

    pub(super) fn poll_head(
        &mut self,
        cx: &mut Context<'_>,
        upstream: &mut Http1,
    ) -> Poll<Result<UpstreamResponse, ResponseError>> {
        loop {
            let limits = Limits::default();
            while upstream.unread().len() > self.scanned
                && may_complete(upstream.unread(), self.scanned, &limits)
            {
                match self
                    .take_head(cx, upstream, &limits)
                    .map_err(ResponseError::Invalid)?
                {
                    HeadProgress::Final(answer) => return Poll::Ready(Ok(answer)),
                    HeadProgress::Interim => self.scanned = 0,
                    HeadProgress::Partial => break,
                }
            }
            self.scanned = upstream.unread().len();
            let ended = match ready!(upstream.poll_more(cx)) {
                Ok(true) => continue,
                Ok(false) => "the service closed".to_owned(),
                Err(error) => error.to_string(),
            };
            let silent = upstream.unread().is_empty() && self.interim.is_zero();
            return Poll::Ready(Err(if silent {
                ResponseError::NoResponse(ended)
            } else {
                ResponseError::Broken(ended)
            }));
        }
    }

    fn take_head(
        &mut self,
        cx: &mut Context<'_>,
        upstream: &mut Http1,
        limits: &Limits,
    ) -> Result<HeadProgress, &'static str> {
        let mut slots = Slots::new();
        let parsed = parse_response(upstream.unread(), limits, self.is_head, &mut slots);
        let Progress::Complete { head, head_len } = parsed.map_err(|bad| bad.reason)? else {
            return Ok(HeadProgress::Partial);
        };
        let taken = match head.status {
            100 | 102..=199 => {
                self.interim.add(head_len)?;
                let response = translate::response(&head).ok_or(UNSUPPORTED_FIELD)?;
                self.visitor.send(cx, response);
                HeadProgress::Interim
            }
            _ => HeadProgress::Final(upstream_response(&head, self.upgrade.as_ref())?),
        };
        upstream.consume(head_len);
        Ok(taken)
    }
}

const UNSUPPORTED_FIELD: &str = "a field that HTTP/2 cannot carry";

enum HeadProgress {
    Partial,
    Interim,
    Final(UpstreamResponse),
}

fn upstream_response(
    head: &ResponseHead<'_>,
    upgrade: Option<&Upgrade>,
) -> Result<UpstreamResponse, &'static str> {
    let upgraded = head.status == 101;
    if upgraded {
        upgrade.ok_or(UNEXPECTED_UPGRADE)?.check(head)?;
    }
    let response = translate::response(head).ok_or(UNSUPPORTED_FIELD)?;
    let reusable = head.keep_alive && head.body != ResponseBody::UntilClose && !upgraded;
    Ok(UpstreamResponse {
        response,
        body: head.body,
        reusable,
        announced: head.keep_alive_timeout(),
        upgraded,
    })
}
