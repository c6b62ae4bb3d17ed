//! A stream that is lent, and whose connection returns to its owner.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::oneshot;

use super::FramedStream;
use crate::TlsStream;

/// A stream used by the program, or one that has left its lane. Dropping it returns its connection.
pub struct StreamLease {
    framed: Option<FramedStream<TlsStream>>,
    return_sender: Option<oneshot::Sender<FramedStream<TlsStream>>>,
}

impl StreamLease {
    /// Lends a stream. The receiver gets it back.
    pub fn new(
        framed: FramedStream<TlsStream>,
    ) -> (Self, oneshot::Receiver<FramedStream<TlsStream>>) {
        let (back, given_back) = oneshot::channel();
        let lent = Self {
            framed: Some(framed),
            return_sender: Some(back),
        };
        (lent, given_back)
    }

    /// Resets the stream with a reason.
    pub fn reset(&mut self, reason: wire::Error) {
        if let Some(framed) = &mut self.framed {
            framed.reset(Some(reason));
        }
    }

    /// Completes its direction of the stream.
    pub fn finish(&mut self) {
        if let Some(framed) = &mut self.framed {
            framed.finish();
        }
    }

    /// As [`FramedStream::poll_peer_end`].
    pub fn poll_peer_end(&mut self, cx: &mut Context<'_>) -> Poll<bool> {
        match &mut self.framed {
            Some(framed) => framed.poll_peer_end(cx),
            None => Poll::Ready(false),
        }
    }

    /// The reason why the engine aborted the stream, if it sent one.
    pub fn refusal(&self) -> Option<wire::Error> {
        self.framed.as_ref()?.refusal().cloned()
    }

    fn framed(self: Pin<&mut Self>) -> io::Result<Pin<&mut FramedStream<TlsStream>>> {
        // Empty only during `drop`.
        self.get_mut()
            .framed
            .as_mut()
            .map(Pin::new)
            .ok_or(io::ErrorKind::NotConnected.into())
    }
}

impl Drop for StreamLease {
    fn drop(&mut self) {
        if let (Some(framed), Some(back)) = (self.framed.take(), self.return_sender.take()) {
            // Without a receiver the agent was killed, and the connection closes with the stream.
            drop(back.send(framed));
        }
    }
}

impl AsyncRead for StreamLease {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.framed()?.poll_read(cx, buf)
    }
}

impl AsyncWrite for StreamLease {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.framed()?.poll_write(cx, buf)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.framed()?.poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.framed()?.poll_shutdown(cx)
    }
}
