//! `cargo xtask compatibility`: the last release and this tree, run together.
//!
//! Platform, engine and agent are taken from the two in every combination, and each combination
//! publishes, visits, dials and reports. Then a running engine of the release is replaced by that of this
//! tree, while its agent keeps running. Finally the installation of the release is upgraded, and downgraded
//! again: the older program refuses a database that the newer one has migrated, with a clear message.

mod programs;
mod server;
mod stack;

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail, ensure};

use self::stack::{Mixture, Stack};
use crate::repository::Repository;

/// Builds programs that are not given, and runs every combination.
pub(crate) fn run(repository: &Repository, args: &[String]) -> Result<()> {
    let (mut old, mut new) = (None, None);
    let mut args = args.iter();
    while let Some(flag) = args.next() {
        let value = args
            .next()
            .with_context(|| format!("{flag} needs a value\n\n{USAGE}"))?;
        match flag.as_str() {
            "--old" => old = Some(PathBuf::from(value)),
            "--new" => new = Some(PathBuf::from(value)),
            _ => bail!("{USAGE}"),
        }
    }
    let old = match old {
        Some(old) => old,
        None => programs::released(repository)?,
    };
    let new = match new {
        Some(new) => new,
        None => programs::current(repository)?,
    };
    let folder = repository.target_directory()?.join("compatibility");
    for mixture in Mixture::all() {
        eprintln!("==> {mixture}");
        let programs = mixture.programs(&old, &new);
        stack::visit(&folder.join("mixture"), programs).with_context(|| format!("{mixture}"))?;
    }
    eprintln!("==> a running engine is replaced");
    stack::replace_engine(&folder.join("replacement"), &old, &new)?;
    eprintln!("==> upgrade, and back");
    upgrade(&folder.join("upgrade"), &old, &new)
}

const USAGE: &str = "\
Usage: cargo xtask compatibility [--old PROGRAM] [--new PROGRAM]

Without programs the commit of deploy/release.json and this tree are built, as for development.";

/// Runs the old program's installation with the new program, and with the old one again. The agent
/// stays the old one, and is never restarted.
fn upgrade(folder: &Path, old: &Path, new: &Path) -> Result<()> {
    let installed = Stack::install(folder, old)?;
    let first = installed.up(old)?;
    let agent = installed.agent(old, first.ready())?;
    installed.expect_page(&agent)?;
    let project = first.text("project_id")?;
    first.stop()?;

    let second = installed.up(new)?;
    ensure!(
        second.text("project_id")? == project,
        "the upgrade has lost the project"
    );
    installed.expect_page(&agent)?;
    second.stop()?;

    match installed.up(old) {
        Ok(third) => {
            eprintln!("    the older program goes on with this schema");
            installed.expect_page(&agent)?;
            third.stop()
        }
        Err(error) => {
            let message = format!("{error:#}");
            ensure!(
                message.contains("was applied by a newer version of this program"),
                "the older program does not say what is wrong: {message}"
            );
            eprintln!("    the older program refuses the newer schema");
            Ok(())
        }
    }
}
