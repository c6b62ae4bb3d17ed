//! `svc service`: the agent as a service of the system or of one person.
//!
//! Units are systemd's. Elsewhere the commands say what is missing, and what to do instead.

#[cfg(target_os = "linux")]
mod systemd;
mod unit;

use std::path::PathBuf;

use clap::{Args, Subcommand};

use crate::failure::{Code, Failure};

/// What can be done with the service.
#[derive(Debug, Subcommand)]
#[command(after_help = "Examples:
  svc service print /etc/svc/agent.yaml --token-file /etc/svc/token
  sudo svc service install /etc/svc/agent.yaml --token-file /etc/svc/token
  svc service install --user")]
pub(crate) enum Command {
    /// Write the unit, start it, and start it with the machine from now on
    Install(InstallArgs),
    /// Stop the service, and remove its unit
    Uninstall(NameArgs),
    /// Show how the service is
    Status(NameArgs),
    /// Print the unit that `install` would write
    Print(PrintArgs),
}

/// Which service.
#[derive(Clone, Debug, Args)]
pub(crate) struct NameArgs {
    /// The service of this person, without root, instead of one of the system
    #[arg(long)]
    user: bool,

    /// The name of the service
    #[arg(long, value_name = "NAME", default_value = "svc-agent", value_parser = name)]
    name: String,
}

/// The flags of `svc service print`.
#[derive(Clone, Debug, Args)]
pub(crate) struct PrintArgs {
    /// The file of `svc run`; without it, /etc/svc/agent.yaml, or `agent.yaml` in the directory of
    /// the person's configuration
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,

    /// The file that holds the token, readable by root alone (0600); the service gets it as a
    /// credential, and the unit never contains it
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,

    /// Also publish containers by their labels
    #[arg(long)]
    docker: bool,

    #[command(flatten)]
    name: NameArgs,
}

/// The flags of `svc service install`.
#[derive(Clone, Debug, Args)]
pub(crate) struct InstallArgs {
    #[command(flatten)]
    unit: PrintArgs,

    /// Write the unit alone: nothing is started
    #[arg(long)]
    no_start: bool,
}

/// Runs one of the commands.
#[cfg(target_os = "linux")]
pub(crate) async fn run(command: Command) -> Result<(), Failure> {
    match command {
        Command::Install(args) => systemd::install(&args).await,
        Command::Uninstall(args) => systemd::uninstall(&args).await,
        Command::Status(args) => systemd::status(&args).await,
        Command::Print(args) => crate::output::line(args.unit()?.text().trim_end()),
    }
}

/// Runs one of the commands.
#[cfg(not(target_os = "linux"))]
pub(crate) async fn run(command: Command) -> Result<(), Failure> {
    match command {
        // The unit is a text for another machine as well.
        Command::Print(args) => crate::output::line(args.unit()?.text().trim_end()),
        Command::Install(_) | Command::Uninstall(_) | Command::Status(_) => Err(elsewhere()),
    }
}

#[cfg_attr(
    target_os = "linux",
    expect(dead_code, reason = "what systems without systemd are told")
)]
fn elsewhere() -> Failure {
    let message = "services are installed with systemd, which this system does not have";
    Failure::new(Code::NotAvailable, message).hint(if cfg!(target_os = "macos") {
        "write a launchd job that starts `svc run FILE` and keeps it alive"
    } else {
        "have the system start `svc run FILE`, and start it again when it ends"
    })
}

/// What systemd takes for the name of a unit, without its ending.
fn name(text: &str) -> Result<String, String> {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    if !text.is_empty() && text.len() <= 200 && text.bytes().all(fits) && !text.starts_with('-') {
        Ok(text.to_owned())
    } else {
        Err("a name has letters, digits and - _ .".to_owned())
    }
}
