//! Node, and its pinned packages for the tests: a sign-in provider, checkers of the OpenAPI
//! documents, and the driver of the browser.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::program;
use crate::repository::Repository;

/// True if there is a Node that the packages support.
pub(super) fn is_met() -> bool {
    program::find("npm").is_some()
        && program::output(Command::new("node").arg("--version"))
            .is_ok_and(|version| major(&version).is_some_and(|major| major >= OLDEST))
}

/// Installs the packages, unless they were already installed for the same Node and the same lock
/// file. Returns the directory that contains `node_modules`.
pub(super) fn packages(repository: &Repository, directory: &Path) -> Result<PathBuf> {
    let stamp = directory.join("stamp");
    let expected = format!(
        "{}{}",
        program::output(Command::new("node").arg("--version"))?,
        repository.read(&format!("{SOURCE}/package-lock.json"))?
    );
    if fs::read_to_string(&stamp).is_ok_and(|made| made == expected) {
        return Ok(directory.to_owned());
    }
    fs::create_dir_all(directory)?;
    for file in ["package.json", "package-lock.json"] {
        fs::write(
            directory.join(file),
            repository.read(&format!("{SOURCE}/{file}"))?,
        )?;
    }
    program::run(Command::new("npm").current_dir(directory).args([
        "ci",
        "--ignore-scripts",
        "--no-audit",
        "--no-fund",
        "--loglevel=error",
    ]))?;
    // Written last: an interrupted installation is started again.
    fs::write(&stamp, expected).with_context(|| format!("cannot write {}", stamp.display()))?;
    Ok(directory.to_owned())
}

/// The first number of `v20.20.2`.
fn major(version: &str) -> Option<u32> {
    version.strip_prefix('v')?.split('.').next()?.parse().ok()
}

const SOURCE: &str = "tests/node";
/// The minimum version for the packages.
const OLDEST: u32 = 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_major_version_is_the_first_number() {
        assert_eq!(major("v20.20.2\n"), Some(20));
        assert_eq!(major("20.1"), None);
    }
}
