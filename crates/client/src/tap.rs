//! Looking at forwarded streams while they pass.
//!
//! A tap gets a copy of what went through, after it went: bytes of a request once the service's
//! socket has taken them, bytes of an answer once they were read from it. It cannot alter them or
//! hold them back. It is called on the task that moves the bytes, so what it does is time that the
//! stream waits: a tap appends to memory and never blocks.
//!
//! Where the edge speaks TLS with the service, a tap with an [`Opener`] sees what is in it.

mod opener;

use std::{
    io,
    net::IpAddr,
    pin::Pin,
    task::{Context, Poll, ready},
};

use crate::{
    Target,
    agent::forward::{SERVICE_DIAL, dial_target},
};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

pub use opener::Opener;

/// Who visits.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Visit {
    /// The engine's id of the stream.
    pub stream_id: String,
    /// The visitor for whom the stream was opened. A stream of an `http` tunnel may carry the
    /// requests of others afterwards.
    pub source_ip: Option<IpAddr>,
}

impl Visit {
    /// A visit over the stream with this id.
    pub fn new(stream_id: impl Into<String>, source_ip: Option<IpAddr>) -> Self {
        Self {
            stream_id: stream_id.into(),
            source_ip,
        }
    }
}

/// Chooses the streams of a tunnel that are looked at.
pub trait Tap: Send + Sync {
    /// Whoever looks at this stream. `None` leaves it on the path without a tap, at no cost.
    fn stream(&self, visit: &Visit) -> Option<Box<dyn StreamTap>>;

    /// With what the streams that are looked at are opened, for a tunnel in which the edge speaks
    /// TLS with the service (`upstream_tls`). Without it they pass as they are.
    fn opener(&self) -> Option<&Opener> {
        None
    }
}

/// Sees one stream. Dropped without [`ended`](Self::ended) when the agent was stopped meanwhile.
pub trait StreamTap: Send {
    /// The edge speaks TLS with the service, which it asks for by this name; what follows is what
    /// is in it.
    fn opened(&mut self, _name: &str) {}
    /// Bytes that the service's socket has taken.
    fn to_service(&mut self, bytes: &[u8]);
    /// Bytes that came from the service.
    fn to_visitor(&mut self, bytes: &[u8]);
    /// Both directions are over; `error` is why, where it was not their own end.
    fn ended(self: Box<Self>, error: Option<&str>);
}

/// A connection to the service behind a target, as the agent opens one for a visitor. Towards a
/// service with TLS it is the connection beneath it; [`connect_tls`] has the session, too.
///
/// # Errors
/// As connecting has them, and `TimedOut` after ten seconds.
///
/// # Cancellation
/// Safe: dropping the future closes the connection.
pub async fn connect(to: &Target) -> io::Result<ServiceStream> {
    dialled(to).await.map(ServiceStream)
}

/// A session with the service behind a target that speaks TLS, as the edge has one through the
/// agent: it is asked for by `name`, and offered `protocol` (as of ALPN) alone.
///
/// # Errors
/// As [`connect`], or the handshake failed.
///
/// # Cancellation
/// Safe: dropping the future closes the connection.
pub async fn connect_tls(to: &Target, name: &str, protocol: &str) -> io::Result<ServiceStream> {
    let session = opener::connect(name, protocol, dialled(to).await?).await?;
    Ok(ServiceStream(Box::new(session)))
}

async fn dialled(to: &Target) -> io::Result<Box<dyn transport::Stream>> {
    let connected = tokio::time::timeout(SERVICE_DIAL, dial_target(to)).await;
    let service = connected.unwrap_or_else(|_elapsed| Err(io::ErrorKind::TimedOut.into()))?;
    Ok(service.into_stream())
}

/// A connection to a private service, whatever it is made of.
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

/// The service's side of a stream, seen by a tap.
pub struct TappedStream<S> {
    service: S,
    /// Until it is taken.
    tap: Option<Box<dyn StreamTap>>,
    /// The service has said all that it had to say.
    ended: bool,
}

impl<S> TappedStream<S> {
    /// Lets `tap` see what passes through `service`.
    pub fn new(service: S, tap: Box<dyn StreamTap>) -> Self {
        Self {
            service,
            tap: Some(tap),
            ended: false,
        }
    }

    /// Tells the tap the end. Otherwise it is told when this is dropped, where the service has
    /// ended by itself.
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
        let taken = ready!(Pin::new(&mut this.service).poll_write(cx, buf))?;
        if let Some(tap) = &mut this.tap {
            tap.to_service(buf.get(..taken).unwrap_or_default());
        }
        Poll::Ready(Ok(taken))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().service).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().service).poll_shutdown(cx)
    }
}
