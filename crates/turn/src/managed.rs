//! Link of a relay to its platform. Updates of the platform change the directory and end
//! allocations that are no longer permitted. Usage is reported to the platform.

use std::sync::Arc;

use api::link::{Item, Platform, Record, TurnUsageRecord};
use daemon::clock::Clock;
use daemon::metrics::Readiness;
use link::{OpenLink, Records, RunningLink, Status, hour_of, report_interval};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::config::{self, ControlPlane};
use crate::directory::Directory;
use crate::metrics;
use crate::start_error::StartError;

/// An opened link, after the stored data of an earlier relay has been applied.
pub(crate) struct PlatformLink(OpenLink<LinkHandler>);

/// Handler of the platform's updates.
#[derive(Debug)]
struct LinkHandler {
    directory: Arc<Directory>,
    /// Counts the updates: each one requires a new check of all allocations.
    changed: watch::Sender<u64>,
    readiness: Readiness,
}

impl PlatformLink {
    /// Locks the data directory and applies its data.
    pub(crate) async fn open(
        platform: &ControlPlane,
        directory: Arc<Directory>,
        readiness: Readiness,
    ) -> Result<Self, StartError> {
        let handler = LinkHandler {
            directory,
            changed: watch::Sender::new(0),
            readiness,
        };
        let opening = OpenLink::open(config::endpoint(platform)?, &platform.data_dir, handler);
        let opened = opening.await.map_err(|source| StartError::DataDir {
            path: platform.data_dir.clone(),
            source,
        })?;
        Ok(Self(opened))
    }

    /// Notifies of each update.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.0.handler().changed.subscribe()
    }

    /// Starts to follow the platform.
    pub(crate) fn follow(self, clock: Arc<dyn Clock>) -> LinkHandle {
        let directory = Arc::clone(&self.0.handler().directory);
        let records = self.0.records().clone();
        LinkHandle(
            self.0
                .run(|stop| keep_reporting(directory, records, clock, stop)),
        )
    }
}

impl link::Handler for LinkHandler {
    fn snapshot(&self, _platform: Platform, items: Vec<Item>) -> Result<(), String> {
        self.directory.replace(items)?;
        self.changed.send_modify(|count| *count += 1);
        self.readiness.set_ready(true);
        Ok(())
    }

    fn change(&self, items: Vec<Item>) {
        self.directory.apply(items);
        self.changed.send_modify(|count| *count += 1);
    }
}

/// A link that follows the platform.
pub(crate) struct LinkHandle(RunningLink);

impl LinkHandle {
    /// Status of the link.
    pub(crate) fn status(&self) -> Arc<Status> {
        Arc::clone(self.0.status())
    }

    pub(crate) fn refresh(&self) {
        metrics::control_plane(self.0.status(), self.0.counts());
    }

    /// Ends the link after all clients are gone: the last usage is sent, or stored on disk.
    pub(crate) async fn finish(self) {
        self.0.finish().await;
    }
}

/// Reports usage until `stop`, and once more after it.
async fn keep_reporting(
    directory: Arc<Directory>,
    records: Records,
    clock: Arc<dyn Clock>,
    stop: CancellationToken,
) {
    loop {
        let now = clock.now();
        let hour = hour_of(now);
        let stopped = tokio::select! {
            () = tokio::time::sleep(report_interval(now)) => false,
            () = stop.cancelled() => true,
        };
        for (project, allocations, relayed_bytes) in directory.take_usage() {
            records.push(Record::TurnUsage(TurnUsageRecord {
                project_id: project.to_string(),
                hour,
                allocations,
                relayed_bytes,
            }));
        }
        if stopped {
            return;
        }
    }
}
