//! A build that serves nothing: a small agent. It knows the commands of servers by their names, and
//! says which build has them.

use std::ffi::OsString;

use clap::{Args, Subcommand};

use crate::failure::{Code, Failure};

/// What this build does not have.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Not in this build
    #[command(hide = true, disable_help_flag = true)]
    Up(Given),
    /// Not in this build
    #[command(hide = true, disable_help_flag = true)]
    Engine(Given),
    /// Not in this build
    #[command(hide = true, disable_help_flag = true)]
    Platform(Given),
    /// Not in this build
    #[command(hide = true, disable_help_flag = true)]
    Turn(Given),
}

/// Whatever such a command was given.
#[derive(Args, Debug)]
pub(crate) struct Given {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
    _arguments: Vec<OsString>,
}

/// Says where the command is.
#[expect(
    clippy::unused_async,
    reason = "called as the one that a whole program has"
)]
pub(crate) async fn run(command: Command, _log: Option<&str>) -> Result<(), Failure> {
    let name = match command {
        Command::Up(_) => "up",
        Command::Engine(_) => "engine",
        Command::Platform(_) => "platform",
        Command::Turn(_) => "turn",
    };
    let message = format!("this build is an agent alone: it has no `svc {name}`");
    Err(Failure::new(Code::NotAvailable, message)
        .hint("use the whole program: the package `svc`, or a build with the feature `server`"))
}
