//! A managed engine: what the platform tells goes to those who decide by it, and what happens here
//! goes to the platform.
//!
//! The engine serves with what it knows. A platform that is away stops nothing: visitors are
//! judged by what was told last, and what there is to report waits on disk.

mod reports;
mod usage;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use api::link::{Item, Platform};
use daemon::metrics::Readiness;
use link::{Link, Pace, Records, Reporter, SpoolLimits, Status};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use tracing::warn;

use crate::access::{Invalidations, Tokens};
use crate::config::ControlPlane;
use crate::core::Core;
use crate::directory::Directory;
use crate::engine::StartError;

pub(crate) use self::reports::Reports;
pub(crate) use self::usage::Meter;

/// A link that was opened, with what an earlier engine knew in force.
pub(crate) struct PlatformLink {
    link: Link,
    records: Records,
    reporter: Reporter,
    told: Arc<LinkHandler>,
}

/// Where what the platform tells goes.
struct LinkHandler {
    /// The domain that this engine was configured for.
    cluster_domain: String,
    directory: Arc<Directory>,
    tokens: Arc<Tokens>,
    /// Cancelled with the first snapshot.
    informed: CancellationToken,
}

impl PlatformLink {
    /// Takes the data directory and puts in force what is in it.
    ///
    /// # Errors
    /// [`StartError`] with the key of what cannot be used.
    pub(crate) async fn open(
        platform: &ControlPlane,
        cluster_domain: &str,
        directory: Arc<Directory>,
        tokens: Arc<Tokens>,
    ) -> Result<Self, StartError> {
        let endpoint = platform.endpoint()?;
        let path = platform.data_dir.clone();
        let told = Arc::new(LinkHandler {
            cluster_domain: cluster_domain.to_owned(),
            directory,
            tokens,
            informed: CancellationToken::new(),
        });
        let to = Arc::clone(&told);
        // Reads and compiles a file that may hold a hundred thousand projects.
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

    /// Where what happens is put.
    pub(crate) fn reports(&self) -> Reports {
        Reports {
            records: self.records.clone(),
            usage: usage::Usage::default(),
        }
    }

    /// How the link does.
    pub(crate) fn link(&self) -> Arc<Status> {
        self.link.status()
    }

    /// Follows the platform from now on. The engine is ready when it knows what it serves.
    pub(crate) fn follow(self, core: &Arc<Core>, readiness: &Readiness) -> LinkHandle {
        let Self {
            link,
            records,
            reporter,
            told,
        } = self;
        let status = link.status();
        let ready = {
            let (informed, drain) = (told.informed.clone(), core.shutdown.drain().clone());
            let readiness = readiness.clone();
            async move {
                tokio::select! {
                    () = drain.cancelled() => {}
                    () = informed.cancelled() => readiness.set_ready(true),
                }
            }
        };
        if told.informed.is_cancelled() {
            readiness.set_ready(true);
        } else {
            tokio::spawn(ready);
        }
        let events = core.live.observe(reports::EVENTS);
        let lost = events.lost();
        let at = Arc::clone(core);
        LinkHandle {
            core: Arc::clone(core),
            status,
            records,
            lost,
            collecting: Task::spawn(|stop| reports::keep_reporting(at, events, stop)),
            reporting: Task::spawn(|stop| reporter.run(stop)),
            reading: Task::spawn(|stop| link.run(told, stop)),
        }
    }
}

impl link::Handler for LinkHandler {
    fn snapshot(&self, platform: Platform, items: Vec<Item>) -> Result<(), String> {
        if platform.cluster_domain != self.cluster_domain {
            return Err(format!(
                "the enrolment secret is that of the cluster {}, and `engine.host` is {}",
                platform.cluster_domain, self.cluster_domain
            ));
        }
        self.keys(&items);
        self.directory.replace(platform, items);
        self.tokens.directory_changed(Invalidations::everybody());
        self.informed.cancel();
        Ok(())
    }

    fn change(&self, items: Vec<Item>) {
        self.keys(&items);
        let concerns = Invalidations::of(&items, &self.directory);
        self.directory.apply(items);
        self.tokens.directory_changed(concerns);
    }
}

impl LinkHandler {
    /// Puts the platform's keys in force, where they are among the items.
    fn keys(&self, items: &[Item]) {
        for item in items {
            if let Item::Keys(keys) = item
                && let Err(error) = self.tokens.replace_jwks(keys.jwks.to_string())
            {
                warn!(%error, "keys of the platform are not used, the known ones stay in force");
            }
        }
    }
}

/// A platform that is being followed.
pub(crate) struct LinkHandle {
    core: Arc<Core>,
    status: Arc<Status>,
    records: Records,
    /// Events that were lost before they became records.
    lost: Arc<AtomicU64>,
    /// Makes records of what happens.
    collecting: Task,
    /// Sends them.
    reporting: Task,
    /// Reads what the platform tells.
    reading: Task,
}

/// A task that ends in order when it is asked to, and at once when nobody waits for that.
struct Task {
    stop: CancellationToken,
    handle: AbortOnDropHandle<()>,
}

impl Task {
    fn spawn<F: Future<Output = ()> + Send + 'static>(
        task: impl FnOnce(CancellationToken) -> F,
    ) -> Self {
        let stop = CancellationToken::new();
        let handle = AbortOnDropHandle::new(tokio::spawn(task(stop.clone())));
        Self { stop, handle }
    }

    async fn finish(self) {
        self.stop.cancel();
        if let Err(error) = self.handle.await {
            warn!(%error, "a task of the link did not stop in order");
        }
    }
}

impl LinkHandle {
    /// How the link does.
    pub(crate) fn status(&self) -> Arc<Status> {
        Arc::clone(&self.status)
    }

    /// Brings gauges up to date, and forgets what nobody needs. Called every now and then.
    pub(crate) fn refresh(&self) {
        let now = self.core.unix_seconds();
        if let Some(directory) = self.core.tenancy.directory() {
            directory.forget_ended(now);
        }
        let mut counts = self.records.counts();
        counts.dropped += self.lost.load(Ordering::Relaxed);
        self.core.metrics.control_plane(&self.status, counts);
    }

    /// Ends the link when everybody is gone: what happened last is sent or on disk when this
    /// returns, and so is what is known.
    pub(crate) async fn finish(self) {
        self.collecting.finish().await;
        tokio::join!(self.reporting.finish(), self.reading.finish());
    }
}
