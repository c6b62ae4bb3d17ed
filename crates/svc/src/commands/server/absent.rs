//! Server commands in the small agent. They fail with a message about the full build.

use std::ffi::OsString;

use clap::{Args, Subcommand};

use crate::failure::{Code, Failure};

/// The server commands, which this build does not have.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Not in this build
    #[command(hide = true, disable_help_flag = true)]
    Up(IgnoredArgs),
    /// Not in this build
    #[command(hide = true, disable_help_flag = true)]
    Engine(IgnoredArgs),
    /// Not in this build
    #[command(hide = true, disable_help_flag = true)]
    Platform(IgnoredArgs),
    /// Not in this build
    #[command(hide = true, disable_help_flag = true)]
    Turn(IgnoredArgs),
    /// Not in this build
    #[command(hide = true, disable_help_flag = true)]
    Cluster(IgnoredArgs),
}

/// Ignored arguments of a missing command.
#[derive(Args, Debug)]
pub(crate) struct IgnoredArgs {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
    _arguments: Vec<OsString>,
}

/// Reports that the command is missing, and where to get it.
#[expect(clippy::unused_async, reason = "same signature as in the full build")]
pub(crate) async fn run(command: Command, _log: Option<&str>) -> Result<(), Failure> {
    let name = match command {
        Command::Up(_) => "up",
        Command::Engine(_) => "engine",
        Command::Platform(_) => "platform",
        Command::Turn(_) => "turn",
        Command::Cluster(_) => "cluster",
    };
    let message = format!("this build is the small agent: it has no `svc {name}`");
    Err(Failure::new(Code::NotAvailable, message)
        .hint("use the full build: the package `svc`, or a build with the feature `server`"))
}
