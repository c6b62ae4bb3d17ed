//! Streams of visitors and of dialled tunnels.

use std::{
    io,
    net::IpAddr,
    pin::Pin,
    task::{Context, Poll},
};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_util::task::task_tracker::TaskTrackerToken;

/// A stream through a tunnel.
///
/// Closing the writing side (`shutdown`) signals the end to the peer and leaves the reading side
/// open. A stream that is dropped before both sides have ended is reset: the peer sees an error,
/// never an early end that looks complete.
pub struct Stream {
    io: Box<dyn transport::Stream>,
    id: String,
    source_ip: Option<IpAddr>,
    /// Lets the agent that accepted the stream wait for its end.
    _counted: Option<TaskTrackerToken>,
}

impl Stream {
    pub(crate) fn new(
        io: Box<dyn transport::Stream>,
        id: String,
        source_ip: Option<IpAddr>,
    ) -> Self {
        Self {
            io,
            id,
            source_ip,
            _counted: None,
        }
    }

    /// Sets the token with which the agent waits for the stream when it closes.
    pub(crate) fn counted(self, token: TaskTrackerToken) -> Self {
        Self {
            _counted: Some(token),
            ..self
        }
    }

    /// The id under which the engine reports the stream, 24 hex characters. Empty on a stream that
    /// was dialled without waiting for the response.
    pub fn stream_id(&self) -> &str {
        &self.id
    }

    /// The visitor's address, if the engine sent it.
    pub fn source_ip(&self) -> Option<IpAddr> {
        self.source_ip
    }
}

impl std::fmt::Debug for Stream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stream")
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_read(cx, buf)
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}
