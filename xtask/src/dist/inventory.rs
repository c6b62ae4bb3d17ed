//! Components of a program: crates and their bundled libraries, with licences and licence texts.
//!
//! `cargo tree` provides the crates and edges for exactly the released features, `cargo metadata`
//! the metadata of each crate, the registry's sources the texts. cargo-about and cargo-cyclonedx
//! use the same three sources. They depend on 300 crates, and neither covers bundled libraries.

mod bundled;
mod notices;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

pub(super) use self::notices::Notice;
use super::Flavour;
use super::licence::{AllowedLicences, Licence};
use crate::program;
use crate::repository::Repository;

/// All components of one program.
pub(super) struct Inventory {
    /// The program, and the crates of this repository.
    pub(super) own: Vec<Component>,
    pub(super) others: Vec<Component>,
}

/// A crate, or a component that a crate or the compiler brings.
pub(super) struct Component {
    pub(super) name: String,
    pub(super) version: String,
    pub(super) licence: Licence,
    pub(super) authors: Vec<String>,
    pub(super) source: Option<String>,
    /// SHA-256 of the package in the registry, from the lock file.
    pub(super) checksum: Option<String>,
    /// Package URL, as in `CycloneDX` and SPDX.
    pub(super) purl: String,
    pub(super) notices: Vec<Notice>,
    /// By their `purl`.
    pub(super) dependencies: BTreeSet<String>,
}

impl Inventory {
    pub(super) fn gather(repository: &Repository, flavour: Flavour) -> Result<Self> {
        let host = host()?;
        let allowed = AllowedLicences::read(repository)?;
        let tree = Tree::read(repository, flavour, &host)?;
        let checksums = checksums(&repository.read("Cargo.lock")?);
        let metadata = metadata(repository, &host)?;
        let packages = metadata.get("packages").and_then(Value::as_array);
        let packages = packages.context("no packages")?;
        let mut inventory = Self {
            own: Vec::new(),
            others: Vec::new(),
        };
        let mut complaints = Vec::new();
        for package in packages {
            let name = text(package, "name")?;
            let version = text(package, "version")?;
            let key = (name.to_owned(), version.to_owned());
            let Some(dependencies) = tree.edges.get(&key) else {
                continue;
            };
            let is_own = package.get("source").is_none_or(Value::is_null);
            let licence = package
                .get("license")
                .and_then(Value::as_str)
                .unwrap_or_default();
            let licence = match allowed.check(licence) {
                Ok(licence) => licence,
                Err(error) => {
                    complaints.push(format!("{name} {version}: {error:#}"));
                    continue;
                }
            };
            let mut component = Component {
                name: name.to_owned(),
                version: version.to_owned(),
                licence,
                authors: texts(package.get("authors")),
                source: package
                    .get("repository")
                    .and_then(Value::as_str)
                    .map(str::to_owned),
                checksum: checksums.get(&key).cloned(),
                purl: purl(&key),
                notices: Vec::new(),
                dependencies: dependencies.iter().map(purl).collect(),
            };
            if is_own {
                inventory.own.push(component);
                continue;
            }
            let manifest = Path::new(text(package, "manifest_path")?);
            let folder = manifest.parent().context("a manifest has a folder")?;
            match notices::of_crate(folder, &component) {
                Ok(notices) => component.notices = notices,
                Err(error) => complaints.push(format!("{name} {version}: {error:#}")),
            }
            inventory
                .others
                .extend(bundled::in_crate(folder, &mut component)?);
            inventory.others.push(component);
        }
        if flavour == Flavour::Complete {
            inventory.others.extend(bundled::pages(repository)?);
        }
        inventory.others.push(bundled::standard_library()?);
        if !complaints.is_empty() {
            bail!("cannot be shipped:\n    {}", complaints.join("\n    "));
        }
        let order = |component: &Component| (component.name.clone(), component.version.clone());
        inventory.own.sort_by_key(order);
        inventory.others.sort_by_key(order);
        Ok(inventory)
    }
}

/// The crates of a program with their edges.
struct Tree {
    edges: BTreeMap<Key, BTreeSet<Key>>,
}

/// Name and version.
type Key = (String, String);

