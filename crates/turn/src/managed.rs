//! A relay of a platform: what the platform tells goes to the directory and ends what it no longer
//! allows; what is used here goes to the platform.

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

use crate::config::ControlPlane;
use crate::directory::Directory;
use crate::metrics;
use crate::server::StartError;

/// A link that was opened, with what an earlier relay knew in force.
pub(crate) struct PlatformLink {
    link: Link,
    records: Records,
    reporter: Reporter,
    told: Arc<LinkHandler>,
}

/// Where what the platform tells goes.
#[derive(Debug)]
struct LinkHandler {
    directory: Arc<Directory>,
    /// Counts what was told: whoever watches judges allocations again.
    changed: watch::Sender<u64>,
    readiness: Readiness,
}

impl PlatformLink {
    /// Takes the data directory and puts in force what is in it.
    pub(crate) async fn open(
        platform: &ControlPlane,
        directory: Arc<Directory>,
        readiness: Readiness,
    ) -> Result<Self, StartError> {
        let endpoint = platform.endpoint()?;
        let path = platform.data_dir.clone();
        let told = Arc::new(LinkHandler {
            directory,
            changed: watch::Sender::new(0),
            readiness,
        });
        let to = Arc::clone(&told);
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
            told,
        })
    }

    /// Wakes whoever has to judge again.
    pub(crate) fn changes(&self) -> watch::Receiver<u64> {
        self.told.changed.subscribe()
    }

    /// Follows the platform from now on.
    pub(crate) fn follow(self, clock: Arc<dyn Clock>) -> LinkHandle {
        let Self {
            link,
            records,
            reporter,
            told,
        } = self;
        let (status, directory) = (link.status(), Arc::clone(&told.directory));
        let to = records.clone();
        LinkHandle {
            status,
            records,
            metering: Task::spawn(|stop| keep_reporting(directory, to, clock, stop)),
            reporting: Task::spawn(|stop| reporter.run(stop)),
            reading: Task::spawn(|stop| link.run(told, stop)),
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

/// A platform that is being followed.
pub(crate) struct LinkHandle {
    status: Arc<Status>,
    records: Records,
    /// Makes records of what is used.
    metering: Task,
    /// Sends them.
    reporting: Task,
    /// Reads what the platform tells.
    reading: Task,
}

impl LinkHandle {
    /// How the link does.
    pub(crate) fn status(&self) -> Arc<Status> {
        Arc::clone(&self.status)
    }

    pub(crate) fn refresh(&self) {
        metrics::control_plane(&self.status, self.records.counts());
    }

    /// Ends the link when everybody is gone: what was used last is sent, or on disk.
    pub(crate) async fn finish(self) {
        self.metering.finish().await;
        tokio::join!(self.reporting.finish(), self.reading.finish());
    }
}

/// A task that ends in order when it is asked to.
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
            tracing::warn!(%error, "a task of the link did not stop in order");
        }
    }
}

/// How often usage is reported, as engines do.
const INTERVAL: Duration = Duration::from_secs(10);

/// Reports what is used until `stop`, and then what is left.
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

/// Until the next report: no longer than the hour lasts, so that what was counted belongs to one.
fn interval(now: Timestamp) -> Duration {
    let left = 3600 - now.as_second().rem_euclid(3600);
    INTERVAL.min(Duration::from_secs(left.unsigned_abs()))
}

fn hour_of(now: Timestamp) -> Timestamp {
    let into = SignedDuration::from_secs(now.as_second().rem_euclid(3600));
    let whole = now.checked_sub(into).unwrap_or(now);
    Timestamp::from_second(whole.as_second()).unwrap_or(whole)
}
