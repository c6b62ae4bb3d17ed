//! Waiting for the head of a service's answer.

use std::task::{Context, Poll, ready};

use http::Response;
use http1::{Limits, Progress, ResponseBody, ResponseHead, Slots, may_complete, parse_response};

use super::super::exchange::{INTERIM, UNASKED};
use super::super::translate;
use super::super::upgrade::Upgrade;
use super::super::upstream::Http1;
use super::upload::Upload;

/// Waiting for the head of a final response.
pub(super) struct Awaited {
    seen: usize,
    interim: usize,
    is_head: bool,
    /// What the request asked to change to.
    upgrade: Option<Upgrade>,
}

/// A response head, ready for the visitor.
pub(super) struct Answer1 {
    pub(super) response: Response<()>,
    pub(super) body: ResponseBody,
    /// The connection can be used again.
    pub(super) reusable: bool,
    /// The service changed protocols.
    pub(super) changed: bool,
}

pub(super) enum NoAnswer {
    /// The connection ended before it brought a byte.
    Silent(String),
    Bad(&'static str),
    VisitorGone,
}

impl Awaited {
    /// `is_head`: the request is a `HEAD`.
    pub(super) fn new(is_head: bool, upgrade: Option<Upgrade>) -> Self {
        Self {
            upgrade,
            seen: 0,
            interim: 0,
            is_head,
        }
    }

    /// Sends the request and looks for the head.
    pub(super) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        upload: &mut Upload,
        upstream: &mut Http1,
    ) -> Poll<Result<Answer1, NoAnswer>> {
        if upload.poll(cx, &mut upstream.io).is_err() {
            return Poll::Ready(Err(NoAnswer::VisitorGone));
        }
        self.poll_head(cx, upstream)
    }

    pub(super) fn poll_head(
        &mut self,
        cx: &mut Context<'_>,
        upstream: &mut Http1,
    ) -> Poll<Result<Answer1, NoAnswer>> {
        loop {
            let limits = Limits::default();
            while upstream.unread().len() > self.seen
                && may_complete(upstream.unread(), self.seen, &limits)
            {
                match self.take_head(upstream, &limits).map_err(NoAnswer::Bad)? {
                    Taken::Final(answer) => return Poll::Ready(Ok(answer)),
                    Taken::Interim => self.seen = 0,
                    Taken::Partial => break,
                }
            }
            self.seen = upstream.unread().len();
            let ended = match ready!(upstream.poll_more(cx)) {
                Ok(true) => continue,
                Ok(false) => "the service closed".to_owned(),
                Err(error) => error.to_string(),
            };
            let silent = upstream.unread().is_empty() && self.interim == 0;
            return Poll::Ready(Err(if silent {
                NoAnswer::Silent(ended)
            } else {
                NoAnswer::Bad("the service broke off in the head of its answer")
            }));
        }
    }

    fn take_head(&mut self, upstream: &mut Http1, limits: &Limits) -> Result<Taken, &'static str> {
        let mut slots = Slots::new();
        let parsed = parse_response(upstream.unread(), limits, self.is_head, &mut slots);
        let Progress::Complete { head, head_len } = parsed.map_err(|bad| bad.reason)? else {
            return Ok(Taken::Partial);
        };
        let taken = match head.status {
            // They end here: the library cannot send them (hyper 1.12, though `h2` below it could). A
            // visitor that waits for a 100 sends its body after a while (RFC 9110, 10.1.1).
            100 | 102..=199 => {
                self.interim += 1;
                if self.interim > INTERIM {
                    return Err("too many interim responses");
                }
                Taken::Interim
            }
            _ => Taken::Final(answer_of(&head, self.upgrade.as_ref())?),
        };
        upstream.consume(head_len);
        Ok(taken)
    }
}

enum Taken {
    Partial,
    Interim,
    Final(Answer1),
}

fn answer_of(head: &ResponseHead<'_>, asked: Option<&Upgrade>) -> Result<Answer1, &'static str> {
    let changed = head.status == 101;
    if changed {
        asked.ok_or(UNASKED)?.check(head)?;
    }
    let response = translate::response(head).ok_or("a field that HTTP/2 cannot carry")?;
    let reusable = head.keep_alive && head.body != ResponseBody::UntilClose && !changed;
    Ok(Answer1 {
        response,
        body: head.body,
        reusable,
        changed,
    })
}
