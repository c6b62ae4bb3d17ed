//! Common requirements of every package: the workspace's lints, and a first line that describes it.

use std::collections::BTreeMap;

pub(super) fn check(files: &BTreeMap<String, String>) -> Vec<String> {
    let mut complaints = Vec::new();
    for (path, text) in files {
        let Some(package) = path
            .strip_suffix("Cargo.toml")
            .filter(|_| text.contains("[package]"))
        else {
            continue;
        };
        if !text.contains("[lints]\nworkspace = true\n") {
            complaints.push(format!("{path}: takes no lints from the workspace"));
        }
        let roots = ["src/lib.rs", "src/main.rs"].map(|root| format!("{package}{root}"));
        for root in roots {
            if files
                .get(&root)
                .is_some_and(|text| !text.starts_with("//! "))
            {
                complaints.push(format!(
                    "{root}: does not begin with a `//!` that says what it is"
                ));
            }
        }
    }
    complaints
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(manifest: &str, root: &str) -> BTreeMap<String, String> {
        BTreeMap::from([
            ("crates/a/Cargo.toml".to_owned(), manifest.to_owned()),
            ("crates/a/src/lib.rs".to_owned(), root.to_owned()),
        ])
    }

    #[test]
    fn a_package_without_the_workspaces_lints_is_found() {
        let good = "[package]\nname = \"a\"\n\n[lints]\nworkspace = true\n";
        assert!(check(&package(good, "//! A.\n")).is_empty());
        assert_eq!(
            check(&package("[package]\nname = \"a\"\n", "//! A.\n")),
            ["crates/a/Cargo.toml: takes no lints from the workspace"]
        );
    }

    #[test]
    fn a_crate_without_a_description_is_found() {
        let manifest = "[package]\n\n[lints]\nworkspace = true\n";
        assert_eq!(
            check(&package(manifest, "mod x;\n")),
            ["crates/a/src/lib.rs: does not begin with a `//!` that says what it is"]
        );
    }
}
