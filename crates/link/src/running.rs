//! Start and end of a whole link: updates of the platform, and reports to it.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use tracing::warn;

use crate::endpoint::Endpoint;
use crate::follow::{Handler, Link};
use crate::reports::{Records, ReportCounts, Reporter};
use crate::slots;
use crate::status::Status;

/// An open link. The stored state of an earlier process has been applied.
#[derive(Debug)]
pub struct OpenLink<H> {
    link: Link,
    records: Records,
    reporter: Reporter,
    handler: Arc<H>,
    /// The data directory, and the own slot in it.
    slot: (Endpoint, PathBuf, usize),
}

impl<H: Handler> OpenLink<H> {
    /// Locks the data directory, and applies its state.
    ///
    /// # Errors
    /// The directory cannot be used, or another process uses it.
    pub async fn open(endpoint: Endpoint, data_dir: &Path, handler: H) -> io::Result<Self> {
        Self::open_slot(endpoint, data_dir, handler, false).await
    }

    /// The same beside a process that this one replaces, and that still uses the data directory.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub async fn open_beside(endpoint: Endpoint, data_dir: &Path, handler: H) -> io::Result<Self> {
        Self::open_slot(endpoint, data_dir, handler, true).await
    }

    async fn open_slot(
        endpoint: Endpoint,
        data_dir: &Path,
        handler: H,
        is_successor: bool,
    ) -> io::Result<Self> {
        let data_dir = data_dir.to_owned();
        // Reads and compiles a file that may contain a hundred thousand projects.
        let opening = tokio::task::spawn_blocking(move || {
            let slot = slots::open(&endpoint, &data_dir, is_successor)?;
            slot.link.restore(&handler);
            Ok(Self {
                link: slot.link,
                records: slot.records,
                reporter: slot.reporter,
                handler: Arc::new(handler),
                slot: (endpoint, data_dir, slot.index),
            })
        });
        let opened = opening.await.map_err(io::Error::other);
        opened.and_then(|opened| opened)
    }

    /// The receiver of the platform's updates.
    pub fn handler(&self) -> &Arc<H> {
        &self.handler
    }

    /// The queue for records.
    pub fn records(&self) -> &Records {
        &self.records
    }

    /// Status of the link.
    pub fn status(&self) -> Arc<Status> {
        self.link.status()
    }

    /// Follows the platform and sends reports. `collect` is the task that adds the periodic records
    /// until its token is cancelled, and then the last ones.
    pub fn run<F: Future<Output = ()> + Send + 'static>(
        self,
        collect: impl FnOnce(CancellationToken) -> F,
    ) -> RunningLink {
        let Self {
            link,
            records,
            reporter,
            handler,
            slot: (endpoint, data_dir, own),
        } = self;
        RunningLink {
            status: link.status(),
            records,
            collecting: Task::spawn(collect),
            reporting: Task::spawn(|stop| reporter.run(stop)),
            reading: Task::spawn(|stop| link.run(handler, stop)),
            clearing: Task::spawn(|stop| slots::clear_others(endpoint, data_dir, own, stop)),
        }
    }
}

/// A link that follows the platform and reports to it. Its tasks end when this is dropped.
#[derive(Debug)]
pub struct RunningLink {
    status: Arc<Status>,
    records: Records,
    /// Makes the periodic records.
    collecting: Task,
    /// Sends records.
    reporting: Task,
    /// Reads updates of the platform.
    reading: Task,
    /// Clears what earlier processes have left.
    clearing: Task,
}

impl RunningLink {
    /// Status of the link.
    pub fn status(&self) -> &Arc<Status> {
        &self.status
    }

    /// Counters of records.
    pub fn counts(&self) -> ReportCounts {
        self.records.counts()
    }

    /// Ends the link after all clients are gone. When this returns, the last records are sent or on
    /// disk, and so is the state from the platform.
    pub async fn finish(self) {
        self.clearing.finish().await;
        self.collecting.finish().await;
        tokio::join!(self.reporting.finish(), self.reading.finish());
    }
}

/// A task with a token that stops it cleanly. It is aborted when this value is dropped.
#[derive(Debug)]
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
            warn!(%error, "a task of the link did not shut down cleanly");
        }
    }
}
