//! The log of a command on stderr.

use daemon::logs::{self, Level};

use crate::failure::Failure;

/// Sets up the log at the level of the command, unless the user gave a filter.
pub(crate) fn set_up_logs(level: Level, filter: Option<&str>) -> Result<(), Failure> {
    // The command reports an untrusted certificate itself.
    let filter = filter.or((level == Level::Error).then_some("error,rustls_platform_verifier=off"));
    logs::init(level, filter, logs::Format::of_stderr())
        .map_err(|error| Failure::usage(error.to_string()).hint("see --log (or SVC_LOG)"))
}
