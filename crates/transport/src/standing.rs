//! Standing data connections: extension `pool/1` of the agent protocol.
//!
//! The agent opens them in advance. Each carries one framed stream at a time, and stays open after
//! it. So a visitor needs no dial and no handshake, a bulk stream blocks no other stream, and TCP's
//! own flow control is the only one. `wire::pool` defines the bytes of a frame; this module
//! transfers them.
//!
//! ```text
//! engine: StandingConnection::open ─▶ FramedStream::recycle ─▶ StandingConnection …
//! agent:  StandingConnection::accept ─▶ FramedStream::recycle ─▶ StandingConnection …
//! ```

use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, Waker, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use wire::pool::{
    FrameType, HEAD_LEN, Head, MAX_CHUNK, MAX_OPEN, PoolFrame, ReceivedFrame, Side, StreamOpen,
    StreamReset, StreamState,
};

pub use self::lease::StreamLease;
use crate::lane::{self, Lane};
use crate::{Scratch, Stream};

mod lease;

/// Bytes of an abandoned stream that are read and discarded to keep its connection: about the
/// amount in flight when a reset crosses it. Beyond that a new handshake is cheaper.
pub const DISCARD_LIMIT: usize = 1024 * 1024;

/// A connection without a stream.
#[derive(Debug)]
pub struct StandingConnection<T> {
    io: T,
    state: StreamState,
}

impl<T: Stream> StandingConnection<T> {
    /// Wraps a connection whose hello has been exchanged.
    pub fn new(io: T, side: Side) -> Self {
        Self {
            io,
            state: StreamState::new(side),
        }
    }

    /// Opens a stream (engine's side). Nothing is sent yet: the opening is sent in one record with
    /// the first bytes, or with the first flush.
    ///
    /// # Errors
    /// If the opening is too long, or the connection is retired.
    pub fn open(self, open: &StreamOpen) -> io::Result<FramedStream<T>> {
        let mut framed = FramedStream::new(self);
        framed.state.on_send(PoolFrame::Open).map_err(violation)?;
        open.encode_frame(&mut framed.queued).map_err(violation)?;
        Ok(framed)
    }

    /// Turns it into a lane (engine's side). The frame that announces it is sent together with the
    /// first one after it.
    ///
    /// # Errors
    /// If the connection is retired.
    pub fn into_lane(mut self) -> io::Result<(Lane, lane::Driver<T>)> {
        self.state.on_send(PoolFrame::Lane).map_err(violation)?;
        let head = Head::new(FrameType::Lane, 0).map_err(violation)?;
        Ok(Lane::engine(self.io, &head.encode()))
    }

    /// Waits for the next stream or lane of the engine (agent's side). `None` if it has closed or
    /// retired the connection. Not cancel safe: a dropped wait may have read half a frame, so it
    /// drops the connection as well.
    ///
    /// # Errors
    /// If the connection fails or the engine breaks the rules.
    pub async fn accept(self) -> io::Result<Option<AcceptedStream<T>>> {
        let mut framed = FramedStream::new(self);
        Ok(match poll_fn(|cx| framed.poll_open(cx)).await? {
            Some(OpeningState::Stream(open)) => {
                Some(AcceptedStream::Stream(Box::new(open), framed))
            }
            Some(OpeningState::Lane) => Some(AcceptedStream::Lane(framed.io)),
            None => None,
        })
    }

    /// Returns true if the peer still keeps it (engine's side). Between streams no bytes are
    /// expected, so bytes mean a retirement or a break, and another connection should be used in
    /// both cases.
    pub fn is_alive(&mut self) -> bool {
        let mut byte = [0; 1];
        let mut buf = ReadBuf::new(&mut byte);
        let io = &mut self.io;
        let reading = poll_fn(|cx| Pin::new(&mut *io).poll_read(cx, &mut buf));
        // A task that has used up its coop budget gets `Pending` from every socket, regardless of
        // its state.
        let mut reading = std::pin::pin!(tokio::task::unconstrained(reading));
        let mut cx = Context::from_waker(Waker::noop());
        reading.as_mut().poll(&mut cx).is_pending()
    }

