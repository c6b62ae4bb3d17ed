//! `svc service`: the agent as a system service or a user service.
//!
//! It manages systemd units. On other systems the commands report what is missing, and suggest an
//! alternative.

#[cfg(target_os = "linux")]
mod systemd;
mod unit;

use std::path::PathBuf;

use clap::{Args, Subcommand};

use crate::failure::{Code, Failure};

/// The subcommands of `svc service`.
#[derive(Debug, Subcommand)]
#[command(after_help = "Examples:
  svc service print /etc/svc/agent.yaml --token-file /etc/svc/token
  sudo svc service install /etc/svc/agent.yaml --token-file /etc/svc/token
  svc service install --user")]
pub(crate) enum Command {
    /// Write the unit, start it, and enable it at boot
    Install(InstallArgs),
    /// Stop the service and remove its unit
    Uninstall(NameArgs),
    /// Show the state of the service
    Status(NameArgs),
    /// Print the unit that `install` would write
    Print(PrintArgs),
}

/// Selects a service.
#[derive(Clone, Debug, Args)]
pub(crate) struct NameArgs {
    /// Use a service of this user, without root, instead of a system service
    #[arg(long)]
    user: bool,

    /// Name of the service
    #[arg(long, value_name = "NAME", default_value = "svc-agent", value_parser = name)]
    name: String,
}

/// The flags of `svc service print`.
#[derive(Clone, Debug, Args)]
pub(crate) struct PrintArgs {
    /// Configuration file of `svc run`. Default: `svc.yaml` in the current directory, or else
    /// /etc/svc/agent.yaml, or `agent.yaml` in the user's configuration directory
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,

    /// File with the token, readable only by root (0600). The service receives it as a credential,
    /// and the unit never contains it
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

    /// Only write the unit; start nothing
    #[arg(long)]
    no_start: bool,
}

/// Runs a subcommand.
#[cfg(target_os = "linux")]
pub(crate) async fn run(command: Command) -> Result<(), Failure> {
    match command {
        Command::Install(args) => systemd::install(&args).await,
        Command::Uninstall(args) => systemd::uninstall(&args).await,
        Command::Status(args) => systemd::status(&args).await,
        Command::Print(args) => crate::output::line(args.unit()?.text().trim_end()),
    }
}

/// Runs a subcommand.
#[cfg(not(target_os = "linux"))]
pub(crate) async fn run(command: Command) -> Result<(), Failure> {
    match command {
        // A unit can also be printed for another machine.
        Command::Print(args) => crate::output::line(args.unit()?.text().trim_end()),
        Command::Install(_) | Command::Uninstall(_) | Command::Status(_) => Err(elsewhere()),
    }
}

#[cfg_attr(
    target_os = "linux",
    expect(dead_code, reason = "used on systems without systemd")
)]
fn elsewhere() -> Failure {
    let message = "services are installed with systemd, which is not available on this system";
    Failure::new(Code::NotAvailable, message).hint(if cfg!(target_os = "macos") {
        "write a launchd job that starts `svc run FILE` and keeps it alive"
    } else {
        "configure the system to start `svc run FILE`, and to restart it when it exits"
    })
}

/// Accepts names that systemd allows for a unit, without the suffix.
fn name(text: &str) -> Result<String, String> {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    if !text.is_empty() && text.len() <= 200 && text.bytes().all(fits) && !text.starts_with('-') {
        Ok(text.to_owned())
    } else {
        Err("a name consists of letters, digits and - _ .".to_owned())
    }
}
