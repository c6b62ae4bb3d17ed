//! The commands, one file each.

pub(crate) mod clients;
pub(crate) mod dial;
pub(crate) mod engine;
pub(crate) mod events;
pub(crate) mod forward;
pub(crate) mod platform;
pub(crate) mod token;
pub(crate) mod tunnels;
pub(crate) mod up;

use daemon::logs::{self, Level};

use crate::{
    cli::{Cli, Command},
    failure::Failure,
};

/// Runs one command to its end.
pub(crate) async fn run(cli: Cli) -> Result<(), Failure> {
    let log = cli.log.as_deref();
    match cli.command {
        Command::Engine(args) => engine::run(args, log).await,
        Command::Platform(args) => platform::run(args, log).await,
        Command::Up(args) => {
            set_up_logs(Level::Warn, log)?;
            up::run(args).await
        }
        Command::Forward(args) => {
            set_up_logs(Level::Error, log)?;
            forward::run(*args).await
        }
        Command::Dial(args) => {
            set_up_logs(Level::Error, log)?;
            dial::run(args).await
        }
        Command::Tunnels(args) => {
            set_up_logs(Level::Error, log)?;
            tunnels::run(args).await
        }
        Command::Clients(args) => {
            set_up_logs(Level::Error, log)?;
            clients::run(args).await
        }
        Command::Events(args) => {
            set_up_logs(Level::Error, log)?;
            events::run(args).await
        }
        Command::Token(command) => token::run(command),
    }
}

/// What a command says is its output and its error; the log is for those who ask for it.
fn set_up_logs(level: Level, filter: Option<&str>) -> Result<(), Failure> {
    logs::init(level, filter, logs::Format::of_stderr())
        .map_err(|error| Failure::usage(error.to_string()).hint("see --log (or SVC_LOG)"))
}
