//! Looking at forwarded streams while they pass.
//!
//! A tap gets a copy of what went through, after it went: bytes of a request once the service's
//! socket has taken them, bytes of an answer once they were read from it. It cannot alter them or
//! hold them back. It is called on the task that moves the bytes, so what it does is time that the
//! stream waits: a tap appends to memory and never blocks.

use std::{
    io,
    net::IpAddr,
    pin::Pin,
    task::{Context, Poll, ready},
};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Who visits.
#[derive(Clone, Debug)]
pub struct Visit {
    /// The engine's id of the stream.
    pub stream_id: String,
    /// The visitor for whom the stream was opened. A stream of an `http` tunnel may carry the
    /// requests of others afterwards.
    pub source_ip: Option<IpAddr>,
}

/// Chooses the streams of a tunnel that are looked at.
pub trait Tap: Send + Sync {
    /// Whoever looks at this stream. `None` leaves it on the path without a tap, at no cost.
    fn stream(&self, visit: &Visit) -> Option<Box<dyn StreamTap>>;
}

/// Sees one stream. Dropped without [`ended`](Self::ended) when the agent was stopped meanwhile.
pub trait StreamTap: Send {
    /// Bytes that the service's socket has taken.
    fn to_service(&mut self, bytes: &[u8]);
    /// Bytes that came from the service.
    fn to_visitor(&mut self, bytes: &[u8]);
    /// Both directions are over; `error` is why, where it was not their own end.
    fn ended(self: Box<Self>, error: Option<&str>);
}

/// The service's side of a stream, seen by a tap.
pub struct Tapped<S> {
    service: S,
    tap: Box<dyn StreamTap>,
}

impl<S> Tapped<S> {
    /// Lets `tap` see what passes through `service`.
    pub fn new(service: S, tap: Box<dyn StreamTap>) -> Self {
        Self { service, tap }
    }

    /// The tap, to be told the end.
    pub fn into_tap(self) -> Box<dyn StreamTap> {
        self.tap
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Tapped<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buf.filled().len();
        ready!(Pin::new(&mut this.service).poll_read(cx, buf))?;
        let fresh = buf.filled().get(before..).unwrap_or_default();
        if !fresh.is_empty() {
            this.tap.to_visitor(fresh);
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Tapped<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let taken = ready!(Pin::new(&mut this.service).poll_write(cx, buf))?;
        this.tap.to_service(buf.get(..taken).unwrap_or_default());
        Poll::Ready(Ok(taken))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().service).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().service).poll_shutdown(cx)
    }
}
