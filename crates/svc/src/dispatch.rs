//! Calls the command that the command line names.

use clap::CommandFactory as _;
use daemon::logs::Level;

use crate::cli::{Cli, Command};
use crate::commands::{
    audit, clients, completions, context, credential, dial, doctor, domain, events, explain,
    forward, login, logout, man, mcp, project, run, server, service, token, tunnels,
    turn_credentials, webtty, workspace,
};
use crate::failure::Failure;
use crate::process::logging::set_up_logs;

/// Runs one command to its end.
#[expect(
    clippy::too_many_lines,
    reason = "a table of commands, one arm for each"
)]
pub(crate) async fn dispatch(cli: Cli) -> Result<(), Failure> {
    let log = cli.log.as_deref();
    match cli.command {
        Command::Server(command) => Box::pin(server::run(command, log)).await,
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
        Command::Domain(command) => {
            set_up_logs(Level::Error, log)?;
            domain::run(*command).await
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
        Command::Man(args) => man::run(&args, Cli::command()),
        Command::Audit(args) => {
            set_up_logs(Level::Error, log)?;
            audit::run(args).await
        }
    }
}
