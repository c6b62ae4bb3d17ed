//! The stream of an HTTP/2 connection to a service.
//!
//! The end of the stream tells the agent whether all requests had complete responses. When the
//! connection ends, its requests do not know that yet, so the connection returns the stream instead
//! of closing it.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::oneshot;

use super::http2::StreamLimit;
use super::io::UpstreamIo;
use crate::agents::SharedRequests;

/// A stream that is returned when this is dropped.
#[derive(Debug)]
pub(super) struct LentStream {
    /// `None` only while this is being dropped.
    io: Option<UpstreamIo>,
    owner: Option<oneshot::Sender<ReturnedStream>>,
    limit: Arc<StreamLimit>,
    has_ended: bool,
}

/// The stream of a connection that has ended.
#[derive(Debug)]
pub(super) struct ReturnedStream {
    pub(super) io: UpstreamIo,
    /// The service has closed its connection, or it has failed.
    pub(super) has_ended: bool,
}

impl LentStream {
    /// `limit` has the requests of the connection.
    pub(super) fn new(
        io: UpstreamIo,
        limit: &Arc<StreamLimit>,
    ) -> (Self, oneshot::Receiver<ReturnedStream>) {
        let (owner, returned) = oneshot::channel();
        let lent = Self {
            io: Some(io),
            owner: Some(owner),
            limit: Arc::clone(limit),
            has_ended: false,
        };
        (lent, returned)
    }

    fn io(self: Pin<&mut Self>) -> io::Result<Pin<&mut UpstreamIo>> {
        let io = self.get_mut().io.as_mut();
        io.map(Pin::new).ok_or(io::ErrorKind::NotConnected.into())
    }

    /// Updates the bytes that were written. A session of TLS writes later, and more.
    fn note_write<T>(&mut self, result: &Poll<io::Result<T>>) {
        self.has_ended |= matches!(result, Poll::Ready(Err(_)));
        if let Some(io) = &self.io {
            self.limit.set_written(io.stream().written());
        }
    }
}

impl Drop for LentStream {
    fn drop(&mut self) {
        if let Some((io, owner)) = self.io.take().zip(self.owner.take()) {
            // Without the owner, the stream is closed.
            let has_ended = self.has_ended;
            owner.send(ReturnedStream { io, has_ended }).ok();
        }
    }
}

impl AsyncRead for LentStream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buf.filled().len();
        let read = ready!(Pin::new(&mut *this).io()?.poll_read(cx, buf));
        this.has_ended |= read.is_err() || (buf.filled().len() == before && buf.remaining() > 0);
        Poll::Ready(read)
    }
}

impl AsyncWrite for LentStream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut *this).io()?.poll_write(cx, buf);
        this.note_write(&written);
        written
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let flushed = Pin::new(&mut *this).io()?.poll_flush(cx);
        this.note_write(&flushed);
        flushed
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // The end of the stream would mean that all requests are complete.
        if self.limit.is_complete() {
            self.io()?.poll_shutdown(cx)
        } else {
            self.io()?.poll_flush(cx)
        }
    }
}
