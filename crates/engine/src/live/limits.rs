//! How much live state an engine holds.

use std::time::Duration;

use crate::config::Share;
use crate::directory::Project;

/// Bounds of the live state. What a peer can cause ends here.
#[derive(Debug, Clone)]
pub struct LiveLimits {
    /// Control channels at once.
    pub clients: usize,
    /// Tunnels at once, over all clients.
    pub tunnels: usize,
    /// Tunnels of one client.
    pub tunnels_per_client: usize,
    /// Watchers (SSE and WebSocket) at once.
    pub watchers: usize,
    /// What one project of several may have of clients, tunnels, watchers and remembered hostnames.
    pub project_share: Share,
    /// Events that wait for one watcher; one more and it is closed as too slow.
    pub watcher_queue: usize,
    /// Hostnames remembered as offline.
    pub remembered_hostnames: usize,
    /// How long a hostname without an agent is "offline" before it is unknown.
    pub hostname_memory: Duration,
}

impl Default for LiveLimits {
    fn default() -> Self {
        Self {
            // An idle agent costs some 30 KiB: 300 MiB at this bound.
            clients: 10_000,
            // Twice the clients: most agents publish one or two services.
            tunnels: 20_000,
            // A host with more services than this runs more than one agent.
            tunnels_per_client: 500,
            // At 16 KiB each, 64 MiB.
            watchers: 4_096,
            project_share: Share(100),
            // Some seconds of a busy engine, at one pointer each.
            watcher_queue: 1_024,
            // Longer than an agent's slowest reconnect; a flood of names stays below 2 MiB.
            remembered_hostnames: 10_000,
            hostname_memory: Duration::from_mins(10),
        }
    }
}

impl LiveLimits {
    /// What a project may have of `most`; `None` where it is the only one.
    pub(super) fn share(&self, project: &Project, most: usize) -> Option<usize> {
        (!project.is_alone()).then(|| self.project_share.of(most))
    }
}
