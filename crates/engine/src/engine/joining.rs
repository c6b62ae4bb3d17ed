//! The start and the end of an engine's membership in its cluster.

use std::sync::Arc;
use std::time::Duration;

use tracing::warn;

use crate::core::Core;
use crate::metrics::{self, REFRESH};

/// Waits until the engine has joined its cluster, so that the first agents are not refused. An
/// engine whose store is unreachable starts nevertheless, and joins later.
///
/// The membership ends after the agents, whose names it holds for their owners.
pub(super) async fn join(core: &Arc<Core>) {
    let Some(membership) = core.membership.clone() else {
        return;
    };
    let joined = tokio::time::timeout(JOIN_TIME, membership.wait_until_serving()).await;
    if joined.is_err() {
        let reason = membership.status().failure.unwrap_or_default();
        warn!(reason, "the engine has not joined its cluster yet");
    }
    let (agents, stop) = (core.agents.clone(), core.agents_stop.clone());
    // The stop of the engine waits for this task last.
    core.routed.spawn(async move {
        let mut refresh = tokio::time::interval(REFRESH);
        while stop.run_until_cancelled(refresh.tick()).await.is_some() {
            metrics::cluster(&membership.status());
        }
        tokio::time::timeout(FAREWELL, agents.wait()).await.ok();
        membership.stop().await;
    });
}

/// The store answers within milliseconds, and elects a leader within seconds.
const JOIN_TIME: Duration = Duration::from_secs(3);

/// Time limit for the last messages of agents, as for the stop of the engine.
const FAREWELL: Duration = Duration::from_secs(2);
