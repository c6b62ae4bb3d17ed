//! How long a test waits for what must come.

use std::time::Duration;

/// Waits for `future`, and fails the test where it takes too long: a test that hangs tells nobody
/// what it was waiting for.
///
/// # Panics
/// When the time is over, with `what` was awaited.
pub async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future)
        .await
        .unwrap_or_else(|_elapsed| panic!("no {what} within {} s", PATIENCE.as_secs()))
}

/// Nothing here takes a second on a quiet machine; test machines are not quiet.
const PATIENCE: Duration = Duration::from_mins(1);
