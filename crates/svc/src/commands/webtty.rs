//! `svc webtty`: terminals through tunnels.

mod server;
mod sessions;
mod stage;

use clap::Subcommand;

use crate::failure::Failure;

/// What can be done with terminals.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Serve terminals of this host, directly or through a tunnel
    Server(Box<server::Args>),
    /// Managed sessions: list, watch, join, control, replay
    #[command(subcommand)]
    Sessions(sessions::Command),
}

/// Runs one of them.
pub(crate) async fn run(command: Command) -> Result<(), Failure> {
    match command {
        Command::Server(args) => server::run(*args).await,
        Command::Sessions(command) => sessions::run(command).await,
    }
}
