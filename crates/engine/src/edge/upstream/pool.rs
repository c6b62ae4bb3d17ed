//! The pool of connections of one worker.

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::time::{Duration, Instant};

use types::id::TunnelId;

use super::http2::{Http2, SharedHttp2, StreamPermit};
use super::io::UpstreamIo;
use crate::edge::http1::buffered::BufferedStream;

/// Time that a connection stays in the pool without a request. It is below the 60 to 75 s after
/// which common servers close idle connections, so that few requests meet a closed connection.
const IDLE_TIMEOUT: Duration = Duration::from_secs(50);

/// A connection is used for this much less than the service announces, because a request takes a
/// while to arrive; for half of a shorter time.
const IDLE_MARGIN: Duration = Duration::from_secs(1);

/// Shortest idle time that closed connections are taken for. A service that restarts closes all of
/// them, also those that were used just before.
const MIN_OBSERVED_TIMEOUT: Duration = Duration::from_secs(1);

/// Time that an observed close counts. A service may have been replaced by another since.
const OBSERVATION_LIFETIME: Duration = Duration::from_mins(10);

/// Limit of idle connections to one service on one worker, enough to reuse those of a burst.
const MAX_IDLE_PER_TUNNEL: usize = 256;

/// Limit of idle connections to one service that moved out of their lane. A small request is more
/// expensive on them. The limit is enough for the large responses of a few visitors.
const MAX_MIGRATED_PER_TUNNEL: usize = 8;

/// Limit of idle connections on one worker. Each occupies one of its agent's streams and data
/// connections, so idle connections alone could exhaust an agent with many tunnels.
const MAX_IDLE_PER_WORKER: usize = 2048;

/// An HTTP/1.1 connection to a service.
pub(crate) type Http1 = BufferedStream<UpstreamIo>;

/// A connection that is ready for a request.
pub(crate) enum Connection {
    Http1(Http1),
    Http2(Http2),
}

/// Idle and shared connections of one worker.
#[derive(Debug)]
pub(crate) struct UpstreamPool<C = Http1> {
    by_tunnel: HashMap<TunnelId, IdleConnections<C>>,
    /// Number of idle HTTP/1.1 connections.
    idle: usize,
}

/// Idle and shared connections of one tunnel.
#[derive(Debug)]
pub(crate) struct IdleConnections<C = Http1> {
    /// The most recently used connection is last and is taken first.
    http1: Vec<IdleConnection<C>>,
    http2: Vec<SharedHttp2>,
    /// The service closed a connection that had been idle for a while: limit of the idle time, and
    /// time of the observation.
    observed: Option<(Duration, Instant)>,
}

/// An idle connection.
#[derive(Debug)]
struct IdleConnection<C> {
    io: C,
    last_used: Instant,
    /// Limit of the idle time.
    timeout: Duration,
}

impl<C> IdleConnection<C> {
    fn is_expired(&self, now: Instant, limit: Duration) -> bool {
        now.saturating_duration_since(self.last_used) >= self.timeout.min(limit)
    }
}

/// An HTTP/1.1 connection that can be pooled.
pub(crate) trait ReusableConnection {
    /// True if the connection can serve another request after it has been idle.
    fn is_reusable(&mut self) -> bool;

    /// Like [`TunnelStream::has_moved`].
    fn has_moved(&self) -> bool;
}

impl ReusableConnection for Http1 {
    /// The check reads without the bandwidth limit, because a throttled read would show nothing
    /// about the connection.
    fn is_reusable(&mut self) -> bool {
        self.io.throttled().set_throttled(false);
        let is_quiet = self.is_quiet();
        self.io.throttled().set_throttled(true);
        is_quiet
    }

    fn has_moved(&self) -> bool {
        self.io.stream().has_moved()
    }
}

impl<C> Default for UpstreamPool<C> {
    fn default() -> Self {
        Self {
            by_tunnel: HashMap::new(),
            idle: 0,
        }
    }
}

impl<C> Default for IdleConnections<C> {
    fn default() -> Self {
        Self {
            http1: Vec::new(),
            http2: Vec::new(),
            observed: None,
        }
    }
}

impl<C> IdleConnections<C> {
    /// Records that the service closed a connection that had been used at `last_used`.
    fn observe_close(&mut self, last_used: Instant, now: Instant) {
        let idle = now.saturating_duration_since(last_used);
        if idle < MIN_OBSERVED_TIMEOUT {
            return;
        }
        // The service closed it before that, and a request takes a while to arrive.
        let timeout = (idle * 3 / 4).max(MIN_OBSERVED_TIMEOUT);
        let timeout = timeout.min(self.observed_timeout(now).unwrap_or(timeout));
        self.observed = Some((timeout, now));
    }

    fn observed_timeout(&self, now: Instant) -> Option<Duration> {
        let (timeout, observed) = self.observed?;
        let is_recent = now.saturating_duration_since(observed) < OBSERVATION_LIFETIME;
        is_recent.then_some(timeout)
    }
}

impl UpstreamPool {
    pub(super) fn take(&mut self, tunnel: TunnelId) -> Option<Connection> {
        if let Some(http2) = self.take_http2(tunnel) {
            return Some(Connection::Http2(http2));
        }
        self.take_http1(tunnel).map(Connection::Http1)
    }
}

impl<C: ReusableConnection> UpstreamPool<C> {
    fn take_http2(&mut self, tunnel: TunnelId) -> Option<Http2> {
        let connections = self.by_tunnel.get_mut(&tunnel)?;
        connections
            .http2
            .iter_mut()
            .find_map(SharedHttp2::try_acquire)
    }

