//! `cargo xtask package`: packages of the client library and its dependencies in this workspace, as
//! a registry accepts them.

use anyhow::Result;

use crate::program;
use crate::repository::Repository;
use crate::tidy::graph;

/// Checks the client library without its default features. Then packs the committed files and
/// builds each package from its archive. Nothing is uploaded.
pub(crate) fn run(repository: &Repository) -> Result<()> {
    check_without_features(repository)?;
    pack(repository, &["--locked"])?;
    let packages = repository.target_directory()?.join("package");
    eprintln!("the packages are in {}", packages.display());
    if repository.metadata()?.to_string().contains(PLACEHOLDER) {
        eprintln!("`repository` in Cargo.toml is a placeholder: set it before you upload them");
    }
    Ok(())
}

fn check_without_features(repository: &Repository) -> Result<()> {
    let mut cargo = program::cargo();
    cargo
        .current_dir(repository.root())
        .args(["check", "--locked", "--no-default-features"])
        .args(["--package", &graph::package("client")]);
    program::run(&mut cargo)
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

    /// `cargo xtask deep` builds the packages. This test only checks their manifests, versions and
    /// files.
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
    fn a_package_has_the_manifest_keys_and_files_of_a_registry() {
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
