//! The formats of a command's output.

use std::ffi::OsString;

use clap::{ArgMatches, ValueEnum};

/// Output format of a command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For people.
    #[default]
    Text,
    /// For programs.
    Json,
}

impl Format {
    /// The format of the selected subcommand. Without `--output`, the default format.
    pub(crate) fn of_matches(matches: &ArgMatches) -> Self {
        let mut matches = matches;
        while let Some((_name, inner)) = matches.subcommand() {
            matches = inner;
        }
        let requested = matches.try_get_one::<Self>("output").ok().flatten();
        requested.copied().unwrap_or_default()
    }

    /// True if a command line with errors requests JSON.
    pub(crate) fn is_requested(arguments: &[OsString]) -> bool {
        let mut before = None;
        arguments.iter().any(|argument| {
            let text = argument.to_str().unwrap_or_default();
            let behind_flag = matches!(before.replace(text), Some("-o" | "--output"));
            (behind_flag && text == "json")
                || matches!(text, "--output=json" | "-ojson" | "-o=json")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_command_line_that_requests_json_is_recognised() {
        let requests_json = |line: &str| {
            let arguments: Vec<_> = line.split(' ').map(OsString::from).collect();
            Format::is_requested(&arguments)
        };
        assert!(requests_json("svc tunnels -o json --nonsense"));
        assert!(requests_json("svc tunnels --output=json --nonsense"));
        assert!(!requests_json("svc tunnels --output text json"));
        assert!(!requests_json("svc tunnels --filter json"));
    }
}
