//! The commands that serve: everything of this program that an agent does not need.
//!
//! A build without the feature `server` is a small agent. It has none of the servers' crates, and
//! `absent.rs` in this module's place.

mod engine;
mod platform;
mod surfaces;
mod turn;
pub(crate) mod up;

use clap::Subcommand;
use daemon::logs::Level;

use crate::{failure::Failure, logging::set_up_logs};

/// What runs until it is told to stop.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Start everything on this machine, on loopback, for development and for a first look
    Up(up::Args),
    /// Run an engine
    Engine(engine::Args),
    /// Run the control plane: people, workspaces, projects, credentials
    Platform(platform::Args),
    /// Run a TURN relay
    Turn(turn::Args),
}

/// Runs one of them to its end. Servers log as their configuration says, or as `log` does.
pub(crate) async fn run(command: Command, log: Option<&str>) -> Result<(), Failure> {
    match command {
        Command::Engine(args) => engine::run(args, log).await,
        Command::Platform(args) => platform::run(args, log).await,
        Command::Turn(args) => turn::run(args, log).await,
        Command::Up(args) => {
            set_up_logs(Level::Warn, log)?;
            up::run(args).await
        }
    }
}
