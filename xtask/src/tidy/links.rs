//! Checks that relative links in Markdown files point to files of the repository.

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

/// `is_file` returns true for paths of other files, for example pictures.
pub(super) fn check(
    files: &BTreeMap<String, String>,
    is_file: impl Fn(&str) -> bool,
) -> Vec<String> {
    let mut complaints = Vec::new();
    for (path, text) in files {
        if Path::new(path)
            .extension()
            .is_none_or(|extension| extension != "md")
        {
            continue;
        }
        for target in targets(text) {
            if !target_exists(files, path, target) && !is_file(&resolve(path, target)) {
                complaints.push(format!("{path}: a link leads nowhere: {target}"));
            }
        }
    }
    complaints
}

/// The relative targets of the document's inline links, without their fragments.
pub(crate) fn targets(text: &str) -> impl Iterator<Item = &str> {
    let links = text
        .split("](")
        .skip(1)
        .filter_map(|rest| rest.split_once(')'));
    let files = links.filter_map(|(target, _)| target.split('#').next());
    files.filter(|target| !target.is_empty() && !target.contains("://"))
}

/// The target of a link in the document `from`, relative to the root of the repository.
pub(crate) fn resolve(from: &str, target: &str) -> String {
    let mut path = PathBuf::from(from);
    path.pop();
    for component in Path::new(target).components() {
        match component {
            Component::ParentDir => drop(path.pop()),
            Component::CurDir => {}
            other => path.push(other),
        }
    }
    path.to_string_lossy().into_owned()
}

fn target_exists(files: &BTreeMap<String, String>, from: &str, target: &str) -> bool {
    let path = resolve(from, target);
    // A directory exists if there is a file below it.
    files.keys().any(|file| Path::new(file).starts_with(&path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_broken_link_is_found() {
        let text =
            "[a](b.md#x) [c](../LICENSE) [d](https://example.com) [e](#f) [g](gone.md) ![h](h.png)";
        let files = [("docs/a.md", text), ("docs/b.md", ""), ("LICENSE", "")];
        let files = files
            .map(|(path, text)| (path.to_owned(), text.to_owned()))
            .into();
        let is_file = |path: &str| path == "docs/h.png";
        assert_eq!(
            check(&files, is_file),
            ["docs/a.md: a link leads nowhere: gone.md"]
        );
    }
}
