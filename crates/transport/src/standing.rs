//! Standing data connections: extension `pool/1` of the agent protocol.
//!
//! The agent opens them ahead of need; each carries one stream at a time, framed, and outlives
//! it. So a visitor costs no dial and no handshake, a bulk stream blocks nobody, and TCP's own
//! flow control is the only one. The bytes of a frame are `wire::pool`'s; this module moves them.
//!
//! ```text
//! engine: Standing::open ──▶ Framed ──▶ Framed::recycle ──▶ Standing …
//! agent:  Standing::accept ─▶ Framed ──▶ Framed::recycle ──▶ Standing …
//! ```

use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use prost::Message as _;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};
use wire::pool::{HEAD_LEN, Head, Kind, MAX_CHUNK, StreamOpen};

use crate::{Scratch, Stream};

/// A connection that carries no stream at the moment.
#[derive(Debug)]
pub struct Standing<T> {
    io: T,
}

impl<T: Stream> Standing<T> {
    /// Takes over a connection whose hello has been exchanged.
    pub fn new(io: T) -> Self {
        Self { io }
    }

    /// Begins a stream (engine's side). Nothing is sent yet: the opening travels in one record
    /// with the first bytes, or with the first flush.
    pub fn open(self, open: &StreamOpen) -> Framed<T> {
        let mut framed = Framed::new(self.io);
        framed.queue(Kind::Open, &open.encode_to_vec());
        framed
    }

    /// Waits for the next stream (agent's side). `None` when the engine has closed or retired the
    /// connection. Not cancel safe: a dropped wait may have read half a frame, so the connection
    /// goes with it.
    ///
    /// # Errors
    /// When the connection fails or the engine sends anything but an opening.
    pub async fn accept(mut self) -> io::Result<Option<(StreamOpen, Framed<T>)>> {
        let mut head = [0; HEAD_LEN];
        if self.io.read(head.get_mut(..1).unwrap_or_default()).await? == 0 {
            return Ok(None);
        }
        self.io.read_exact(head.get_mut(1..).unwrap_or_default()).await?;
        let head = decode(head)?;
        match head.kind {
            Kind::Open => {
                let mut payload = vec![0; head.len];
                self.io.read_exact(&mut payload).await?;
                let open = StreamOpen::decode(&payload[..]).map_err(violation)?;
                Ok(Some((open, Framed::new(self.io))))
            }
            Kind::Retire => Ok(None),
            Kind::Data | Kind::End | Kind::Reset => Err(violation("a frame outside a stream")),
        }
    }

    /// Whether the peer still keeps it (engine's side): between streams nothing may arrive but a
    /// retirement or the end.
    pub fn is_alive(&mut self) -> bool {
        let mut byte = [0; 1];
        let mut buf = ReadBuf::new(&mut byte);
        let mut cx = Context::from_waker(std::task::Waker::noop());
        Pin::new(&mut self.io).poll_read(&mut cx, &mut buf).is_pending()
    }

    /// The connection beneath.
    pub fn get_ref(&self) -> &T {
        &self.io
    }

    /// The connection beneath, to move it to another runtime.
    pub fn get_mut(&mut self) -> &mut T {
        &mut self.io
    }
}

/// One stream on a standing connection. Reading ends at the peer's END; a RESET is
/// [`io::ErrorKind::ConnectionReset`]. Shutting down sends END. Dropping it closes the whole
/// connection, [`Framed::recycle`] keeps it.
#[derive(Debug)]
pub struct Framed<T> {
    io: T,
    /// Frame heads and small frames that go out in front of the next payload.
    queued: Vec<u8>,
    queued_sent: usize,
    /// Payload bytes that the last DATA head announced and that are not written yet.
    owed: usize,
    sending: Direction,
    head: [u8; HEAD_LEN],
    head_read: usize,
    /// Payload bytes of the current DATA frame still to be read.
    due: usize,
    receiving: Direction,
    reason: Vec<u8>,
    refusal: Option<wire::Error>,
    retired: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Direction {
    Open,
    Ended,
    Reset,
}

impl<T: Stream> Framed<T> {
    fn new(io: T) -> Self {
        Self {
            io,
            queued: Vec::new(),
            queued_sent: 0,
            owed: 0,
            sending: Direction::Open,
            head: [0; HEAD_LEN],
            head_read: 0,
            due: 0,
            receiving: Direction::Open,
            reason: Vec::new(),
            refusal: None,
            retired: false,
        }
    }

    /// Why the peer reset the stream, if it said.
    pub fn refusal(&self) -> Option<&wire::Error> {
        self.refusal.as_ref()
    }

    /// True while nothing has arrived for this stream yet.
    pub fn is_silent(&self) -> bool {
        self.receiving == Direction::Open && self.due == 0 && self.head_read == 0
    }

    /// The connection beneath.
    pub fn get_ref(&self) -> &T {
        &self.io
    }

    /// Ends both directions at once. What was written is not taken back; what the peer still
    /// sends is discarded by [`Framed::recycle`].
    pub fn reset(&mut self, reason: Option<&wire::Error>) {
        if self.sending == Direction::Open {
            let payload = reason.map(prost::Message::encode_to_vec).unwrap_or_default();
            // A reason that is too long for a frame is not worth the stream.
            let fits = payload.len() <= wire::pool::MAX_RESET;
            self.queue(Kind::Reset, if fits { &payload } else { &[] });
        }
        self.sending = Direction::Reset;
    }

