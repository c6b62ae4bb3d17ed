//! The stream to a service.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::timeout;
use tokio_rustls::client::TlsStream;
use types::problem::Problem;

use crate::agents::TunnelStream;
use crate::limits::ThrottledStream;

/// Time for the agent's report, which follows the service's close: a round trip on a bad line.
const REPORT_TIMEOUT: Duration = Duration::from_secs(5);

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

    /// True if the agent reports that nothing of the current exchange reached the service, whose
    /// connection has closed.
    pub(in crate::edge) async fn is_undelivered(&mut self) -> bool {
        let report = poll_fn(|cx| self.stream_mut().poll_undelivered(cx));
        timeout(REPORT_TIMEOUT, report).await.unwrap_or(false)
    }

    /// Waits for the agent's report on the bytes of the stream that reached the service, whose
    /// connection has closed. `None` without a report.
    pub(super) async fn delivered(&mut self) -> Option<u64> {
        let report = poll_fn(|cx| self.stream_mut().poll_delivered(cx));
        timeout(REPORT_TIMEOUT, report).await.ok().flatten()
    }

    /// Aborts the stream because there was no complete response, and informs the agent.
    pub(in crate::edge) fn report_no_response(&mut self) {
        self.stream_mut().report_no_response();
    }

    /// Aborts the stream because of an invalid response, and informs the agent. Returns the response
    /// for the visitor.
    pub(in crate::edge) fn refuse_response(&mut self, reason: &'static str) -> Problem {
        let advice = if reason == http1::ANSWERS_TLS {
            ", so the target must begin with https://"
        } else {
            ""
        };
        let told = format!("the service sent an invalid response: {reason}{advice}");
        self.stream_mut()
            .reset(&wire::Error::invalid_response(told.as_str()));
        Problem::upstream_invalid_response().with_detail(told)
    }

    pub(super) fn stream(&self) -> &TunnelStream {
        match self {
            Self::Plain(stream) => stream.get_ref(),
            Self::Tls(stream) => stream.get_ref().0.get_ref(),
        }
    }

    /// The stream through the tunnel, beneath TLS.
    pub(crate) fn stream_mut(&mut self) -> &mut TunnelStream {
        self.throttled().get_mut()
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
