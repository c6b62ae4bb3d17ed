//! Notifications of changes that other processes of the platform commit.

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::app::App;

/// Listens for changes until `stop`, then ends the links and the forwarded streams of this process.
pub(crate) async fn listen(app: Arc<App>, stop: CancellationToken) {
    loop {
        let listened = tokio::select! {
            () = stop.cancelled() => break,
            listened = app.store.listen() => listened,
        };
        if let Err(error) = listened {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "changes of other processes are received with a delay"
            );
        }
        tokio::select! {
            () = stop.cancelled() => break,
            () = tokio::time::sleep(LISTEN_AGAIN) => {}
        }
    }
    app.engines.close_links();
    app.forwarder.close();
}

/// While the database is unreachable, links poll.
const LISTEN_AGAIN: Duration = Duration::from_secs(1);