    fn take_http1(&mut self, tunnel: TunnelId) -> Option<C> {
        let connections = self.by_tunnel.get_mut(&tunnel)?;
        let now = Instant::now();
        while let Some(mut idle) = connections.http1.pop() {
            self.idle = self.idle.saturating_sub(1);
            if !idle.io.is_reusable() {
                connections.observe_close(idle.last_used, now);
            } else if !idle.is_expired(now, IDLE_TIMEOUT) {
                return Some(idle.io);
            }
        }
        None
    }

    /// Removes the connections of a tunnel that ended, to be dropped outside the lock.
    pub(crate) fn remove_tunnel(&mut self, tunnel: TunnelId) -> Option<IdleConnections<C>> {
        let connections = self.by_tunnel.remove(&tunnel)?;
        self.idle = self.idle.saturating_sub(connections.http1.len());
        Some(connections)
    }

    /// Removes the connections of all tunnels that `is_wanted` selects, to be dropped outside the lock.
    pub(crate) fn remove_tunnels(
        &mut self,
        is_wanted: impl Fn(&TunnelId) -> bool,
    ) -> Vec<IdleConnections<C>> {
        let wanted = self.by_tunnel.keys().copied();
        let wanted: Vec<TunnelId> = wanted.filter(is_wanted).collect();
        let removed = wanted.into_iter();
        removed
            .filter_map(|tunnel| self.remove_tunnel(tunnel))
            .collect()
    }

    /// Keeps a connection after a complete exchange. The service closes it if it has been idle for
    /// `announced`.
    pub(super) fn keep(&mut self, tunnel: TunnelId, io: C, announced: Option<Duration>) {
        if self.idle >= MAX_IDLE_PER_WORKER {
            // The pool is full. Its connections were used as recently, or are closed soon.
            return;
        }
        let connections = self.by_tunnel.entry(tunnel).or_default();
        if connections.http1.len() >= MAX_IDLE_PER_TUNNEL {
            return;
        }
        let index = if io.has_moved() {
            let moved = |idle: &&IdleConnection<C>| idle.io.has_moved();
            let migrated = connections.http1.iter().take_while(moved).count();
            if migrated >= MAX_MIGRATED_PER_TUNNEL {
                return;
            }
            // Migrated connections are in front, so that they are taken last.
            migrated
        } else {
            connections.http1.len()
        };
        let now = Instant::now();
        let announced =
            announced.map(|announced| announced.saturating_sub(IDLE_MARGIN.min(announced / 2)));
        let timeouts = [announced, connections.observed_timeout(now)];
        let timeout = timeouts.into_iter().flatten().min();
        let idle = IdleConnection {
            io,
            last_used: now,
            timeout: timeout.unwrap_or(IDLE_TIMEOUT),
        };
        connections.http1.insert(index, idle);
        self.idle += 1;
    }

    pub(super) fn share(&mut self, tunnel: TunnelId, shared: SharedHttp2) {
        let connections = self.by_tunnel.entry(tunnel).or_default();
        // Simultaneous requests may each have opened a connection. The idle ones are not needed.
        connections.http2.retain(|other| !other.limit.is_idle());
        connections.http2.push(shared);
    }

    /// Removes a shared connection that did not respond in time, so that it gets no further
    /// requests. Requests in flight on it have their own deadlines.
    pub(super) fn remove_http2(&mut self, tunnel: TunnelId, permit: &StreamPermit) {
        if let Some(connections) = self.by_tunnel.get_mut(&tunnel) {
            let http2 = &mut connections.http2;
            http2.retain(|shared| !permit.is_of(&shared.limit));
        }
    }

    /// Removes all HTTP/1.1 connections of these tunnels, to be dropped outside the lock.
    pub(super) fn drain_http1(&mut self, tunnels: &[TunnelId]) -> Vec<C> {
        let mut out = Vec::new();
        for tunnel in tunnels {
            if let Some(connections) = self.by_tunnel.get_mut(tunnel) {
                out.extend(connections.http1.drain(..).map(|idle| idle.io));
            }
        }
        self.idle = self.idle.saturating_sub(out.len());
        out
    }

    /// Removes connections that were unused for `idle` or for [`IDLE_TIMEOUT`], to be closed
    /// outside the lock.
    pub(crate) fn trim(&mut self, now: Instant, idle: Duration) -> Vec<C> {
        let idle = idle.min(IDLE_TIMEOUT);
        let mut out = Vec::new();
        self.by_tunnel.retain(|_, connections| {
            let mut closed = Vec::new();
            let ended = connections.http1.extract_if(.., |connection| {
                let is_reusable = connection.io.is_reusable();
                if !is_reusable {
                    closed.push(connection.last_used);
                }
                !is_reusable || connection.is_expired(now, idle)
            });
            out.extend(ended.map(|connection| connection.io));
            for last_used in closed {
                connections.observe_close(last_used, now);
            }
            let aged = |used: &Instant| now.saturating_duration_since(*used) >= idle;
            connections.http2.retain(|shared| {
                let unused = shared.limit.is_idle() && aged(&shared.last_used);
                !unused && !shared.is_closed()
            });
            !connections.http1.is_empty()
                || !connections.http2.is_empty()
                || connections.observed_timeout(now).is_some()
        });
        self.idle = self.idle.saturating_sub(out.len());
        out
    }
}
