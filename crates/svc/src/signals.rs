//! The end of a process: the first signal lets it finish, the second ends it.

use std::time::Duration;

use daemon::shutdown::Shutdown;

use crate::failure::Failure;

/// How long work that was accepted may take to finish after the first signal.
pub(crate) const DRAIN: Duration = Duration::from_secs(30);

/// Turns SIGTERM and SIGINT into the two steps of a stop, for as long as the process runs.
pub(crate) fn listen(deadline: Duration) -> Result<Shutdown, Failure> {
    let shutdown = Shutdown::new(deadline);
    let driving = shutdown
        .on_signals()
        .map_err(|error| Failure::of("signal handlers cannot be installed", error))?;
    tokio::spawn(driving);
    Ok(shutdown)
}