    /// Ends the stream, if it has not ended, and hands back the connection for the next one.
    /// `None` when it cannot be used again: a frame was left half written, the peer broke the
    /// rules, retired it, closed it, or has more than [`DISCARD_LIMIT`] bytes under way. The
    /// caller bounds the wait.
    pub async fn recycle(mut self) -> Option<Standing<T>> {
        if self.owed > 0 {
            return None;
        }
        if self.sending == Direction::Open {
            self.reset(None);
        }
        let mut discarded = 0;
        let over = poll_fn(|cx| {
            if Pin::new(&mut self).poll_flush(cx)?.is_pending() {
                return Poll::Pending;
            }
            let mut bytes = Scratch::take(Scratch::SMALL);
            while self.receiving == Direction::Open {
                let mut buf = ReadBuf::new(&mut bytes);
                ready!(self.poll_payload(cx, &mut buf))?;
                discarded += buf.filled().len();
                if discarded > DISCARD_LIMIT {
                    return Poll::Ready(Err(violation("too much after a reset")));
                }
            }
            Poll::Ready(Ok(()))
        });
        over.await.ok()?;
        (!self.retired).then_some(Standing { io: self.io })
    }

    fn queue(&mut self, kind: Kind, payload: &[u8]) {
        self.queued.extend_from_slice(&Head { kind, len: payload.len() }.encode());
        self.queued.extend_from_slice(payload);
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

    /// Reads payload; returns with nothing read only when the direction has ended.
    fn poll_payload(
        &mut self,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            match self.receiving {
                Direction::Open => {}
                Direction::Ended | Direction::Reset => return Poll::Ready(Ok(())),
            }
            if self.due > 0 {
                let len = buf.remaining().min(self.due);
                let mut part = ReadBuf::new(buf.initialize_unfilled_to(len));
                ready!(Pin::new(&mut self.io).poll_read(cx, &mut part))?;
                let read = part.filled().len();
                if read == 0 && len > 0 {
                    return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
                }
                buf.advance(read);
                self.due -= read;
                return Poll::Ready(Ok(()));
            }
            let head = ready!(self.poll_head(cx))?;
            match head.kind {
                Kind::Data => {
                    self.due = head.len;
                    self.head_read = 0;
                }
                Kind::End => {
                    self.receiving = Direction::Ended;
                    self.head_read = 0;
                }
                Kind::Reset => ready!(self.poll_refusal(cx, head.len))?,
                Kind::Retire => {
                    self.retired = true;
                    self.head_read = 0;
                }
                Kind::Open => return Poll::Ready(Err(violation("an opening inside a stream"))),
            }
        }
    }

    fn poll_head(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Head>> {
        while self.head_read < HEAD_LEN {
            let mut buf = ReadBuf::new(self.head.get_mut(self.head_read..).unwrap_or_default());
            ready!(Pin::new(&mut self.io).poll_read(cx, &mut buf))?;
            let read = buf.filled().len();
            if read == 0 {
                return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
            }
            self.head_read += read;
        }
        Poll::Ready(decode(self.head))
    }

    /// Reads the reason of a reset, which may come in pieces.
    fn poll_refusal(&mut self, cx: &mut Context<'_>, len: usize) -> Poll<io::Result<()>> {
        while self.reason.len() < len {
            let mut bytes = [0; wire::pool::MAX_RESET];
            let missing = len - self.reason.len();
            let mut buf = ReadBuf::new(bytes.get_mut(..missing).unwrap_or_default());
            ready!(Pin::new(&mut self.io).poll_read(cx, &mut buf))?;
            if buf.filled().is_empty() {
                return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
            }
            self.reason.extend_from_slice(buf.filled());
        }
        self.refusal = wire::Error::decode(&self.reason[..]).ok().filter(|_| len > 0);
        self.receiving = Direction::Reset;
        self.head_read = 0;
        Poll::Ready(Ok(()))
    }
}

/// How much of an abandoned stream is read and thrown away to keep its connection: about what is
/// under way when a reset crosses it. Beyond that a new handshake is cheaper.
pub const DISCARD_LIMIT: usize = 1024 * 1024;

impl<T: Stream> AsyncRead for Framed<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if buf.remaining() == 0 {
            return Poll::Ready(Ok(()));
        }
        ready!(self.poll_payload(cx, buf))?;
        match self.receiving {
            Direction::Reset => Poll::Ready(Err(io::ErrorKind::ConnectionReset.into())),
            Direction::Open | Direction::Ended => Poll::Ready(Ok(())),
        }
    }
}

impl<T: Stream> AsyncWrite for Framed<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = &mut *self;
        if this.sending != Direction::Open {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        if buf.is_empty() {
            return Poll::Ready(Ok(0));
        }
        if this.owed == 0 {
            this.owed = buf.len().min(MAX_CHUNK);
            let head = Head { kind: Kind::Data, len: this.owed };
            this.queued.extend_from_slice(&head.encode());
        }
        let payload = buf.get(..buf.len().min(this.owed)).unwrap_or_default();
        loop {
            let front = this.queued.get(this.queued_sent..).unwrap_or_default();
            // Head and payload in one call, so that they share a record.
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
                this.owed -= sent - of_front;
                return Poll::Ready(Ok(sent - of_front));
            }
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.owed == 0 {
            ready!(self.poll_queued(cx))?;
        }
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.sending == Direction::Open {
            if self.owed > 0 {
                return Poll::Ready(Err(violation("a chunk was left half written")));
            }
            self.queue(Kind::End, &[]);
            self.sending = Direction::Ended;
        }
        self.poll_flush(cx)
    }
}

fn decode(head: [u8; HEAD_LEN]) -> io::Result<Head> {
    Head::decode(head).map_err(violation)
}

fn violation(what: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

#[cfg(test)]
mod tests;
