//! `cargo xtask systems`: type-checks the agent for systems on which it is not tested.
//!
//! A check links nothing, so no C compiler for the other system is needed: the output of build
//! scripts of libraries is replaced by empty files. It finds code that does not exist on the other
//! system; the behaviour there is untested.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::program;
use crate::repository::Repository;

/// The systems, by their Rust target names.
const TARGETS: [&str; 2] = ["x86_64-pc-windows-gnu", "x86_64-apple-darwin"];

/// Checks the small agent for each system. Systems whose standard library cannot be installed are
/// named.
pub(crate) fn run(repository: &Repository) -> Result<()> {
    let tools = Tools::write(&repository.target_directory()?.join("systems"))?;
    for target in TARGETS {
        eprintln!("\n{target}");
        if !program::succeeds(Command::new("rustup").args(["target", "add", target])) {
            eprintln!(
                "not checked, because its standard library is not here: rustup target add {target}"
            );
            continue;
        }
        let mut cargo = program::cargo();
        cargo
            .current_dir(repository.root())
            .args(["check", "--workspace", "--locked", "--bin", "svc"])
            .args(["--no-default-features", "--target", target]);
        tools.take_the_place_of_compilers(&mut cargo, target);
        program::run(&mut cargo).with_context(|| format!("the agent for {target}"))?;
    }
    Ok(())
}

/// A compiler and an archiver that create empty files.
struct Tools {
    compiler: PathBuf,
    archiver: PathBuf,
}

impl Tools {
    fn write(folder: &Path) -> Result<Self> {
        fs::create_dir_all(folder)?;
        Ok(Self {
            compiler: script(&folder.join("cc"), COMPILER)?,
            archiver: script(&folder.join("ar"), ARCHIVER)?,
        })
    }

    /// The variable names are those of the crate `cc`. The last two make `aws-lc-sys` use its
    /// simplest build: without an assembler and without `CMake`.
    fn take_the_place_of_compilers(&self, cargo: &mut Command, target: &str) {
        let target = target.replace('-', "_");
        cargo
            .env(format!("CC_{target}"), &self.compiler)
            .env(format!("CXX_{target}"), &self.compiler)
            .env(format!("AR_{target}"), &self.archiver)
            .env("AWS_LC_SYS_PREBUILT_NASM", "1")
            .env("AWS_LC_SYS_CMAKE_BUILDER", "0");
    }
}

fn script(path: &Path, text: &str) -> Result<PathBuf> {
    use std::os::unix::fs::PermissionsExt as _;

    fs::write(path, text)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o755))?;
    Ok(path.to_owned())
}

/// Identifies itself with the machine's own preprocessor, and creates the file after `-o`.
const COMPILER: &str = r#"#!/bin/sh
out= before=
for argument in "$@"; do
    case "$argument" in
        --version | -v) echo "clang version 17.0.0"; exit 0 ;;
        -E) preprocess=1 ;;
        -o?*) out=${argument#-o} ;;
    esac
    [ "$before" = -o ] && out=$argument
    before=$argument
done
[ -n "$preprocess" ] && exec cc -E "$before"
[ -z "$out" ] || : > "$out"
"#;

const ARCHIVER: &str = r#"#!/bin/sh
for argument in "$@"; do
    case "$argument" in *.a | *.lib) : > "$argument" ;; esac
done
"#;
