//! The command line: all commands and the flags that they share.

use std::{ffi::OsString, process::ExitCode};

use clap::{
    ArgAction, CommandFactory, FromArgMatches, Parser, Subcommand,
    error::{ContextKind, ContextValue, ErrorKind},
};

use crate::commands::{
    audit, clients, completions, context, credential, dial, doctor, domain, events, explain,
    forward, login, logout, man, mcp, project, run, server, service, token, tunnels,
    turn_credentials, webtty, workspace,
};
use crate::failure::Failure;
use crate::output::Format;

/// Publish a private service, or dial one.
#[derive(Debug, Parser)]
#[command(
    name = "svc",
    version,
    propagate_version = true,
    max_term_width = 100,
    disable_help_flag = true,
    after_help = "Run `svc help <command>` for full help; `svc help exit-codes` lists exit codes."
)]
pub(crate) struct Cli {
    /// The command.
    #[command(subcommand)]
    pub(crate) command: Command,

    /// Log filter for stderr: a level, or `level,crate=level`
    #[arg(
        long,
        global = true,
        env = "SVC_LOG",
        value_name = "FILTER",
        hide_env_values = true
    )]
    pub(crate) log: Option<String>,

    // `-h` prints the short help, which fits a screen. `svc help` prints the long one.
    /// Print help
    #[arg(long, short, global = true, action = ArgAction::HelpShort)]
    help: Option<bool>,
}

/// The commands of svc.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    #[command(flatten)]
    Server(server::Command),
    /// Publish a service through an engine, or offer it for dialling
    Forward(Box<forward::Args>),
    /// Run many tunnels, from a file and from container labels
    Run(Box<run::Args>),
    /// Install `svc run` as a systemd service
    #[command(subcommand)]
    Service(service::Command),
    /// Connect a private tunnel to stdin and stdout, or to a local port
    Dial(dial::Args),
    /// List the tunnels of an engine
    Tunnels(tunnels::Args),
    /// List the clients of an engine
    Clients(clients::Args),
    /// Stream an engine's events, one JSON object per line
    Events(events::Args),
    /// Explain why a request was refused or failed
    Explain(Box<explain::Args>),
    /// Check the path from this machine to the engine and the platform
    Doctor(doctor::Args),
    /// Sign in to a platform
    Login(login::LoginArgs),
    /// Revoke the token of a login, and delete it from this machine
    Logout(logout::Args),
    /// Show the current identity and permissions
    Whoami(login::WhoamiArgs),
    /// Workspaces and their members
    #[command(subcommand)]
    Workspace(workspace::Command),
    /// Projects: create, select, configure and inspect
    #[command(subcommand)]
    Project(project::Command),
    /// Custom domains of a project: add, verify and remove them
    #[command(subcommand, alias = "domains")]
    Domain(Box<domain::Command>),
    /// Long-lived credentials: tokens, applications, client certificates
    #[command(subcommand)]
    Credential(credential::Command),
    /// Issue a TURN credential for a project
    TurnCredentials(turn_credentials::Args),
    /// Terminals on other machines: open and serve them
    #[command(subcommand)]
    Webtty(webtty::Command),
    /// Show the audit log of a workspace
    Audit(audit::Args),
    /// Serve platform tools and local tunnels to an AI client over stdin and stdout
    Mcp(mcp::Args),
    /// Create and inspect tokens
    #[command(subcommand)]
    Token(token::Command),
    /// Manage contexts (saved engine, platform and token)
    #[command(subcommand)]
    Context(context::Command),
    /// Print a shell completion script
    Completions(completions::Args),
    /// Print the manual page, or write those of all commands
    Man(man::Args),
}

/// Parses the command line, and returns the output format for data and failures. Help and usage
/// errors are printed here. The error case is the exit code.
pub(crate) fn read() -> Result<(Cli, Format), ExitCode> {
    let arguments: Vec<OsString> = std::env::args_os().collect();
    if man::is_topic(&arguments) {
        return Err(man::topic());
    }
    let mut command = Cli::command();
    let read = command
        .try_get_matches_from_mut(&arguments)
        .and_then(|matches| {
            let format = Format::of_matches(&matches);
            let cli =
                Cli::from_arg_matches(&matches).map_err(|error| error.format(&mut command))?;
            Ok((cli, format))
        });
    read.map_err(|error| {
        if let Some(advice) = other_tools_advice(&error) {
            let format = if Format::is_requested(&arguments) {
                Format::Json
            } else {
                Format::Text
            };
            return Failure::usage(first_line(&error.to_string()))
                .hint(advice)
                .report(format);
        }
        if error.use_stderr() && Format::is_requested(&arguments) {
            return Failure::usage(first_line(&error.to_string()))
                .hint("see --help")
                .report(Format::Json);
        }
        // A closed stdout needs no help text.
        drop(error.print());
        ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2))
    })
}

