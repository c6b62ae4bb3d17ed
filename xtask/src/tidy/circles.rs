//! Import circles inside a crate.
//!
//! A module that imports another one, directly or through others, and is imported by it in turn
//! cannot be read alone. So a circle may exist only inside the folder of one feature, and there
//! between few modules. A re-export is an import only if its module uses the name as well.

mod graph;
mod modules;

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};

use self::graph::Graph;
use self::modules::Crate;

pub(super) fn check(files: &BTreeMap<String, String>) -> Result<Vec<String>> {
    let mut complaints = Vec::new();
    for source in sources(files) {
        let read = Crate::parse(files, source).with_context(|| format!("cannot parse {source}"))?;
        let graph = Graph::of(&read);
        complaints.extend(
            graph
                .circles()
                .iter()
                .filter_map(|circle| complaint(source, circle, &graph)),
        );
    }
    Ok(complaints)
}

/// The source folders of all crates.
fn sources(files: &BTreeMap<String, String>) -> impl Iterator<Item = &str> {
    files.keys().filter_map(|path| {
        let folder = path
            .strip_suffix("/lib.rs")
            .or_else(|| path.strip_suffix("/main.rs"))?;
        folder.ends_with("/src").then_some(folder)
    })
}

/// A complaint about a circle that is larger than one feature's folder.
fn complaint(source: &str, circle: &[usize], graph: &Graph) -> Option<String> {
    let folder = graph.common_folder(circle);
    let is_collection = COLLECTIONS.contains(&(source, folder.as_str()));
    if !folder.is_empty() && !is_collection && circle.len() <= MAX_MODULES {
        return None;
    }
    let cycle = graph.shortest_cycle(circle).join(" → ");
    Some(format!(
        "{source}: an import circle of {} modules: {cycle}",
        circle.len()
    ))
}

/// A larger feature can be divided into separate parts.
const MAX_MODULES: usize = 20;

/// Folders of many features: the folder of a feature is one level below.
const COLLECTIONS: &[(&str, &str)] = &[("crates/svc/src", "commands")];

#[cfg(test)]
mod tests {
    use super::*;

    fn complaints(files: &[(&str, &str)]) -> Vec<String> {
        let path = |name: &str| format!("crates/a/src/{name}.rs");
        let files = files
            .iter()
            .map(|(name, text)| (path(name), (*text).to_owned()))
            .collect();
        check(&files).unwrap()
    }

    #[test]
    fn a_circle_across_folders_is_found() {
        let found = complaints(&[
            ("lib", "mod cat;\nmod dog;"),
            ("cat", "use crate::dog::Dog;\npub struct Cat;"),
            (
                "dog",
                "pub struct Dog;\nfn f() -> crate::cat::Cat { todo() }",
            ),
        ]);
        assert_eq!(
            found,
            ["crates/a/src: an import circle of 2 modules: cat → dog → cat"]
        );
    }

    #[test]
    fn imports_in_macros_count() {
        let found = complaints(&[
            ("lib", "mod cat;\nmod dog;"),
            ("cat", "use crate::dog::Dog;\npub struct Cat;"),
            ("dog", "pub struct Dog;\nfn f() { vec![crate::cat::Cat]; }"),
        ]);
        assert_eq!(found.len(), 1);
    }

    #[test]
    fn a_circle_in_one_folder_is_allowed() {
        let found = complaints(&[
            ("lib", "mod pets;"),
            ("pets", "mod cat;\nmod dog;\npub use cat::Cat;"),
            ("pets/cat", "use super::dog::Dog;\npub struct Cat;"),
            ("pets/dog", "use super::Cat;\npub struct Dog;"),
        ]);
        assert!(found.is_empty(), "{found:?}");
    }

    #[test]
    fn a_re_export_and_tests_are_no_imports() {
        let found = complaints(&[
            (
                "lib",
                "mod cat;\nmod dog;\npub use cat::Cat;\npub use dog::Dog;",
            ),
            (
                "cat",
                "pub struct Cat;\n#[cfg(test)]\nmod tests { use crate::dog::Dog; }",
            ),
            ("dog", "use crate::Cat;\npub struct Dog;"),
        ]);
        assert!(found.is_empty(), "{found:?}");
    }
}
