//! Go, and three programs that are published as Go source: h2spec, a conformance checker of HTTP/2
//! servers, Pebble, a certificate authority for tests, and lego, another client of such
//! authorities. They need Go's module proxy. h2spec's test reports if it ran. The others are
//! required: for a Go that is too old to download a newer one automatically, such as Debian 12's,
//! this does it through the same proxy.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use crate::program;
use crate::repository::Repository;

/// Builds `tests/go/h2spec` in `directory`, unless it was already built from the same sources with
/// the same Go. `None` without Go, or with one that cannot build it.
pub(super) fn h2spec(repository: &Repository, directory: &Path) -> Option<PathBuf> {
    let Some(go) = compiler() else {
        eprintln!("    no Go here: h2spec will not run");
        return None;
    };
    match build(repository, &go, "h2spec", directory) {
        Ok(binary) => Some(binary),
        Err(error) => {
            // The Go is too old, or cannot download the modules.
            eprintln!("    h2spec will not run: {error:#}");
            None
        }
    }
}

/// Builds `tests/go/pebble` in a directory below `directory`, as [`h2spec`].
pub(super) fn pebble(repository: &Repository, directory: &Path) -> Result<PathBuf> {
    required(repository, "pebble", directory)
}

/// Builds `tests/go/lego` in a directory below `directory`, as [`h2spec`].
pub(super) fn lego(repository: &Repository, directory: &Path) -> Result<PathBuf> {
    required(repository, "lego", directory)
}

fn required(repository: &Repository, name: &str, directory: &Path) -> Result<PathBuf> {
    let Some(go) = compiler() else {
        bail!("Go is gone");
    };
    // All of them share a downloaded Go.
    let go = switching(go, &directory.join("pebble"))?;
    build(repository, &go, name, &directory.join(name))
        .with_context(|| format!("{name} cannot be built; it needs Go's module proxy"))
}

/// A Go that downloads the version that a `go.mod` names: this one, or else a newer one, which it
/// downloads into `directory`. Go's database of checksums confirms the download.
fn switching(go: PathBuf, directory: &Path) -> Result<PathBuf> {
    let version = program::output(Command::new(&go).args(["env", "GOVERSION"]))?;
    let mut parts = version.trim().trim_start_matches("go1.").split('.');
    let minor = parts.next().and_then(|minor| minor.parse::<u32>().ok());
    if minor.is_none_or(|minor| minor >= FIRST_SWITCHING) {
        return Ok(go);
    }
    let architecture = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    let module = format!("golang.org/toolchain@{NEWER}.linux-{architecture}");
    let modules = directory.join("modules");
    let newer = modules.join(&module).join("bin/go");
    if !newer.is_file() {
        fs::create_dir_all(directory)?;
        program::run(
            Command::new(&go)
                .current_dir(directory)
                .env("GOMODCACHE", &modules)
                // Otherwise the target directory could not be removed.
                .env("GOFLAGS", "-modcacherw")
                .args(["mod", "download", &module]),
        )?;
    }
    // Files of a module are not executable.
    for programs in ["bin", "pkg/tool"] {
        make_executable(&modules.join(&module).join(programs))?;
    }
    Ok(newer)
}

/// Makes all files below a directory executable.
fn make_executable(directory: &Path) -> Result<()> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            make_executable(&entry.path())?;
        } else {
            fs::set_permissions(entry.path(), fs::Permissions::from_mode(0o755))?;
        }
    }
    Ok(())
}

fn build(repository: &Repository, go: &Path, name: &str, directory: &Path) -> Result<PathBuf> {
    let source = format!("{SOURCES}/{name}");
    let stamp = directory.join("stamp");
    let mut expected = program::output(Command::new(go).arg("version"))?;
    for file in ["main.go", "go.mod", "go.sum"] {
        expected += &repository.read(&format!("{source}/{file}"))?;
    }
    let binary = directory.join(name);
    if binary.is_file() && fs::read_to_string(&stamp).is_ok_and(|made| made == expected) {
        return Ok(binary);
    }
    fs::create_dir_all(directory)?;
    program::run(
        Command::new(go)
            .current_dir(repository.root().join(&source))
            // Some distributions forbid the download of the version that `go.mod` names.
            .env("GOTOOLCHAIN", "auto")
            .args(["build", "-mod=readonly", "-o"])
            .arg(&binary),
    )?;
    // Written last: an interrupted installation is started again.
    fs::write(&stamp, expected).with_context(|| format!("cannot write {}", stamp.display()))?;
    Ok(binary)
}

/// On `PATH`, or at the location of Go's own installation instructions.
pub(super) fn compiler() -> Option<PathBuf> {
    program::find("go").or_else(|| Some(PathBuf::from(INSTRUCTED)).filter(|go| go.is_file()))
}

const SOURCES: &str = "tests/go";
/// The first version (1.x) that downloads another one for a `go.mod`.
const FIRST_SWITCHING: u32 = 21;
/// A version that can build Pebble, as the version of a module.
const NEWER: &str = "v0.0.1-go1.25.5";
const INSTRUCTED: &str = "/usr/local/go/bin/go";
