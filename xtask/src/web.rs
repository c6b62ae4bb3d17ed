//! `cargo xtask web`: downloads the web terminal of the platform's pages from npm into the target
//! directory.
//!
//! The next build of the program includes it. It is pinned by a lock file and not stored with the
//! sources.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use crate::program;
use crate::repository::Repository;

/// Downloads the packages, unless those of the lock file are present, and copies the files for the
/// program. Returns their folder.
pub(crate) fn run(repository: &Repository) -> Result<PathBuf> {
    let target = repository.target_directory()?;
    let web = target.join("web");
    let lock = repository.read(&format!("{SOURCE}/package-lock.json"))?;
    let packages = target.join("web-packages");
    let stamp = packages.join("stamp");
    let made = fs::read_to_string(&stamp).is_ok_and(|made| made == lock);
    if made && FILES.iter().all(|(_, name)| web.join(name).is_file()) {
        return Ok(web);
    }
    fetch(repository, &packages)?;
    fs::create_dir_all(&web)?;
    for (from, name) in FILES {
        copy(&packages.join("node_modules").join(from), &web.join(name))?;
    }
    // Written last: an interrupted download is started again.
    fs::write(&stamp, lock).with_context(|| format!("cannot write {}", stamp.display()))?;
    eprintln!("    the terminal of the pages is in {}", web.display());
    Ok(web)
}

/// The same as a step of other tasks: without npm the program is built without a web terminal, and
/// a message states this.
pub(crate) fn offer(repository: &Repository) {
    if let Err(error) = run(repository) {
        eprintln!("    the pages will have no terminal: {error:#}");
    }
}

fn fetch(repository: &Repository, packages: &Path) -> Result<()> {
    if program::find("npm").is_none() {
        bail!("npm, which comes with Node, is not there");
    }
    fs::create_dir_all(packages)?;
    for file in ["package.json", "package-lock.json"] {
        let text = repository.read(&format!("{SOURCE}/{file}"))?;
        fs::write(packages.join(file), text)?;
    }
    program::run(Command::new("npm").current_dir(packages).args([
        "ci",
        "--ignore-scripts",
        "--no-audit",
        "--no-fund",
        "--loglevel=error",
    ]))
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::copy(from, to)
        .map(drop)
        .with_context(|| format!("cannot copy {}", from.display()))
}

const SOURCE: &str = "crates/control/web";

/// The lock file of the downloaded packages.
pub(crate) const LOCK: &str = "crates/control/web/package-lock.json";

/// Path of each file in the packages, and its name in the program.
const FILES: [(&str, &str); 4] = [
    ("@xterm/xterm/lib/xterm.mjs", "xterm.mjs"),
    ("@xterm/addon-fit/lib/addon-fit.mjs", "addon-fit.mjs"),
    ("@xterm/xterm/css/xterm.css", "xterm.css"),
    ("@xterm/xterm/LICENSE", "LICENSE-xterm.txt"),
];
