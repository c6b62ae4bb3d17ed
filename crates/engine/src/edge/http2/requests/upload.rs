//! Requests of HTTP/2 visitors to services with HTTP/1.1.

use std::num::NonZeroUsize;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body, Frame};
use http1::BodyLength;
use tokio::io::AsyncWrite as _;

use crate::edge::headers::identity::ReservedNames;
use crate::edge::headers::trailers;
use crate::edge::http2::body::{ByteCounter, CountingBody, RequestBody};
use crate::edge::http2::held_body::HeldBody;
use crate::edge::http2::visitor_body::VisitorBody;
use crate::edge::replay::ReplayBuffer;
use crate::edge::upstream::UpstreamIo;

/// A request, written as HTTP/1.1: its head, then its body as the visitor sends it.
pub(super) struct Upload {
    pub(super) body: Option<VisitorBody>,
    chunked: bool,
    out: Vec<u8>,
    sent: usize,
    state: UploadState,
    /// The encoded bytes before `out`, if the request can be sent again.
    replay: Option<ReplayBuffer>,
    /// A part of the body has been taken.
    has_started: bool,
    /// The whole request is encoded.
    is_read: bool,
    pub(super) written: u64,
    /// Names that the visitor may not send as trailers.
    reserved: ReservedNames,
}

/// A request body for services with HTTP/2, which may be sent on two connections.
pub(super) struct Http2Upload {
    pub(super) body: HeldBody,
    pub(super) counter: ByteCounter,
    /// The visitor waits for a 100.
    pub(super) expects_continue: bool,
    pub(super) has_body: bool,
}

impl Http2Upload {
    fn new(body: Option<VisitorBody>, reserved: ReservedNames, is_kept: bool) -> Self {
        let expects_continue = body.as_ref().is_some_and(VisitorBody::expects_continue);
        let has_body = body.is_some();
        let body = body.map_or(RequestBody::Empty, |body| {
            RequestBody::Http2(body, reserved)
        });
        let (body, counter) = CountingBody::new(body);
        Self {
            body: HeldBody::new(body, is_kept),
            counter,
            expects_continue,
            has_body,
        }
    }

    /// The same for another connection. `None` if it cannot be sent again.
    pub(super) fn again(self) -> Option<Self> {
        let body = self.body.again()?;
        Some(Self { body, ..self })
    }
}

#[derive(PartialEq)]
enum UploadState {
    Body,
    /// The whole request is in `out`.
    Ended,
    Sent,
    /// The service accepts no more bytes.
    Refused,
    /// The visitor has aborted its request.
    Aborted,
}

impl Upload {
    /// `body` is `None` if the request has no body.
    pub(super) fn new(
        head: Vec<u8>,
        body: Option<(VisitorBody, BodyLength)>,
        reserved: ReservedNames,
    ) -> Self {
        let empty = body.is_none();
        let (body, length) = body.unzip();
        Self {
            out: head,
            body,
            chunked: length == Some(BodyLength::Chunked),
            sent: 0,
            state: if empty {
                UploadState::Ended
            } else {
                UploadState::Body
            },
            replay: Some(ReplayBuffer::disabled()),
            has_started: false,
            is_read: empty,
            written: 0,
            reserved,
        }
    }

    /// Takes the body, for a service with HTTP/2. `is_kept`: what is sent is kept, so that it can be
    /// sent again.
    pub(super) fn take_http2(&mut self, is_kept: bool) -> Http2Upload {
        Http2Upload::new(self.body.take(), self.reserved.clone(), is_kept)
    }

    /// A request that has already been sent.
    pub(super) fn already_sent() -> Self {
        Self {
            body: None,
            chunked: false,
            out: Vec::new(),
            sent: 0,
            state: UploadState::Sent,
            replay: None,
            has_started: false,
            is_read: true,
            written: 0,
            reserved: ReservedNames::default(),
        }
    }

    /// Keeps what is sent, within limits, if the connection was used before.
    pub(super) fn keep_for_replay(&mut self, is_reused: bool) {
        if is_reused && !self.has_started {
            self.replay = Some(ReplayBuffer::new());
        }
    }

    /// Frees what was kept. The request cannot be sent again.
    pub(super) fn end_replay(&mut self) {
        self.replay = None;
    }

    /// Frees what was kept after the time for it.
    pub(super) fn poll_replay_expiry(&mut self, cx: &mut Context<'_>) {
        let replay = self.replay.as_mut();
        if replay.is_some_and(|replay| replay.poll_expired(cx).is_ready()) {
            self.end_replay();
        }
    }

