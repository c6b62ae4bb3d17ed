//! Installs and removes systemd units.

use std::{
    fs, io,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Stdio,
};

use nix::unistd::geteuid;
use tokio::process::Command;

use super::{InstallArgs, NameArgs, unit::Unit};
use crate::{
    connection::config_directory,
    failure::{Code, Failure},
    output,
};

/// Writes the unit, then starts and enables the service unless that is disabled.
pub(super) async fn install(args: &InstallArgs) -> Result<(), Failure> {
    let names = &args.unit.name;
    names.may_write("install")?;
    let unit = args.unit.unit()?;
    check_files(&unit, names)?;
    let path = names.path()?;
    write(&path, &unit.text())
        .map_err(|error| Failure::from_error(&format!("cannot write {}", path.display()), error))?;
    output::message(&format!("wrote {}", path.display()));
    if let Some(file) = unit.file() {
        output::message(&format!("the service runs {}", file.display()));
    }
    if args.no_start {
        return Ok(());
    }
    if !is_booted() {
        output::message("systemd is not running on this system: the service was not started");
        return Ok(());
    }
    names.systemctl(&["daemon-reload"]).await?;
    names.systemctl(&["enable", &names.unit_name()]).await?;
    // A restart also replaces a running older unit.
    names.systemctl(&["restart", &names.unit_name()]).await?;
    output::message(&format!(
        "{} is running; see `svc service status`",
        names.name
    ));
    if names.user {
        output::message("it stops with your last session unless you run `loginctl enable-linger`");
    }
    Ok(())
}

/// Stops the service and removes its unit. A missing service is not an error.
pub(super) async fn uninstall(names: &NameArgs) -> Result<(), Failure> {
    names.may_write("uninstall")?;
    let path = names.path()?;
    if !path.exists() {
        output::message(&format!("{} does not exist", path.display()));
        return Ok(());
    }
    let booted = is_booted();
    if booted {
        let disable = ["disable", "--now", &names.unit_name()];
        names.systemctl(&disable).await?;
    }
    fs::remove_file(&path).map_err(|error| {
        Failure::from_error(&format!("cannot remove {}", path.display()), error)
    })?;
    output::message(&format!("removed {}", path.display()));
    if booted {
        names.systemctl(&["daemon-reload"]).await?;
    }
    Ok(())
}

/// Shows the state that systemd reports.
pub(super) async fn status(names: &NameArgs) -> Result<(), Failure> {
    let path = names.path()?;
    if !path.exists() {
        let message = format!("{} does not exist", path.display());
        return Err(Failure::new(Code::Failed, message).hint("`svc service install` writes it"));
    }
    let mut command = names.command();
    let ended = command
        .args(["status", "--no-pager", "--full", &names.unit_name()])
        .stdin(Stdio::null())
        .status()
        .await
        .map_err(|error| no_systemctl(&error))?;
    match ended.code() {
        Some(0) => Ok(()),
        // systemctl has printed the reason. Status 3 means that the service is not running.
        _ => Err(
            Failure::new(Code::Failed, format!("{} is not running", names.name))
                .hint("`svc service install` starts it; see `journalctl` for its log"),
        ),
    }
}

impl NameArgs {
    fn unit_name(&self) -> String {
        format!("{}.service", self.name)
    }

    /// Path of the unit: systemd.unit(5), "Unit File Load Path".
    fn path(&self) -> Result<PathBuf, Failure> {
        if !self.user {
            return Ok(Path::new("/etc/systemd/system").join(self.unit_name()));
        }
        let config_dir =
            config_directory(None).ok_or_else(|| Failure::usage("no home directory is set"))?;
        let home = config_dir.parent().unwrap_or(&config_dir);
        Ok(home.join("systemd/user").join(self.unit_name()))
    }

    fn may_write(&self, what: &str) -> Result<(), Failure> {
        if self.user || geteuid().is_root() {
            return Ok(());
        }
        let message = "only root can change a system service";
        Err(Failure::new(Code::Refused, message).hint(format!(
            "`sudo svc service {what}`, or --user for a user service"
        )))
    }

    fn command(&self) -> Command {
        let mut command = Command::new("systemctl");
        if self.user {
            command.arg("--user");
        }
        command
    }

    async fn systemctl(&self, args: &[&str]) -> Result<(), Failure> {
        let ended = self
            .command()
            .args(args)
            .stdin(Stdio::null())
            .output()
            .await
            .map_err(|error| no_systemctl(&error))?;
        if ended.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&ended.stderr);
        let said = said.lines().next().unwrap_or("no reason given");
        let message = format!("systemctl {}: {}", args.join(" "), output::plain(said));
        Err(Failure::new(Code::Failed, message)
            .hint("`svc service install --no-start` only writes the unit"))
    }
}

/// Reports problems before the unit is written: files that would prevent the start, or expose
/// secrets.
fn check_files(unit: &Unit, names: &NameArgs) -> Result<(), Failure> {
    let hidden = [Some(unit.program()), unit.file()]
        .into_iter()
        .flatten()
        .find(|path| !names.user && HIDDEN.iter().any(|directory| path.starts_with(directory)));
    if let Some(path) = hidden {
        let message = format!("a system service cannot access {}", path.display());
        return Err(Failure::usage(message).hint(
            "put the program in /usr/local/bin and its file at /etc/svc/agent.yaml, or use --user",
        ));
    }
    if let Some(file) = unit.file() {
        let readable = fs::metadata(file).map_err(|error| {
            Failure::from_error(&format!("cannot read {}", file.display()), error)
                .hint("see docs/agent-configuration.md for examples")
        })?;
        if !names.user && readable.permissions().mode() & 0o004 == 0 {
            output::message(&format!(
                "warning: the service runs as its own user and must be able to read {}: make it \
                 readable by all (0644); it contains no secrets",
                file.display()
            ));
        }
    }
    let Some(token) = unit.token_file() else {
        return Ok(());
    };
    let metadata = fs::metadata(token)
        .map_err(|error| Failure::from_error(&format!("cannot read {}", token.display()), error))?;
    if metadata.permissions().mode() & 0o077 != 0 {
        let message = format!("{} can be read by others", token.display());
        return Err(Failure::usage(message).hint(format!("chmod 600 {}", token.display())));
    }
    Ok(())
}

/// Directories that the unit hides from the service: home directories and shared temporary files.
const HIDDEN: [&str; 5] = ["/home", "/root", "/run/user", "/tmp", "/var/tmp"];

/// Writes the unit atomically.
fn write(path: &Path, text: &str) -> io::Result<()> {
    if let Some(directory) = path.parent() {
        fs::create_dir_all(directory)?;
    }
    let mut unfinished = path.as_os_str().to_owned();
    unfinished.push(".new");
    fs::write(&unfinished, text)?;
    fs::set_permissions(&unfinished, fs::Permissions::from_mode(0o644))?;
    fs::rename(&unfinished, path)
}

/// True if the machine was booted with systemd: `sd_booted(3)`.
fn is_booted() -> bool {
    Path::new("/run/systemd/system").is_dir()
}

fn no_systemctl(error: &io::Error) -> Failure {
    Failure::new(Code::NotAvailable, format!("cannot run systemctl: {error}"))
        .hint("configure the system to start `svc run FILE`, and to restart it when it exits")
}