/// The way of svc for a command or an option of a similar tool. clap would suggest an unrelated word
/// of similar spelling.
fn other_tools_advice(error: &clap::Error) -> Option<&'static str> {
    let word = |kind| match error.get(kind) {
        Some(ContextValue::String(word)) => Some(word.as_str()),
        _ => None,
    };
    match error.kind() {
        ErrorKind::InvalidSubcommand => match word(ContextKind::InvalidSubcommand)? {
            "http" | "https" | "share" | "expose" | "publish" | "tunnel" | "serve" => {
                Some("`svc forward 3000` publishes a web service; `--name web` gives it an address")
            }
            "tcp" => Some("`svc forward 22 --tcp` publishes a TCP service on a port of its own"),
            "tls" => Some("`svc forward 443 --tls` publishes a TLS service"),
            "start" => {
                Some("`svc run` starts the tunnels of a file, `svc forward 3000` a single one")
            }
            "authtoken" => Some("`svc login` signs in; commands also take --token (or SVC_TOKEN)"),
            _ => None,
        },
        ErrorKind::UnknownArgument => {
            let option = word(ContextKind::InvalidArg)?;
            match option.split('=').next().unwrap_or_default() {
                "--subdomain" => Some(
                    "`--name web` requests the address `web`, and `--hostname web` requires it",
                ),
                "--domain" => Some("`--hostname` is the public host name"),
                "--url" | "--local-port" | "--addr" => Some(
                    "the service is the argument: `svc forward 3000`, `svc forward HOST:PORT` or \
                     `svc forward https://HOST:PORT`",
                ),
                _ => None,
            }
        }
        _ => None,
    }
}

/// The error message of clap, without its advice.
fn first_line(text: &str) -> String {
    let text = text.strip_prefix("error: ").unwrap_or(text);
    text.split("\n\n")
        .next()
        .unwrap_or_default()
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ")
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, path::Path};

    use super::*;

    #[test]
    fn the_definition_is_consistent() {
        Cli::command().debug_assert();
    }

    /// One snapshot for each command. A new command has none yet, so the test fails until it is
    /// accepted.
    #[test]
    fn every_command_has_a_help_snapshot() {
        let mut names = BTreeSet::new();
        for (name, command) in all() {
            let name = name.replace(' ', "-");
            insta::with_settings!({ omit_expression => true, prepend_module_to_snapshot => false }, {
                insta::assert_snapshot!(format!("help-{name}"), help(&command));
            });
            names.insert(format!("help-{name}.snap"));
        }
        // A snapshot of a removed command must be removed as well.
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/snapshots");
        for file in std::fs::read_dir(folder).unwrap() {
            let file = file.unwrap().file_name().into_string().unwrap();
            let is_of_help = file.starts_with("help-") && !file.ends_with(UNREVIEWED_EXTENSION);
            assert!(
                !is_of_help || names.contains(&file),
                "{file} does not belong to a command"
            );
        }
    }

    /// Checks the commands for daily use.
    #[test]
    fn daily_help_fits_a_screen_and_has_examples() {
        const DAILY: [&str; 10] = [
            "forward",
            "run",
            "tunnels",
            "clients",
            "events",
            "dial",
            "token",
            "context",
            "doctor",
            "completions",
        ];
        for (name, command) in all() {
            let first = name.split(' ').nth(1).unwrap_or_default();
            if !DAILY.contains(&first) || name.split(' ').nth(1) == Some("help") {
                continue;
            }
            let help = help(&command);
            let lines = help.lines().count();
            let most = if first == "forward" { WINDOW } else { SCREEN };
            assert!(lines <= most, "{name}: {lines} lines\n{help}");
            assert!(help.contains("Example"), "{name} has no example");
        }
    }

    /// Every command that can be called, by its full name.
    fn all() -> Vec<(String, clap::Command)> {
        fn walk(command: &clap::Command, all: &mut Vec<(String, clap::Command)>) {
            let name = command.get_bin_name().unwrap_or("svc").to_owned();
            all.push((name, command.clone()));
            for sub in command.get_subcommands() {
                if sub.get_name() != "help" {
                    walk(sub, all);
                }
            }
        }
        let mut root = Cli::command();
        root.build();
        let mut commands = Vec::new();
        walk(&root, &mut commands);
        commands
    }

    /// The output of `--help` at a fixed width and without the environment of the machine.
    fn help(command: &clap::Command) -> String {
        command.clone().term_width(100).render_help().to_string()
    }

    /// Extension of a snapshot that is not reviewed yet.
    const UNREVIEWED_EXTENSION: &str = ".new";

    /// Lines of a terminal window that is slightly larger than the default.
    const SCREEN: usize = 40;

    /// Lines of a full-height window, for the one command with more daily flags.
    const WINDOW: usize = 56;
}
