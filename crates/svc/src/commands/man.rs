//! `svc man`: manual pages. `svc help exit-codes`: the exit codes.

use std::{
    ffi::OsString,
    io::{self, Write},
    path::PathBuf,
    process::ExitCode,
};

use clap::{Command, Parser};
use clap_mangen::Man;

use crate::{failure::Failure, output};

/// The flags of `svc man`.
#[derive(Debug, Parser)]
#[command(after_help = "Examples:
  svc man | man -l -
  svc man --dir ~/.local/share/man/man1")]
pub(crate) struct Args {
    /// Write svc.1 and a page for each command into this directory
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

/// Prints the page of the program, or writes all of them.
pub(crate) fn run(args: &Args, mut root: Command) -> Result<(), Failure> {
    // No flag documents the exit codes.
    root = root.after_long_help(EXIT_CODES);
    match &args.dir {
        None => {
            let mut page = Vec::new();
            Man::new(root)
                .render(&mut page)
                .and_then(|()| io::stdout().lock().write_all(&page))
                .map_err(output::write_failure)
        }
        Some(directory) => {
            let failed = |error| {
                Failure::from_error(&format!("cannot write to {}", directory.display()), error)
            };
            std::fs::create_dir_all(directory).map_err(failed)?;
            clap_mangen::generate_to(root, directory).map_err(failed)
        }
    }
}

/// True if the command line is `svc help exit-codes`, a help topic that is not a command.
pub(crate) fn is_topic(arguments: &[OsString]) -> bool {
    matches!(arguments, [_, help, topic] if help == "help" && topic == "exit-codes")
}

/// Prints the topic.
pub(crate) fn topic() -> ExitCode {
    match output::line(EXIT_CODES.trim_end()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(output::Format::Text),
    }
}

/// The same text as in `docs/command-line.md`.
const EXIT_CODES: &str = "\
Exit codes:
  0  done, or stopped by a signal
  1  something failed, was not found, or was declined
  2  the command line or a configuration is wrong
  3  refused: authentication, a permission, a boundary
  4  another client holds or took over a name or host name; a confirmed offer has changed
  5  the option or the plan is not available there, or the command is not in this build

A failure prints one line on stderr, `error[code]: cause`, and usually a second line with the next
step, `hint: …`. With --output json it prints the same as one object on stderr:
`{\"error\": {\"code\", \"message\", \"hint\", \"exit_code\"}}`.
";
