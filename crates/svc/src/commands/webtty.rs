//! `svc webtty`: terminals through tunnels.

#[cfg(unix)]
mod server;
#[cfg(unix)]
mod servers;

use clap::Subcommand;

use crate::failure::Failure;

/// What can be done with terminals.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Serve terminals of this host, directly or through a tunnel
    #[cfg(unix)]
    Server(Box<servers::Args>),
}

/// Runs one of them.
pub(crate) async fn run(command: Command) -> Result<(), Failure> {
    match command {
        #[cfg(unix)]
        Command::Server(args) => Box::pin(servers::run(*args)).await,
    }
}
