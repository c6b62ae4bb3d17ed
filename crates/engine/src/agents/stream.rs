//! One stream through a tunnel, whichever way it came.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use transport::TlsStream;
use transport::standing::Framed;

use super::StreamSlot;
use super::pool::{Idle, Seat};

/// How long a connection whose stream was abandoned may take to become usable again. A round trip
/// and what was under way; beyond it a new one is cheaper.
const RECYCLE: Duration = Duration::from_secs(5);

/// A byte stream to the service behind an agent.
///
/// Reading ends with the service's end; [`io::ErrorKind::ConnectionReset`] says that it broke
/// off, or that the agent refused ([`TunnelStream::refusal`]). Dropping it ends the stream; a
/// standing connection goes back to its pool.
#[derive(Debug)]
pub(crate) struct TunnelStream {
    carrier: Carrier,
    slot: StreamSlot,
    worker: usize,
}

#[derive(Debug)]
enum Carrier {
    /// A standing connection; empty only while it is being dropped.
    Standing(Option<(Framed<Box<TlsStream>>, Seat)>),
    /// A connection that the agent opened for this stream alone.
    Own(Box<TlsStream>),
}

impl TunnelStream {
    pub(super) fn standing(
        opened: (Framed<Box<TlsStream>>, Seat),
        slot: StreamSlot,
        worker: usize,
    ) -> Self {
        Self {
            carrier: Carrier::Standing(Some(opened)),
            slot,
            worker,
        }
    }

    pub(super) fn own(stream: TlsStream, slot: StreamSlot, worker: usize) -> Self {
        Self {
            carrier: Carrier::Own(Box::new(stream)),
            slot,
            worker,
        }
    }

    /// Why the agent refused the stream, if it did and said.
    pub(crate) fn refusal(&self) -> Option<&wire::Error> {
        match &self.carrier {
            Carrier::Standing(standing) => standing.as_ref()?.0.refusal(),
            Carrier::Own(_) => None,
        }
    }

    fn io(&mut self) -> io::Result<Pin<&mut dyn transport::Stream>> {
        match &mut self.carrier {
            Carrier::Standing(Some((framed, _))) => Ok(Pin::new(framed)),
            Carrier::Standing(None) => Err(io::ErrorKind::NotConnected.into()),
            Carrier::Own(stream) => Ok(Pin::new(&mut **stream)),
        }
    }
}

impl AsyncRead for TunnelStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match &mut self.carrier {
            Carrier::Standing(Some((framed, _))) => Pin::new(framed).poll_read(cx, buf),
            Carrier::Standing(None) => Poll::Ready(Err(io::ErrorKind::NotConnected.into())),
            Carrier::Own(stream) => Pin::new(&mut **stream).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for TunnelStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.io()?.poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.io()?.poll_write_vectored(cx, bufs)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.io()?.poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.io()?.poll_shutdown(cx)
    }
}

impl Drop for TunnelStream {
    fn drop(&mut self) {
        let Carrier::Standing(carrier) = &mut self.carrier else {
            return;
        };
        let Some((framed, seat)) = carrier.take() else {
            return;
        };
        let (agent, worker) = (Arc::clone(&self.slot.0), self.worker);
        let recycle = async move {
            let recycled = tokio::time::timeout(RECYCLE, framed.recycle());
            let standing = recycled.await.ok().flatten();
            if let Some((standing, pool)) = standing.zip(agent.pool(worker)) {
                pool.put(Idle::again(standing, seat), Instant::now());
            }
        };
        // Outside a runtime (at the very end of a worker) there is no pool to go back to.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(recycle);
        }
    }
}