    /// The underlying connection, for moving it to another runtime or closing it.
    pub fn get_mut(&mut self) -> &mut T {
        &mut self.io
    }
}

/// A stream or lane that the engine starts on a standing connection.
#[derive(Debug)]
pub enum AcceptedStream<T> {
    /// It opens a stream. Boxed, because a lane is much smaller.
    Stream(Box<StreamOpen>, FramedStream<T>),
    /// It turns the connection into a lane.
    Lane(T),
}

/// The first frame between streams.
enum OpeningState {
    Stream(StreamOpen),
    Lane,
}

/// One stream on a standing connection. Reading ends at the peer's END; a RESET is
/// [`io::ErrorKind::ConnectionReset`]. Shutting down sends END. Dropping it closes the whole
/// connection; [`FramedStream::recycle`] keeps it.
#[derive(Debug)]
pub struct FramedStream<T> {
    io: T,
    state: StreamState,
    /// Frame heads and small frames that are sent before the next payload.
    queued: Vec<u8>,
    queued_sent: usize,
    /// Payload bytes that the last DATA head announced and that are not written yet.
    unwritten_payload: usize,
    head: [u8; HEAD_LEN],
    head_read: usize,
    /// The part of a small frame's payload that has been read.
    small_payload: Vec<u8>,
    /// Payload bytes of the current DATA frame still to be read.
    unread_payload: usize,
    incoming: IncomingState,
    /// Boxed, because a connection without an error does not reserve its memory.
    refusal: Option<Box<wire::Error>>,
    retired: bool,
    /// Our direction is complete, and the peer completes its own.
    finished: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum IncomingState {
    Open,
    Ended,
    Reset,
}

impl<T: Stream> FramedStream<T> {
    fn new(standing: StandingConnection<T>) -> Self {
        Self {
            io: standing.io,
            state: standing.state,
            queued: Vec::new(),
            queued_sent: 0,
            unwritten_payload: 0,
            head: [0; HEAD_LEN],
            head_read: 0,
            small_payload: Vec::new(),
            unread_payload: 0,
            incoming: IncomingState::Open,
            refusal: None,
            retired: false,
            finished: false,
        }
    }

    /// The underlying connection, for moving it to another runtime.
    pub fn get_mut(&mut self) -> &mut T {
        &mut self.io
    }

    /// The reason why the peer reset the stream, if the peer sent one.
    pub fn refusal(&self) -> Option<&wire::Error> {
        self.refusal.as_deref()
    }

    /// Aborts both directions. [`FramedStream::recycle`] discards the bytes that the peer still
    /// sends.
    pub fn reset(&mut self, reason: Option<wire::Error>) {
        let stream = self.state.stream();
        // Refused if the stream is over or was aborted already: nothing has to be sent then.
        if self.state.on_send(PoolFrame::Reset { stream }).is_ok() {
            let reset = StreamReset {
                stream,
                error: reason,
            };
            // Cannot fail: a reason that does not fit is omitted.
            reset.encode_frame(&mut self.queued).ok();
        }
    }

    /// Completes our direction. [`FramedStream::recycle`] then waits for the peer's end instead of
    /// aborting the stream.
    pub fn finish(&mut self) {
        if self.unwritten_payload > 0 {
            return;
        }
        if self.state.on_send(PoolFrame::End).is_ok()
            && let Ok(end) = Head::new(FrameType::End, 0)
        {
            self.queued.extend_from_slice(&end.encode());
        }
        self.finished = true;
    }

