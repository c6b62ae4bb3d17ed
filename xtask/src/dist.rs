//! `cargo xtask dist`: the release packages, built on the target system.
//!
//! The program is built with the profile `dist`, once complete and once as a small agent. Each is
//! packed as a tarball and as a Debian package, with a bill of materials, a checksum file and, if
//! there is a key, its signature. The program itself generates manual pages and completions;
//! services and configurations come from `deploy`, licences from the crates' sources.

mod build;
mod contents;
mod copyright;
mod debian;
mod documents;
mod inventory;
mod licence;
mod sbom;
mod signature;
mod stage;
#[cfg(test)]
mod tests;

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};

use self::contents::Contents;
use self::inventory::Inventory;
use self::licence::AllowedLicences;
use self::signature::SigningKey;
use crate::program;
use crate::repository::Repository;

/// One of the two released programs.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Flavour {
    /// The complete program.
    Complete,
    /// The agent, for machines with private services and for desktops.
    Agent,
}

impl Flavour {
    /// The name of its packages.
    fn package(self) -> &'static str {
        match self {
            Self::Complete => "svc",
            Self::Agent => "svc-agent",
        }
    }

    fn named(package: &str) -> Result<Self> {
        let flavours = [Self::Complete, Self::Agent];
        let named = flavours.into_iter().find(|one| one.package() == package);
        named.with_context(|| format!("there is no package {package}\n\n{USAGE}"))
    }

    fn features(self) -> &'static [&'static str] {
        match self {
            Self::Complete => &[],
            Self::Agent => &["--no-default-features"],
        }
    }
}

/// Builds and packs both programs below the target directory, or packs the given programs.
pub(crate) fn run(repository: &Repository, args: &[String]) -> Result<()> {
    let mut out = repository.target_directory()?.join("packages");
    let mut programs = Vec::new();
    let mut only = None;
    let mut key = None;
    let mut args = args.iter();
    while let Some(flag) = args.next() {
        let value = args
            .next()
            .with_context(|| format!("{flag} needs a value\n\n{USAGE}"));
        match flag.as_str() {
            "--out" => out = value?.into(),
            "--svc" => programs.push((Flavour::Complete, PathBuf::from(value?))),
            "--agent" => programs.push((Flavour::Agent, PathBuf::from(value?))),
            "--only-build" => only = Some(Flavour::named(value?)?),
            "--sign" => key = Some(PathBuf::from(value?)),
            _ => bail!("{USAGE}"),
        }
    }
    fs::create_dir_all(&out)?;
    if let Some(flavour) = only {
        return only_build(repository, flavour, &out);
    }
    // Before the build, which would otherwise fail after minutes because of a missing key.
    let key = SigningKey::find(repository, key)?;
    if programs.is_empty() {
        for flavour in [Flavour::Complete, Flavour::Agent] {
            programs.push((flavour, build::build(repository, flavour, &out)?));
        }
    }
    let mut packages = Vec::new();
    for (flavour, program) in programs {
        build::check(repository, flavour, &program)?;
        let packing = PackageInputs {
            repository,
            out: &out,
            effort: CompressionLevel::Shipped,
            inventory: &Inventory::gather(repository, flavour)?,
            allowed: AllowedLicences::read(repository)?,
        };
        packages.extend(packing.pack(flavour, &program)?);
    }
    debian::lint(&out, &packages)?;
    checksums(&out, &packages)?;
    sign(repository, &out, key.as_ref())?;
    for name in packages {
        eprintln!("    {}", out.join(name).display());
    }
    Ok(())
}

/// Builds a program for a container image, with its accompanying files.
fn only_build(repository: &Repository, flavour: Flavour, out: &Path) -> Result<()> {
    let program = build::build(repository, flavour, out)?;
    let packing = PackageInputs {
        repository,
        out,
        effort: CompressionLevel::Shipped,
        inventory: &Inventory::gather(repository, flavour)?,
        allowed: AllowedLicences::read(repository)?,
    };
    let package = flavour.package();
    let licences = copyright::third_party(packing.inventory)?;
    fs::write(out.join(format!("{package}.{LICENCES}")), licences)?;
    let bill = packing.bill(flavour, &version(&program)?, &program)?;
    fs::write(out.join(format!("{package}.cdx.json")), bill)?;
    eprintln!("    {}", program.display());
    Ok(())
}

/// Signs the checksums, or reports that nothing was signed.
fn sign(repository: &Repository, out: &Path, key: Option<&SigningKey>) -> Result<()> {
    let Some(key) = key else {
        signature::remove(out)?;
        eprintln!(
            "    nothing is signed: no key was given (--sign, {})",
            signature::VARIABLE
        );
        return Ok(());
    };
    key.sign(out)?;
    if !SigningKey::is_published(repository, out) {
        eprintln!(
            "    {} lacks this key: nobody can verify the signature",
            signature::SIGNERS
        );
    }
    Ok(())
}

const USAGE: &str = "\
Usage: cargo xtask dist [--out DIR] [--svc PROGRAM] [--agent PROGRAM] [--sign KEY]
       cargo xtask dist [--out DIR] --only-build svc|svc-agent

