//! Observation of forwarded streams.
//!
//! A tap gets a copy of the bytes after they have passed: bytes of a request once the service's
//! socket has accepted them, bytes of a response once they were read from the service. It cannot
//! change or delay them on purpose. It is called on the task that copies the bytes, so the stream
//! waits for it: a tap should append to memory and must never block.
//!
//! If the edge uses TLS with the service, a tap with an [`TlsInterceptor`] sees the decrypted bytes.

mod interceptor;
#[cfg(test)]
pub(super) mod recorder;
mod unreachable;

use std::{
    io,
    net::IpAddr,
    pin::Pin,
    task::{Context, Poll, ready},
};

use crate::{
    Target,
    agent::forward::{SERVICE_DIAL_TIMEOUT, dial_target},
};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

pub use interceptor::TlsInterceptor;
pub(crate) use unreachable::show_request;

/// A visit: the stream and its visitor.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Visit {
    /// The engine's id of the stream.
    pub stream_id: String,
    /// The visitor for which the stream was opened. A stream of an `http` tunnel may carry requests
    /// of other visitors afterwards.
    pub source_ip: Option<IpAddr>,
}

impl Visit {
    /// Creates a visit with this stream id.
    pub fn new(stream_id: impl Into<String>, source_ip: Option<IpAddr>) -> Self {
        Self {
            stream_id: stream_id.into(),
            source_ip,
        }
    }
}

/// Selects the streams of a tunnel to observe.
pub trait Tap: Send + Sync {
    /// Returns the observer of this stream. `None` leaves the stream on the path without a tap, at
    /// no cost.
    fn stream(&self, visit: &Visit) -> Option<Box<dyn StreamTap>>;

    /// Decrypts the observed streams of a tunnel in which the edge uses TLS with the service
    /// (`upstream_tls`). Without it they pass encrypted.
    fn opener(&self) -> Option<&TlsInterceptor> {
        None
    }
}

/// Observes one stream. It is dropped without [`ended`](Self::ended) if the agent was stopped
/// meanwhile.
pub trait StreamTap: Send {
    /// The edge uses TLS with the service and requested this server name; the following bytes are
    /// decrypted.
    fn opened(&mut self, _name: &str) {}
    /// Bytes that the service's socket has accepted; before [`unreachable`](Self::unreachable), bytes
    /// for a service that was not reached.
    fn to_service(&mut self, bytes: &[u8]);
    /// Bytes from the service.
    fn to_visitor(&mut self, bytes: &[u8]);
    /// Both directions have ended; `error` is the reason if they did not end normally.
    fn ended(self: Box<Self>, error: Option<&str>);
    /// True if no more bytes of a request are wanted before [`unreachable`](Self::unreachable). The
    /// visitor waits for them.
    fn has_request(&self) -> bool {
        true
    }
    /// The service was not reached, and the stream ends. Called instead of
    /// [`ended`](Self::ended).
    fn unreachable(self: Box<Self>, error: &str) {
        self.ended(Some(error));
    }
}

/// Opens a connection to the service behind a target, as the agent does for a visitor. For a
/// service with TLS this is the underlying connection; [`connect_tls`] also opens the session.
///
/// # Errors
/// Errors of the connection, and `TimedOut` after ten seconds.
///
/// # Cancellation
/// Safe: dropping the future closes the connection.
pub async fn connect(to: &Target) -> io::Result<ServiceStream> {
    dial_service(to).await.map(ServiceStream)
}

/// Opens a TLS session with the service behind a target, as the edge does through the agent. It
/// sends `name` as SNI, and offers only `protocol` in ALPN.
///
/// # Errors
/// As [`connect`], or the handshake failed.
///
/// # Cancellation
/// Safe: dropping the future closes the connection.
pub async fn connect_tls(to: &Target, name: &str, protocol: &str) -> io::Result<ServiceStream> {
    let session = interceptor::connect(name, protocol, dial_service(to).await?).await?;
    Ok(ServiceStream(Box::new(session)))
}

async fn dial_service(to: &Target) -> io::Result<Box<dyn transport::Stream>> {
    let connected = tokio::time::timeout(SERVICE_DIAL_TIMEOUT, dial_target(to)).await;
    let service = connected.unwrap_or_else(|_elapsed| Err(io::ErrorKind::TimedOut.into()))?;
    Ok(service.into_stream())
}

/// A connection to a private service of any kind.
pub struct ServiceStream(Box<dyn transport::Stream>);

impl std::fmt::Debug for ServiceStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ServiceStream").finish_non_exhaustive()
    }
}

impl AsyncRead for ServiceStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buf)
    }
}

impl AsyncWrite for ServiceStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}

/// The service's side of a stream, observed by a tap.
pub struct TappedStream<S> {
    service: S,
    /// Present until the end is reported.
    tap: Option<Box<dyn StreamTap>>,
    /// The service's direction has ended.
    ended: bool,
}

impl<S> TappedStream<S> {
    /// Lets `tap` observe the bytes that pass through `service`.
    pub fn new(service: S, tap: Box<dyn StreamTap>) -> Self {
        Self {
            service,
            tap: Some(tap),
            ended: false,
        }
    }

    /// Reports the end to the tap. Otherwise the end is reported on drop, if the service has ended
    /// normally.
    pub fn end(mut self, error: Option<&str>) {
        if let Some(tap) = self.tap.take() {
            tap.ended(error);
        }
    }
}

impl<S> Drop for TappedStream<S> {
    fn drop(&mut self) {
        if let Some(tap) = self.tap.take().filter(|_| self.ended) {
            tap.ended(None);
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for TappedStream<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buf.filled().len();
        let had_room = buf.remaining() > 0;
        ready!(Pin::new(&mut this.service).poll_read(cx, buf))?;
        let fresh = buf.filled().get(before..).unwrap_or_default();
        if !fresh.is_empty() {
            if let Some(tap) = &mut this.tap {
                tap.to_visitor(fresh);
            }
        } else if had_room {
            this.ended = true;
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for TappedStream<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = ready!(Pin::new(&mut this.service).poll_write(cx, buf))?;
        if let Some(tap) = &mut this.tap {
            tap.to_service(buf.get(..written).unwrap_or_default());
        }
        Poll::Ready(Ok(written))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().service).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().service).poll_shutdown(cx)
    }
}
