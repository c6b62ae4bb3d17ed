//! Messages about the configuration of a server.

use std::path::Path;

use daemon::config::{ConfigError, Warning};

use crate::{
    failure::{Code, Failure},
    output,
};

/// The failure of `svc <command>` because of its configuration.
pub(super) fn invalid(command: &str, file: Option<&Path>, error: &ConfigError) -> Failure {
    let failure = Failure::new(Code::Usage, error.to_string());
    match file {
        Some(_) => failure.hint(format!("`svc {command} --schema` describes every key")),
        None => failure.hint("give the configuration file with -c FILE"),
    }
}

/// The response to `--check`.
pub(super) fn report(warnings: &[Warning]) -> Result<(), Failure> {
    for warning in warnings {
        output::message(&format!("warning: {}: {}", warning.key, warning.message));
    }
    output::line("the configuration is valid")
}

/// Writes the warnings to the log.
pub(super) fn log(warnings: &[Warning]) {
    for warning in warnings {
        tracing::warn!(key = warning.key, "{}", warning.message);
    }
}
