//! A stream that begins on a lane and moves to a connection of its own when it has much to say.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::stream::{Read, Written};
use super::{Budget, LaneStream};
use crate::Stream;

/// Brings the connection that a stream moves to.
pub trait Mover: Unpin + Send {
    /// What it brings.
    type Connection: Stream;

    /// Begins to bring it. Whoever drops the future does not need it any more.
    fn connect(&self) -> Connecting<Self::Connection>;
}

/// A connection that is being brought.
pub type Connecting<C> = Pin<Box<dyn Future<Output = io::Result<C>> + Send>>;

/// A byte stream that is carried by a lane first.
///
/// Reading ends with the peer's end; [`io::ErrorKind::ConnectionReset`] says that the peer gave
/// the stream up. Dropping it gives it up, if it has not ended.
pub struct Carried<M: Mover> {
    lane: LaneStream,
    mover: M,
    place: Place<M::Connection>,
    /// What came on the lane has been read.
    behind: bool,
}

enum Place<C> {
    Lane,
    /// Our direction has left the lane, and has nowhere to go yet.
    Moving(Connecting<C>),
    Moved(C),
}

impl<M: Mover> Carried<M> {
    /// A stream that has begun, and what it may say on its lane.
    pub fn new(mut lane: LaneStream, mover: M, budget: Budget) -> Self {
        lane.set_budget(budget);
        Self {
            lane,
            mover,
            place: Place::Lane,
            behind: false,
        }
    }

    /// Whether it has left the lane.
    pub fn is_moved(&self) -> bool {
        !matches!(self.place, Place::Lane)
    }

    /// Its part on the lane.
    pub fn lane(&mut self) -> &mut LaneStream {
        &mut self.lane
    }

    /// Where it has moved to, once it has arrived there.
    pub fn connection(&self) -> Option<&M::Connection> {
        match &self.place {
            Place::Moved(connection) => Some(connection),
            Place::Lane | Place::Moving(_) => None,
        }
    }

    /// The same, to change it.
    pub fn connection_mut(&mut self) -> Option<&mut M::Connection> {
        match &mut self.place {
            Place::Moved(connection) => Some(connection),
            Place::Lane | Place::Moving(_) => None,
        }
    }

    /// Why the peer gave it up on the lane, if it said.
    pub fn lane_refusal(&self) -> Option<wire::Error> {
        self.lane.refusal()
    }

    /// Leaves the lane, if it is there, and waits for the connection.
    fn poll_moved(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Pin<&mut M::Connection>>> {
        if matches!(self.place, Place::Lane) {
            self.lane.move_on()?;
            self.place = Place::Moving(self.mover.connect());
        }
        if let Place::Moving(connecting) = &mut self.place {
            let connection = ready!(connecting.as_mut().poll(cx))?;
            self.place = Place::Moved(connection);
        }
        match &mut self.place {
            Place::Moved(connection) => Poll::Ready(Ok(Pin::new(connection))),
            Place::Lane | Place::Moving(_) => Poll::Pending,
        }
    }
}

impl<M: Mover + std::fmt::Debug> std::fmt::Debug for Carried<M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Carried")
            .field("lane", &self.lane)
            .field("mover", &self.mover)
            .finish_non_exhaustive()
    }
}

impl<M: Mover> AsyncRead for Carried<M> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if buf.remaining() == 0 {
            return Poll::Ready(Ok(()));
        }
        if !this.behind {
            match ready!(this.lane.poll_read(cx, buf))? {
                Read::Bytes => return Poll::Ready(Ok(())),
                Read::Moved => this.behind = true,
            }
        }
        ready!(this.poll_moved(cx))?.poll_read(cx, buf)
    }
}

impl<M: Mover> AsyncWrite for Carried<M> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        if buf.is_empty() {
            return Poll::Ready(Ok(0));
        }
        if matches!(this.place, Place::Lane) {
            match ready!(this.lane.poll_write(cx, buf))? {
                Written::Bytes(taken) => return Poll::Ready(Ok(taken)),
                Written::Full => {}
            }
        }
        ready!(this.poll_moved(cx))?.poll_write(cx, buf)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().place {
            // What a lane has taken is sent without being asked for.
            Place::Lane | Place::Moving(_) => Poll::Ready(Ok(())),
            Place::Moved(connection) => Pin::new(connection).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if matches!(this.place, Place::Lane) {
            return Poll::Ready(this.lane.end());
        }
        ready!(this.poll_moved(cx))?.poll_shutdown(cx)
    }
}
