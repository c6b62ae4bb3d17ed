//! Shutdown by signals: the first one drains, the second one stops immediately. SIGHUP does not end
//! a server.

use std::time::Duration;

use daemon::shutdown::Shutdown;
#[cfg(feature = "server")]
use daemon::signals::{Signal, Signals};

use crate::failure::Failure;

/// Time for accepted work to finish after the first signal.
pub(crate) const DRAIN: Duration = Duration::from_secs(30);

/// Converts SIGTERM and SIGINT to the two steps of a shutdown, until the process ends.
pub(crate) fn listen(deadline: Duration) -> Result<Shutdown, Failure> {
    let shutdown = Shutdown::new(deadline);
    let driving = shutdown
        .on_signals()
        .map_err(|error| Failure::from_error("signal handlers cannot be installed", error))?;
    tokio::spawn(driving);
    Ok(shutdown)
}

/// As [`listen`], for a server process: SIGHUP does not end it. The rotation of logs sends this
/// signal. The engine reopens its access log then.
#[cfg(feature = "server")]
pub(crate) fn listen_as_server(deadline: Duration) -> Result<Shutdown, Failure> {
    let shutdown = listen(deadline)?;
    let mut hangups = Signals::new(Signal::HangUp)
        .map_err(|error| Failure::from_error("signal handlers cannot be installed", error))?;
    let hard = shutdown.hard().clone();
    tokio::spawn(async move {
        while hard.run_until_cancelled(hangups.recv()).await.is_some() {
            tracing::info!(
                "received SIGHUP: log files are reopened; a changed configuration needs a restart, \
                 or of an engine a reload (SIGUSR2)"
            );
        }
    });
    Ok(shutdown)
}