    /// Ready when the peer has aborted the stream, also after its end, or when it cannot do so any
    /// more. Bytes that it still sends are discarded.
    pub fn poll_reset(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let mut bytes = Scratch::take(Scratch::SMALL);
        loop {
            let polled = match self.incoming {
                IncomingState::Reset => return Poll::Ready(()),
                IncomingState::Open => {
                    let mut buf = ReadBuf::new(&mut bytes);
                    ready!(self.poll_payload(cx, &mut buf))
                }
                IncomingState::Ended if self.state.is_over() => return Poll::Ready(()),
                IncomingState::Ended => ready!(self.poll_frame_after_end(cx)),
            };
            if polled.is_err() {
                // The connection is in an unknown state.
                self.retired = true;
                return Poll::Ready(());
            }
        }
    }

    /// Waits for the end of the peer's direction, after we have aborted the stream. Returns true if
    /// the peer completed it, and false if it aborted the stream or the connection failed. Bytes
    /// that it still sends are discarded.
    pub fn poll_peer_end(&mut self, cx: &mut Context<'_>) -> Poll<bool> {
        if self.unwritten_payload > 0 {
            // The abort cannot be sent within a chunk.
            return Poll::Ready(false);
        }
        // The peer may be unable to read before we read from it, so both directions run
        // concurrently.
        let is_flushed = match Pin::new(&mut *self).poll_flush(cx) {
            Poll::Ready(Err(_)) => return Poll::Ready(false),
            flushed => flushed.is_ready(),
        };
        let mut bytes = Scratch::take(Scratch::SMALL);
        while self.incoming == IncomingState::Open {
            let mut buf = ReadBuf::new(&mut bytes);
            if ready!(self.poll_payload(cx, &mut buf)).is_err() {
                // The connection is in an unknown state.
                self.retired = true;
                return Poll::Ready(false);
            }
        }
        if is_flushed {
            Poll::Ready(self.incoming == IncomingState::Ended)
        } else {
            Poll::Pending
        }
    }

    /// Reads a frame after the peer's END.
    fn poll_frame_after_end(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Some(head) = ready!(self.poll_head(cx, false))? else {
            return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
        };
        match head.kind() {
            FrameType::Reset => {
                ready!(self.poll_small(cx, head.payload_len()))?;
                self.receive_reset()?;
            }
            FrameType::Retire => {
                self.state
                    .on_receive(PoolFrame::Retire)
                    .map_err(violation)?;
                self.retired = true;
            }
            _ => return Poll::Ready(Err(violation("a frame after the end of a stream"))),
        }
        self.next_frame();
        Poll::Ready(Ok(()))
    }

    /// Handles a RESET whose payload has been read.
    fn receive_reset(&mut self) -> io::Result<()> {
        let reset = StreamReset::decode_payload(&self.small_payload).map_err(violation)?;
        let step = PoolFrame::Reset {
            stream: reset.stream,
        };
        if self.state.on_receive(step).map_err(violation)? == ReceivedFrame::Reset {
            self.refusal = reset.error.map(Box::new);
            self.incoming = IncomingState::Reset;
        }
        Ok(())
    }

    /// Ends the stream, if it has not ended, and returns the connection for the next one. `None` if
    /// it cannot be used again: a chunk was only half written, a frame only half read, or the peer
    /// broke the rules, retired it, closed it, or has more than [`DISCARD_LIMIT`] bytes in flight.
    /// The caller limits the wait.
    pub async fn recycle(mut self) -> Option<StandingConnection<T>> {
        if self.unwritten_payload > 0 {
            return None;
        }
        if !self.state.is_over() && !self.finished {
            self.reset(None);
        }
        let mut discarded = 0;
        let finished = poll_fn(|cx| {
            // The peer may be unable to read before we read from it, so both directions run
            // concurrently.
            let flushed = Pin::new(&mut self).poll_flush(cx)?;
            let mut bytes = Scratch::take(Scratch::SMALL);
            while self.incoming == IncomingState::Open {
                let mut buf = ReadBuf::new(&mut bytes);
                ready!(self.poll_payload(cx, &mut buf))?;
                discarded += buf.filled().len();
                if discarded > DISCARD_LIMIT {
                    return Poll::Ready(Err(violation("too much data after a reset")));
                }
            }
            flushed.map(Ok)
        });
        finished.await.ok()?;
        // A frame after the peer's END may have been read in part, and the next stream would begin
        // within it.
        let usable = self.state.is_over() && !self.retired && self.head_read == 0;
        usable.then_some(StandingConnection {
            io: self.io,
            state: self.state,
        })
    }

