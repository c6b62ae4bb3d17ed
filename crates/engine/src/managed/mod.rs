//! A managed engine: applies changes from the platform, and reports events to the platform.
//!
//! The engine serves with the last state that it received. An unreachable platform stops nothing:
//! visitors are authorized by that state, and reports wait on disk.

mod certificate_reports;
mod reporter;
mod reports;
mod usage;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use api::link::{Item, Platform};
use daemon::metrics::Readiness;
use link::{OpenLink, RunningLink, Status};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use crate::access::{Invalidations, Tokens};
use crate::config::{self, ControlPlane};
use crate::core::Core;
use crate::directory::Directory;
use crate::domains::ProjectDomains;
use crate::start_error::StartError;

pub(crate) use self::reports::Reports;
pub(crate) use self::usage::Meter;

/// Time for the changes since the stored state: a connection to the platform, and one response.
const CHANGES_LIMIT: Duration = Duration::from_secs(5);

/// An open link, with the stored state of an earlier run already applied.
pub(crate) struct PlatformLink(OpenLink<LinkHandler>);

/// Receives the changes from the platform.
struct LinkHandler {
    /// The domain that this engine was configured for.
    cluster_domain: String,
    directory: Arc<Directory>,
    domains: ProjectDomains,
    tokens: Arc<Tokens>,
    /// Cancelled with the first snapshot.
    snapshot_received: CancellationToken,
}

impl PlatformLink {
    /// Opens the data directory and applies the stored state.
    ///
    /// # Errors
    /// [`StartError`] with the key of the setting that cannot be used.
    pub(crate) async fn open(
        platform: &ControlPlane,
        cluster_domain: &str,
        (directory, tokens): (Arc<Directory>, Arc<Tokens>),
        domains: ProjectDomains,
        is_successor: bool,
    ) -> Result<Self, StartError> {
        let handler = LinkHandler {
            cluster_domain: cluster_domain.to_owned(),
            directory,
            domains,
            tokens,
            snapshot_received: CancellationToken::new(),
        };
        let (endpoint, data_dir) = (config::endpoint(platform)?, &platform.data_dir);
        let opened = if is_successor {
            OpenLink::open_beside(endpoint, data_dir, handler).await
        } else {
            OpenLink::open(endpoint, data_dir, handler).await
        };
        let opened = opened.map_err(|source| StartError::DataDir {
            path: platform.data_dir.clone(),
            source,
        })?;
        Ok(Self(opened))
    }

    /// The queue for reports to the platform.
    pub(crate) fn reports(&self) -> Reports {
        Reports {
            records: self.0.records().clone(),
            usage: usage::Usage::default(),
        }
    }

    /// State of the link.
    pub(crate) fn link(&self) -> Arc<Status> {
        self.0.status()
    }

    /// Starts the link. The engine is ready when it has the state that it serves.
    pub(crate) fn follow(self, core: &Arc<Core>, readiness: &Readiness) -> LinkHandle {
        let handler = Arc::clone(self.0.handler());
        let ready = {
            let (informed, drain) = (
                handler.snapshot_received.clone(),
                core.shutdown.drain().clone(),
            );
            let readiness = readiness.clone();
            async move {
                tokio::select! {
                    () = drain.cancelled() => {}
                    () = informed.cancelled() => readiness.set_ready(true),
                }
            }
        };
        if handler.snapshot_received.is_cancelled() {
            readiness.set_ready(true);
        } else {
            tokio::spawn(ready);
        }
        let events = core.live.subscribe_all(reporter::EVENTS);
        let lost = events.lost_count();
        let at = Arc::clone(core);
        LinkHandle {
            core: Arc::clone(core),
            handler,
            link: self
                .0
                .run(|stop| reporter::keep_reporting(at, events, stop)),
            lost,
        }
    }
}

