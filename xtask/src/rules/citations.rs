//! Where rule ids stand in the sources: in code, and at tests.
//!
//! A test is found by its attribute. What belongs to it are the comments and attributes directly
//! above its function, and its body, which ends where rustfmt puts its closing brace. Everything
//! in a test file or below `#[cfg(test)]` that is outside of a test function cites nothing.

use std::collections::BTreeMap;

/// Rule id → places, each list in order and without repetition.
#[derive(Default)]
pub(super) struct Citations {
    /// Files whose code cites the rule.
    pub(super) code: BTreeMap<String, Vec<String>>,
    /// Tests that cite it, as `file::name`.
    pub(super) tests: BTreeMap<String, Vec<String>>,
}

impl Citations {
    /// Reads the Rust sources among these files; this package describes rules and keeps none.
    pub(super) fn of(files: &BTreeMap<String, String>) -> Self {
        let mut citations = Self::default();
        for (path, text) in files.iter().filter(|(path, _)| is_searched(path)) {
            if !is_test_file(path) {
                let code = text.split("#[cfg(test)]").next().unwrap_or_default();
                for id in ids(code) {
                    add(&mut citations.code, id, path.clone());
                }
            }
            for test in tests(text) {
                for id in ids(&test.text) {
                    add(&mut citations.tests, id, format!("{path}::{}", test.name));
                }
            }
        }
        citations
    }
}

fn add(places: &mut BTreeMap<String, Vec<String>>, id: &str, place: String) {
    let places = places.entry(id.to_owned()).or_default();
    if !places.contains(&place) {
        places.push(place);
    }
}

fn is_searched(path: &str) -> bool {
    path.rsplit_once('.')
        .is_some_and(|(_, extension)| extension == "rs")
        && !path.starts_with("xtask/")
}

/// Files that hold tests or serve them, and keep no rule themselves.
fn is_test_file(path: &str) -> bool {
    path.contains("/tests/")
        || path.starts_with("tests/")
        || path.ends_with("/tests.rs")
        || path.starts_with("crates/testing/")
}

/// A test function: its name, and its comments, attributes and body.
struct Test {
    name: String,
    text: String,
}

fn tests(source: &str) -> Vec<Test> {
    let lines: Vec<&str> = source.lines().collect();
    let mut tests = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        if !is_test_attribute(line) {
            continue;
        }
        let (before, rest) = lines.split_at(at);
        let above = before.iter().rev().take_while(|line| is_attached(line));
        let Some((length, name)) = function(rest) else {
            continue;
        };
        let text: Vec<&str> = above.chain(rest.iter().take(length)).copied().collect();
        tests.push(Test {
            name,
            text: text.join("\n"),
        });
    }
    tests
}

/// `#[test]`, `#[tokio::test]`, with or without arguments.
fn is_test_attribute(line: &str) -> bool {
    let Some(attribute) = line.trim_start().strip_prefix("#[") else {
        return false;
    };
    let path = attribute.split(['(', ']']).next().unwrap_or_default();
    path == "test" || path.ends_with("::test")
}

fn is_attached(line: &str) -> bool {
    let line = line.trim_start();
    line.starts_with("//") || line.starts_with("#[")
}

/// The name of the function that follows, and the number of lines to its closing brace.
fn function(lines: &[&str]) -> Option<(usize, String)> {
    let head = lines
        .iter()
        .position(|line| !is_attached(line) && line.contains("fn "))?;
    let line = lines.get(head)?;
    let (indent, signature) = line.split_at(line.len() - line.trim_start().len());
    let (_, name) = signature.split_once("fn ")?;
    let name = name.split(['(', '<']).next()?.to_owned();
    if line.trim_end().ends_with('}') {
        return Some((head + 1, name));
    }
    let end = format!("{indent}}}");
    let body = lines.get(head..)?.iter().position(|line| *line == end)?;
    Some((head + body + 1, name))
}

/// The rule ids in a text: two capitals of a known area, a dash, a number and at most one letter.
fn ids(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '-'))
        .filter(|word| is_id(word))
}

fn is_id(word: &str) -> bool {
    let Some((area, number)) = word.split_once('-') else {
        return false;
    };
    let digits = number.trim_end_matches(|c: char| c.is_ascii_lowercase());
    super::AREAS
        .iter()
        .any(|known| known.prefixes.contains(&area))
        && !digits.is_empty()
        && digits.bytes().all(|byte| byte.is_ascii_digit())
        && number.len() - digits.len() <= 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_a_whole_word() {
        let text = "(EN-5b), ED-1: XEN-5 EN-5bc TLS-12 EN-";
        assert_eq!(ids(text).collect::<Vec<_>>(), ["EN-5b", "ED-1"]);
    }

    #[test]
    fn a_test_has_its_comments_its_attributes_and_its_body_and_no_more() {
        let source = "\
// not this one

/// above
#[tokio::test(start_paused = true)]
#[expect(lint)]
async fn first() {
    inside();
}

fn helper() {}
";
        let tests = tests(source);
        let [test] = tests.as_slice() else {
            panic!("{} tests", tests.len())
        };
        assert_eq!(test.name, "first");
        assert!(test.text.contains("above") && test.text.contains("inside"));
        assert!(!test.text.contains("not this one") && !test.text.contains("helper"));
    }

    #[test]
    fn code_below_the_tests_of_a_file_keeps_no_rule() {
        let source = "// EN-1\n#[cfg(test)]\nmod tests {\n    // EN-2\n}\n";
        let files = BTreeMap::from([("crates/a/src/a.rs".to_owned(), source.to_owned())]);
        let citations = Citations::of(&files);
        assert_eq!(citations.code.keys().collect::<Vec<_>>(), ["EN-1"]);
        assert!(citations.tests.is_empty());
    }
}