    fn poll_queued(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.queued_sent < self.queued.len() {
            let rest = self.queued.get(self.queued_sent..).unwrap_or_default();
            let sent = ready!(Pin::new(&mut self.io).poll_write(cx, rest))?;
            if sent == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.queued_sent += sent;
        }
        self.queued.clear();
        self.queued_sent = 0;
        Poll::Ready(Ok(()))
    }

    /// Waits for an OPEN or a LANE; `None` at the end of the connection or its retirement.
    fn poll_open(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Option<OpeningState>>> {
        loop {
            let Some(head) = ready!(self.poll_head(cx, true))? else {
                return Poll::Ready(Ok(None));
            };
            match head.kind() {
                FrameType::Open => {
                    ready!(self.poll_small(cx, head.payload_len()))?;
                    self.state.on_receive(PoolFrame::Open).map_err(violation)?;
                    let open =
                        StreamOpen::decode_payload(&self.small_payload).map_err(violation)?;
                    self.next_frame();
                    return Poll::Ready(Ok(Some(OpeningState::Stream(open))));
                }
                FrameType::Lane => {
                    self.state.on_receive(PoolFrame::Lane).map_err(violation)?;
                    return Poll::Ready(Ok(Some(OpeningState::Lane)));
                }
                // A reset that crossed the end of the previous stream.
                FrameType::Reset => {
                    ready!(self.poll_small(cx, head.payload_len()))?;
                    let reset =
                        StreamReset::decode_payload(&self.small_payload).map_err(violation)?;
                    let step = PoolFrame::Reset {
                        stream: reset.stream,
                    };
                    self.state.on_receive(step).map_err(violation)?;
                    self.next_frame();
                }
                FrameType::Retire => return Poll::Ready(Ok(None)),
                FrameType::Data | FrameType::End => {
                    return Poll::Ready(Err(violation("a frame outside a stream")));
                }
            }
        }
    }

    /// Reads payload; returns without bytes only if the direction has ended.
    fn poll_payload(
        &mut self,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        while self.incoming == IncomingState::Open {
            if self.unread_payload > 0 {
                let len = buf.remaining().min(self.unread_payload);
                let mut part = ReadBuf::new(buf.initialize_unfilled_to(len));
                ready!(Pin::new(&mut self.io).poll_read(cx, &mut part))?;
                let read = part.filled().len();
                if read == 0 && len > 0 {
                    return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
                }
                buf.advance(read);
                self.unread_payload -= read;
                return Poll::Ready(Ok(()));
            }
            let Some(head) = ready!(self.poll_head(cx, false))? else {
                return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
            };
            match head.kind() {
                FrameType::Data => {
                    self.state.on_receive(PoolFrame::Data).map_err(violation)?;
                    self.unread_payload = head.payload_len();
                }
                FrameType::End => {
                    self.state.on_receive(PoolFrame::End).map_err(violation)?;
                    self.incoming = IncomingState::Ended;
                }
                FrameType::Reset => {
                    ready!(self.poll_small(cx, head.payload_len()))?;
                    self.receive_reset()?;
                }
                FrameType::Retire => {
                    self.state
                        .on_receive(PoolFrame::Retire)
                        .map_err(violation)?;
                    self.retired = true;
                }
                FrameType::Open | FrameType::Lane => {
                    return Poll::Ready(Err(violation("an opening inside a stream")));
                }
            }
            self.next_frame();
        }
        Poll::Ready(Ok(()))
    }

    /// Reads a frame's head; `None` at the end of the connection, if it `may_end` there.
    fn poll_head(&mut self, cx: &mut Context<'_>, may_end: bool) -> Poll<io::Result<Option<Head>>> {
        while self.head_read < HEAD_LEN {
            let mut buf = ReadBuf::new(self.head.get_mut(self.head_read..).unwrap_or_default());
            ready!(Pin::new(&mut self.io).poll_read(cx, &mut buf))?;
            match buf.filled().len() {
                0 if may_end && self.head_read == 0 => return Poll::Ready(Ok(None)),
                0 => return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into())),
                read => self.head_read += read,
            }
        }
        Poll::Ready(Head::decode(self.head).map(Some).map_err(violation))
    }

