//! The commands, one file each.

pub(crate) mod audit;
pub(crate) mod clients;
pub(crate) mod completions;
pub(crate) mod context;
pub(crate) mod credential;
pub(crate) mod dial;
pub(crate) mod doctor;
pub(crate) mod events;
pub(crate) mod explain;
pub(crate) mod forward;
pub(crate) mod login;
pub(crate) mod logout;
pub(crate) mod man;
pub(crate) mod mcp;
pub(crate) mod project;
pub(crate) mod run;
#[cfg(feature = "server")]
pub(crate) mod server;
#[cfg(not(feature = "server"))]
#[path = "commands/server/absent.rs"]
pub(crate) mod server;
pub(crate) mod service;
pub(crate) mod token;
pub(crate) mod tunnels;
pub(crate) mod turn_credentials;
pub(crate) mod webtty;
pub(crate) mod workspace;

use daemon::logs::{self, Level};

use crate::{
    cli::{Cli, Command},
    failure::Failure,
};

/// Runs one command to its end.
pub(crate) async fn run(cli: Cli) -> Result<(), Failure> {
    let log = cli.log.as_deref();
    match cli.command {
        Command::Server(command) => server::run(command, log).await,
        Command::Forward(args) => {
            set_up_logs(Level::Error, log)?;
            forward::run(*args).await
        }
        Command::Run(args) => {
            set_up_logs(Level::Error, log)?;
            Box::pin(run::run(*args)).await
        }
        Command::Service(command) => {
            set_up_logs(Level::Error, log)?;
            service::run(command).await
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
        Command::Explain(args) => {
            set_up_logs(Level::Error, log)?;
            explain::run(*args).await
        }
        Command::Token(command) => {
            set_up_logs(Level::Error, log)?;
            token::run(command).await
        }
        Command::Login(args) => {
            set_up_logs(Level::Error, log)?;
            login::login(args).await
        }
        Command::Logout(args) => {
            set_up_logs(Level::Error, log)?;
            logout::run(args).await
        }
        Command::Mcp(args) => {
            set_up_logs(Level::Error, log)?;
            mcp::run(args).await
        }
        Command::Whoami(args) => {
            set_up_logs(Level::Error, log)?;
            login::whoami(args).await
        }
        Command::Workspace(command) => {
            set_up_logs(Level::Error, log)?;
            workspace::run(command).await
        }
        Command::Project(command) => {
            set_up_logs(Level::Error, log)?;
            project::run(command).await
        }
        Command::Credential(command) => {
            set_up_logs(Level::Error, log)?;
            credential::run(command).await
        }
        Command::TurnCredentials(args) => {
            set_up_logs(Level::Error, log)?;
            turn_credentials::run(args).await
        }
        Command::Webtty(command) => {
            set_up_logs(Level::Error, log)?;
            Box::pin(webtty::run(command)).await
        }
        Command::Doctor(args) => {
            set_up_logs(Level::Error, log)?;
            doctor::run(args).await
        }
        Command::Context(command) => {
            set_up_logs(Level::Error, log)?;
            context::run(command)
        }
        Command::Completions(args) => completions::run(&args),
        Command::Man(args) => man::run(&args),
        Command::Audit(args) => {
            set_up_logs(Level::Error, log)?;
            audit::run(args).await
        }
    }
}

/// The messages of a command are its output and its error. The log is for users that enable it.
fn set_up_logs(level: Level, filter: Option<&str>) -> Result<(), Failure> {
    // An untrusted certificate is reported once, by the error of the command.
    let filter = filter.or((level == Level::Error).then_some("error,rustls_platform_verifier=off"));
    logs::init(level, filter, logs::Format::of_stderr())
        .map_err(|error| Failure::usage(error.to_string()).hint("see --log (or SVC_LOG)"))
}
