//! One stream through a tunnel, over any kind of connection.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use transport::TlsStream;
use transport::lane::MigratingStream;
use transport::permit::Permit;
use transport::standing::FramedStream;

use super::lanes::MigrateToPool;
use super::pool::IdleConnection;
use super::{Agent, StreamSlot};

/// Time for a connection with an abandoned stream to become reusable: a round trip and the data in
/// flight. Beyond that a new connection is cheaper.
const RECYCLE: Duration = Duration::from_secs(5);

/// A byte stream to the service behind an agent.
///
/// Reading ends at the service's end. [`io::ErrorKind::ConnectionReset`] means that the stream
/// broke or that the agent refused it ([`TunnelStream::refusal`]). Dropping it ends the stream; a
/// standing connection returns to its pool.
#[derive(Debug)]
pub(crate) struct TunnelStream {
    transport: StreamTransport,
    _slot: StreamSlot,
}

#[derive(Debug)]
enum StreamTransport {
    Standing(PooledStream),
    /// A lane first, and a standing connection once the stream is no longer small.
    Lane(Box<MigratingStream<MigrateToPool>>),
    /// A connection that the agent opened only for this stream.
    Dedicated(TlsStream),
}

impl TunnelStream {
    pub(super) fn standing(seated: PooledStream, slot: StreamSlot) -> Self {
        Self {
            transport: StreamTransport::Standing(seated),
            _slot: slot,
        }
    }

    pub(super) fn on_lane(carried: MigratingStream<MigrateToPool>, slot: StreamSlot) -> Self {
        Self {
            transport: StreamTransport::Lane(Box::new(carried)),
            _slot: slot,
        }
    }

    pub(super) fn own(stream: TlsStream, slot: StreamSlot) -> Self {
        Self {
            transport: StreamTransport::Dedicated(stream),
            _slot: slot,
        }
    }

    /// Returns true if it has left its lane. Another exchange is cheaper on a new stream.
    pub(crate) fn has_moved(&self) -> bool {
        matches!(&self.transport, StreamTransport::Lane(carried) if carried.is_moved())
    }

    /// The reason why the agent refused the stream, if it gave one; not set for a stream that was
    /// accepted and then broke.
    pub(crate) fn refusal(&self) -> Option<wire::Error> {
        let error = match &self.transport {
            StreamTransport::Standing(seated) => seated.refusal(),
            StreamTransport::Lane(carried) => carried
                .lane_refusal()
                .or_else(|| carried.connection().and_then(PooledStream::refusal)),
            StreamTransport::Dedicated(_) => None,
        };
        error.filter(wire::Error::is_refusal)
    }

    fn io(&mut self) -> Pin<&mut dyn transport::Stream> {
        match &mut self.transport {
            StreamTransport::Standing(seated) => Pin::new(seated),
            StreamTransport::Lane(carried) => Pin::new(&mut **carried),
            StreamTransport::Dedicated(stream) => Pin::new(stream),
        }
    }
}

/// A stream on a standing connection, which returns to its pool when this is dropped.
#[derive(Debug)]
pub(super) struct PooledStream {
    /// Empty only while it is being dropped.
    opened: Option<(FramedStream<TlsStream>, Permit)>,
    agent: Arc<Agent>,
    worker: usize,
}

impl PooledStream {
    pub(super) fn new(
        opened: (FramedStream<TlsStream>, Permit),
        agent: Arc<Agent>,
        worker: usize,
    ) -> Self {
        Self {
            opened: Some(opened),
            agent,
            worker,
        }
    }

    fn refusal(&self) -> Option<wire::Error> {
        self.opened.as_ref()?.0.refusal().cloned()
    }

    fn framed(self: Pin<&mut Self>) -> io::Result<Pin<&mut FramedStream<TlsStream>>> {
        let opened = self.get_mut().opened.as_mut();
        opened
            .map(|(framed, _)| Pin::new(framed))
            .ok_or(io::ErrorKind::NotConnected.into())
    }
}

impl AsyncRead for TunnelStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.io().poll_read(cx, buf)
    }
}

impl AsyncWrite for TunnelStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.io().poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.io().poll_write_vectored(cx, bufs)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.io().poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.io().poll_shutdown(cx)
    }
}

impl AsyncRead for PooledStream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.framed()?.poll_read(cx, buf)
    }
}

impl AsyncWrite for PooledStream {
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

impl Drop for PooledStream {
    fn drop(&mut self) {
        let Some((framed, seat)) = self.opened.take() else {
            return;
        };
        let (agent, worker) = (Arc::clone(&self.agent), self.worker);
        let recycle = async move {
            let recycled = tokio::time::timeout(RECYCLE, framed.recycle());
            let standing = recycled.await.ok().flatten();
            if let Some((standing, pool)) = standing.zip(agent.pool(worker)) {
                pool.put(IdleConnection::recycled(standing, seat), Instant::now());
            }
        };
        // Outside a runtime (when a worker stops) there is no pool to return to.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(recycle);
        }
    }
}
