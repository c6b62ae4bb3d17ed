//! The licence texts that come with a crate.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail, ensure};

use super::Component;
use crate::dist::licence::standard_text;

/// A text that must be distributed with the program.
#[derive(Clone, PartialEq)]
pub(in crate::dist) struct Notice(pub(in crate::dist) String);

/// Every licence text in the sources of a crate, including those of bundled libraries.
pub(super) fn of_crate(folder: &Path, component: &Component) -> Result<Vec<Notice>> {
    let mut notices: Vec<Notice> = Vec::new();
    for file in found(folder)? {
        let bytes = fs::read(&file).with_context(|| format!("cannot read {}", file.display()))?;
        let notice = Notice(String::from_utf8_lossy(&bytes).trim().to_owned());
        if !notice.0.is_empty() && !notices.contains(&notice) {
            notices.push(notice);
        }
    }
    let substitute = WITHOUT_TEXT
        .iter()
        .find(|(name, _)| *name == component.name);
    match (notices.is_empty(), substitute) {
        (false, None) => Ok(notices),
        (true, Some((_, licence))) => Ok(vec![standard(licence, component)?]),
        (true, None) => bail!("its sources have no text of a licence"),
        (false, Some(_)) => bail!("it has a text of its licence now: take it off the list"),
    }
}

/// The SPDX text, with the authors from the manifest.
fn standard(licence: &str, component: &Component) -> Result<Notice> {
    let names = component
        .licence
        .alternatives()
        .any(|alternative| alternative == licence);
    ensure!(names, "it is not under {licence}");
    let id = spdx::license_id(licence).context("not a licence")?;
    let authors = component.authors.join(", ");
    Ok(Notice(standard_text(id, &authors)))
}

/// Files with typical names of licence texts, sorted by path.
fn found(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    let mut folders = vec![(folder.to_owned(), false)];
    while let Some((folder, is_licences)) = folders.pop() {
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            let path = entry.path();
            let kind = entry.file_type()?;
            let is_text = is_text_of_licence(&path);
            if kind.is_dir() {
                folders.push((path, is_text));
            } else if kind.is_file() && (is_text || is_licences) {
                files.push(path);
            }
        }
    }
    files.sort();
    Ok(files)
}

fn is_text_of_licence(path: &Path) -> bool {
    let upper = |part: Option<&std::ffi::OsStr>| {
        part.unwrap_or_default()
            .to_string_lossy()
            .to_ascii_uppercase()
    };
    let name = upper(path.file_name());
    let extension = upper(path.extension());
    NAMES.iter().any(|start| name.starts_with(start)) && !SOURCES.contains(&extension.as_str())
}

const NAMES: [&str; 6] = [
    "LICENSE",
    "LICENCE",
    "UNLICENSE",
    "COPYING",
    "COPYRIGHT",
    "NOTICE",
];

/// Source files about licences.
const SOURCES: [&str; 9] = ["RS", "C", "H", "GO", "PY", "SH", "TOML", "JSON", "HTML"];

/// Crates whose registry packages contain no text, and the chosen licence of each: if possible one
/// that requires no list of holders.
const WITHOUT_TEXT: [(&str, &str); 9] = [
    ("alloc-stdlib", "BSD-3-Clause"),
    ("asn1-rs-impl", "Apache-2.0"),
    ("dav-server", "Apache-2.0"),
    ("htmlescape", "Apache-2.0"),
    ("stun-proto", "Apache-2.0"),
    ("stun-types", "Apache-2.0"),
    ("tonic-prost", "MIT"),
    ("turn-types", "Apache-2.0"),
    ("xml-rs", "MIT"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn licence_files_are_recognised_by_name() {
        for (name, is_one) in [
            ("LICENSE-MIT", true),
            ("license.md", true),
            ("COPYING", true),
            ("LICENSES", true),
            ("license.rs", false),
            ("README.md", false),
        ] {
            assert_eq!(is_text_of_licence(Path::new(name)), is_one, "{name}");
        }
    }
}