Without programs both are built. KEY is a private key of OpenSSH, or the public half of one that an agent
holds; SVC_SIGNING_KEY names it, too. --only-build packs nothing: the program is DIR/svc.program or
DIR/svc-agent.program, with its licences and its bill of materials beside it.";

/// Inputs and output of the packages.
struct PackageInputs<'a> {
    repository: &'a Repository,
    out: &'a Path,
    effort: CompressionLevel,
    /// Components of the program.
    inventory: &'a Inventory,
    allowed: AllowedLicences,
}

/// Compression effort.
#[derive(Clone, Copy, Debug, PartialEq)]
enum CompressionLevel {
    Shipped,
    /// Fast, for tests.
    #[cfg(test)]
    Quick,
}

impl CompressionLevel {
    /// The compressor of the tarball, and that of the Debian package in `dpkg-deb`'s notation.
    fn compressors(self) -> (&'static str, &'static str) {
        match self {
            Self::Shipped => ("gzip -9n", "xz"),
            #[cfg(test)]
            Self::Quick => ("gzip -1n", "none"),
        }
    }
}

impl PackageInputs<'_> {
    /// Packs a program, and returns the names of the packages and of its bill of materials.
    fn pack(&self, flavour: Flavour, program: &Path) -> Result<Vec<String>> {
        let version = version(program)?;
        let mut contents = Contents::gather(self.repository, flavour, program)?;
        contents.add_document(LICENCES, copyright::third_party(self.inventory)?);
        let bill = self.bill(flavour, &version, program)?;
        contents.add_document(BILL, bill.clone());
        let stage = self.out.join(format!("{}.stage", flavour.package()));
        let tarball = self.tarball(flavour, &version, &contents, &stage)?;
        let beside = tarball.replace(".tar.gz", ".cdx.json");
        fs::write(self.out.join(&beside), bill)?;
        let mut packages = vec![tarball, beside];
        // Other systems only have the tarball.
        if program::find("dpkg-deb").is_some() {
            packages.push(debian::package(self, flavour, &version, &contents, &stage)?);
        }
        remove(&stage)?;
        Ok(packages)
    }

    fn bill(&self, flavour: Flavour, version: &str, program: &Path) -> Result<String> {
        let sum = program::output(Command::new("sha256sum").arg(program))?;
        let sum = sum.split_whitespace().next().context("no sum")?;
        let mut date = Command::new("date");
        date.args(["--utc", "+%Y-%m-%dT%H:%M:%SZ", "--date"])
            .arg(format!("@{}", self.time()?));
        let time = program::output(&mut date)?;
        sbom::bill(self.inventory, flavour, version, sum, time.trim())
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
        let root = stage.join(&folder);
        stage::write(&root, &contents.entries(&contents::TARBALL))?;
        stage::settle(&root, self.time()?)?;
        let (os, arch) = (std::env::consts::OS, std::env::consts::ARCH);
        let name = format!("{package}-{version}-{os}-{arch}.tar.gz");
        // The same sources and the same program result in the same bytes.
        program::run(
            Command::new("tar")
                .args(["--format=gnu", "--sort=name"])
                .args(["--owner=0", "--group=0", "--numeric-owner"])
                .arg("--directory")
                .arg(stage)
                .args(["--use-compress-program", self.effort.compressors().0])
                .args(["--create", "--file"])
                .arg(self.out.join(&name))
                .arg(&folder),
        )?;
        Ok(name)
    }

    /// Time of the sources, in seconds since 1970: from `SOURCE_DATE_EPOCH` or from the history; 0
    /// without both.
    fn time(&self) -> Result<u64> {
        if let Ok(time) = env::var("SOURCE_DATE_EPOCH") {
            return time.parse().context("SOURCE_DATE_EPOCH is no number");
        }
        let mut git = Command::new("git");
        git.current_dir(self.repository.root())
            .args(["log", "-1", "--format=%ct"]);
        let time = program::output(&mut git).unwrap_or_default();
        Ok(time.trim().parse().unwrap_or_default())
    }
}

/// The version that the program reports.
fn version(program: &Path) -> Result<String> {
    let output = program::output(Command::new(program).arg("--version"))?;
    let version = output.trim().strip_prefix("svc ").unwrap_or_default();
    ensure!(
        !version.is_empty(),
        "{} is no svc: {output}",
        program.display()
    );
    Ok(version.to_owned())
}

/// `SHA256SUMS`, in the format of `sha256sum --check`.
fn checksums(out: &Path, packages: &[String]) -> Result<()> {
    let sums = program::output(Command::new("sha256sum").current_dir(out).args(packages))?;
    fs::write(out.join(signature::SUMS), sums)?;
    Ok(())
}

fn remove(directory: &Path) -> Result<()> {
    if directory.exists() {
        fs::remove_dir_all(directory)
            .with_context(|| format!("cannot remove {}", directory.display()))?;
    }
    Ok(())
}

/// The licence texts of everything in the program.
const LICENCES: &str = "THIRD-PARTY-LICENSES";
/// The bill of materials, within a package.
const BILL: &str = "sbom.cdx.json";
