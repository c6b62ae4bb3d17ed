//! Debian packages, made with `dpkg-deb`.

use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

use super::contents::{Contents, DEBIAN};
use super::{Flavour, Packing, remove};
use crate::program;

/// Makes the package of a program, and gives its name.
pub(super) fn package(
    packing: &Packing<'_>,
    flavour: Flavour,
    version: &str,
    contents: &Contents,
    stage: &Path,
) -> Result<String> {
    remove(stage)?;
    contents.write(stage, &DEBIAN)?;
    let control = stage.join("DEBIAN");
    fs::create_dir_all(&control)?;
    let architecture = program::output(Command::new("dpkg").arg("--print-architecture"))?;
    let architecture = architecture.trim();
    fs::write(control.join("md5sums"), sums(stage)?)?;
    fs::write(
        control.join("control"),
        described(
            flavour,
            version,
            architecture,
            contents.program(),
            size(stage)?,
        ),
    )?;
    if flavour == Flavour::Whole {
        let sources = packing.repository.root().join("deploy/debian");
        fs::copy(sources.join("conffiles"), control.join("conffiles"))?;
        for script in ["postinst", "prerm", "postrm"] {
            let path = control.join(script);
            fs::copy(sources.join(script), &path)?;
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
        }
    }
    let name = format!("{}_{version}_{architecture}.deb", flavour.package());
    program::run(
        Command::new("dpkg-deb")
            .env("SOURCE_DATE_EPOCH", packing.time())
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

/// The control file.
fn described(
    flavour: Flavour,
    version: &str,
    architecture: &str,
    program: &[u8],
    kibibytes: u64,
) -> String {
    let package = flavour.package();
    // Both have the same program in the same place; the whole one is an agent, too.
    let (relations, summary, text) = match flavour {
        Flavour::Whole => (
            "Provides: svc-agent\nConflicts: svc-agent\nReplaces: svc-agent\n",
            "tunnel platform: agent, engine, control plane, TURN relay",
            " Gives private services public names: an agent beside the service dials out to an\n \
             engine, and visitors come in through the engine. One program holds all parts.\n",
        ),
        Flavour::Agent => (
            "Conflicts: svc\nReplaces: svc\n",
            "tunnel platform: the agent and the command line",
            " Gives private services public names through an engine elsewhere. This is the small\n \
             program without the servers; the package svc has all parts.\n",
        ),
    };
    let depends = depends(program);
    format!(
        "Package: {package}\nVersion: {version}\nArchitecture: {architecture}\n\
         Maintainer: svc maintainers <maintainers@svc.invalid>\nInstalled-Size: {kibibytes}\n\
         Section: net\nPriority: optional\nDepends: {depends}\nRecommends: ca-certificates\n\
         {relations}Description: {summary}\n{text}"
    )
}

/// The C library, as new as the newest of its symbols that the program names.
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
    let mut sums = String::new();
    for path in files(stage)? {
        let line = program::output(Command::new("md5sum").current_dir(stage).arg(&path))?;
        let sum = line.split_whitespace().next().context("no sum")?;
        writeln!(sums, "{sum}  {}", path.display())?;
    }
    Ok(sums)
}

/// What the files take, in KiB.
fn size(stage: &Path) -> Result<u64> {
    let mut kibibytes = 0;
    for path in files(stage)? {
        kibibytes += fs::metadata(stage.join(path))?.len().div_ceil(1024);
    }
    Ok(kibibytes)
}

/// Every file but those of the control part, relative to `stage`.
fn files(stage: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    let mut folders = vec![stage.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else {
                let path = path.strip_prefix(stage)?;
                if !path.starts_with("DEBIAN") {
                    files.push(path.to_owned());
                }
            }
        }
    }
    files.sort();
    Ok(files)
}
