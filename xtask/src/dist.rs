//! `cargo xtask dist`: what is shipped, made on the machine that it is for.
//!
//! The program is built with the profile `dist`, once whole and once as a small agent, and each is
//! packed as a tarball and as a Debian package, with a file of checksums beside them. Manual pages,
//! completions and their texts come from the program itself, services and configurations from
//! `deploy`.

mod contents;
mod debian;
#[cfg(test)]
mod tests;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};

use self::contents::Contents;
use crate::program;
use crate::repository::Repository;
use crate::web;

/// One of the two programs that are shipped.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Flavour {
    /// Everything.
    Whole,
    /// What runs beside a private service, and on people's desks.
    Agent,
}

impl Flavour {
    /// The name of its packages.
    fn package(self) -> &'static str {
        match self {
            Self::Whole => "svc",
            Self::Agent => "svc-agent",
        }
    }

    fn features(self) -> &'static [&'static str] {
        match self {
            Self::Whole => &[],
            Self::Agent => &["--no-default-features"],
        }
    }
}

/// Builds both and packs them below the target directory, or packs the programs that it is given.
pub(crate) fn run(repository: &Repository, args: &[String]) -> Result<()> {
    let mut out = repository.target_directory()?.join("packages");
    let mut given = Vec::new();
    let mut args = args.iter();
    while let Some(flag) = args.next() {
        let value = args
            .next()
            .with_context(|| format!("{flag} needs a value\n\n{USAGE}"));
        match flag.as_str() {
            "--out" => out = value?.into(),
            "--svc" => given.push((Flavour::Whole, PathBuf::from(value?))),
            "--agent" => given.push((Flavour::Agent, PathBuf::from(value?))),
            _ => bail!("{USAGE}"),
        }
    }
    fs::create_dir_all(&out)?;
    if given.is_empty() {
        // What is shipped has all pages.
        web::run(repository)?;
        for flavour in [Flavour::Whole, Flavour::Agent] {
            given.push((flavour, build(repository, flavour, &out)?));
        }
    }
    let packing = Packing {
        repository,
        out: &out,
        effort: Effort::Shipped,
    };
    let mut packages = Vec::new();
    for (flavour, program) in given {
        packages.extend(packing.pack(flavour, &program)?);
    }
    checksums(&out, &packages)?;
    for name in packages {
        eprintln!("    {}", out.join(name).display());
    }
    Ok(())
}

const USAGE: &str = "\
Usage: cargo xtask dist [--out DIR] [--svc PROGRAM] [--agent PROGRAM]

Without programs both are built.";

/// Builds one program and puts it aside: the other has the same name.
fn build(repository: &Repository, flavour: Flavour, out: &Path) -> Result<PathBuf> {
    program::run(
        program::cargo()
            .current_dir(repository.root())
            .args(["build", "--profile", "dist", "--locked", "-p", "svc"])
            .args(flavour.features()),
    )?;
    let built = repository.target_directory()?.join("dist/svc");
    let aside = out.join(format!("{}.program", flavour.package()));
    fs::copy(&built, &aside).with_context(|| format!("cannot copy {}", built.display()))?;
    Ok(aside)
}

/// Where packages come from and go to.
struct Packing<'a> {
    repository: &'a Repository,
    out: &'a Path,
    effort: Effort,
}

/// How small packages are made.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Effort {
    Shipped,
    /// For tests.
    #[cfg(test)]
    Quick,
}

impl Effort {
    /// The compressor of the tarball, and that of the Debian package as `dpkg-deb` names it.
    fn compressors(self) -> (&'static str, &'static str) {
        match self {
            Self::Shipped => ("gzip -9n", "xz"),
            #[cfg(test)]
            Self::Quick => ("gzip -1n", "none"),
        }
    }
}

impl Packing<'_> {
    /// Packs a program, and gives the names of the packages.
    fn pack(&self, flavour: Flavour, program: &Path) -> Result<Vec<String>> {
        let version = version(program)?;
        let contents = Contents::gather(self.repository, flavour, program)?;
        let stage = self.out.join(format!("{}.stage", flavour.package()));
        let tarball = self.tarball(flavour, &version, &contents, &stage)?;
        let mut packages = vec![tarball];
        // Other systems have the tarball.
        if program::find("dpkg-deb").is_some() {
            packages.push(debian::package(self, flavour, &version, &contents, &stage)?);
        }
        remove(&stage)?;
        Ok(packages)
    }

    fn tarball(
        &self,
        flavour: Flavour,
        version: &str,
        contents: &Contents,
        stage: &Path,
    ) -> Result<String> {
        let package = flavour.package();
        let folder = format!("{package}-{version}");
        remove(stage)?;
        contents.write(&stage.join(&folder), &contents::TARBALL)?;
        let (os, arch) = (std::env::consts::OS, std::env::consts::ARCH);
        let name = format!("{package}-{version}-{os}-{arch}.tar.gz");
        // The same sources and the same program make the same bytes.
        program::run(
            Command::new("tar")
                .args(["--sort=name", "--owner=0", "--group=0", "--numeric-owner"])
                .arg(format!("--mtime=@{}", self.time()))
                .arg("--directory")
                .arg(stage)
                .args(["--use-compress-program", self.effort.compressors().0])
                .args(["--create", "--file"])
                .arg(self.out.join(&name))
                .arg(&folder),
        )?;
        Ok(name)
    }

    /// When the sources were written, in seconds since 1970; 0 where no history tells it.
    fn time(&self) -> String {
        let mut git = Command::new("git");
        git.current_dir(self.repository.root())
            .args(["log", "-1", "--format=%ct"]);
        let time = program::output(&mut git).unwrap_or_default();
        let time = time.trim();
        if time.is_empty() { "0" } else { time }.to_owned()
    }
}

/// What the program says that it is.
fn version(program: &Path) -> Result<String> {
    let said = program::output(Command::new(program).arg("--version"))?;
    let version = said.trim().strip_prefix("svc ").unwrap_or_default();
    ensure!(
        !version.is_empty(),
        "{} is no svc: {said}",
        program.display()
    );
    Ok(version.to_owned())
}

/// `SHA256SUMS`, as `sha256sum --check` reads it.
fn checksums(out: &Path, packages: &[String]) -> Result<()> {
    let sums = program::output(Command::new("sha256sum").current_dir(out).args(packages))?;
    fs::write(out.join("SHA256SUMS"), sums)?;
    Ok(())
}

fn remove(directory: &Path) -> Result<()> {
    if directory.exists() {
        fs::remove_dir_all(directory)
            .with_context(|| format!("cannot remove {}", directory.display()))?;
    }
    Ok(())
}
