//! The standing data connections of one agent (extension `pool/1`), a pool for each worker.
//!
//! A visitor takes an idle connection, and the engine requests a new one to replace it. So a
//! visitor waits neither for a dial nor for a handshake. A pool grows with demand, and shrinks to
//! [`SPARE`] when its connections are idle.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::oneshot;
use transport::lane::{Driver, Lane};
use transport::permit::{Counter, Permit};
use transport::standing::{FramedStream, StandingConnection};
use transport::{Stream, TlsStream};
use wire::pool::StreamOpen;

/// A connection without a stream.
pub(super) struct IdleConnection<T = TlsStream> {
    standing: StandingConnection<T>,
    /// Its slot in the pool, idle or busy.
    permit: Permit,
}

/// Idle connections on each worker in advance of demand: one for the next visitor, and one for a
/// visitor that arrives while the first is being replaced.
pub(super) const SPARE: usize = 2;
/// Time that a connection beyond [`SPARE`] may be idle.
pub(super) const IDLE: Duration = Duration::from_mins(1);
/// Connections of one agent on one worker, including busy ones. A visitor beyond the limit waits
/// until one is returned. Descriptors are the limiting resource: 2 × 4,096 is what a process may
/// commonly open.
const MAX_CONNECTIONS: usize = 4096;
/// Time that an unfulfilled request counts: an agent that could not dial receives another one.
const DEMAND_TIMEOUT: Duration = Duration::from_secs(5);
/// Time after which a waiting visitor checks if the request must be repeated.
pub(super) const DEMAND_RETRY: Duration = Duration::from_millis(5_100);

/// One worker's pool.
pub(super) struct Pool<T = TlsStream> {
    state: Mutex<State<T>>,
    /// Number of connections, idle and busy.
    open: Arc<Counter>,
}

struct State<T> {
    /// The most recently used is last and is taken first, so that the others can expire.
    idle: Vec<(IdleConnection<T>, Instant)>,
    waiting: VecDeque<oneshot::Sender<IdleConnection<T>>>,
    demanded: usize,
    demanded_at: Option<Instant>,
    closed: bool,
}

/// The result of [`Pool::take`].
pub(super) enum Checkout<T = TlsStream> {
    /// A connection, and the number of further ones to request from the agent.
    Ready(IdleConnection<T>, usize),
    /// None is idle: the receiver gets one. The number is as for `Ready`.
    Queued(oneshot::Receiver<IdleConnection<T>>, usize),
    /// The agent is gone.
    Closed,
}

impl<T: Stream> IdleConnection<T> {
    /// A connection whose stream has ended.
    pub(super) fn recycled(standing: StandingConnection<T>, permit: Permit) -> Self {
        Self { standing, permit }
    }

    /// Opens a stream.
    ///
    /// # Errors
    /// Those of [`StandingConnection::open`]; the connection is closed then.
    pub(super) fn open(self, open: &StreamOpen) -> io::Result<(FramedStream<T>, Permit)> {
        let Self { standing, permit } = self;
        Ok((standing.open(open)?, permit))
    }

    fn is_alive(&mut self) -> bool {
        self.standing.is_alive()
    }
}

impl IdleConnection {
    /// Turns it into a lane, which breaks when the peer's system acknowledges nothing in flight for
    /// `stall`.
    ///
    /// # Errors
    /// Those of [`StandingConnection::into_lane`]; the connection is closed then.
    pub(super) fn into_lane(
        self,
        stall: Duration,
    ) -> io::Result<(Lane, Driver<TlsStream>, Permit)> {
        let Self {
            mut standing,
            permit,
        } = self;
        standing.get_mut().get_ref().0.limit_stall(Some(stall));
        let (lane, driver) = standing.into_lane()?;
        Ok((lane, driver, permit))
    }
}

impl<T> Default for Pool<T> {
    fn default() -> Self {
        let state = State {
            idle: Vec::new(),
            waiting: VecDeque::new(),
            demanded: 0,
            demanded_at: None,
            closed: false,
        };
        Self {
            state: Mutex::new(state),
            open: Arc::default(),
        }
    }
}

impl<T: Stream> Pool<T> {
    pub(super) fn take(&self, now: Instant) -> Checkout<T> {
        let mut state = self.state.lock();
        if state.closed {
            return Checkout::Closed;
        }
        while let Some((mut idle, _)) = state.idle.pop() {
            if idle.is_alive() {
                let demand = state.demand(now, self.connection_count());
                return Checkout::Ready(idle, demand);
            }
        }
        let (sender, receiver) = oneshot::channel();
        state.waiting.push_back(sender);
        let demand = state.demand(now, self.connection_count());
        Checkout::Queued(receiver, demand)
    }

    /// Adds a new connection; it is closed if the pool has reached its limit.
    pub(super) fn add(&self, standing: StandingConnection<T>, now: Instant) {
        let permit = Permit::try_take(&self.open, MAX_CONNECTIONS);
        {
            let mut state = self.state.lock();
            state.demanded = state.demanded.saturating_sub(1);
        }
        if let Some(permit) = permit {
            self.put(IdleConnection::recycled(standing, permit), now);
        }
    }

    /// Adds a connection whose stream has ended.
    pub(super) fn put(&self, mut idle: IdleConnection<T>, now: Instant) {
        let mut state = self.state.lock();
        if state.closed {
            return;
        }
        while let Some(waiting) = state.waiting.pop_front() {
            match waiting.send(idle) {
                Ok(()) => return,
                // That visitor has gone; the next one gets it.
                Err(back) => idle = back,
            }
        }
        state.idle.push((idle, now));
    }

