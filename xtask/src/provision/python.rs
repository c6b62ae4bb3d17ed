//! The virtual environment with the pinned Python packages of the end-to-end tests.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::program;
use crate::repository::Repository;

/// Creates the environment, unless it was already created from the same interpreter and the same
/// requirements. Returns its interpreter.
pub(super) fn environment(repository: &Repository, directory: &Path) -> Result<PathBuf> {
    let python = directory.join("bin").join("python");
    let stamp = directory.join("stamp");
    let expected = format!(
        "{}{}",
        program::output(Command::new("python3").arg("--version"))?,
        repository.read(REQUIREMENTS)?
    );
    let made = fs::read_to_string(&stamp).is_ok_and(|made| made == expected);
    if made && program::succeeds(Command::new(&python).arg("--version")) {
        return Ok(python);
    }

    program::run(
        Command::new("python3")
            .args(["-m", "venv", "--clear"])
            .arg(directory),
    )?;
    program::run(
        Command::new(&python)
            .current_dir(repository.root())
            .args([
                "-m",
                "pip",
                "install",
                "--quiet",
                "--disable-pip-version-check",
                "--no-input",
            ])
            .args(["--require-virtualenv", "--requirement", REQUIREMENTS]),
    )?;
    // Written last: an interrupted installation is started again.
    fs::write(&stamp, expected).with_context(|| format!("cannot write {}", stamp.display()))?;
    Ok(python)
}

const REQUIREMENTS: &str = "tests/e2e/python/requirements.txt";
