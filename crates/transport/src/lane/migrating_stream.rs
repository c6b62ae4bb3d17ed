//! A stream that starts on a lane, and moves to its own connection when the lane accepts no more of
//! its bytes.

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

    /// True if this end opens the connection; false if it receives the connection of the peer.
    ///
    /// The end that opens it announces the move after the connection is established. If that fails,
    /// the stream stays on the lane. The other end announces the move first, and then waits for the
    /// connection.
    const PROVIDES_CONNECTION: bool;

    /// Opens the connection, or waits for the peer's. Dropping the future cancels this.
    fn connect(&self) -> ConnectFuture<Self::Connection>;
}

/// The future of a connection that is not established yet.
pub type ConnectFuture<C> = Pin<Box<dyn Future<Output = io::Result<C>> + Send>>;

/// A byte stream that starts on a lane and may move to its own connection.
///
/// A read returns zero bytes after the peer has ended its direction, and
/// [`io::ErrorKind::ConnectionReset`] after the peer has aborted the stream. Dropping a stream that
/// has not ended aborts it.
pub struct MigratingStream<M: MigrationTarget> {
    lane: LaneStream,
    target: M,
    location: StreamLocation<M::Connection>,
    /// All bytes that the peer sent on the lane have been read.
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

/// The wait for the connection. The reader and the writer may be polled by two tasks
/// (`tokio::io::split`); both are woken when the wait ends.
struct Migration<C> {
    connecting: ConnectFuture<C>,
    halves: Arc<HalfWakers>,
}

/// Wakers of the reader and the writer, in this order.
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
        let previous = std::mem::replace(slot, waker);
        // A waker can run code when it is dropped, so this happens without the lock.
        drop(halves);
        drop(previous);
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

    /// Returns the connection, or the error that prevented it.
    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        half: StreamHalf,
        lane: &mut LaneStream,
    ) -> Poll<io::Result<C>> {
        self.halves.set(half, Some(cx.waker().clone()));
        let waker = Waker::from(Arc::clone(&self.halves));
        let mut cx = Context::from_waker(&waker);
        let result = match self.connecting.as_mut().poll(&mut cx) {
            Poll::Pending => Err(ready!(lane.poll_abandoned(&mut cx))),
            Poll::Ready(result) => result,
        };
        // The other half was woken by the event that made this ready.
        self.halves.set(half, None);
        Poll::Ready(result)
    }
}

impl<M: MigrationTarget> MigratingStream<M> {
    /// Wraps a stream that has been opened, and sets its budget on the lane.
    pub fn new(mut lane: LaneStream, target: M, budget: Budget) -> Self {
        lane.set_budget(budget);
        Self {
            lane,
            target,
            location: StreamLocation::Lane,
            lane_is_drained: false,
        }
    }

    /// Returns true if the stream has started to move, even if it has not arrived or the connection
    /// failed.
    pub fn is_moved(&self) -> bool {
        !matches!(self.location, StreamLocation::Lane)
    }

    /// The stream on the lane.
    pub fn lane(&mut self) -> &mut LaneStream {
        &mut self.lane
    }

    /// The connection, after the stream has moved to it.
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

    /// Starts the move, if the stream is on the lane, and waits for the connection. Returns `None`
    /// if this end could not open one, and the stream stays on the lane.
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
        if let StreamLocation::Moving(migration) = &mut self.location {
            let established = ready!(migration.poll(cx, half, &mut self.lane));
            let result = established.and_then(|connection| {
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
            StreamLocation::Failed(kind) => Poll::Ready(Err((*kind).into())),
            StreamLocation::Lane | StreamLocation::Moving(_) => Poll::Ready(Ok(None)),
        }
    }

    /// Releases the stream's resources on the lane, if it has moved and all its bytes on the lane
    /// have been read.
    fn release_lane_if_drained(&mut self) {
        if self.lane_is_drained && matches!(self.location, StreamLocation::Moved(_)) {
            self.lane.leave();
        }
    }
}

impl<M: MigrationTarget + std::fmt::Debug> std::fmt::Debug for MigratingStream<M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MigratingStream")
            .field("lane", &self.lane)
            .field("target", &self.target)
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
            StreamLocation::Failed(kind) => Poll::Ready(Err((*kind).into())),
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
