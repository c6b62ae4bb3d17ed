//! A stream that starts on a lane and moves to its own connection when it has much data.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker, ready};

use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::stream::{ReadOutcome, WriteOutcome};
use super::{Budget, LaneStream};
use crate::Stream;

/// Provides the connection that a stream moves to.
pub trait MigrationTarget: Unpin + Send {
    /// Type of the connection.
    type Connection: Stream;

    /// True if this end provides the connection. It gets the connection first; without one the
    /// stream stays on the lane. The other end announces that it leaves the lane, and waits.
    const PROVIDES_CONNECTION: bool;

    /// Starts to establish the connection. Dropping the future cancels it.
    fn connect(&self) -> ConnectFuture<Self::Connection>;
}

/// A connection that is being established.
pub type ConnectFuture<C> = Pin<Box<dyn Future<Output = io::Result<C>> + Send>>;

/// A byte stream that starts on a lane.
///
/// Reading ends at the peer's end. [`io::ErrorKind::ConnectionReset`] means that the peer aborted
/// the stream. Dropping it aborts it, if it has not ended.
pub struct MigratingStream<M: MigrationTarget> {
    lane: LaneStream,
    target: M,
    location: StreamLocation<M::Connection>,
    /// All bytes on the lane have been read.
    lane_is_drained: bool,
}

enum StreamLocation<C> {
    Lane,
    /// Our direction leaves the lane, and its connection is not established yet.
    Moving(Migration<C>),
    Moved(C),
    /// The connection failed, for this reason.
    Failed(io::ErrorKind),
}

/// A stream that is moving. Its halves may belong to two tasks (`tokio::io::split`), and both
/// continue when it has arrived.
struct Migration<C> {
    connecting: ConnectFuture<C>,
    halves: Arc<HalfWakers>,
}

#[derive(Default)]
struct HalfWakers(Mutex<[Option<Waker>; 2]>);

#[derive(Clone, Copy)]
enum StreamHalf {
    Reader,
    Writer,
}

impl HalfWakers {
    fn set(&self, half: StreamHalf, waker: Option<Waker>) {
        let mut halves = self.0.lock();
        let [reader, writer] = &mut *halves;
        let slot = match half {
            StreamHalf::Reader => reader,
            StreamHalf::Writer => writer,
        };
        let before = std::mem::replace(slot, waker);
        drop(halves);
        drop(before);
    }
}

impl Wake for HalfWakers {
    fn wake(self: Arc<Self>) {
        let halves = std::mem::take(&mut *self.0.lock());
        halves.into_iter().flatten().for_each(Waker::wake);
    }
}

impl<C> Migration<C> {
    fn new(connecting: ConnectFuture<C>) -> Self {
        Self {
            connecting,
            halves: Arc::default(),
        }
    }

    /// Ready with the connection, or with the reason why there is none.
    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        half: StreamHalf,
        lane: &mut LaneStream,
    ) -> Poll<io::Result<C>> {
        self.halves.set(half, Some(cx.waker().clone()));
        let waker = Waker::from(Arc::clone(&self.halves));
        let mut cx = Context::from_waker(&waker);
        let moved = match self.connecting.as_mut().poll(&mut cx) {
            Poll::Pending => Err(ready!(lane.poll_abandoned(&mut cx))),
            Poll::Ready(moved) => moved,
        };
        // The other half was woken by the event that made this ready.
        self.halves.set(half, None);
        Poll::Ready(moved)
    }
}

impl<M: MigrationTarget> MigratingStream<M> {
    /// A stream that has been opened, and its budget on the lane.
    pub fn new(mut lane: LaneStream, target: M, budget: Budget) -> Self {
        lane.set_budget(budget);
        Self {
            lane,
            target,
            location: StreamLocation::Lane,
            lane_is_drained: false,
        }
    }

    /// Returns true if it has left the lane.
    pub fn is_moved(&self) -> bool {
        !matches!(self.location, StreamLocation::Lane)
    }

    /// Its part on the lane.
    pub fn lane(&mut self) -> &mut LaneStream {
        &mut self.lane
    }

    /// The connection that it has moved to, once it has arrived there.
    pub fn connection(&self) -> Option<&M::Connection> {
        match &self.location {
            StreamLocation::Moved(connection) => Some(connection),
            StreamLocation::Lane | StreamLocation::Moving(_) | StreamLocation::Failed(_) => None,
        }
    }

