//! The standing data connections of one agent (extension `pool/1`), a pool for each worker.
//!
//! A visitor takes a connection that waits, and a new one is asked for behind it; so neither a
//! dial nor a handshake is between a visitor and the service. A pool grows with what is asked of
//! it and shrinks to [`SPARE`] when its connections lie idle.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::oneshot;
use transport::TlsStream;
use transport::standing::Standing;

/// A connection without a stream.
pub(super) type Idle = Standing<Box<TlsStream>>;

/// Connections kept ahead of need on each worker: one for the next visitor and one for the
/// visitor who comes while the first is being replaced.
pub(super) const SPARE: usize = 2;
/// How long a connection beyond [`SPARE`] may lie idle.
pub(super) const IDLE: Duration = Duration::from_mins(1);
/// Connections of one agent on one worker, busy ones included. A visitor beyond it waits for one
/// to come back. Descriptors are the resource: 2 × 4,096 is what a process may commonly open.
const MOST: usize = 4096;
/// How long an unanswered demand counts: an agent that could not dial is asked again.
const DEMAND_LASTS: Duration = Duration::from_secs(5);

/// One worker's pool.
#[derive(Debug, Default)]
pub(super) struct Pool {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The most recently used is last and goes first, so that the others can age.
    idle: Vec<(Idle, Instant)>,
    waiting: VecDeque<oneshot::Sender<Idle>>,
    /// Connections that exist, idle and busy.
    open: usize,
    demanded: usize,
    demanded_at: Option<Instant>,
    closed: bool,
}

/// What [`Pool::take`] found.
pub(super) enum Taken {
    /// A connection, and how many more the agent should be asked for.
    Ready(Idle, usize),
    /// None: it will arrive here, once this many have been asked for.
    Later(oneshot::Receiver<Idle>, usize),
    /// The agent is gone.
    Closed,
}

impl Pool {
    pub(super) fn take(&self, now: Instant) -> Taken {
        let mut state = self.state.lock();
        if state.closed {
            return Taken::Closed;
        }
        while let Some((mut idle, _)) = state.idle.pop() {
            if idle.is_alive() {
                let demand = state.demand(now);
                return Taken::Ready(idle, demand);
            }
            state.open = state.open.saturating_sub(1);
        }
        let (sender, receiver) = oneshot::channel();
        state.waiting.push_back(sender);
        let demand = state.demand(now);
        Taken::Later(receiver, demand)
    }

    /// Takes in a connection that is new (`fresh`) or whose stream has ended.
    pub(super) fn put(&self, mut idle: Idle, fresh: bool, now: Instant) {
        let mut state = self.state.lock();
        if fresh {
            state.open += 1;
            state.demanded = state.demanded.saturating_sub(1);
        }
        if state.closed {
            state.open = state.open.saturating_sub(1);
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

    /// Counts out a connection that ended with its stream.
    pub(super) fn lost(&self) {
        let mut state = self.state.lock();
        state.open = state.open.saturating_sub(1);
    }

    /// How much this worker wants for a new connection; the worker with the highest value gets it.
    pub(super) fn need(&self) -> (usize, usize) {
        let state = self.state.lock();
        (
            state.waiting.len() + state.demanded,
            usize::MAX - state.open,
        )
    }

    /// How many connections are idle, and how many carry a stream.
    pub(super) fn counts(&self) -> (usize, usize) {
        let state = self.state.lock();
        let idle = state.idle.len();
        (idle, state.open.saturating_sub(idle))
    }

    /// The demand that opens the pool, or renews one that was not met.
    pub(super) fn demand(&self, now: Instant) -> usize {
        self.state.lock().demand(now)
    }

    /// Takes out what has been idle too long or has been closed by the agent.
    pub(super) fn trim(&self, now: Instant) -> Vec<Idle> {
        let mut state = self.state.lock();
        let mut kept = Vec::with_capacity(state.idle.len());
        let mut out = Vec::new();
        // The oldest come first: they are trimmed as long as enough remain.
        let mut left = state.idle.len();
        for (mut idle, since) in std::mem::take(&mut state.idle) {
            let aged = left > SPARE && now.saturating_duration_since(since) >= IDLE;
            if aged || !idle.is_alive() {
                left -= 1;
                out.push(idle);
            } else {
                kept.push((idle, since));
            }
        }
        state.idle = kept;
        state.open = state.open.saturating_sub(out.len());
        out
    }

    /// Ends the pool: idle connections are handed out to be closed, those who wait are told.
    pub(super) fn close(&self) -> Vec<Idle> {
        let mut state = self.state.lock();
        state.closed = true;
        state.waiting.clear();
        let idle: Vec<_> = state.idle.drain(..).map(|(idle, _)| idle).collect();
        state.open = state.open.saturating_sub(idle.len());
        idle
    }
}

impl State {
    /// How many more to ask the agent for; they count as demanded from here on.
    fn demand(&mut self, now: Instant) -> usize {
        let expired = |at: Instant| now.saturating_duration_since(at) > DEMAND_LASTS;
        if self.demanded_at.is_some_and(expired) {
            self.demanded = 0;
        }
        let wanted = self.waiting.len() + SPARE;
        let coming = self.idle.len() + self.demanded;
        let room = MOST.saturating_sub(self.open + self.demanded);
        let more = wanted.saturating_sub(coming).min(room);
        if more > 0 {
            self.demanded += more;
            self.demanded_at = Some(now);
        }
        more
    }
}
