//! Debian packages, built with `dpkg-deb`.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result};

use super::contents::{Contents, DEBIAN};
use super::stage::{self, Entry};
use super::{Flavour, PackageInputs, copyright, remove};
use crate::program;

/// Builds the package of a program, and returns its name.
pub(super) fn package(
    packing: &PackageInputs<'_>,
    flavour: Flavour,
    version: &str,
    contents: &Contents,
    stage: &Path,
) -> Result<String> {
    remove(stage)?;
    stage::write(stage, &contents.entries(&DEBIAN))?;
    stage::write(stage, &document_entries(packing, version, contents)?)?;
    compress(stage, contents)?;
    if flavour == Flavour::Complete {
        // The folder for configurations; no service starts without one.
        fs::create_dir_all(stage.join("etc/svc"))?;
    }
    let architecture = program::output(Command::new("dpkg").arg("--print-architecture"))?;
    let architecture = architecture.trim();
    let version = &debian_version(version);
    let control = control(packing, flavour, version, architecture, contents, stage)?;
    stage::write(&stage.join(CONTROL), &control)?;
    stage::settle(stage, packing.time()?)?;
    let name = format!("{}_{version}_{architecture}.deb", flavour.package());
    program::run(
        Command::new("dpkg-deb")
            .env("SOURCE_DATE_EPOCH", packing.time()?.to_string())
            .args([
                "--root-owner-group",
                "-Z",
                packing.effort.compressors().1,
                "--build",
            ])
            .arg(stage)
            .arg(packing.out.join(&name)),
    )?;
    Ok(name)
}

/// Checks the packages with Debian's own checker if it is installed. It depends on a hundred
/// packages, so it is optional.
pub(super) fn lint(out: &Path, packages: &[String]) -> Result<()> {
    let is_deb = |name: &&String| Path::new(name).extension().is_some_and(|end| end == "deb");
    let packages: Vec<_> = packages.iter().filter(is_deb).collect();
    if packages.is_empty() {
        return Ok(());
    }
    let Some(lintian) = program::find("lintian") else {
        eprintln!("    lintian is not here: nobody has judged the Debian packages");
        return Ok(());
    };
    let mut judge = Command::new(lintian);
    judge
        .current_dir(out)
        .args(["--allow-root", "--fail-on", "error"]);
    program::run(judge.args(packages))
}

/// Documents that Debian requires: copyright and changelog.
fn document_entries(
    packing: &PackageInputs<'_>,
    version: &str,
    contents: &Contents,
) -> Result<Vec<Entry>> {
    let documents = contents.documents();
    let package = contents.flavour.package();
    let copyright = copyright::debian(packing.inventory, &packing.allowed, package)?;
    let changes = packing.repository.read("CHANGELOG.md")?;
    let mut date = Command::new("date");
    date.env("LC_ALL", "C")
        .args(["--utc", "--rfc-email", "--date"])
        .arg(format!("@{}", packing.time()?));
    let date = program::output(&mut date)?;
    let entry = format!(
        "{package} ({}) unstable; urgency=medium\n\n  * Release {version}: changelog.gz has what \
         changed.\n\n -- {MAINTAINER}  {}\n",
        debian_version(version),
        date.trim()
    );
    Ok(vec![
        Entry::new(documents.join("copyright"), copyright),
        Entry::new(documents.join("changelog"), changes),
        Entry::new(documents.join("changelog.Debian"), entry),
    ])
}

/// Compresses manual pages, changelogs and licence texts, as Debian's policy requires.
fn compress(stage: &Path, contents: &Contents) -> Result<()> {
    let documents = contents.documents();
    let mut paths: Vec<_> = [
        "changelog",
        "changelog.Debian",
        super::LICENCES,
        super::BILL,
    ]
    .map(|name| documents.join(name))
    .into();
    let manuals = stage::files(&stage.join("usr/share/man"), CONTROL).unwrap_or_default();
    paths.extend(
        manuals
            .iter()
            .map(|page| Path::new("usr/share/man").join(page)),
    );
    let mut gzip = Command::new("gzip");
    gzip.current_dir(stage).args(["-9", "--no-name", "--force"]);
    program::run(gzip.args(paths))
}

