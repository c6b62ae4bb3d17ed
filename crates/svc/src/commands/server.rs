//! The server commands: everything in this program that an agent does not need.
//!
//! A build without the feature `server` is a small agent without the servers' crates. In that build
//! `absent.rs` replaces this module.

mod cluster;
mod configuration;
mod engine;
mod platform;
mod signing;
mod surfaces;
mod turn;
pub(crate) mod up;

use clap::Subcommand;
use daemon::logs::Level;

use crate::failure::Failure;
use crate::process::logging::set_up_logs;

/// The server commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Start everything on this machine, on loopback, for development and evaluation
    Up(Box<up::Args>),
    /// Run an engine
    Engine(engine::Args),
    /// Run the control plane: users, workspaces, projects, credentials
    Platform(platform::Args),
    /// Run a TURN relay
    Turn(turn::Args),
    /// Create the certificates with which the engines of a cluster authenticate each other
    #[command(subcommand)]
    Cluster(cluster::Command),
}

/// Runs a server command. The log filter comes from the server's configuration or from `log`.
pub(crate) async fn run(command: Command, log: Option<&str>) -> Result<(), Failure> {
    match command {
        Command::Engine(args) => Box::pin(engine::run(args, log)).await,
        Command::Platform(args) => platform::run(args, log).await,
        Command::Turn(args) => turn::run(args, log).await,
        Command::Cluster(command) => cluster::run(&command),
        Command::Up(args) => {
            set_up_logs(Level::Warn, log)?;
            Box::pin(up::run(*args)).await
        }
    }
}
