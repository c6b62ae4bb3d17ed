//! The project rules that a program can check.
//!
//! Each check returns complaints, one per line, and an empty list without any. `cargo xtask tidy`
//! prints them all; the tests of this package fail on any.

mod architecture;
mod bans;
mod circles;
pub(crate) mod graph;
mod limits;
pub(crate) mod links;
mod manifests;
mod names;
mod prose;
mod sentences;
mod sources;
mod unused;
mod words;

use anyhow::{Result, bail};

use crate::repository::Repository;
use crate::rules;

/// Runs every check, prints all complaints, and fails if there are any.
pub(crate) fn run(repository: &Repository) -> Result<()> {
    let complaints = check(repository)?;
    for complaint in &complaints {
        eprintln!("    {complaint}");
    }
    match complaints.len() {
        0 => Ok(()),
        count => bail!("complaints: {count}"),
    }
}

fn check(repository: &Repository) -> Result<Vec<String>> {
    let files = repository.text_files()?;
    let mut complaints = graph::check(repository)?;
    complaints.extend(bans::check(repository)?);
    complaints.extend(manifests::check(&files));
    complaints.extend(sources::check(&files));
    complaints.extend(limits::check(&files));
    complaints.extend(links::check(&files, |path| repository.path(path).is_file()));
    complaints.extend(architecture::check(&files));
    complaints.extend(circles::check(&files)?);
    complaints.extend(names::check(&files));
    complaints.extend(sentences::check(&files));
    complaints.extend(unused::check(&files));
    complaints.extend(words::check(&files)?);
    complaints.extend(rules::check(&files));
    Ok(complaints)
}