impl link::Handler for LinkHandler {
    fn snapshot(&self, platform: Platform, items: Vec<Item>) -> Result<(), String> {
        if platform.cluster_domain != self.cluster_domain {
            return Err(format!(
                "the enrolment secret belongs to the cluster {}, but `engine.host` is {}",
                platform.cluster_domain, self.cluster_domain
            ));
        }
        self.apply_keys(&items);
        self.domains.replace(&items);
        self.directory.replace(platform, items);
        self.tokens.directory_changed(Invalidations::all_visitors());
        self.snapshot_received.cancel();
        Ok(())
    }

    fn change(&self, items: Vec<Item>) {
        self.apply_keys(&items);
        let mut concerns = Invalidations::of(&items, &self.directory);
        for project in self.domains.former_holders(&items) {
            concerns.add_project(project);
        }
        self.domains.apply(&items);
        self.directory.apply(items);
        self.tokens.directory_changed(concerns);
    }
}

impl LinkHandler {
    /// Applies the platform's keys, if they are among the items.
    fn apply_keys(&self, items: &[Item]) {
        for item in items {
            if let Item::Keys(keys) = item
                && let Err(error) = self.tokens.replace_jwks(keys.jwks.to_string())
            {
                warn!(
                    %error,
                    "the keys from the platform cannot be used, the known ones stay valid"
                );
            }
        }
    }
}

/// A running link to the platform.
pub(crate) struct LinkHandle {
    core: Arc<Core>,
    handler: Arc<LinkHandler>,
    link: RunningLink,
    /// Events that were lost before they became records.
    lost: Arc<AtomicU64>,
}

impl LinkHandle {
    /// State of the link.
    pub(crate) fn status(&self) -> Arc<Status> {
        Arc::clone(self.link.status())
    }

    /// Waits until the engine has a state, and the changes up to the version that the process
    /// before it has in memory.
    pub(crate) async fn wait_for_state(&self, version: u64) {
        let changes = self.link.status().wait_for_version(version);
        wait_for_state(changes, &self.handler.snapshot_received).await;
    }

    /// Updates gauges and drops entries that are no longer used. Called periodically.
    pub(crate) fn refresh(&self) {
        let now = self.core.unix_seconds();
        if let Some(directory) = self.core.tenancy.directory() {
            directory.forget_ended(now);
        }
        self.handler.domains.warn_expiring(now);
        let mut counts = self.link.counts();
        counts.dropped += self.lost.load(Ordering::Relaxed);
        self.core.metrics.control_plane(self.link.status(), counts);
    }

    /// Ends the link after agents and visitors are gone. When this returns, the last events are
    /// sent or on disk, and so is the state from the platform.
    pub(crate) async fn finish(self) {
        self.link.finish().await;
    }
}

/// Waits for any state, and for the changes that a stored one lacks. They may be a new project,
/// whose agents would be refused, or a revocation. If the platform does not respond in time, the
/// stored state is enough, because an unreachable platform must not prevent a reload.
async fn wait_for_state(changes: impl Future<Output = ()>, has_any: &CancellationToken) {
    if timeout(CHANGES_LIMIT, changes).await.is_err() {
        warn!("the platform has not sent its last changes in time");
    }
    has_any.cancelled().await;
}

#[cfg(test)]
mod tests {
    use std::future::ready;

    use tokio::time::{Instant, sleep};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_stored_state_is_enough_only_without_the_platform() {
        let stored = CancellationToken::new();
        stored.cancel();
        let second = Duration::from_secs(1);
        for (changes, expected) in [(second, second), (CHANGES_LIMIT * 2, CHANGES_LIMIT)] {
            let began = Instant::now();
            wait_for_state(sleep(changes), &stored).await;
            assert_eq!(began.elapsed(), expected);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_process_without_any_state_waits_for_it() {
        let none = CancellationToken::new();
        let waiting = wait_for_state(ready(()), &none);
        assert!(timeout(Duration::from_mins(1), waiting).await.is_err());
    }
}
