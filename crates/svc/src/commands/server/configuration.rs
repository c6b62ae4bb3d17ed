//! Messages about the configuration of a server.

use std::path::Path;

use daemon::config::{ConfigErrors, Warning};
use engine::config::{ControlPlane, ProbeError};

use crate::{
    config_errors::print_all_but_last,
    failure::{Failure, chain},
    output::{self, Format, plain},
    platform::PlatformError,
};

/// The failure of `svc <command>` because of its configuration. Prints all errors but the last.
pub(super) fn invalid(
    command: &str,
    file: Option<&Path>,
    errors: ConfigErrors,
    format: Format,
) -> Failure {
    match file {
        Some(_) => {
            let next_step = format!("`svc {command} --schema` describes every key");
            print_all_but_last(errors, format, &next_step)
        }
        None => print_all_but_last(errors, format, "give the configuration file with -c FILE"),
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

/// Tries the platform once. `url_key` and `token_key` are the keys of its settings. A server starts
/// without its platform, which may be restarting, so this is a warning.
pub(super) async fn platform_warning(
    [url_key, token_key]: [&'static str; 2],
    platform: &ControlPlane,
) -> Option<Warning> {
    let error = platform.probe().await.err()?;
    let (key, message) = match &error {
        ProbeError::Unreachable(source) => (
            url_key,
            PlatformError::unreachable_text(&platform.url, None, source),
        ),
        ProbeError::Status(_) => (
            url_key,
            format!("{error}; is {} the address of a platform?", platform.url),
        ),
        ProbeError::Endpoint(_) => (url_key, chain(&error)),
        ProbeError::Token(_) | ProbeError::Refused(_) => (token_key, chain(&error)),
    };
    Some(Warning::new(key, plain(&message)))
}
