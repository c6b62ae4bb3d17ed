//! An engine as a service of a real systemd, with the unit of the packages.
//!
//! systemd is the first process of namespaces of its own, with a root in memory. It shares only the
//! network, the programs and the libraries with the machine of the test.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use crate::managed::eventually;
use crate::process::run;
use crate::{Process, Svc, program};

/// A running `svc-engine.service`. The engine is killed when the value is dropped, and so is its
/// systemd.
pub struct SystemdEngine {
    svc: Svc,
    /// The id of systemd outside of its namespace.
    init: Pid,
    folder: PathBuf,
    cgroup: String,
}

impl SystemdEngine {
    /// Starts a community engine as [`Svc::engine`] does, and waits until systemd considers it ready.
    ///
    /// # Errors
    /// systemd cannot run here, or the engine does not start.
    pub fn start() -> Result<Self> {
        let mut cgroup = String::new();
        let mut svc = Svc::engine_in(CONFIGURATION, |directory, config| {
            let name = directory.file_name().context("no name")?;
            cgroup = format!("svc-test-{}", name.display());
            boot(directory, &cgroup, config)
        })?;
        let folder = svc.directory().to_owned();
        let unshare = svc.process().id();
        let mut init = None;
        eventually("the start of systemd", || {
            ensure!(!svc.process().has_exited()?, "{NEEDS}: {}", svc.log());
            init = child_of(unshare)?;
            Ok(init.is_some_and(is_systemd))
        })?;
        let init = Pid::from_raw(init.context("no process")?);
        let engine = Self {
            svc,
            init,
            folder,
            cgroup,
        };
        eventually("the start of the service", || {
            ensure!(
                !engine.has_failed(),
                "{}\n{}",
                engine.state(),
                engine.svc.log()
            );
            let state = engine.systemctl(&["is-active", UNIT]);
            Ok(state.is_ok_and(|state| state.trim() == "active"))
        })?;
        Ok(engine)
    }

    /// The engine. Its process is that of its machine.
    pub fn svc(&self) -> &Svc {
        &self.svc
    }

    /// The whole log of the engine.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn log(&self) -> Result<String> {
        Ok(fs::read_to_string(self.folder.join(LOG))?)
    }

    /// Reloads the service, and waits until the new process is the main process.
    ///
    /// # Errors
    /// systemd reports a failure, or the engine is not replaced in time.
    pub fn reload(&self) -> Result<()> {
        let before = self.main_process()?;
        self.systemctl(&["reload", UNIT])?;
        // For systemd the reload may be complete when the signal has been sent.
        eventually(
            "the new main process",
            || Ok(self.main_process()? != before),
        )
    }

    /// Restarts the service, and waits until the new process serves.
    ///
    /// # Errors
    /// systemd reports a failure.
    pub fn restart(&self) -> Result<()> {
        self.systemctl(&["restart", UNIT]).map(drop)
    }

    /// Asks for a restart, and does not wait for it.
    ///
    /// # Errors
    /// systemd reports a failure.
    pub fn begin_restart(&self) -> Result<()> {
        self.systemctl(&["--no-block", "restart", UNIT]).map(drop)
    }

    /// Kills the main process of the service.
    ///
    /// # Errors
    /// systemd reports a failure.
    pub fn crash(&self) -> Result<()> {
        let id = self.main_process()?;
        let script = r#"kill -KILL "$1""#;
        run(self.inside("sh").args(["-c", script, "sh", &id])).map(drop)
    }

    /// The id of the main process, inside of the machine.
    ///
    /// # Errors
    /// There is none.
    pub fn main_process(&self) -> Result<String> {
        let id = self.systemctl(&["show", "--property=MainPID", "--value", UNIT])?;
        let id = id.trim();
        ensure!(id != "0", "there is no main process: {}", self.state());
        Ok(id.to_owned())
    }

    /// Replaces the program that the next process runs.
    ///
    /// # Errors
    /// The file cannot be replaced.
    pub fn install(&self, program: &Path) -> Result<()> {
        install(&self.folder, program)
    }

    /// Its state, for messages of failed tests.
    pub fn state(&self) -> String {
        let output = self.inside("systemctl").args(["status", UNIT]).output();
        output.map_or_else(
            |error| error.to_string(),
            |output| String::from_utf8_lossy(&output.stdout).into_owned(),
        )
    }

    fn has_failed(&self) -> bool {
        let state = self.systemctl(&["show", "--property=Result", "--value", UNIT]);
        state.is_ok_and(|result| !["", "success"].contains(&result.trim()))
    }

    fn systemctl(&self, args: &[&str]) -> Result<String> {
        run(self.inside("systemctl").args(args)).with_context(|| self.state())
    }

    /// A command in the namespaces of systemd. It runs only where the file of [`BOOT`] exists, and never on
    /// the machine of the test, if another process has the id by now.
    fn inside(&self, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        command
            .args(["--target", &self.init.to_string()])
            .args([
                "--mount", "--pid", "--uts", "--ipc", "--cgroup", "--root", "--wd",
            ])
            .args(["env", "-i", "PATH=/usr/sbin:/usr/bin"])
            .args(["sh", "-c", INSIDE, "sh", program]);
        command
    }
}

impl Drop for SystemdEngine {
    fn drop(&mut self) {
        // All processes of its namespace end with it. While it is a child, no other process has its id.
        let child = child_of(self.svc.process().id());
        if child.is_ok_and(|child| child == Some(self.init.as_raw())) {
            kill(self.init, Signal::SIGKILL).ok();
        }
        self.svc.process().wait_for_exit().ok();
        let mut removing = Command::new("unshare");
        removing
            .args(["--mount", "sh", "-c", CGROUP, "cgroup"])
            .arg(&self.folder)
            .arg(&self.cgroup);
        // A cgroup that is left is empty.
        removing.status().ok();
    }
}

