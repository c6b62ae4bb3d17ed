//! The bill of materials: `CycloneDX` 1.6, as JSON.

use anyhow::{Context as _, Result};
use serde_json::{Map, Value, json};

use super::Flavour;
use super::inventory::{Component, Inventory};

/// The bill of a program with this SHA-256.
pub(super) fn bill(
    inventory: &Inventory,
    flavour: Flavour,
    version: &str,
    sha256: &str,
    time: &str,
) -> Result<String> {
    let is_program = |component: &&Component| component.name == "svc";
    let program = inventory.own.iter().find(is_program);
    let program = program.context("the program is not part of itself")?;
    let mut main = described(program, "application");
    main.insert("name".to_owned(), flavour.package().into());
    main.insert("version".to_owned(), version.into());
    main.insert("hashes".to_owned(), hash(sha256));
    let libraries = || {
        let own = inventory.own.iter().filter(|one| !is_program(one));
        own.chain(&inventory.others)
    };
    let described: Vec<_> = libraries()
        .map(|component| Value::Object(described(component, "library")))
        .collect();
    // Everything depends on the standard library.
    let std = inventory.others.iter().find(|one| one.name == "std");
    let std = std.map(|std| std.purl.as_str());
    let edges: Vec<_> = std::iter::once(program)
        .chain(libraries())
        .map(|component| {
            let mut below: Vec<_> = component.dependencies.iter().map(String::as_str).collect();
            if is_program(&component) {
                below.extend(std);
                let pages = inventory
                    .others
                    .iter()
                    .filter(|one| one.purl.starts_with("pkg:npm/"));
                below.extend(pages.map(|page| page.purl.as_str()));
            }
            json!({"ref": component.purl, "dependsOn": below})
        })
        .collect();
    let bill = json!({
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"timestamp": time, "component": main},
        "components": described,
        "dependencies": edges,
    });
    Ok(format!("{bill:#}\n"))
}

fn described(component: &Component, kind: &str) -> Map<String, Value> {
    let mut members = Map::new();
    members.insert("type".to_owned(), kind.into());
    members.insert("bom-ref".to_owned(), component.purl.as_str().into());
    members.insert("name".to_owned(), component.name.as_str().into());
    members.insert("version".to_owned(), component.version.as_str().into());
    members.insert("purl".to_owned(), component.purl.as_str().into());
    members.insert(
        "licenses".to_owned(),
        json!([{"expression": component.licence.spdx()}]),
    );
    if let Some(checksum) = &component.checksum {
        members.insert("hashes".to_owned(), hash(checksum));
    }
    if let Some(source) = &component.source {
        members.insert(
            "externalReferences".to_owned(),
            json!([{"type": "vcs", "url": source}]),
        );
    }
    members
}

fn hash(sha256: &str) -> Value {
    json!([{"alg": "SHA-256", "content": sha256}])
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::repository::Repository;

    #[test]
    fn every_edge_of_the_bill_leads_to_a_component() {
        let repository = Repository::of_this_package().unwrap();
        for flavour in [Flavour::Complete, Flavour::Agent] {
            let inventory = Inventory::gather(&repository, flavour).unwrap();
            let sum = "0".repeat(64);
            let bill = bill(&inventory, flavour, "1.2.3", &sum, "1970-01-01T00:00:00Z").unwrap();
            let bill: Value = serde_json::from_str(&bill).unwrap();
            assert_eq!(bill["metadata"]["component"]["version"], "1.2.3");
            let components = bill["components"].as_array().unwrap();
            let main = std::iter::once(&bill["metadata"]["component"]);
            let mut known = BTreeSet::new();
            for component in main.chain(components) {
                let id = component["bom-ref"].as_str().unwrap();
                assert!(known.insert(id), "twice: {id}");
                let licence = component["licenses"][0]["expression"].as_str().unwrap();
                assert!(!licence.contains('/'), "{licence}");
            }
            let mut reached = BTreeSet::new();
            for edge in bill["dependencies"].as_array().unwrap() {
                assert!(known.contains(edge["ref"].as_str().unwrap()), "{edge}");
                for below in edge["dependsOn"].as_array().unwrap() {
                    let below = below.as_str().unwrap();
                    assert!(known.contains(below), "{below}");
                    reached.insert(below);
                }
            }
            assert_eq!(
                reached.len(),
                components.len(),
                "every component is reachable"
            );
        }
    }
}