    fn connection_count(&self) -> usize {
        self.open.count()
    }

    /// Demand of this worker for a new connection; the worker with the highest value gets it.
    pub(super) fn demand_score(&self) -> (usize, usize) {
        let state = self.state.lock();
        (
            state.waiting.len() + state.demanded,
            usize::MAX - self.connection_count(),
        )
    }

    /// Number of idle connections, and number of connections with a stream.
    pub(super) fn counts(&self) -> (usize, usize) {
        let state = self.state.lock();
        let idle = state.idle.len();
        (idle, self.connection_count().saturating_sub(idle))
    }

    /// The number of connections to request initially, or to request again.
    pub(super) fn demand(&self, now: Instant) -> usize {
        self.state.lock().demand(now, self.connection_count())
    }

    /// Removes connections that were idle too long or that the agent closed.
    pub(super) fn trim(&self, now: Instant) -> Vec<IdleConnection<T>> {
        let mut state = self.state.lock();
        let mut remaining = Vec::with_capacity(state.idle.len());
        let mut closed = Vec::new();
        // The oldest are first: they are trimmed while enough remain.
        let mut left = state.idle.len();
        for (mut idle, since) in std::mem::take(&mut state.idle) {
            let aged = left > SPARE && now.saturating_duration_since(since) >= IDLE;
            if aged || !idle.is_alive() {
                left -= 1;
                closed.push(idle);
            } else {
                remaining.push((idle, since));
            }
        }
        state.idle = remaining;
        state.waiting.retain(|waiting| !waiting.is_closed());
        closed
    }

    /// Ends the pool: idle connections are returned to be closed, and waiting visitors are
    /// notified.
    pub(super) fn close(&self) -> Vec<IdleConnection<T>> {
        let mut state = self.state.lock();
        state.closed = true;
        state.waiting.clear();
        state.idle.drain(..).map(|(idle, _)| idle).collect()
    }
}

impl<T> State<T> {
    /// Number of further connections to request from the agent; they count as requested from here
    /// on.
    fn demand(&mut self, now: Instant, open: usize) -> usize {
        let expired = |at: Instant| now.saturating_duration_since(at) > DEMAND_TIMEOUT;
        if self.demanded_at.is_some_and(expired) {
            self.demanded = 0;
        }
        // Visitors that stopped waiting. All have the same time limit, so these are in front.
        while self.waiting.front().is_some_and(oneshot::Sender::is_closed) {
            self.waiting.pop_front();
        }
        let wanted = self.waiting.len() + SPARE;
        let expected = self.idle.len() + self.demanded;
        let room = MAX_CONNECTIONS.saturating_sub(open + self.demanded);
        let more = wanted.saturating_sub(expected).min(room);
        if more > 0 {
            self.demanded += more;
            self.demanded_at = Some(now);
        }
        more
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{DuplexStream, duplex};
    use wire::pool::Side;

    use super::*;

    fn standing() -> (StandingConnection<DuplexStream>, DuplexStream) {
        let (near, far) = duplex(64);
        (StandingConnection::new(near, Side::Engine), far)
    }

    fn waits(
        taken: Checkout<DuplexStream>,
    ) -> (oneshot::Receiver<IdleConnection<DuplexStream>>, usize) {
        match taken {
            Checkout::Queued(arrival, demand) => (arrival, demand),
            Checkout::Ready(..) | Checkout::Closed => {
                panic!("nothing is idle and the pool is open")
            }
        }
    }

    #[test]
    fn no_connections_are_requested_for_cancelled_visitors() {
        let pool = Pool::default();
        let mut now = Instant::now();
        for _ in 0..1000 {
            let (arrival, demand) = waits(pool.take(now));
            assert!(demand <= SPARE + 1, "{demand}");
            drop(arrival);
            now += 2 * DEMAND_TIMEOUT;
        }
        assert!(pool.state.lock().waiting.len() <= 1);
    }

    #[tokio::test]
    async fn an_unclaimed_connection_no_longer_counts() {
        let pool = Pool::default();
        let now = Instant::now();
        let (arrival, _) = waits(pool.take(now));
        let (standing, _far) = standing();
        pool.add(standing, now);
        assert_eq!(pool.counts(), (0, 1));
        // Sent, and not received: the visitor was cancelled in between.
        drop(arrival);
        assert_eq!(pool.counts(), (0, 0));
    }

    #[tokio::test]
    async fn idle_connections_beyond_two_are_closed_after_a_minute() {
        let pool = Pool::default();
        let now = Instant::now();
        let mut ends = Vec::new();
        for _ in 0..5 {
            let (standing, far) = standing();
            pool.add(standing, now);
            ends.push(far);
        }
        assert_eq!(pool.trim(now + Duration::from_secs(59)).len(), 0);
        assert_eq!(pool.trim(now + Duration::from_mins(1)).len(), 3);
        assert_eq!(pool.trim(now + Duration::from_hours(1)).len(), 0);
        assert_eq!(pool.counts(), (2, 0));
    }

    #[tokio::test]
    async fn an_agent_cannot_open_more_connections_than_the_limit() {
        let pool = Pool::default();
        let now = Instant::now();
        let mut ends = Vec::new();
        for _ in 0..MAX_CONNECTIONS + 10 {
            let (standing, far) = standing();
            pool.add(standing, now);
            ends.push(far);
        }
        assert_eq!(pool.counts(), (MAX_CONNECTIONS, 0));
        drop(pool.close());
        assert_eq!(pool.counts(), (0, 0));
    }
}
