//! Build of a program that contains no traces of the build machine.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};

use super::{Flavour, inventory};
use crate::program;
use crate::provision;
use crate::repository::Repository;
use crate::web;

/// Builds one program and moves it aside, because the other has the same name.
///
/// The flags are only those of this task (`RUSTFLAGS` is ignored), so that the same sources and the
/// same Rust result in the same bytes everywhere. No other build has these flags, and cargo keeps
/// the output of the profile `dist` separate.
pub(super) fn build(repository: &Repository, flavour: Flavour, out: &Path) -> Result<PathBuf> {
    let remapping = PathRemapping::of(repository)?;
    let mut cargo = program::cargo();
    cargo
        .current_dir(repository.root())
        .args(["build", "--profile", "dist", "--locked", "-p", "svc"])
        .args(flavour.features())
        .env("CARGO_ENCODED_RUSTFLAGS", remapping.rust_flags())
        .env("CFLAGS", remapping.c_flags());
    for unification in UNIFICATION {
        cargo.env_remove(unification);
    }
    if flavour == Flavour::Complete {
        provision::npm(repository)?;
        // With this variable, the build includes the web terminal and the dashboard, or fails.
        cargo.env("SVC_WEB_DIR", web::run(repository)?);
    }
    program::run(&mut cargo)?;
    // The inventory also reads crates that this build does not need: those of tests.
    let fetch = [
        "fetch",
        "--quiet",
        "--locked",
        "--target",
        &inventory::host()?,
    ];
    program::run(program::cargo().current_dir(repository.root()).args(fetch))?;
    let built = repository.target_directory()?.join("dist/svc");
    let aside = out.join(format!("{}.program", flavour.package()));
    fs::copy(&built, &aside).with_context(|| format!("cannot copy {}", built.display()))?;
    remapping.check(&fs::read(&aside)?)?;
    Ok(aside)
}

/// Required contents of a released program.
pub(super) fn check(repository: &Repository, flavour: Flavour, program: &Path) -> Result<()> {
    if flavour == Flavour::Agent {
        return Ok(());
    }
    let web = web::run(repository)?;
    let bytes = fs::read(program)?;
    for (file, part) in PARTS {
        ensure!(
            contains(&bytes, &fs::read(web.join(file))?),
            "{} was built without {part}: run `cargo xtask web` before the build",
            program.display()
        );
    }
    Ok(())
}

/// A file of each part of the pages, which is included unchanged.
const PARTS: [(&str, &str); 2] = [
    ("xterm.css", "the terminal of the pages"),
    ("app/index.html", "the dashboard"),
];

