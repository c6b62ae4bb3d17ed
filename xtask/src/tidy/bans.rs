//! Banned crates, and allowed sources of the others.
//!
//! The list is in `deny.toml`, which `cargo deny` uses as well. Only its entries are read here, one
//! per line; an entry in another form is an error, so that none is overlooked.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, Result, bail};

use super::graph;
use crate::repository::Repository;

pub(super) fn check(repository: &Repository) -> Result<Vec<String>> {
    let bans = parse(&repository.read("deny.toml")?)?;
    let built = graph::tree(repository, &["--workspace", "--edges", "all"])?;
    let mut complaints = found(&bans, &built);
    complaints.extend(foreign(&repository.read("Cargo.lock")?));
    Ok(complaints)
}

/// The banned crates with the reason of each.
fn parse(deny: &str) -> Result<BTreeMap<String, String>> {
    let (_, list) = deny
        .split_once("\ndeny = [\n")
        .context("deny.toml has no list `deny`")?;
    let (list, _) = list
        .split_once("\n]")
        .context("the list `deny` has no end")?;
    let mut bans = BTreeMap::new();
    for line in list.lines() {
        let entry = line.trim().strip_prefix("{ crate = \"");
        let entry = entry.and_then(|rest| rest.strip_suffix("\" },"));
        let Some((name, reason)) = entry.and_then(|rest| rest.split_once("\", reason = \"")) else {
            bail!("deny.toml: not of the form {{ crate = \"…\", reason = \"…\" }},: {line}");
        };
        bans.insert(name.to_owned(), reason.to_owned());
    }
    Ok(bans)
}

fn found(bans: &BTreeMap<String, String>, built: &BTreeSet<String>) -> Vec<String> {
    let banned = bans.iter().filter(|(name, _)| built.contains(*name));
    banned
        .map(|(name, reason)| format!("banned crate: `{name}`: {reason}"))
        .collect()
}

/// Packages of the lock file whose source is neither the standard registry nor this tree.
fn foreign(lock: &str) -> Vec<String> {
    let sources = lock
        .lines()
        .filter_map(|line| line.strip_prefix("source = "));
    let foreign: BTreeSet<_> = sources
        .filter(|source| !source.ends_with(STANDARD))
        .collect();
    foreign
        .iter()
        .map(|source| format!("Cargo.lock: a package comes from {source}"))
        .collect()
}

/// End of the standard registry's address in a lock file.
const STANDARD: &str = concat!("/rust-lang/crates.io", "-index\"");

#[cfg(test)]
mod tests {
    use super::*;

    const DENY: &str =
        "[bans]\ndeny = [\n    { crate = \"ring\", reason = \"one provider\" },\n]\n";

    #[test]
    fn a_banned_crate_is_found() {
        let bans = parse(DENY).unwrap();
        let built = BTreeSet::from(["rustls".to_owned(), "ring".to_owned()]);
        assert_eq!(found(&bans, &built), ["banned crate: `ring`: one provider"]);
        assert!(found(&bans, &BTreeSet::from(["bring".to_owned()])).is_empty());
    }

    #[test]
    fn an_entry_in_another_form_is_an_error() {
        assert!(parse(&DENY.replace("{ crate", "{ name")).is_err());
        assert!(parse("[bans]\n").is_err());
    }

    #[test]
    fn the_list_of_the_project_is_read_completely() {
        let deny = Repository::of_this_package()
            .unwrap()
            .read("deny.toml")
            .unwrap();
        let bans = parse(&deny).unwrap();
        let names: Vec<_> = bans.keys().map(String::as_str).collect();
        assert_eq!(
            names,
            [
                "native-tls",
                "openssl-sys",
                "ring",
                "rusqlite",
                "serde_yaml"
            ]
        );
    }

    #[test]
    fn a_package_from_elsewhere_is_found() {
        let lock = format!(
            "source = \"registry+https://example.com{STANDARD}\n\
             source = \"git+https://example.com/x#1\"\n"
        );
        assert_eq!(
            foreign(&lock),
            ["Cargo.lock: a package comes from \"git+https://example.com/x#1\""]
        );
    }
}
