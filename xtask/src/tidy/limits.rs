//! Checks that the tests in the table of limits exist.

use std::collections::BTreeMap;

/// The page with the table.
const PAGE: &str = "docs/security.md";

pub(super) fn check(files: &BTreeMap<String, String>) -> Vec<String> {
    let mut complaints = Vec::new();
    let page = files.get(PAGE).map_or("", String::as_str);
    for reference in references(page) {
        let Some(text) = files.get(&reference.file) else {
            complaints.push(format!("{PAGE}: there is no {}", reference.file));
            continue;
        };
        if !text.contains(reference.test) {
            let Reference { file, test } = reference;
            complaints.push(format!("{PAGE}: {file} has no test `{test}`"));
        }
    }
    complaints
}

/// A test that the page names.
struct Reference<'a> {
    file: String,
    test: &'a str,
}

/// References have the form `crate: path.rs::test`; `::test` without a file refers to the previous
/// file.
fn references(page: &str) -> Vec<Reference<'_>> {
    let mut references = Vec::new();
    let (mut package, mut file) = ("", String::new());
    let is_separator = |character: char| character.is_whitespace() || "|;,()`".contains(character);
    for word in page.split(is_separator).filter(|word| !word.is_empty()) {
        if let Some(name) = word.strip_suffix(':') {
            package = name;
        } else if let Some((path, test)) = word.split_once("::") {
            if path.strip_suffix(".rs").is_some() {
                file = match package {
                    "e2e" => format!("tests/e2e/{path}"),
                    "attack" => format!("tests/attack/{path}"),
                    package => format!("crates/{package}/{path}"),
                };
            } else if !path.is_empty() {
                continue;
            }
            let test = test.rsplit("::").next().unwrap_or(test);
            references.push(Reference {
                file: file.clone(),
                test,
            });
        }
    }
    references
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_test_is_found() {
        let page = "| time | 10 s | closed | engine: src/a.rs::kept; ::gone; e2e: tests/b.rs::x |";
        let files = [(PAGE, page), ("crates/engine/src/a.rs", "fn kept() {}")];
        let files = files
            .map(|(path, text)| (path.to_owned(), text.to_owned()))
            .into();
        assert_eq!(
            check(&files),
            [
                "docs/security.md: crates/engine/src/a.rs has no test `gone`",
                "docs/security.md: there is no tests/e2e/tests/b.rs",
            ]
        );
    }
}