impl Tree {
    fn read(repository: &Repository, flavour: Flavour, host: &str) -> Result<Self> {
        let mut cargo = program::cargo();
        cargo
            .current_dir(repository.root())
            .args(["tree", "--locked", "--offline", "--package", "svc"])
            .args(flavour.features())
            .args(["--edges", "normal", "--target", host])
            .args(["--prefix", "depth", "--format", " {p}"])
            .env_remove("CARGO_RESOLVER_FEATURE_UNIFICATION");
        Self::parse(&program::output(&mut cargo)?)
    }

    /// Lines such as `2 serde v1.0.229 (*)`: the depth, a crate, and a mark if its own edges are
    /// listed elsewhere.
    fn parse(lines: &str) -> Result<Self> {
        let mut edges: BTreeMap<Key, BTreeSet<Key>> = BTreeMap::new();
        let mut above: Vec<Key> = Vec::new();
        for line in lines.lines() {
            let mut words = line.split_whitespace();
            let (Some(depth), Some(name), Some(version)) =
                (words.next(), words.next(), words.next())
            else {
                bail!("`cargo tree` wrote {line:?}");
            };
            let version = version.strip_prefix('v').context("no version")?;
            let key = (name.to_owned(), version.to_owned());
            above.truncate(depth.parse()?);
            if let Some(parent) = above.last() {
                edges.entry(parent.clone()).or_default().insert(key.clone());
            }
            edges.entry(key.clone()).or_default();
            above.push(key);
        }
        Ok(Self { edges })
    }
}

/// The target system: this one.
pub(super) fn host() -> Result<String> {
    let output = program::output(Command::new("rustc").arg("-vV"))?;
    let host = output.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(str::to_owned).context("rustc names no host")
}

fn metadata(repository: &Repository, host: &str) -> Result<Value> {
    let mut cargo = program::cargo();
    cargo
        .current_dir(repository.root())
        .args(["metadata", "--format-version", "1"])
        .args(["--locked", "--offline", "--filter-platform", host]);
    serde_json::from_str(&program::output(&mut cargo)?).context("cargo metadata is not JSON")
}

/// Checksum of each registry package, from the lock file.
fn checksums(lock: &str) -> BTreeMap<Key, String> {
    let packages = lock.split("[[package]]").skip(1);
    packages
        .filter_map(|package| {
            let field = |name: &str| {
                let mut lines = package.lines();
                let value = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(" = \""));
                Some(value?.trim_end_matches('"').to_owned())
            };
            Some(((field("name")?, field("version")?), field("checksum")?))
        })
        .collect()
}

fn purl((name, version): &Key) -> String {
    format!("pkg:cargo/{name}@{version}")
}

fn text<'a>(value: &'a Value, name: &str) -> Result<&'a str> {
    let text = value.get(name).and_then(Value::as_str);
    text.with_context(|| format!("cargo metadata has no {name}"))
}

fn texts(value: Option<&Value>) -> Vec<String> {
    let all = value.and_then(Value::as_array).into_iter().flatten();
    all.filter_map(|one| one.as_str().map(str::to_owned))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_has_edges_by_its_depths() {
        let lines =
            "0 svc v0.1.0 (/x)\n1 a v1.0.0\n2 b v2.0.0 (proc-macro)\n1 b v2.0.0 (*)\n1 c v3.0.0";
        let tree = Tree::parse(lines).unwrap();
        let names = |of: &str| {
            let (_, to) = tree.edges.iter().find(|((name, _), _)| name == of).unwrap();
            to.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>()
        };
        assert_eq!(names("svc"), ["a", "b", "c"]);
        assert_eq!(names("a"), ["b"]);
        assert_eq!(names("b"), Vec::<&str>::new());
    }

    /// The agent has no components of the servers: no database, no web pages.
    #[test]
    fn each_program_has_its_own_inventory() {
        let repository = Repository::of_this_package().unwrap();
        let [whole, agent] = [Flavour::Complete, Flavour::Agent].map(|flavour| {
            let inventory = Inventory::gather(&repository, flavour).unwrap();
            let names = inventory.others.into_iter().map(|component| component.name);
            names.collect::<BTreeSet<_>>()
        });
        for name in ["rustls", "aws-lc", "std"] {
            assert!(whole.contains(name) && agent.contains(name), "{name}");
        }
        for name in ["sqlite", "libsqlite3-sys", "@xterm/xterm"] {
            assert!(whole.contains(name) && !agent.contains(name), "{name}");
        }
        assert!(agent.len() > 200 && agent.len() < whole.len());
    }
}