    /// True if a part of the body has been taken.
    pub(super) fn has_started(&self) -> bool {
        self.has_started
    }

    /// True if the request can be sent again.
    pub(super) fn is_replayable(&self) -> bool {
        self.replay.is_some()
    }

    /// Restarts the request. Returns false if it cannot be sent again.
    pub(super) fn rewind(&mut self) -> bool {
        let Some(replay) = &mut self.replay else {
            return false;
        };
        let mut out = replay.take();
        out.append(&mut self.out);
        self.out = out;
        self.sent = 0;
        self.written = 0;
        self.state = if self.is_read {
            UploadState::Ended
        } else {
            UploadState::Body
        };
        true
    }

    /// True if the edge waits for the visitor.
    pub(super) fn waits_for_visitor(&self) -> bool {
        self.state == UploadState::Body && self.sent == self.out.len()
    }

    pub(super) fn is_sent(&self) -> bool {
        self.state == UploadState::Sent
    }

    /// True if the visitor has aborted its request.
    pub(super) fn is_aborted(&self) -> bool {
        self.state == UploadState::Aborted
    }

    /// Sends available bytes. An error means that the visitor disconnected.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>, io: &mut UpstreamIo) -> Result<(), ()> {
        if self.state == UploadState::Aborted {
            return Err(());
        }
        while !matches!(self.state, UploadState::Sent | UploadState::Refused) {
            if self.poll_out(cx, io).is_pending() {
                return Ok(());
            }
            if self.state != UploadState::Body {
                continue;
            }
            let Some(body) = &mut self.body else {
                self.state = UploadState::Ended;
                continue;
            };
            match Pin::new(body).poll_frame(cx) {
                Poll::Ready(Some(Ok(frame))) => {
                    self.discard_sent();
                    self.encode(frame);
                }
                Poll::Ready(Some(Err(_))) => {
                    self.state = UploadState::Aborted;
                    return Err(());
                }
                Poll::Ready(None) => {
                    self.discard_sent();
                    self.end(&HeaderMap::new());
                }
                Poll::Pending => {
                    if let Poll::Ready(Err(_)) = Pin::new(&mut *io).poll_flush(cx) {
                        self.state = UploadState::Refused;
                    }
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// Writes the bytes in memory. Ready when they are written, or when the service accepts no
    /// more.
    pub(super) fn poll_out(&mut self, cx: &mut Context<'_>, io: &mut UpstreamIo) -> Poll<()> {
        while self.sent < self.out.len() {
            let rest = self.out.get(self.sent..).unwrap_or_default();
            match ready!(Pin::new(&mut *io).poll_write(cx, rest)) {
                Ok(count) if count > 0 => {
                    self.sent += count;
                    self.written += count as u64;
                }
                Ok(_) | Err(_) => {
                    self.state = UploadState::Refused;
                    return Poll::Ready(());
                }
            }
        }
        if self.state == UploadState::Ended {
            let flushed = ready!(Pin::new(&mut *io).poll_flush(cx));
            self.state = if flushed.is_ok() {
                UploadState::Sent
            } else {
                UploadState::Refused
            };
        }
        Poll::Ready(())
    }

    /// Makes room for the next part of the body.
    fn discard_sent(&mut self) {
        self.has_started = true;
        let sent = &self.out;
        if self
            .replay
            .as_mut()
            .is_some_and(|replay| !replay.record(sent))
        {
            self.replay = None;
        }
        self.out.clear();
        self.sent = 0;
    }

    fn encode(&mut self, frame: Frame<Bytes>) {
        match frame.into_data() {
            Ok(data) if self.chunked => {
                if let Some(len) = NonZeroUsize::new(data.len()) {
                    http1::write_chunk_head(&mut self.out, len);
                    self.out.extend_from_slice(&data);
                    self.out.extend_from_slice(http1::CHUNK_END);
                }
            }
            Ok(data) => self.out.extend_from_slice(&data),
            Err(frame) => self.end(&frame.into_trailers().unwrap_or_default()),
        }
    }

    fn end(&mut self, trailers: &HeaderMap) {
        self.is_read = true;
        self.state = UploadState::Ended;
        if !self.chunked {
            return;
        }
        trailers::write_last_chunk(&mut self.out, trailers, &self.reserved);
    }
}
