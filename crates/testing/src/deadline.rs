//! Time limit for waits in tests.

use std::time::Duration;

/// Waits for `future`, and fails the test after a time limit. A hanging test would not show its
/// reason.
///
/// # Panics
/// After the time limit, with `what` as the description of the wait.
pub async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(WAIT_LIMIT, future)
        .await
        .unwrap_or_else(|_elapsed| panic!("no {what} within {} s", WAIT_LIMIT.as_secs()))
}

/// No wait takes a second on an idle machine, but test machines may be busy.
const WAIT_LIMIT: Duration = Duration::from_mins(1);
