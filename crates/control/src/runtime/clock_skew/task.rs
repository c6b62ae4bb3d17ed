//! The task that compares the clocks.

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::app::App;

/// Compares the clocks every minute, until `stop`.
pub(crate) async fn run(app: Arc<App>, stop: CancellationToken) {
    loop {
        if let Err(error) = app.clock_skew.measure(&app.store, &*app.clock).await {
            tracing::debug!(
                error = &error as &dyn std::error::Error,
                "the clocks could not be compared"
            );
        }
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(EVERY) => {}
        }
    }
}

const EVERY: Duration = Duration::from_mins(1);
