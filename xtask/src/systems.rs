//! `cargo xtask systems`: the agent, type-checked for the systems that it is not tested on.
//!
//! A check links nothing, so nobody needs another system's C compiler for it: what the build
//! scripts of libraries compile is replaced by empty files. What this finds is code that the other
//! system does not have; whether the rest works there, nobody has tried.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::program;
use crate::repository::Repository;

/// The systems, as Rust names them.
const TARGETS: [&str; 2] = ["x86_64-pc-windows-gnu", "x86_64-apple-darwin"];

/// Checks the small agent for each system. One whose standard library is not there and cannot be
/// had is named.
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

/// A compiler and an archiver that make empty files.
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

    /// The names of variables are those of the crate `cc`; the last two have `aws-lc-sys` go the
    /// shortest way: without an assembler and without `CMake`.
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

/// Answers who it is with the machine's own preprocessor, and makes the file after `-o`.
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
