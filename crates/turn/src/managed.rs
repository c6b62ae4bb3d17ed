//! Link of a relay to its platform. Updates of the platform change the directory and end
//! allocations that are no longer permitted. Usage is reported to the platform.

use std::sync::Arc;
use std::time::Duration;

use api::link::{Item, Platform, Record, TurnUsageRecord};
use daemon::clock::Clock;
use daemon::metrics::Readiness;
use jiff::{SignedDuration, Timestamp};
use link::{Link, Pace, Records, Reporter, SpoolLimits, Status};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::config::{self, ControlPlane};
use crate::directory::Directory;
use crate::metrics;
use crate::start_error::StartError;

/// An opened link, after the stored data of an earlier relay has been applied.
pub(crate) struct PlatformLink {
    link: Link,
    records: Records,
    reporter: Reporter,
    handler: Arc<LinkHandler>,
}

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
        let endpoint = config::endpoint(platform)?;
        let path = platform.data_dir.clone();
        let handler = Arc::new(LinkHandler {
            directory,
            changed: watch::Sender::new(0),
            readiness,
        });
        let to = Arc::clone(&handler);
        let opening = tokio::task::spawn_blocking(move || {
            let link = Link::open(endpoint.clone(), &path.join("link"), Pace::default())?;
            let (folder, limits) = (path.join("reports"), SpoolLimits::default());
            let (records, reporter) = link::reports(endpoint, &folder, limits, Pace::default())?;
            link.restore(&*to);
            Ok((link, records, reporter))
        });
        let opened = opening.await.map_err(std::io::Error::other);
        let (link, records, reporter) =
            opened
                .and_then(|opened| opened)
                .map_err(|source| StartError::DataDir {
                    path: platform.data_dir.clone(),
                    source,
                })?;
        Ok(Self {
            link,
            records,
            reporter,
            handler,
        })
    }

    /// Notifies of each update.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.handler.changed.subscribe()
    }

    /// Starts to follow the platform.
    pub(crate) fn follow(self, clock: Arc<dyn Clock>) -> LinkHandle {
        let Self {
            link,
            records,
            reporter,
            handler,
        } = self;
        let (status, directory) = (link.status(), Arc::clone(&handler.directory));
        let to = records.clone();
        LinkHandle {
            status,
            records,
            metering: Task::spawn(|stop| keep_reporting(directory, to, clock, stop)),
            reporting: Task::spawn(|stop| reporter.run(stop)),
            reading: Task::spawn(|stop| link.run(handler, stop)),
        }
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
pub(crate) struct LinkHandle {
    status: Arc<Status>,
    records: Records,
    /// Task that makes usage records.
    metering: Task,
    /// Task that sends them.
    reporting: Task,
    /// Task that reads updates of the platform.
    reading: Task,
}

impl LinkHandle {
    /// Status of the link.
    pub(crate) fn status(&self) -> Arc<Status> {
        Arc::clone(&self.status)
    }

    pub(crate) fn refresh(&self) {
        metrics::control_plane(&self.status, self.records.counts());
    }

    /// Ends the link after all clients are gone: the last usage is sent, or stored on disk.
    pub(crate) async fn finish(self) {
        self.metering.finish().await;
        tokio::join!(self.reporting.finish(), self.reading.finish());
    }
}

/// A task with an orderly end.
struct Task {
    stop: CancellationToken,
    handle: JoinHandle<()>,
}

impl Task {
    fn spawn<F: Future<Output = ()> + Send + 'static>(
        task: impl FnOnce(CancellationToken) -> F,
    ) -> Self {
        let stop = CancellationToken::new();
        let handle = tokio::spawn(task(stop.clone()));
        Self { stop, handle }
    }

    async fn finish(self) {
        self.stop.cancel();
        if let Err(error) = self.handle.await {
            tracing::warn!(%error, "a task of the link did not shut down cleanly");
        }
    }
}

/// Interval of usage reports, as for engines.
const REPORT_INTERVAL: Duration = Duration::from_secs(10);

/// Reports usage until `stop`, and then the rest.
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
            () = tokio::time::sleep(interval(now)) => false,
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

/// Time until the next report. It is not after the end of the hour, so that each report belongs to
/// one hour.
fn interval(now: Timestamp) -> Duration {
    let left = 3600 - now.as_second().rem_euclid(3600);
    REPORT_INTERVAL.min(Duration::from_secs(left.unsigned_abs()))
}

fn hour_of(now: Timestamp) -> Timestamp {
    let into = SignedDuration::from_secs(now.as_second().rem_euclid(3600));
    let whole = now.checked_sub(into).unwrap_or(now);
    Timestamp::from_second(whole.as_second()).unwrap_or(whole)
}
