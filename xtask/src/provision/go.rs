//! Go, and h2spec, a conformance checker of HTTP/2 servers. h2spec is published as Go source, so it
//! is only available with a Go that is new enough and its module proxy; its test reports if it ran.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::program;
use crate::repository::Repository;

/// Builds `tests/go/h2spec` in `directory`, unless it was already built from the same sources with
/// the same Go. `None` without Go, or with one that cannot build it.
pub(super) fn h2spec(repository: &Repository, directory: &Path) -> Result<Option<PathBuf>> {
    let Some(go) = compiler() else {
        eprintln!("    no Go here: h2spec will not run");
        return Ok(None);
    };
    let stamp = directory.join("stamp");
    let mut expected = program::output(Command::new(&go).arg("version"))?;
    for file in ["main.go", "go.mod", "go.sum"] {
        expected += &repository.read(&format!("{SOURCE}/{file}"))?;
    }
    let binary = directory.join("h2spec");
    if binary.is_file() && fs::read_to_string(&stamp).is_ok_and(|made| made == expected) {
        return Ok(Some(binary));
    }
    fs::create_dir_all(directory)?;
    let built = program::run(
        Command::new(&go)
            .current_dir(repository.root().join(SOURCE))
            .args(["build", "-mod=readonly", "-o"])
            .arg(&binary),
    );
    if let Err(error) = built {
        // The Go is too old, or cannot download the modules.
        eprintln!("    h2spec will not run: {error:#}");
        return Ok(None);
    }
    // Written last: an interrupted installation is started again.
    fs::write(&stamp, expected).with_context(|| format!("cannot write {}", stamp.display()))?;
    Ok(Some(binary))
}

/// On `PATH`, or at the location of Go's own installation instructions.
pub(super) fn compiler() -> Option<PathBuf> {
    program::find("go").or_else(|| Some(PathBuf::from(INSTRUCTED)).filter(|go| go.is_file()))
}

const SOURCE: &str = "tests/go/h2spec";
const INSTRUCTED: &str = "/usr/local/go/bin/go";