/// Writes the files of the machine into `directory`, and starts it.
fn boot(directory: &Path, cgroup: &str, config: &Value) -> Result<Process> {
    let units = directory.join("etc/systemd/system");
    let (configuration, overrides) = (directory.join("etc/svc"), units.join(format!("{UNIT}.d")));
    for folder in [&units, &configuration, &overrides, &directory.join("log")] {
        fs::create_dir_all(folder)?;
    }
    for (name, text) in [
        ("passwd", PASSWD),
        ("group", GROUP),
        (
            "nsswitch.conf",
            "passwd: files\ngroup: files\nhosts: files\n",
        ),
        ("hosts", "127.0.0.1 localhost\n"),
        // With an id it is not the first start.
        ("machine-id", "0123456789abcdef0123456789abcdef\n"),
    ] {
        fs::write(directory.join("etc").join(name), text)?;
    }
    for name in TARGETS {
        let unit = format!("[Unit]\nDescription={name}\nDefaultDependencies=no\n");
        fs::write(units.join(format!("{name}.target")), unit)?;
    }
    for name in MASKED {
        symlink("/dev/null", units.join(name))?;
    }
    let start = format!(
        "[Unit]\nDescription=start\nDefaultDependencies=no\nWants=basic.target {UNIT}\n\
         After=basic.target\n"
    );
    fs::write(units.join("default.target"), start)?;
    let shipped = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/systemd");
    fs::copy(shipped.join(UNIT), units.join(UNIT))?;
    fs::write(overrides.join("paths.conf"), PATHS)?;
    for name in ["cert.pem", "key.pem"] {
        fs::copy(directory.join(name), configuration.join(name))?;
    }
    fs::write(configuration.join("engine.yaml"), format!("{config:#}"))?;
    install(directory, &program()?)?;

    let mut command = Command::new("unshare");
    command
        .args(["--mount", "sh", "-c", CGROUP, "cgroup"])
        .arg(directory)
        .arg(cgroup)
        .args([
            "unshare",
            "--pid",
            "--fork",
            "--kill-child",
            "--uts",
            "--ipc",
        ])
        .args(["--cgroup", "--mount", "sh", "-c", BOOT, "boot"])
        .arg(directory)
        .args([SYSTEMD, "--show-status=no", "--log-target=null"]);
    Process::start(&mut command, &directory.join(LOG)).context(NEEDS)
}

/// Copies a program to the place from which the service starts it.
fn install(directory: &Path, program: &Path) -> Result<()> {
    let folder = directory.join("opt/bin");
    fs::create_dir_all(&folder)?;
    let next = folder.join("next");
    fs::copy(program, &next)?;
    Ok(fs::rename(next, folder.join("svc"))?)
}

/// The only child of a process, if there is one.
fn child_of(process: u32) -> Result<Option<i32>> {
    let children = fs::read_to_string(format!("/proc/{process}/task/{process}/children"));
    let children = children.context("the system does not list the children of a process")?;
    let mut children = children.split_whitespace();
    match (children.next(), children.next()) {
        (None, _) => Ok(None),
        (Some(only), None) => Ok(Some(only.parse()?)),
        (Some(_), Some(_)) => bail!("more than one child"),
    }
}

/// True if a process is systemd, and no longer the script that starts it.
fn is_systemd(process: i32) -> bool {
    let name = fs::read_to_string(format!("/proc/{process}/comm"));
    name.is_ok_and(|name| name.trim() == "systemd")
}

const UNIT: &str = "svc-engine.service";

/// The folder of the configuration, as the engine sees it.
const CONFIGURATION: &str = "/etc/svc";

/// The log of the engine, which the machine sees in another folder.
const LOG: &str = "log/engine.log";

/// Only paths are changed: the program is not installed here, and no journal runs.
const PATHS: &str = "[Service]\nExecStart=\n\
    ExecStart=/opt/svc/bin/svc engine -c /etc/svc/engine.yaml\n\
    StandardError=append:/var/log/machine/engine.log\n";

const PASSWD: &str = "root:x:0:0:root:/root:/bin/sh\nsvc:x:998:998::/:/usr/sbin/nologin\n";
const GROUP: &str = "root:x:0:\nsvc:x:998:\n";

/// Targets on which services depend by default, or on which the unit does.
const TARGETS: [&str; 6] = [
    "sysinit",
    "basic",
    "shutdown",
    "umount",
    "network-online",
    "multi-user",
];

/// Units that change files of the machine. They are not found here, and could not start if they were.
const MASKED: [&str; 5] = [
    "systemd-tmpfiles-clean.service",
    "systemd-tmpfiles-clean.timer",
    "systemd-tmpfiles-setup-dev.service",
    "systemd-tmpfiles-setup.service",
    "systemd-update-done.service",
];

const SYSTEMD: &str = "/lib/systemd/systemd";

/// Runs a command on the machine of [`BOOT`], and fails on every other one.
const INSIDE: &str = r#"[ -e /svc-test-machine ] && exec "$@""#;

const CGROUP: &str = include_str!("systemd/cgroup.sh");
const BOOT: &str = include_str!("systemd/boot.sh");

/// The abilities that a container usually does not have.
const NEEDS: &str = "this test needs systemd, unshare and nsenter of util-linux, and root with the \
    capability to mount file systems, also cgroup2 (a virtual machine, or a privileged container)";
