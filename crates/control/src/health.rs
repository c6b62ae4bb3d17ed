//! Whether the process lives (`/healthz`), and whether it serves (`/readyz`).
//!
//! Both are public: they are for balancers and supervisors, and say nothing that the next request
//! would not.

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

/// What readiness depends on. The keys do not: without them there is no [`crate::app::App`].
#[derive(Debug)]
pub struct Health {
    drain: OnceLock<CancellationToken>,
    /// When the database was asked last, and whether it answered.
    last: Mutex<Option<(Instant, bool)>>,
    /// Asking takes one connection, however many ask for readiness.
    asking: Semaphore,
    /// The directory of the embedded database.
    embedded: Option<PathBuf>,
}

impl Health {
    /// `embedded` is the directory of the database, where it is one of this machine.
    pub fn new(embedded: Option<PathBuf>) -> Self {
        Self {
            drain: OnceLock::new(),
            last: Mutex::new(None),
            asking: Semaphore::new(1),
            embedded,
        }
    }

    /// From the moment that `drain` is cancelled nothing is ready any more. Said once, by whoever
    /// serves.
    pub fn ends_with(&self, drain: CancellationToken) {
        self.drain.set(drain).ok();
    }

    /// Whether requests can be served now.
    pub async fn is_ready(&self, store: &Store) -> bool {
        !self.is_draining() && self.database_answers(store).await && !self.is_draining()
    }

    /// Whether the disk of the embedded database has room for what is written next. What does not
    /// tell is not full.
    fn has_room(&self) -> bool {
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

    /// Whether the database answered a moment ago, or answers now.
    async fn database_answers(&self, store: &Store) -> bool {
        if let Some(answered) = self.recent() {
            return answered;
        }
        let asked = timeout(PATIENCE, async {
            let _turn = self.asking.acquire().await.ok()?;
            // Whoever had the turn before has the answer.
            if let Some(answered) = self.recent() {
                return Some(answered);
            }
            let answer = store.ping().await;
            if let Err(error) = &answer {
                tracing::warn!(
                    error = error as &dyn std::error::Error,
                    "the database does not answer"
                );
            }
            let has_room = self.has_room();
            if !has_room {
                tracing::warn!("the disk of the database is full");
            }
            Some(answer.is_ok() && has_room)
        });
        let answered = asked.await.ok().flatten().unwrap_or(false);
        *self.last.lock() = Some((Instant::now(), answered));
        answered
    }

    fn recent(&self) -> Option<bool> {
        let last = *self.last.lock();
        last.and_then(|(at, answered)| (at.elapsed() < FRESH).then_some(answered))
    }
}

/// The log of the database grows to some megabytes before it is folded into the file.
const LEAST_FREE_BYTES: u64 = 16 * 1024 * 1024;
/// Longer than any answer of a database that is well, shorter than the patience of a probe.
const PATIENCE: Duration = Duration::from_secs(2);
/// A balancer asks every few seconds; a stranger who asks more often costs no query.
const FRESH: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    /// One database is closed, so that it answers at once that it does not; the other one is well.
    #[tokio::test(start_paused = true)]
    async fn the_database_is_asked_once_a_second() {
        tokio::time::resume();
        let directories = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let closed = Store::open(None, directories[0].path()).await.unwrap();
        closed.close().await;
        let well = Store::open(None, directories[1].path()).await.unwrap();
        let health = Health::new(None);
        tokio::time::pause();
        assert!(!health.is_ready(&closed).await);
        tokio::time::advance(Duration::from_millis(999)).await;
        assert!(!health.is_ready(&well).await, "the last answer is given");
        tokio::time::advance(Duration::from_millis(1)).await;
        tokio::time::resume();
        assert!(health.is_ready(&well).await);
    }

    #[tokio::test(start_paused = true)]
    async fn a_database_has_a_time_to_answer() {
        tokio::time::resume();
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open(None, directory.path()).await.unwrap();
        let health = Health::new(None);
        tokio::time::pause();
        // Another question waits for its answer.
        let _turn = health.asking.acquire().await.unwrap();
        let began = Instant::now();
        assert!(!health.is_ready(&store).await);
        assert_eq!(began.elapsed().as_secs(), 2);
    }
}
