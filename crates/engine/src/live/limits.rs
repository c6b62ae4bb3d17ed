//! Limits of the live state of an engine.

use std::time::Duration;

use crate::config::{FixedTimeouts, QuotaPercent};
use crate::directory::Project;

/// Limits of the live state, which bound the memory that peers can use.
#[derive(Debug, Clone)]
pub struct LiveLimits {
    /// Concurrent control channels.
    pub clients: usize,
    /// Concurrent tunnels of all clients.
    pub tunnels: usize,
    /// Tunnels of one client.
    pub tunnels_per_client: usize,
    /// Concurrent watchers (SSE and WebSocket).
    pub watchers: usize,
    /// Share of clients, tunnels, watchers and remembered host names that one of several projects
    /// may have.
    pub project_share: QuotaPercent,
    /// Events that may wait for one watcher; with one more it is closed as too slow.
    pub watcher_queue: usize,
    /// Hostnames remembered as offline.
    pub remembered_hostnames: usize,
    /// Time that a host name without an agent is "offline" before it is unknown.
    pub hostname_memory: Duration,
    /// Time after a failure in which only few visitors try a tunnel.
    pub failing: Duration,
}

impl Default for LiveLimits {
    fn default() -> Self {
        Self {
            // An idle agent needs about 30 KiB: 300 MiB at this limit.
            clients: 10_000,
            // Twice the clients: most agents publish one or two services.
            tunnels: 20_000,
            // A host with more services than this runs more than one agent.
            tunnels_per_client: 500,
            // At 16 KiB each, 64 MiB.
            watchers: 4_096,
            project_share: QuotaPercent(100),
            // The events of some seconds on a busy engine, at one pointer each.
            watcher_queue: 1_024,
            // Longer than an agent's slowest reconnect; a flood of names stays below 2 MiB.
            remembered_hostnames: 10_000,
            hostname_memory: Duration::from_mins(10),
            failing: FixedTimeouts::default().failing_tunnel,
        }
    }
}

impl LiveLimits {
    /// Limit of a project, given the total `most`; `None` if it is the only one.
    pub(super) fn share(&self, project: &Project, most: usize) -> Option<usize> {
        (!project.is_alone()).then(|| self.project_share.of(most))
    }
}
