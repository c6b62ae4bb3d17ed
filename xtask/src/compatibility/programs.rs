//! The two programs: that of the last release, built in a worktree of its commit, and this tree's.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::program;
use crate::release::Release;
use crate::repository::Repository;
use crate::workspace::{FEATURES, svc};

/// Builds the released commit, unless it is already built.
pub(super) fn released(repository: &Repository) -> Result<PathBuf> {
    let release = Release::read(repository)?;
    let folder = repository.target_directory()?.join("released");
    let built = folder.join(format!("svc-{}", release.commit));
    if built.is_file() {
        return Ok(built);
    }
    eprintln!("==> build {}, commit {}", release.version, release.commit);
    let tree = folder.join("tree");
    fs::create_dir_all(&folder)?;
    remove(repository, &tree)?;
    let mut add = git(repository);
    add.args(["worktree", "add", "--quiet", "--detach"])
        .arg(&tree);
    program::run(add.arg(&release.commit)).context("is this a shallow clone?")?;
    let target = folder.join("target");
    let made = program::run(
        program::cargo()
            .current_dir(&tree)
            .args(["build", "--locked", "--package", "svc"])
            .env("CARGO_TARGET_DIR", &target),
    );
    // The tree and its build output are large.
    remove(repository, &tree)?;
    made?;
    fs::copy(target.join("debug/svc"), &built)?;
    fs::remove_dir_all(&target)?;
    Ok(built)
}

/// The program of this tree, with the dependencies that the tests have built.
pub(super) fn current(repository: &Repository) -> Result<PathBuf> {
    let build = ["build", "--locked", "--workspace", "--bin", "svc"];
    let mut cargo = program::cargo();
    cargo.current_dir(repository.root()).args(build);
    program::run(cargo.args(FEATURES))?;
    svc(repository)
}

fn remove(repository: &Repository, tree: &Path) -> Result<()> {
    if tree.exists() {
        let mut remove = git(repository);
        remove.args(["worktree", "remove", "--force"]).arg(tree);
        // A directory that is not a registered worktree is the remainder of an interrupted run.
        if !program::succeeds(&mut remove) {
            fs::remove_dir_all(tree)?;
        }
    }
    program::run(git(repository).args(["worktree", "prune"]))
}

fn git(repository: &Repository) -> Command {
    let mut git = Command::new("git");
    git.current_dir(repository.root());
    git
}
