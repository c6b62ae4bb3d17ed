//! Limit of concurrent searches.
//!
//! A search may read many rows to find few. Without a limit, the searches of one user could occupy
//! every connection to the database.

use std::time::Duration;

use daemon::counts::Counts;
use parking_lot::Mutex;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::timeout;
use types::id::UserId;
use types::problem::Problem;

use crate::http_api::problem::HandlerResult;

/// Searches in progress; a part of [`crate::app::App`].
#[derive(Debug)]
pub struct SearchLimit {
    permits: Semaphore,
    of_users: Mutex<Counts<UserId>>,
}

impl Default for SearchLimit {
    fn default() -> Self {
        Self {
            permits: Semaphore::new(MAX_SEARCHES),
            of_users: Mutex::default(),
        }
    }
}

/// Permit of one search, until it is dropped.
#[derive(Debug)]
pub struct Search<'a> {
    limit: &'a SearchLimit,
    user: UserId,
    permit: Option<SemaphorePermit<'a>>,
}

impl SearchLimit {
    /// Starts a search of this user when a permit is available.
    ///
    /// # Errors
    /// The user has too many searches in progress, or those of other users take too long.
    pub async fn begin(&self, user: UserId) -> HandlerResult<Search<'_>> {
        if !self.of_users.lock().increment_below(user, MAX_OF_USER) {
            let detail = "Your previous searches are still running.";
            return Err(Problem::too_many_requests()
                .with_detail(detail)
                .with_retry_after(RETRY_AFTER_SECONDS)
                .into());
        }
        let mut search = Search {
            limit: self,
            user,
            permit: None,
        };
        match timeout(MAX_WAIT, self.permits.acquire()).await {
            Ok(Ok(permit)) => {
                search.permit = Some(permit);
                Ok(search)
            }
            Ok(Err(_)) | Err(_) => Err(Problem::unavailable()
                .with_retry_after(RETRY_AFTER_SECONDS)
                .into()),
        }
    }
}

impl Drop for Search<'_> {
    fn drop(&mut self) {
        self.limit.of_users.lock().decrement(&self.user);
    }
}

/// A quarter of a process's default number of connections.
const MAX_SEARCHES: usize = 4;
/// One search for the current page of a user, and one for the next page.
const MAX_OF_USER: usize = 2;
/// As long as a request waits for a database connection.
const MAX_WAIT: Duration = Duration::from_secs(5);
const RETRY_AFTER_SECONDS: u32 = 1;

#[cfg(test)]
mod tests {
    use super::*;

    fn user(number: u8) -> UserId {
        UserId::new(1, [number; 10])
    }

    #[tokio::test(start_paused = true)]
    async fn searches_of_one_user_leave_permits_for_other_users() {
        let limit = SearchLimit::default();
        let first = limit.begin(user(1)).await.unwrap();
        let second = limit.begin(user(1)).await.unwrap();
        let refused = limit.begin(user(1)).await.unwrap_err();
        assert_eq!(refused.problem().status, 429);
        let others = [limit.begin(user(2)).await, limit.begin(user(3)).await];
        assert!(others.iter().all(Result::is_ok));
        let refused = limit.begin(user(4)).await.unwrap_err();
        assert_eq!(refused.problem().status, 503);
        drop(first);
        limit.begin(user(4)).await.unwrap();
        drop((second, others));
        assert!(limit.of_users.lock().is_empty());
        assert_eq!(limit.permits.available_permits(), MAX_SEARCHES);
    }
}
