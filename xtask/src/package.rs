//! `cargo xtask package`: packages of the client library and its dependencies in this workspace, as
//! a registry accepts them.

use anyhow::Result;

use crate::program;
use crate::repository::Repository;
use crate::tidy::graph;

/// Packs the committed files, and builds each package separately, the client library also without
/// its features; nothing is uploaded.
pub(crate) fn run(repository: &Repository) -> Result<()> {
    let mut small = program::cargo();
    let client = graph::package("client");
    small
        .current_dir(repository.root())
        .args(["check", "--locked", "--no-default-features"])
        .args(["--package", &client]);
    program::run(&mut small)?;
    pack(repository, &["--locked"])?;
    let packages = repository.target_directory()?.join("package");
    eprintln!("the packages are in {}", packages.display());
    if repository.metadata()?.to_string().contains(PLACEHOLDER) {
        eprintln!("`repository` in Cargo.toml is a placeholder: set it before you upload them");
    }
    Ok(())
}

fn pack(repository: &Repository, options: &[&str]) -> Result<()> {
    let mut cargo = program::cargo();
    cargo
        .current_dir(repository.root())
        .arg("package")
        .args(options);
    for name in graph::PACKED {
        cargo.args(["--package", &graph::package(name)]);
    }
    program::run(&mut cargo)
}

/// The repository in manifests until the project has a public one.
const PLACEHOLDER: &str = "https://git.example.com/";

#[cfg(test)]
mod tests {
    use super::*;

    /// `cargo xtask deep` checks that they build. This checks manifests, versions and files of the
    /// packages.
    #[test]
    fn the_client_library_is_packed_with_all_that_it_needs() {
        let repository = Repository::of_this_package().unwrap();
        let options = ["--no-verify", "--allow-dirty", "--offline", "--quiet"];
        pack(&repository, &options).unwrap();
        let packages = repository.target_directory().unwrap().join("package");
        for name in graph::PACKED {
            let package = graph::package(name);
            let version = env!("CARGO_PKG_VERSION");
            let file = packages.join(format!("{package}-{version}.crate"));
            assert!(file.exists(), "{}", file.display());
        }
    }

    #[test]
    fn a_package_has_its_repository_and_search_terms() {
        let repository = Repository::of_this_package().unwrap();
        for name in graph::PACKED {
            let folder = format!("crates/{name}");
            let manifest = repository.read(&format!("{folder}/Cargo.toml")).unwrap();
            for key in [
                "repository.workspace",
                "license.workspace",
                "readme",
                "keywords",
                "categories",
                "description",
            ] {
                let line = format!("\n{key} = ");
                assert!(manifest.contains(&line), "{folder}: no `{key}`");
            }
            for file in ["README.md", "LICENSE"] {
                let path = repository.path(&format!("{folder}/{file}"));
                assert!(path.exists(), "{}", path.display());
            }
        }
    }
}