/// Folders of this machine, and their replacements in the program: in panic messages, in debug
/// information, in the file names of the C preprocessor.
struct PathRemapping(Vec<(PathBuf, &'static str)>);

impl PathRemapping {
    fn of(repository: &Repository) -> Result<Self> {
        let sysroot = program::output(Command::new("rustc").args(["--print", "sysroot"]))?;
        let home = match env::var_os("CARGO_HOME") {
            Some(home) => PathBuf::from(home),
            None => PathBuf::from(env::var_os("HOME").context("no HOME")?).join(".cargo"),
        };
        // If several match, the compiler uses the last.
        Ok(Self(vec![
            (repository.root().to_owned(), "/svc"),
            (repository.target_directory()?, "/svc/target"),
            (home, "/cargo"),
            (sysroot.trim().into(), "/rust"),
        ]))
    }

    /// In the format of `CARGO_ENCODED_RUSTFLAGS`.
    fn rust_flags(&self) -> OsString {
        let mut flags = OsString::new();
        for (from, to) in &self.0 {
            if !flags.is_empty() {
                flags.push("\x1f");
            }
            flags.push("--remap-path-prefix=");
            flags.push(from);
            flags.push("=");
            flags.push(to);
        }
        flags
    }

    /// In the format of gcc and clang.
    fn c_flags(&self) -> OsString {
        let mut flags = OsString::new();
        for (from, to) in &self.0 {
            flags.push(" -ffile-prefix-map=");
            flags.push(from);
            flags.push("=");
            flags.push(to);
        }
        flags
    }

    /// Checks that the program contains none of the folders.
    fn check(&self, program: &[u8]) -> Result<()> {
        for (folder, _) in &self.0 {
            let named = folder.join("");
            if contains(program, named.as_os_str().as_encoded_bytes()) {
                bail!("the program names {}", named.display());
            }
        }
        Ok(())
    }
}

/// True if `part` occurs in `bytes`.
fn contains(bytes: &[u8], part: &[u8]) -> bool {
    let Some((first, rest)) = part.split_first() else {
        return true;
    };
    let mut left = bytes;
    while let Some(at) = left.iter().position(|byte| byte == first) {
        left = left.get(at + 1..).unwrap_or_default();
        if left.starts_with(rest) {
            return true;
        }
    }
    false
}

/// Makes cargo build dependencies with the features of the whole workspace.
const UNIFICATION: [&str; 2] = [
    "CARGO_RESOLVER_FEATURE_UNIFICATION",
    "CARGO_UNSTABLE_FEATURE_UNIFICATION",
];

#[cfg(test)]
mod tests {
    use super::*;

    /// A program whose panic names its source, compiled with and without the flags.
    #[test]
    fn no_folder_of_the_build_is_in_the_program() {
        let repository = Repository::of_this_package().unwrap();
        let target = repository.target_directory().unwrap();
        let folder = target.join("dist-tests/remapping");
        fs::create_dir_all(&folder).unwrap();
        let source = folder.join("program.rs");
        let text = "fn main() { assert!(std::env::args().count() > 1, \"none\"); }";
        fs::write(&source, text).unwrap();
        let remapping = PathRemapping::of(&repository).unwrap();
        let flags = remapping.rust_flags().into_string().unwrap();
        let compiled = |flags: &str| {
            let program = folder.join("program");
            let mut rustc = Command::new("rustc");
            rustc.args(flags.split('\x1f').filter(|flag| !flag.is_empty()));
            program::run(rustc.arg(&source).arg("-o").arg(&program)).unwrap();
            remapping.check(&fs::read(program).unwrap())
        };
        let named = compiled("").unwrap_err().to_string();
        assert!(named.starts_with("the program names /"), "{named}");
        compiled(&flags).unwrap();
    }

    #[test]
    fn a_program_without_a_part_of_the_pages_is_not_packed() {
        let repository = Repository::of_this_package().unwrap();
        let target = repository.target_directory().unwrap();
        let folder = target.join("dist-tests/terminal");
        fs::create_dir_all(&folder).unwrap();
        let program = folder.join("program");
        let web = web::run(&repository).unwrap();
        let [style, index] = ["xterm.css", "app/index.html"].map(|name| fs::read(web.join(name)));
        let (style, index) = (style.unwrap(), index.unwrap());
        for (bytes, is_whole) in [
            (b"nothing".to_vec(), false),
            ([b"before".as_slice(), &style, b"after"].concat(), false),
            ([b"before".as_slice(), &index, b"after"].concat(), false),
            ([b"before".as_slice(), &style, &index].concat(), true),
        ] {
            fs::write(&program, bytes).unwrap();
            let checked = check(&repository, Flavour::Complete, &program);
            assert_eq!(checked.is_ok(), is_whole);
            // The agent has no web pages.
            check(&repository, Flavour::Agent, &program).unwrap();
        }
    }

    #[test]
    fn contained_bytes_are_found() {
        for (bytes, part, is_there) in [
            ("abcabd", "abd", true),
            ("aab", "ab", true),
            ("ab", "abc", false),
            ("", "a", false),
            ("abc", "", true),
        ] {
            assert_eq!(
                contains(bytes.as_bytes(), part.as_bytes()),
                is_there,
                "{part}"
            );
        }
    }
}
