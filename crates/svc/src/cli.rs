//! The command line: commands and what all of them take.

use clap::{Parser, Subcommand, ValueEnum};

use crate::commands::{
    audit, clients, credential, dial, doctor, events, explain, forward, login, logout, mcp,
    project, server, token, tunnels, turn_credentials, workspace,
};

/// Publish a private service, or dial one.
#[derive(Debug, Parser)]
#[command(name = "svc", version, propagate_version = true, max_term_width = 100)]
pub(crate) struct Cli {
    /// The command.
    #[command(subcommand)]
    pub(crate) command: Command,

    /// What is logged to stderr: a level, or `level,crate=level`.
    #[arg(
        long,
        global = true,
        env = "SVC_LOG",
        value_name = "FILTER",
        hide_env_values = true
    )]
    pub(crate) log: Option<String>,
}

/// What svc can do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    #[command(flatten)]
    Server(server::Command),
    /// Publish a service through an engine, or offer it for dialling
    Forward(Box<forward::Args>),
    /// Join a private tunnel to stdin and stdout, or to a local port
    Dial(dial::Args),
    /// List the tunnels of an engine
    Tunnels(tunnels::Args),
    /// List the clients of an engine
    Clients(clients::Args),
    /// Follow the events of an engine, one JSON object a line
    Events(events::Args),
    /// Tell why the edge answered a visitor as it did
    Explain(Box<explain::Args>),
    /// Look for what is wrong between here, the engine and the platform
    Doctor(doctor::Args),
    /// Sign in to a platform
    Login(login::LoginArgs),
    /// Revoke the token of a login, and forget who signed in
    Logout(logout::Args),
    /// Show who the token speaks for, and what it allows
    Whoami(login::WhoamiArgs),
    /// Workspaces and their members
    #[command(subcommand)]
    Workspace(workspace::Command),
    /// Projects: create, select, change, look into
    #[command(subcommand)]
    Project(project::Command),
    /// Long-lived credentials: tokens, applications, client certificates
    #[command(subcommand)]
    Credential(credential::Command),
    /// Issue a TURN credential for a project
    TurnCredentials(turn_credentials::Args),
    /// Show who did what in a workspace
    Audit(audit::Args),
    /// Serve the platform's tools, and tunnels to local ports, to an AI client on stdin and stdout
    Mcp(mcp::Args),
    /// Make tokens, and look into them
    #[command(subcommand)]
    Token(token::Command),
}

/// How a command writes its data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For people.
    #[default]
    Text,
    /// For programs.
    Json,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_definition_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn help_says_what_there_is() {
        let mut root = Cli::command();
        root.build();
        let help: Vec<_> = walk(&root)
            .iter()
            .map(|(name, help)| format!("---- {name}\n{help}"))
            .collect();
        insta::assert_snapshot!(help.join("\n"));
    }

    /// Every command with its long help.
    fn walk(command: &clap::Command) -> Vec<(String, String)> {
        let name = command.get_bin_name().unwrap_or("svc").to_owned();
        // A fixed width, and no environment of the machine that runs the test.
        let mut alone = command.clone().term_width(100);
        let mut all = vec![(name, alone.render_long_help().to_string())];
        for sub in command
            .get_subcommands()
            .filter(|sub| sub.get_name() != "help")
        {
            all.extend(walk(sub));
        }
        all
    }
}
