//! `svc webtty`: terminals through tunnels.

mod server;

use clap::Subcommand;

use crate::failure::Failure;

/// What can be done with terminals.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Serve terminals of this host, directly or through a tunnel
    Server(Box<server::Args>),
}

/// Runs one of them.
pub(crate) async fn run(command: Command) -> Result<(), Failure> {
    match command {
        Command::Server(args) => server::run(*args).await,
    }
}
