//! The last release: `deploy/release.json`, which `cargo xtask release` writes.
//!
//! A commit cannot contain its own hash, so the file is committed after the released commit.

use std::fs;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use crate::program;
use crate::repository::Repository;

/// Version and commit of the last release.
pub(crate) struct Release {
    pub(crate) version: String,
    pub(crate) commit: String,
}

/// Records the checked-out commit as the release of the workspace's version.
pub(crate) fn run(repository: &Repository) -> Result<()> {
    let changed = git(repository, &["status", "--porcelain"])?;
    ensure!(
        changed.is_empty(),
        "there are changes that are not committed:\n{changed}"
    );
    let release = Release {
        version: version(repository)?,
        commit: git(repository, &["rev-parse", "HEAD"])?.trim().to_owned(),
    };
    release.check(&repository.read(CHANGELOG)?)?;
    release.write(repository)?;
    eprintln!(
        "    {FILE} names {}. Commit it, and tag what was released:\n    git tag -a v{} {}",
        release.commit, release.version, release.commit
    );
    Ok(())
}

impl Release {
    pub(crate) fn read(repository: &Repository) -> Result<Self> {
        let document: Value = serde_json::from_str(&repository.read(FILE)?)?;
        let text = |name: &str| {
            let text = document.get(name).and_then(Value::as_str);
            text.map(str::to_owned)
                .with_context(|| format!("{FILE} has no {name}"))
        };
        Ok(Self {
            version: text("version")?,
            commit: text("commit")?,
        })
    }

    fn write(&self, repository: &Repository) -> Result<()> {
        let text = json!({"version": self.version, "commit": self.commit});
        fs::write(repository.path(FILE), format!("{text:#}\n"))
            .with_context(|| format!("cannot write {FILE}"))
    }

    /// Checks that the changelog has an entry for the release, and that the commit has the form of
    /// a hash.
    fn check(&self, changelog: &str) -> Result<()> {
        let heading = format!("## [{}] - ", self.version);
        let mut lines = changelog.lines();
        let date = lines.find_map(|line| line.strip_prefix(&heading));
        let date = date.with_context(|| format!("{CHANGELOG} has no section {heading}<date>"))?;
        let digits = date.bytes().filter(u8::is_ascii_digit).count();
        ensure!(digits == 8, "{CHANGELOG}: {date} is no date");
        let is_hex = self.commit.bytes().all(|byte| byte.is_ascii_hexdigit());
        ensure!(
            is_hex && self.commit.len() == 40,
            "{} is not the whole name of a commit",
            self.commit
        );
        Ok(())
    }
}

/// The version of the workspace.
fn version(repository: &Repository) -> Result<String> {
    let manifest = repository.read("Cargo.toml")?;
    let mut lines = manifest.lines();
    let version = lines.find_map(|line| line.strip_prefix("version = \""));
    let version = version.context("Cargo.toml has no version")?;
    Ok(version.trim_end_matches('"').to_owned())
}

fn git(repository: &Repository, args: &[&str]) -> Result<String> {
    program::output(
        Command::new("git")
            .current_dir(repository.root())
            .args(args),
    )
}

const FILE: &str = "deploy/release.json";
const CHANGELOG: &str = "CHANGELOG.md";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_recorded_release_is_in_the_changelog() {
        let repository = Repository::of_this_package().unwrap();
        let release = Release::read(&repository).unwrap();
        let changelog = repository.read(CHANGELOG).unwrap();
        release.check(&changelog).unwrap();
        // Links of headings, as Keep a Changelog has them, are not needed: unreleased changes are
        // at the top.
        let first = changelog.lines().find(|line| line.starts_with("## "));
        assert_eq!(first, Some("## [Unreleased]"));
    }

    #[test]
    fn a_version_missing_in_the_changelog_is_not_a_release() {
        let release = |version: &str, commit: &str| Release {
            version: version.to_owned(),
            commit: commit.to_owned(),
        };
        let changelog = "## [Unreleased]\n\n## [1.0.0] - 2026-01-31\n\n## [0.9.0] - soon\n";
        let commit = "0123456789abcdef0123456789abcdef01234567";
        for (version, commit, is_good) in [
            ("1.0.0", commit, true),
            ("1.0.1", commit, false),
            ("0.9.0", commit, false),
            ("1.0.0", "0123456", false),
        ] {
            let checked = release(version, commit).check(changelog);
            assert_eq!(checked.is_ok(), is_good, "{version} {commit}");
        }
    }
}
