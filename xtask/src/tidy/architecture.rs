//! The names in `ARCHITECTURE.md` exist: the files and functions of its first tables, and the
//! functions of its walks.

use std::collections::{BTreeMap, BTreeSet};

use super::sources::has_extension;

const DOCUMENT: &str = "ARCHITECTURE.md";

pub(super) fn check(files: &BTreeMap<String, String>) -> Vec<String> {
    let Some(text) = files.get(DOCUMENT) else {
        return vec![format!("there is no {DOCUMENT}")];
    };
    let mut complaints = check_tables(text, files);
    let code: String = files
        .iter()
        .filter(|(path, _)| path.starts_with("crates/") && has_extension(path, &["rs"]))
        .map(|(_, text)| text.as_str())
        .collect();
    let defined = definitions(&code);
    let walks = text.split_once("\n## Walks").map_or("", |(_, walks)| walks);
    for name in quoted(walks).filter(|name| is_path(name)) {
        if !defined.contains(last_segment(name)) {
            complaints.push(format!("{DOCUMENT}: `{name}` does not exist"));
        }
    }
    complaints
}

/// Checks the rows of the tables below a line such as "below `crates/engine/src/`:".
fn check_tables(text: &str, files: &BTreeMap<String, String>) -> Vec<String> {
    let mut complaints = Vec::new();
    let mut base = None;
    for line in text.lines() {
        if let Some((_, folder)) = line.split_once("below `") {
            base = folder.split_once('`').map(|(folder, _)| folder);
        } else if line.starts_with('#') && line != "## Index of the source" {
            base = None;
        }
        let cells: Vec<_> = line.split('|').map(str::trim).collect();
        if let (Some(base), [_, _, places, names, _]) = (base, cells.as_slice())
            && places.starts_with('`')
        {
            complaints.extend(check_row(base, places, names, files));
        }
    }
    complaints
}

fn check_row(
    base: &str,
    places: &str,
    names: &str,
    files: &BTreeMap<String, String>,
) -> Vec<String> {
    let mut complaints = Vec::new();
    let mut code = String::new();
    let mut folder = String::new();
    for place in quoted(places) {
        // `…/` repeats the folder of the file before.
        let path = match place.strip_prefix("…/") {
            Some(name) => format!("{folder}/{name}"),
            None => format!("{base}{place}"),
        };
        path.rsplit_once('/')
            .map_or("", |(folder, _)| folder)
            .clone_into(&mut folder);
        let texts: Vec<_> = files
            .iter()
            .filter(|(file, _)| **file == path || path.ends_with('/') && file.starts_with(&path))
            .map(|(_, text)| text.as_str())
            .collect();
        if texts.is_empty() {
            complaints.push(format!("{DOCUMENT}: there is no {path}"));
        }
        code.extend(texts);
    }
    let defined = definitions(&code);
    for name in quoted(names) {
        if !defined.contains(last_segment(name)) {
            complaints.push(format!("{DOCUMENT}: {places} has no `{name}`"));
        }
    }
    complaints
}

/// The words between backquotes.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// True for `module::function` and `Type::method`.
fn is_path(name: &str) -> bool {
    let is_name =
        |part: &str| !part.is_empty() && part.chars().all(|c| c.is_alphanumeric() || c == '_');
    name.contains("::") && name.split("::").all(is_name)
}

fn last_segment(name: &str) -> &str {
    name.rsplit("::").next().unwrap_or(name)
}

/// Names of the functions, types, constants and modules that the code defines.
fn definitions(code: &str) -> BTreeSet<&str> {
    let mut names = BTreeSet::new();
    let mut is_definition = false;
    for word in code
        .split(|c: char| !c.is_alphanumeric() && c != '_')
        .filter(|word| !word.is_empty())
    {
        if is_definition {
            names.insert(word);
        }
        is_definition = matches!(
            word,
            "fn" | "struct" | "enum" | "trait" | "type" | "const" | "static" | "mod"
        );
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complaints(document: &str) -> Vec<String> {
        let file = |path: &str, text: &str| (path.to_owned(), text.to_owned());
        check(&BTreeMap::from([
            file(DOCUMENT, document),
            file("crates/a/src/b/c.rs", "pub fn serve() {}\nstruct Pool;"),
            file("crates/a/src/b/d.rs", "fn take() {}"),
        ]))
    }

    fn row(places: &str, names: &str) -> Vec<String> {
        complaints(&format!(
            "below `crates/a/src/`:\n\n| x | {places} | {names} |\n"
        ))
    }

    #[test]
    fn rows_name_files_and_their_functions() {
        assert!(row("`b/c.rs`, `…/d.rs`", "`serve`, `Pool::take`").is_empty());
        assert!(row("`b/`", "`take`").is_empty());
        assert_eq!(
            row("`b/e.rs`", ""),
            [format!("{DOCUMENT}: there is no crates/a/src/b/e.rs")]
        );
        assert_eq!(
            row("`b/d.rs`", "`serve`"),
            [format!("{DOCUMENT}: `b/d.rs` has no `serve`")]
        );
    }

    #[test]
    fn walks_name_functions() {
        assert!(complaints("\n## Walks\n`c::serve` and `200 OK`").is_empty());
        let missing = format!("{DOCUMENT}: `Pool::put` does not exist");
        assert_eq!(complaints("\n## Walks\n`Pool::put`"), [missing]);
    }
}
