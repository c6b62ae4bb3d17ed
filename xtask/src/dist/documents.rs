//! The pages in a package: `README.md`, and everything that it links to.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use crate::repository::Repository;
use crate::tidy::links;

/// Every page and file by its path in the repository. The path below the documentation folder is
/// the same, so all links work.
pub(super) fn gather(repository: &Repository) -> Result<BTreeMap<PathBuf, Vec<u8>>> {
    let files = repository.text_files()?;
    let mut packed = BTreeMap::new();
    let mut left: BTreeSet<String> = [START.to_owned()].into();
    while let Some(path) = left.pop_first() {
        let below = format!("{path}/");
        let found: Vec<_> = files
            .iter()
            .filter(|(file, _)| **file == path || file.starts_with(&below))
            .filter(|(file, _)| !is_hidden(file))
            .collect();
        if found.is_empty() {
            // A picture is not a text.
            let picture = repository.read_bytes(&path);
            let picture = picture.with_context(|| format!("a link leads to {path}"))?;
            packed.insert(PathBuf::from(path), picture);
            continue;
        }
        for (file, text) in found {
            let content = text.clone().into_bytes();
            if packed.insert(PathBuf::from(file), content).is_none() && is_page(file) {
                left.extend(links::targets(text).map(|target| links::resolve(file, target)));
            }
        }
    }
    Ok(packed)
}

/// True for pages, which have links; other files are only packed.
pub(super) fn is_page(file: &str) -> bool {
    Path::new(file).extension().is_some_and(|end| end == "md")
}

fn is_hidden(file: &str) -> bool {
    file.split('/').any(|name| name.starts_with('.'))
}

/// The first page.
const START: &str = "README.md";
