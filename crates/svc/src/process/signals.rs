//! Shutdown by signals: the first one drains, the second one stops immediately.

use std::time::Duration;

use daemon::shutdown::Shutdown;

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
