//! The working tree: its location and its files.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::{env, fs};

use anyhow::{Context as _, Result};
use serde_json::Value;

use crate::program;

/// The working tree that contains this package.
pub(crate) struct Repository {
    root: PathBuf,
}

impl Repository {
    /// Finds the tree through the package's own directory as given by cargo at run time, because a
    /// built binary may outlive a moved checkout.
    pub(crate) fn of_this_package() -> Result<Self> {
        let package = env::var_os("CARGO_MANIFEST_DIR")
            .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
        let root = package
            .parent()
            .context("the package has no parent directory")?;
        Ok(Self {
            root: root.to_path_buf(),
        })
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    pub(crate) fn path(&self, relative: &str) -> PathBuf {
        self.root.join(relative)
    }

    pub(crate) fn read(&self, relative: &str) -> Result<String> {
        let path = self.path(relative);
        fs::read_to_string(&path).with_context(|| format!("cannot read {relative}"))
    }

    pub(crate) fn read_bytes(&self, relative: &str) -> Result<Vec<u8>> {
        let path = self.path(relative);
        fs::read(&path).with_context(|| format!("cannot read {relative}"))
    }

    /// The output of `cargo metadata` for the workspace's own packages.
    pub(crate) fn metadata(&self) -> Result<Value> {
        let mut cargo = program::cargo();
        cargo
            .current_dir(&self.root)
            .args(["metadata", "--format-version", "1", "--no-deps"]);
        cargo.args(["--locked", "--offline"]);
        serde_json::from_str(&program::output(&mut cargo)?).context("cargo metadata is not JSON")
    }

    /// Cargo's target directory.
    pub(crate) fn target_directory(&self) -> Result<PathBuf> {
        let metadata = self.metadata()?;
        let directory = metadata.get("target_directory").and_then(Value::as_str);
        directory
            .map(PathBuf::from)
            .context("cargo metadata names no target directory")
    }

    /// Every text file of the tree by its relative path with `/`, sorted. Build output, files of
    /// other tools, and files that are not text are left out.
    pub(crate) fn text_files(&self) -> Result<BTreeMap<String, String>> {
        let mut files = BTreeMap::new();
        let mut directories = vec![self.root.clone()];
        while let Some(directory) = directories.pop() {
            let entries = fs::read_dir(&directory)
                .with_context(|| format!("cannot list {}", directory.display()))?;
            for entry in entries {
                let path = entry?.path();
                if path.is_symlink() {
                    continue;
                }
                if path.is_dir() {
                    if belongs(&path) {
                        directories.push(path);
                    }
                } else if let Ok(text) = fs::read_to_string(&path) {
                    let relative = path.strip_prefix(&self.root)?.to_string_lossy();
                    files.insert(relative.replace('\\', "/"), text);
                }
            }
        }
        // A worktree's `.git` is a file.
        files.remove(".git");
        Ok(files)
    }
}

/// True if a directory is part of the project. Cargo marks its own with `CACHEDIR.TAG`.
fn belongs(directory: &Path) -> bool {
    let name = directory.file_name().unwrap_or_default().to_string_lossy();
    let foreign = name == "node_modules"
        || name == "artifacts"
        || name == "results"
        || name.starts_with("target")
        || (name.starts_with('.') && name != ".ci" && name != ".cargo");
    let is_output = WEB_OUTPUT.iter().any(|output| directory.ends_with(output));
    !foreign && !is_output && !directory.join("CACHEDIR.TAG").exists()
}

/// Output of the dashboard's own build, which a developer may run in the repository.
const WEB_OUTPUT: [&str; 2] = ["web/dist", "web/src/generated"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_belong_and_build_output_does_not() {
        let files = Repository::of_this_package().unwrap().text_files().unwrap();
        assert!(files.contains_key("xtask/src/repository.rs"));
        assert!(files.contains_key(".cargo/config.toml"));
        assert!(
            !files
                .keys()
                .any(|path| path.starts_with("target") || path.starts_with(".git/"))
        );
    }

    #[test]
    fn output_of_the_dashboard_does_not_belong() {
        for (directory, is_source) in [
            ("/svc/web/src", true),
            ("/svc/web/src/generated", false),
            ("/svc/web/dist", false),
            ("/svc/web/node_modules", false),
            ("/svc/xtask/src/dist", true),
        ] {
            assert_eq!(belongs(Path::new(directory)), is_source, "{directory}");
        }
    }
}
