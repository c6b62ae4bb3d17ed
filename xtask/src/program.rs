//! Running other programs: commands that inherit this terminal, and commands whose output is read.

use std::env;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};

/// The cargo that runs this task, so that every step uses one toolchain.
pub(crate) fn cargo() -> Command {
    Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}

/// Runs the command with this process's terminal; an error names the command.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let line = command_line(command);
    let status = command
        .status()
        .with_context(|| format!("cannot start `{line}`"))?;
    if !status.success() {
        bail!("`{line}` ended with {status}");
    }
    Ok(())
}

/// Runs the command and returns its stdout; an error contains its stderr.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let line = command_line(command);
    let output = command
        .output()
        .with_context(|| format!("cannot start `{line}`"))?;
    if !output.status.success() {
        let stderr = String::from_utf8_lossy(&output.stderr);
        bail!("`{line}` ended with {}: {}", output.status, stderr.trim());
    }
    String::from_utf8(output.stdout).with_context(|| format!("`{line}` wrote invalid UTF-8"))
}

/// True if the command can be started and succeeds; its output is discarded.
pub(crate) fn succeeds(command: &mut Command) -> bool {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

/// The first executable of this name on `PATH` or in the directories of system programs, which are
/// not on every user's `PATH` (Debian puts nginx there).
pub(crate) fn find(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let system = ["/usr/sbin", "/usr/local/sbin"].map(PathBuf::from);
    env::split_paths(&path)
        .chain(system)
        .map(|directory| directory.join(name))
        .find(|candidate| candidate.is_file())
}

fn command_line(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words
        .map(|word| word.to_string_lossy())
        .collect::<Vec<_>>()
        .join(" ")
}
