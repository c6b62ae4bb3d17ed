//! The stream of an HTTP/2 connection to a service.
//!
//! The end of the stream tells the agent whether all requests had complete responses. When the
//! connection ends, its requests do not know that yet, so the connection returns the stream instead
//! of closing it.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

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
    owner: Option<oneshot::Sender<UpstreamIo>>,
    limit: Arc<StreamLimit>,
}

impl LentStream {
    /// `limit` has the requests of the connection.
    pub(super) fn new(
        io: UpstreamIo,
        limit: &Arc<StreamLimit>,
    ) -> (Self, oneshot::Receiver<UpstreamIo>) {
        let (owner, returned) = oneshot::channel();
        let lent = Self {
            io: Some(io),
            owner: Some(owner),
            limit: Arc::clone(limit),
        };
        (lent, returned)
    }

    fn io(self: Pin<&mut Self>) -> io::Result<Pin<&mut UpstreamIo>> {
        let io = self.get_mut().io.as_mut();
        io.map(Pin::new).ok_or(io::ErrorKind::NotConnected.into())
    }
}

impl Drop for LentStream {
    fn drop(&mut self) {
        if let Some((io, owner)) = self.io.take().zip(self.owner.take()) {
            // Without the owner, the stream is closed.
            owner.send(io).ok();
        }
    }
}

impl AsyncRead for LentStream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.io()?.poll_read(cx, buf)
    }
}

impl AsyncWrite for LentStream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.io()?.poll_write(cx, buf)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.io()?.poll_flush(cx)
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