/// The control part.
fn control(
    packing: &PackageInputs<'_>,
    flavour: Flavour,
    version: &str,
    architecture: &str,
    contents: &Contents,
    stage: &Path,
) -> Result<Vec<Entry>> {
    let described = described(
        flavour,
        version,
        architecture,
        contents.program(),
        size(stage)?,
    );
    let mut entries = vec![
        Entry::new("md5sums", sums(stage)?),
        Entry::new("control", described),
    ];
    if flavour == Flavour::Complete {
        let sources = packing.repository.root().join("deploy/debian");
        let read = |name: &str| {
            fs::read(sources.join(name)).with_context(|| format!("cannot read {name}"))
        };
        entries.push(Entry::new("conffiles", read("conffiles")?));
        for script in ["postinst", "prerm", "postrm"] {
            entries.push(Entry::executable(script, read(script)?));
        }
    }
    Ok(entries)
}

/// The version with the revision of the package. A pre-release version sorts before its release.
fn debian_version(version: &str) -> String {
    format!("{}-1", version.replace('-', "~"))
}

/// The control file.
fn described(
    flavour: Flavour,
    version: &str,
    architecture: &str,
    program: &[u8],
    kibibytes: u64,
) -> String {
    let package = flavour.package();
    // Both packages install the same program path, and the complete one includes the agent.
    // daemontools has another program of this name there.
    let (relations, summary, text) = match flavour {
        Flavour::Complete => (
            "Provides: svc-agent\nConflicts: svc-agent, daemontools\nReplaces: svc-agent\n",
            "tunnel platform: agent, engine, control plane, TURN relay",
            " Gives private services public names: an agent beside the service dials out\n \
             to an engine, and visitors come in through the engine. One program holds all\n \
             parts.\n",
        ),
        Flavour::Agent => (
            "Conflicts: svc, daemontools\nReplaces: svc\n",
            "tunnel platform: the agent and the command line",
            " Gives private services public names through an engine elsewhere. This is the\n \
             small program without the servers; the package svc has all parts.\n",
        ),
    };
    let mut depends = depends(program);
    if flavour == Flavour::Complete {
        // Its script creates the user of the services.
        depends.push_str(", systemd | systemd-standalone-sysusers | systemd-sysusers");
    }
    format!(
        "Package: {package}\nVersion: {version}\nArchitecture: {architecture}\n\
         Maintainer: {MAINTAINER}\nInstalled-Size: {kibibytes}\n\
         Section: net\nPriority: optional\nDepends: {depends}\nRecommends: ca-certificates\n\
         {relations}Description: {summary}\n{text}"
    )
}

/// The C library, at least as new as the newest symbol that the program uses.
fn depends(program: &[u8]) -> String {
    let minors = program.split(|byte| *byte == b'G').filter_map(|rest| {
        let digits = rest.strip_prefix(b"LIBC_2.")?;
        let digits = digits.split(|byte| !byte.is_ascii_digit()).next()?;
        std::str::from_utf8(digits).ok()?.parse::<u32>().ok()
    });
    let libc = minors.max().map_or_else(
        || "libc6".to_owned(),
        |minor| format!("libc6 (>= 2.{minor})"),
    );
    format!("{libc}, libgcc-s1")
}

/// `md5sums`, which `dpkg --verify` compares.
fn sums(stage: &Path) -> Result<String> {
    let files = stage::files(stage, CONTROL)?;
    program::output(Command::new("md5sum").current_dir(stage).args(files))
}

/// Size of the files, in KiB.
fn size(stage: &Path) -> Result<u64> {
    let mut kibibytes = 0;
    for path in stage::files(stage, CONTROL)? {
        kibibytes += fs::metadata(stage.join(path))?.len().div_ceil(1024);
    }
    Ok(kibibytes)
}

const MAINTAINER: &str = "svc maintainers <maintainers@svc.invalid>";
const CONTROL: &str = "DEBIAN";
