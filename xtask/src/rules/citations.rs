//! Citations of rule ids in the sources: in code, and in tests.
//!
//! A test is found by its attribute, or by its name in a `both!` list, whose macro creates a test
//! for each database. A test consists of the comments and attributes directly above its function,
//! and its body, which ends at the closing brace that rustfmt places. Code of a test file or below
//! `#[cfg(test)]` outside of a test function cites nothing.

use std::collections::{BTreeMap, BTreeSet};

/// Rule id → places, each list sorted and without duplicates.
#[derive(Default)]
pub(super) struct Citations {
    /// Files whose code cites the rule.
    pub(super) code: BTreeMap<String, Vec<String>>,
    /// Tests that cite it, as `file::name`.
    pub(super) tests: BTreeMap<String, Vec<String>>,
}

impl Citations {
    /// Reads the Rust sources among these files. This package is left out, because it describes
    /// rules and implements none.
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

/// Files with tests or test helpers, which implement no rule.
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
    let listed = listed(&lines);
    let mut tests = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        let (before, rest) = lines.split_at(at);
        let is_listed = function_name(line).is_some_and(|name| listed.contains(name));
        if !is_listed && !is_test_attribute(line) {
            continue;
        }
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

/// The functions from which `both!` creates tests: one name per line, from `both! {` to the brace
/// below it.
fn listed<'a>(lines: &[&'a str]) -> BTreeSet<&'a str> {
    let lists = lines.split(|line| *line == "both! {").skip(1);
    lists
        .flat_map(|list| list.iter().take_while(|line| **line != "}"))
        .map(|line| line.trim().trim_end_matches(','))
        .collect()
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

/// The name of the next function, and the number of lines to its closing brace.
fn function(lines: &[&str]) -> Option<(usize, String)> {
    let head = lines
        .iter()
        .position(|line| !is_attached(line) && line.contains("fn "))?;
    let line = lines.get(head)?;
    let name = function_name(line)?.to_owned();
    if line.trim_end().ends_with('}') {
        return Some((head + 1, name));
    }
    let indent = line.len() - line.trim_start().len();
    let end = format!("{:indent$}}}", "");
    let body = lines.get(head..)?.iter().position(|line| *line == end)?;
    Some((head + body + 1, name))
}

/// The name of the function whose signature starts in this line.
fn function_name(line: &str) -> Option<&str> {
    let (before, name) = line.split_once("fn ")?;
    let words = before.split_whitespace();
    let is_signature = words
        .map(|word| word.split('(').next().unwrap_or_default())
        .all(|word| ["pub", "const", "async", "unsafe"].contains(&word));
    if !is_signature {
        return None;
    }
    name.split(['(', '<']).next()
}

/// The rule ids in a text: two capitals of an existing area, a dash, a number and at most one
/// letter.
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
    fn a_function_in_a_list_of_both_is_a_test_and_another_is_not() {
        let source = "\
use crate::support::both;

both! {
    first,
    second,
}

/// CP-2.
async fn first(control: TestControl) {
    // CP-4
}

/// CP-5, of a helper that calls first(
async fn helper() {}

/// CP-11
#[expect(lint)]
async fn second(control: TestControl) {
    // async fn first( is a word here.
}
";
        let files = BTreeMap::from([("crates/a/tests/it/a.rs".to_owned(), source.to_owned())]);
        let cited = Citations::of(&files).tests;
        let place = |name| vec![format!("crates/a/tests/it/a.rs::{name}")];
        let wanted = [
            ("CP-11", place("second")),
            ("CP-2", place("first")),
            ("CP-4", place("first")),
        ];
        let wanted = wanted.map(|(id, places)| (id.to_owned(), places));
        assert_eq!(cited, BTreeMap::from(wanted));
    }

    /// The macro's definition and its import list nothing.
    #[test]
    fn without_a_list_only_attributes_make_tests() {
        let source = "macro_rules! both {\n    ($($name:ident,)+) => {};\n}\nuse both;\n\
                      /// CP-2\nasync fn first() {}\n";
        assert!(tests(source).is_empty());
    }

    #[test]
    fn code_below_the_tests_of_a_file_implements_no_rule() {
        let source = "// EN-1\n#[cfg(test)]\nmod tests {\n    // EN-2\n}\n";
        let files = BTreeMap::from([("crates/a/src/a.rs".to_owned(), source.to_owned())]);
        let citations = Citations::of(&files);
        assert_eq!(citations.code.keys().collect::<Vec<_>>(), ["EN-1"]);
        assert!(citations.tests.is_empty());
    }
}
