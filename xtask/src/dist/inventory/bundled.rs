//! Components that are not crates: C libraries that crates compile, scripts of pages, the standard
//! library. Vulnerability databases list these under their own names and versions.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result};
use serde_json::Value;

use super::notices;
use super::{Component, Notice};
use crate::dist::licence::Licence;
use crate::program;
use crate::repository::Repository;
use crate::web;

/// The C library that a crate compiles. It becomes a dependency of the crate.
pub(super) fn in_crate(folder: &Path, of: &mut Component) -> Result<Option<Component>> {
    let Some(library) = LIBRARIES.iter().find(|library| library.of == of.name) else {
        return Ok(None);
    };
    let header = folder.join(library.header);
    let text =
        fs::read_to_string(&header).with_context(|| format!("cannot read {}", header.display()))?;
    let mut lines = text.lines();
    let defined = lines.find_map(|line| {
        line.strip_prefix("#define ")?
            .strip_prefix(library.macro_name)
    });
    let version = defined.and_then(|value| value.split('"').nth(1));
    let version = version.with_context(|| format!("{} has no version", header.display()))?;
    let licence = Licence::new(library.licence)?;
    let notices = if library.is_in_public_domain {
        vec![Notice(licence.standard_texts(""))]
    } else {
        // The library's text is among those of the crate.
        of.notices.clone()
    };
    let component = Component {
        name: library.name.to_owned(),
        version: version.to_owned(),
        licence,
        authors: Vec::new(),
        source: Some(library.source.to_owned()),
        checksum: None,
        purl: format!("pkg:generic/{}@{version}", library.name),
        notices,
        dependencies: BTreeSet::new(),
    };
    of.dependencies.insert(component.purl.clone());
    Ok(Some(component))
}

/// A library in C.
struct Library {
    /// The crate that compiles it.
    of: &'static str,
    name: &'static str,
    header: &'static str,
    /// The macro with its version.
    macro_name: &'static str,
    licence: &'static str,
    is_in_public_domain: bool,
    source: &'static str,
}

const LIBRARIES: [Library; 2] = [
    Library {
        of: "aws-lc-sys",
        name: "aws-lc",
        header: "aws-lc/include/openssl/base.h",
        macro_name: "AWSLC_VERSION_NUMBER_STRING",
        licence: "Apache-2.0 AND ISC",
        is_in_public_domain: false,
        source: "https://github.com/aws/aws-lc",
    },
    Library {
        of: "libsqlite3-sys",
        name: "sqlite",
        header: "sqlite3/sqlite3.h",
        macro_name: "SQLITE_VERSION ",
        licence: "blessing",
        is_in_public_domain: true,
        source: "https://sqlite.org",
    },
];

/// The scripts that the platform's pages and the dashboard use from npm.
pub(super) fn pages(repository: &Repository) -> Result<Vec<Component>> {
    let text = fs::read_to_string(web::run(repository)?.join("LICENSE-xterm.txt"))?;
    let mut components = Vec::new();
    for (name, package) in packages(repository, web::LOCK)? {
        let source = Some("https://github.com/xtermjs/xterm.js".to_owned());
        let notices = vec![Notice(text.trim().to_owned())];
        components.push(npm_component(&name, &package, "MIT", source, notices)?);
    }
    let installed = repository.target_directory()?.join(web::APP_PACKAGES);
    for (name, package) in packages(repository, web::APP_LOCK)? {
        // Packages that only the build uses are not part of the program.
        if package.get("dev").and_then(Value::as_bool) == Some(true) {
            continue;
        }
        let licence = package.get("license").and_then(Value::as_str);
        let licence = licence.with_context(|| format!("{name} names no licence"))?;
        let source = Some(format!("https://www.npmjs.com/package/{name}"));
        let mut component = npm_component(&name, &package, licence, source, Vec::new())?;
        component.notices = notices::of_crate(&installed.join(&name), &component)
            .with_context(|| format!("the package {name}"))?;
        components.push(component);
    }
    Ok(components)
}

/// The packages of a lock file, by name.
fn packages(repository: &Repository, lock: &str) -> Result<Vec<(String, Value)>> {
    let lock: Value = serde_json::from_str(&repository.read(lock)?)?;
    let packages = lock.get("packages").and_then(Value::as_object);
    let packages = packages.context("no packages")?.iter();
    let named = packages.filter_map(|(path, package)| {
        let name = path.strip_prefix("node_modules/")?;
        Some((name.to_owned(), package.clone()))
    });
    Ok(named.collect())
}

fn npm_component(
    name: &str,
    package: &Value,
    licence: &str,
    source: Option<String>,
    notices: Vec<Notice>,
) -> Result<Component> {
    let version = package.get("version").and_then(Value::as_str);
    let version = version.context("no version")?;
    Ok(Component {
        name: name.to_owned(),
        version: version.to_owned(),
        licence: Licence::new(licence)?,
        authors: Vec::new(),
        source,
        checksum: None,
        purl: format!("pkg:npm/{}@{version}", name.replace('@', "%40")),
        notices,
        dependencies: BTreeSet::new(),
    })
}

/// Rust's standard library, which is linked into every program.
pub(super) fn standard_library() -> Result<Component> {
    let output = program::output(Command::new("rustc").arg("--version"))?;
    let version = output
        .split_whitespace()
        .nth(1)
        .context("rustc names no version")?;
    let licence = Licence::new("MIT OR Apache-2.0")?;
    Ok(Component {
        name: "std".to_owned(),
        version: version.to_owned(),
        notices: vec![Notice(licence.standard_texts(CONTRIBUTORS))],
        authors: vec![CONTRIBUTORS.to_owned()],
        source: Some("https://github.com/rust-lang/rust".to_owned()),
        checksum: None,
        purl: format!("pkg:generic/rust-std@{version}"),
        licence,
        dependencies: BTreeSet::new(),
    })
}

const CONTRIBUTORS: &str = "The Rust Project contributors";
