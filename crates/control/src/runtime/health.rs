//! Liveness (`/healthz`) and readiness (`/readyz`) of the process.
//!
//! Both are public. They are for balancers and supervisors, and reveal nothing that any other
//! request would not.

mod routes;

pub use self::routes::routes;

use std::path::PathBuf;
use std::sync::OnceLock;
use std::time::Duration;

use parking_lot::Mutex;
use store::Store;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

/// State that readiness depends on. Keys are not part of it: without them [`crate::app::App`] does
/// not exist.
#[derive(Debug)]
pub struct Health {
    drain: OnceLock<CancellationToken>,
    /// Time and result of the last check of the database.
    last: Mutex<Option<(Instant, bool)>>,
    /// A check takes one connection, however many clients request the readiness.
    check_permit: Semaphore,
    /// The directory of the embedded database.
    embedded: Option<PathBuf>,
}

impl Health {
    /// `embedded` is the directory of the database, if it is on this machine.
    pub fn new(embedded: Option<PathBuf>) -> Self {
        Self {
            drain: OnceLock::new(),
            last: Mutex::new(None),
            check_permit: Semaphore::new(1),
            embedded,
        }
    }

    /// Sets the token that ends readiness when it is cancelled. The server calls this once.
    pub fn set_drain(&self, drain: CancellationToken) {
        self.drain.set(drain).ok();
    }

    /// True if requests can currently be served.
    pub async fn is_ready(&self, store: &Store) -> bool {
        !self.is_draining() && self.database_answers(store).await && !self.is_draining()
    }

    /// True if the disk of the embedded database has space for the next writes. An unknown free
    /// space counts as enough.
    fn has_disk_space(&self) -> bool {
        let Some(directory) = &self.embedded else {
            return true;
        };
        let Ok(disk) = nix::sys::statvfs::statvfs(directory) else {
            return true;
        };
        let free = disk.blocks_available().saturating_mul(disk.fragment_size());
        free >= LEAST_FREE_BYTES
    }

    fn is_draining(&self) -> bool {
        self.drain
            .get()
            .is_some_and(CancellationToken::is_cancelled)
    }

    /// True if the database responded a moment ago, or responds now.
    async fn database_answers(&self, store: &Store) -> bool {
        if let Some(answered) = self.recent() {
            return answered;
        }
        let requested = timeout(QUERY_TIMEOUT, async {
            let _turn = self.check_permit.acquire().await.ok()?;
            // The previous holder of the permit may have the result.
            if let Some(answered) = self.recent() {
                return Some(answered);
            }
            let answer = store.ping().await;
            if let Err(error) = &answer {
                tracing::warn!(
                    error = error as &dyn std::error::Error,
                    "the database does not respond"
                );
            }
            let has_disk_space = self.has_disk_space();
            if !has_disk_space {
                tracing::warn!("the disk of the database is full");
            }
            Some(answer.is_ok() && has_disk_space)
        });
        let answered = requested.await.ok().flatten().unwrap_or(false);
        *self.last.lock() = Some((Instant::now(), answered));
        answered
    }

    fn recent(&self) -> Option<bool> {
        let last = *self.last.lock();
        last.and_then(|(at, answered)| (at.elapsed() < RESULT_LIFETIME).then_some(answered))
    }
}

/// The database's log grows to some megabytes before it is merged into the file.
const LEAST_FREE_BYTES: u64 = 16 * 1024 * 1024;
/// Longer than any response of a healthy database, and shorter than the time-out of a probe.
const QUERY_TIMEOUT: Duration = Duration::from_secs(2);
/// Balancers probe every few seconds. More frequent requests of strangers cost no query.
const RESULT_LIFETIME: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    /// One database is closed, so it reports an error immediately. The other one is healthy.
    #[tokio::test(start_paused = true)]
    async fn the_database_is_checked_once_a_second() {
        tokio::time::resume();
        let directories = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let closed = Store::open(None, directories[0].path()).await.unwrap();
        closed.close().await;
        let well = Store::open(None, directories[1].path()).await.unwrap();
        let health = Health::new(None);
        tokio::time::pause();
        assert!(!health.is_ready(&closed).await);
        tokio::time::advance(Duration::from_millis(999)).await;
        assert!(!health.is_ready(&well).await, "the last result is used");
        tokio::time::advance(Duration::from_millis(1)).await;
        tokio::time::resume();
        assert!(health.is_ready(&well).await);
    }

    #[tokio::test(start_paused = true)]
    async fn a_database_has_a_time_limit_for_its_response() {
        tokio::time::resume();
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open(None, directory.path()).await.unwrap();
        let health = Health::new(None);
        tokio::time::pause();
        // Another check waits for its result.
        let _turn = health.check_permit.acquire().await.unwrap();
        let began = Instant::now();
        assert!(!health.is_ready(&store).await);
        assert_eq!(began.elapsed().as_secs(), 2);
    }
}