    /// Collects the payload of a small frame, which may arrive in pieces. Its head has been
    /// checked, so `len` is within the limit of its type.
    fn poll_small(&mut self, cx: &mut Context<'_>, len: usize) -> Poll<io::Result<()>> {
        while self.small_payload.len() < len {
            let mut bytes = [0; MAX_OPEN];
            let missing = (len - self.small_payload.len()).min(MAX_OPEN);
            let mut buf = ReadBuf::new(bytes.get_mut(..missing).unwrap_or_default());
            ready!(Pin::new(&mut self.io).poll_read(cx, &mut buf))?;
            if buf.filled().is_empty() {
                return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
            }
            self.small_payload.extend_from_slice(buf.filled());
        }
        Poll::Ready(Ok(()))
    }

    fn next_frame(&mut self) {
        self.head_read = 0;
        self.small_payload = Vec::new();
    }
}

impl<T: Stream> AsyncRead for FramedStream<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if buf.remaining() == 0 {
            return Poll::Ready(Ok(()));
        }
        ready!(self.poll_payload(cx, buf))?;
        match self.incoming {
            IncomingState::Reset => Poll::Ready(Err(io::ErrorKind::ConnectionReset.into())),
            IncomingState::Open | IncomingState::Ended => Poll::Ready(Ok(())),
        }
    }
}

impl<T: Stream> AsyncWrite for FramedStream<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = &mut *self;
        if buf.is_empty() {
            return Poll::Ready(Ok(0));
        }
        if this.unwritten_payload == 0 {
            if this.state.on_send(PoolFrame::Data).is_err() {
                return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
            }
            let len = buf.len().min(MAX_CHUNK);
            let head = Head::new(FrameType::Data, len).map_err(violation)?;
            this.queued.extend_from_slice(&head.encode());
            this.unwritten_payload = len;
        }
        let payload = buf
            .get(..buf.len().min(this.unwritten_payload))
            .unwrap_or_default();
        loop {
            let front = this.queued.get(this.queued_sent..).unwrap_or_default();
            // Head and payload in one call, so that they share a TLS record.
            let bufs = [IoSlice::new(front), IoSlice::new(payload)];
            let sent = ready!(Pin::new(&mut this.io).poll_write_vectored(cx, &bufs))?;
            if sent == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            let of_front = sent.min(front.len());
            this.queued_sent += of_front;
            if this.queued_sent == this.queued.len() {
                this.queued.clear();
                this.queued_sent = 0;
            }
            if sent > of_front {
                this.unwritten_payload -= sent - of_front;
                return Poll::Ready(Ok(sent - of_front));
            }
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.unwritten_payload == 0 {
            ready!(self.poll_queued(cx))?;
        }
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.unwritten_payload > 0 {
            return Poll::Ready(Err(violation("a chunk was left half written")));
        }
        if self.state.on_send(PoolFrame::End).is_ok() {
            let end = Head::new(FrameType::End, 0).map_err(violation)?;
            self.queued.extend_from_slice(&end.encode());
        }
        self.poll_flush(cx)
    }
}

fn violation(what: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

#[cfg(test)]
mod tests;