    /// The same connection, mutable.
    pub fn connection_mut(&mut self) -> Option<&mut M::Connection> {
        match &mut self.location {
            StreamLocation::Moved(connection) => Some(connection),
            StreamLocation::Lane | StreamLocation::Moving(_) | StreamLocation::Failed(_) => None,
        }
    }

    /// The reason why the peer aborted it on the lane, if the peer sent one.
    pub fn lane_refusal(&self) -> Option<wire::Error> {
        self.lane.refusal()
    }

    /// Leaves the lane, if it is there, and waits for the connection. `None`: there is none, and
    /// the stream stays.
    fn poll_moved(
        &mut self,
        cx: &mut Context<'_>,
        half: StreamHalf,
    ) -> Poll<io::Result<Option<Pin<&mut M::Connection>>>> {
        if matches!(self.location, StreamLocation::Lane) {
            if !M::PROVIDES_CONNECTION {
                self.lane.send_move()?;
            }
            self.location = StreamLocation::Moving(Migration::new(self.target.connect()));
        }
        if let StreamLocation::Moving(moving) = &mut self.location {
            let moved = ready!(moving.poll(cx, half, &mut self.lane));
            let result = moved.and_then(|connection| {
                if M::PROVIDES_CONNECTION {
                    self.lane.send_move()?;
                }
                Ok(connection)
            });
            self.location = match result {
                Ok(connection) => {
                    self.lane.arrive();
                    StreamLocation::Moved(connection)
                }
                Err(_) if M::PROVIDES_CONNECTION && self.lane.may_stay() => {
                    self.lane.keep_on_lane();
                    StreamLocation::Lane
                }
                Err(error) => StreamLocation::Failed(error.kind()),
            };
            self.release_lane_if_drained();
        }
        match &mut self.location {
            StreamLocation::Moved(connection) => Poll::Ready(Ok(Some(Pin::new(connection)))),
            StreamLocation::Failed(why) => Poll::Ready(Err((*why).into())),
            StreamLocation::Lane | StreamLocation::Moving(_) => Poll::Ready(Ok(None)),
        }
    }

    /// Releases the stream's resources on the lane once it has arrived elsewhere and its bytes on
    /// the lane have been read.
    fn release_lane_if_drained(&mut self) {
        if self.lane_is_drained && matches!(self.location, StreamLocation::Moved(_)) {
            self.lane.leave();
        }
    }
}

impl<M: MigrationTarget + std::fmt::Debug> std::fmt::Debug for MigratingStream<M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Carried")
            .field("lane", &self.lane)
            .field("mover", &self.target)
            .finish_non_exhaustive()
    }
}

impl<M: MigrationTarget> AsyncRead for MigratingStream<M> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if buf.remaining() == 0 {
            return Poll::Ready(Ok(()));
        }
        if !this.lane_is_drained {
            match ready!(this.lane.poll_read(cx, buf))? {
                ReadOutcome::Bytes => return Poll::Ready(Ok(())),
                ReadOutcome::Moved => {
                    this.lane_is_drained = true;
                    this.release_lane_if_drained();
                }
            }
        }
        match ready!(this.poll_moved(cx, StreamHalf::Reader))? {
            Some(connection) => connection.poll_read(cx, buf),
            // The peer has left the lane, so this end cannot stay on it.
            None => Poll::Ready(Err(io::ErrorKind::NotConnected.into())),
        }
    }
}

impl<M: MigrationTarget> AsyncWrite for MigratingStream<M> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        if buf.is_empty() {
            return Poll::Ready(Ok(0));
        }
        loop {
            if matches!(this.location, StreamLocation::Lane) {
                match ready!(this.lane.poll_write(cx, buf))? {
                    WriteOutcome::Bytes(taken) => return Poll::Ready(Ok(taken)),
                    WriteOutcome::Full => {}
                }
            }
            if let Some(connection) = ready!(this.poll_moved(cx, StreamHalf::Writer))? {
                return connection.poll_write(cx, buf);
            }
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().location {
            // A lane sends its bytes without a flush.
            StreamLocation::Lane | StreamLocation::Moving(_) => Poll::Ready(Ok(())),
            StreamLocation::Moved(connection) => Pin::new(connection).poll_flush(cx),
            StreamLocation::Failed(why) => Poll::Ready(Err((*why).into())),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if !matches!(this.location, StreamLocation::Lane)
            && let Some(connection) = ready!(this.poll_moved(cx, StreamHalf::Writer))?
        {
            return connection.poll_shutdown(cx);
        }
        Poll::Ready(this.lane.send_end())
    }
}
