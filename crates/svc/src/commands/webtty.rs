//! `svc webtty`: terminals through tunnels.

mod client;
mod command_end;
mod exec;
mod fs;
mod keys;
mod list;
mod offline_server;
mod piped;
#[cfg(unix)]
mod server;
#[cfg(unix)]
mod servers;
mod session_request;
mod sessions;
mod signals;
mod target;
mod terminal_view;

use clap::Subcommand;

use crate::failure::Failure;

/// The subcommands of `svc webtty`.
#[derive(Debug, Subcommand)]
#[command(after_help = "Examples:
  svc webtty client build
  svc webtty exec build -- uname -a")]
pub(crate) enum Command {
    /// Serve terminals of this host, directly or through a tunnel
    #[cfg(unix)]
    Server(Box<servers::Args>),
    /// Managed sessions: list, watch, join, control, replay
    #[command(subcommand)]
    Sessions(sessions::Command),
    /// Open a terminal on a server
    Client(Box<client::Args>),
    /// Run one command on a server, for scripts
    Exec(Box<exec::Args>),
    /// List the servers of an engine
    List(Box<list::Args>),
    /// Read and write the files of a server
    #[command(subcommand)]
    Fs(fs::Command),
    /// Your own keys for end-to-end encryption
    #[command(subcommand)]
    Identity(keys::Identity),
    /// Trusted keys of servers that you connect to
    #[command(subcommand)]
    KnownServer(keys::KnownServer),
    /// Keys of clients that a server admits
    #[command(subcommand)]
    AuthorizedClient(keys::AuthorizedClient),
}

/// Runs a subcommand.
pub(crate) async fn run(command: Command) -> Result<(), Failure> {
    match command {
        #[cfg(unix)]
        Command::Server(args) => Box::pin(servers::run(*args)).await,
        Command::Sessions(command) => Box::pin(sessions::run(command)).await,
        Command::Client(args) => Box::pin(client::run(*args)).await,
        Command::Exec(args) => Box::pin(exec::run(*args)).await,
        Command::List(args) => Box::pin(list::run(*args)).await,
        Command::Fs(command) => Box::pin(fs::run(command)).await,
        Command::Identity(command) => keys::identity(command),
        Command::KnownServer(command) => keys::known_server(command),
        Command::AuthorizedClient(command) => keys::authorized_client(command),
    }
}
