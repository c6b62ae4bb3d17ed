//! The task that keeps a process's keys current.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use crate::app::App;

/// Interval for reading the keys and for checking the rotation. It is far shorter than the time for
/// which a key is public before it signs, and costs one small query.
const EVERY: Duration = Duration::from_mins(1);

/// Runs until `stop` is cancelled.
pub async fn run(app: Arc<App>, stop: CancellationToken) {
    let mut ticks = interval(EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            _ = ticks.tick() => {}
        }
        if let Err(error) = app.keys.maintain(&app.store, app.now()).await {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "the keys could not be checked and rotated"
            );
        }
    }
}
