//! The stream to a service.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_rustls::client::TlsStream;

use crate::agents::TunnelStream;
use crate::limits::ThrottledStream;

/// A stream to a service, with or without TLS inside the tunnel.
#[derive(Debug)]
pub(crate) enum UpstreamIo {
    Plain(ThrottledStream<TunnelStream>),
    Tls(Box<TlsStream<ThrottledStream<TunnelStream>>>),
}

impl UpstreamIo {
    /// Reason why the agent refused the stream, if it sent one.
    pub(crate) fn refusal(&self) -> Option<wire::Error> {
        self.stream().refusal()
    }

    pub(super) fn stream(&self) -> &TunnelStream {
        match self {
            Self::Plain(stream) => stream.get_ref(),
            Self::Tls(stream) => stream.get_ref().0.get_ref(),
        }
    }

    pub(super) fn throttled(&mut self) -> &mut ThrottledStream<TunnelStream> {
        match self {
            Self::Plain(stream) => stream,
            Self::Tls(stream) => stream.get_mut().0,
        }
    }
}

impl AsyncRead for UpstreamIo {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_read(cx, buf),
            Self::Tls(stream) => Pin::new(&mut **stream).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for UpstreamIo {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write(cx, buf),
            Self::Tls(stream) => Pin::new(&mut **stream).poll_write(cx, buf),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Self::Tls(stream) => Pin::new(&mut **stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Tls(stream) => Pin::new(&mut **stream).poll_shutdown(cx),
        }
    }
}
