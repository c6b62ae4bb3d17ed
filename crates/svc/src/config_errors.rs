//! Output of all errors of a configuration file.

use daemon::config::ConfigError;

use crate::{
    failure::Failure,
    output::{self, Format},
};

/// Prints all errors but the last one, and returns the last as the failure, with the next step.
pub(crate) fn print_all_but_last(
    errors: impl IntoIterator<Item = ConfigError>,
    format: Format,
    next_step: &str,
) -> Failure {
    let mut failures: Vec<_> = errors
        .into_iter()
        .map(|error| Failure::usage(error.to_string()))
        .collect();
    let last = failures.pop();
    for failure in failures {
        output::message(&match format {
            Format::Text => failure.to_string(),
            Format::Json => failure.to_json().to_string(),
        });
    }
    let last = last.unwrap_or_else(|| Failure::usage("the configuration is invalid"));
    last.hint(next_step)
}
