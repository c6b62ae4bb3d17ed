//! Forbidden content of sources: unfinished work, traces of one machine, too many lines in one
//! file, a clock in a pure crate.
//!
//! The searched words are concatenated from halves here, so that this file passes its own checks.

use std::collections::BTreeMap;

pub(super) fn check(files: &BTreeMap<String, String>) -> Vec<String> {
    let mut complaints = Vec::new();
    for (path, text) in files {
        complaints.extend(unfinished(path, text));
        complaints.extend(traces(path, text));
        complaints.extend(too_long(path, text));
        complaints.extend(impure(path, text));
    }
    complaints
}

/// Marks of unfinished work, and disabled tests.
fn unfinished(path: &str, text: &str) -> Vec<String> {
    if !has_extension(
        path,
        &["rs", "py", "sh", "toml", "yaml", "yml", "proto", "ts"],
    ) {
        return Vec::new();
    }
    lines_with(path, text, UNFINISHED, "unfinished")
}

/// Paths of one person's machine, and addresses of package registries.
fn traces(path: &str, text: &str) -> Vec<String> {
    // The lock file names the standard registry for every package, which `bans` checks. The lock
    // file of the fuzz targets is not committed.
    if matches!(path, "Cargo.lock" | "fuzz/Cargo.lock") {
        return Vec::new();
    }
    lines_with(path, text, TRACES, "a trace of one machine")
}

fn too_long(path: &str, text: &str) -> Option<String> {
    let lines = text.lines().count();
    let allowed = LONG_FILES.iter().any(|(long, _reason)| *long == path);
    (has_extension(path, &["rs", "py", "ts"]) && lines > MAX_LINES && !allowed)
        .then(|| format!("{path}: {lines} lines: has a second subject moved in?"))
}

/// IO and clocks in a crate of layer 0, whose results must depend only on its arguments.
fn impure(path: &str, text: &str) -> Vec<String> {
    let pure = PURE_CRATES
        .iter()
        .any(|name| path.starts_with(&format!("crates/{name}/src/")));
    if !pure || path.ends_with("tests.rs") || path.contains("/tests/") {
        return Vec::new();
    }
    let code = text.split("#[cfg(test)]").next().unwrap_or_default();
    lines_with(path, code, IMPURE, "IO or a clock in a pure crate")
}

fn lines_with(path: &str, text: &str, words: &[&str], what: &str) -> Vec<String> {
    let mut complaints = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        for word in words.iter().filter(|word| has_word(line, word)) {
            complaints.push(format!("{path}:{number}: {what}: `{word}`"));
        }
    }
    complaints
}

/// True if the line contains the word, and not only as a part of a longer one.
fn has_word(line: &str, word: &str) -> bool {
    let part = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(word).any(|(at, _)| {
        let before = line.get(..at).and_then(|before| before.chars().next_back());
        let after = line
            .get(at + word.len()..)
            .and_then(|after| after.chars().next());
        let open = !word.ends_with(part);
        !before.is_some_and(part) && (open || !after.is_some_and(part))
    })
}

pub(super) fn has_extension(path: &str, extensions: &[&str]) -> bool {
    path.rsplit_once('.')
        .is_some_and(|(_, extension)| extensions.contains(&extension))
}

/// A longer file rarely has only one subject.
const MAX_LINES: usize = 600;

/// The exceptions from `MAX_LINES`, each with its reason.
const LONG_FILES: &[(&str, &str)] = &[];

const PURE_CRATES: [&str; 7] = [
    "types",
    "credentials",
    "wire",
    "tty",
    "http1",
    "api",
    "ownership",
];

const UNFINISHED: &[&str] = &[
    concat!("TO", "DO"),
    concat!("FIX", "ME"),
    concat!("XX", "X"),
    concat!("todo", "!"),
    concat!("unimplemented", "!"),
    concat!("#[ig", "nore"),
];

const TRACES: &[&str] = &[
    concat!("/wo", "rk/"),
    concat!("/ho", "me/"),
    concat!("/ro", "ot/"),
    concat!("/Us", "ers/"),
    concat!("crates.io", "-index"),
    concat!("index.", "crates.io"),
    concat!("static.", "crates.io"),
    concat!("pypi.", "org"),
    concat!("pythonhosted.", "org"),
    concat!("registry.", "npmjs.org"),
    concat!("npmmirror.", "com"),
];

const IMPURE: &[&str] = &[
    concat!("SystemTime::", "now"),
    concat!("Instant::", "now"),
    concat!("Timestamp::", "now"),
    concat!("Zoned::", "now"),
    concat!("std::", "fs"),
    concat!("std::", "env"),
    concat!("std::", "thread"),
    concat!("std::", "process"),
    concat!("Tcp", "Stream"),
    concat!("Udp", "Socket"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unfinished_work_is_found_with_its_line() {
        let text = format!("fn a() {{}}\n// {}: later\n", concat!("TO", "DO"));
        assert_eq!(
            unfinished("a.rs", &text),
            [format!("a.rs:2: unfinished: `{}`", concat!("TO", "DO"))]
        );
        assert_eq!(
            unfinished("a.rs", concat!("#[ig", "nore = \"slow\"]")).len(),
            1
        );
        assert!(unfinished("a.rs", concat!("const ", "TO", "DOS: u8 = 1;")).is_empty());
        assert!(unfinished("a.md", &text).is_empty());
    }

    #[test]
    fn a_path_of_one_machine_is_found_and_a_longer_one_is_not() {
        assert_eq!(traces("a.md", concat!("see /ho", "me/me/x")).len(), 1);
        assert!(traces("a.md", concat!("GET example.com/wo", "rk/x")).is_empty());
        assert!(traces("a.md", concat!("/net", "wo", "rk/x")).is_empty());
    }

    #[test]
    fn a_file_over_the_limit_is_found() {
        assert!(too_long("a.rs", &"\n".repeat(MAX_LINES)).is_none());
        assert!(too_long("a.rs", &"\n".repeat(MAX_LINES + 1)).is_some());
    }

    #[test]
    fn a_clock_is_found_in_pure_crates_outside_of_tests() {
        let clock = concat!("let now = SystemTime::", "now();\n");
        assert_eq!(impure("crates/types/src/event.rs", clock).len(), 1);
        assert!(impure("crates/engine/src/live.rs", clock).is_empty());
        let in_test = format!("#[cfg(test)]\nmod tests {{\n{clock}}}\n");
        assert!(impure("crates/types/src/event.rs", &in_test).is_empty());
    }
}
