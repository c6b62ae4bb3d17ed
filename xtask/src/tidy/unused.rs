//! Public functions that no program calls.
//!
//! The compiler reports an unused function only if it is private. A public one that only tests call
//! can be a feature that is documented, tested and never switched on.

use std::collections::{BTreeMap, HashMap};

use super::sources::has_extension;

/// Crates whose public functions other programs call, and the crate of test helpers.
const LIBRARIES: &[&str] = &["client", "http1", "testing", "transport", "types", "wire"];

/// Functions with which tests observe or prepare a state.
const FOR_TESTS: &[(&str, &[&str])] = &[
    (
        "engine",
        &[
            "directory_entry",
            "peers_addr",
            "replace_keys",
            "set_revoked",
            "start_in_cluster",
            "update_client",
            "wait_for_peer",
        ],
    ),
    ("etcd", &["cut_off"]),
    ("link", &["wait_until_saved"]),
    ("mcp", &["operation_ids"]),
    (
        "store",
        &[
            "any_admin",
            "by_certificate",
            "by_issuer",
            "by_token_endpoint",
            "check_statements",
            "owners",
            "record_plans",
            "root_of",
            "set_invoice_status",
        ],
    ),
];

pub(super) fn check(files: &BTreeMap<String, String>) -> Vec<String> {
    let code: Vec<_> = files
        .iter()
        .filter(|(path, _)| is_program(path))
        .map(|(path, text)| (path.as_str(), without_tests(text)))
        .collect();
    let mut uses: HashMap<&str, usize> = HashMap::new();
    for word in code.iter().flat_map(|(_, text)| words(text)) {
        *uses.entry(word).or_default() += 1;
    }
    let mut complaints = Vec::new();
    for (path, text) in &code {
        let krate = path.split('/').nth(1).unwrap_or_default();
        if !has_extension(path, &["rs"]) || LIBRARIES.contains(&krate) {
            continue;
        }
        for name in public_functions(text) {
            let is_for_tests = FOR_TESTS
                .iter()
                .any(|(of, names)| *of == krate && names.contains(&name));
            if uses.get(name).copied() < Some(2) && !is_for_tests {
                complaints.push(format!("{path}: no program calls `{name}`"));
            }
        }
    }
    complaints
}

/// Sources of programs, and the templates that call their functions.
fn is_program(path: &str) -> bool {
    let is_source = path.starts_with("crates/") && path.contains("/src/");
    let is_test = path.ends_with("/tests.rs") || path.contains("/tests/");
    is_source && !is_test && has_extension(path, &["rs", "html"])
}

/// The code before the module of tests, without comments.
fn without_tests(text: &str) -> String {
    let code = text
        .split("#[cfg(test)]\nmod tests {")
        .next()
        .unwrap_or_default();
    let lines = code.lines().map(|line| match line.split_once("//") {
        Some((code, _)) => code,
        None => line,
    });
    lines.collect::<Vec<_>>().join("\n")
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|letter: char| !letter.is_alphanumeric() && letter != '_')
        .filter(|word| !word.is_empty())
}

fn public_functions(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter_map(|line| {
        let rest = line.trim_start().strip_prefix("pub ")?;
        let mut words =
            words(rest).skip_while(|word| matches!(*word, "const" | "async" | "unsafe"));
        if words.next() != Some("fn") {
            return None;
        }
        words.next()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complaints(sources: &[(&str, &str)]) -> Vec<String> {
        let file = |(path, text): &(&str, &str)| ((*path).to_owned(), (*text).to_owned());
        check(&sources.iter().map(file).collect())
    }

    const DEFINITION: (&str, &str) = (
        "crates/daemon/src/log.rs",
        "pub async fn reopen() {}\n#[cfg(test)]\nmod tests {\n    fn a() { reopen(); }\n}\n",
    );

    #[test]
    fn a_function_that_only_tests_call_is_reported() {
        let complaint = "crates/daemon/src/log.rs: no program calls `reopen`";
        let test = ("crates/daemon/tests/it/log.rs", "reopen()");
        assert_eq!(complaints(&[DEFINITION, test]), [complaint]);
        let comment = ("crates/engine/src/engine.rs", "// reopen");
        assert_eq!(complaints(&[DEFINITION, comment]), [complaint]);
    }

    #[test]
    fn a_call_in_a_program_or_a_template_is_a_use() {
        let program = ("crates/engine/src/engine.rs", "log.reopen();");
        assert!(complaints(&[DEFINITION, program]).is_empty());
        let template = ("crates/control/src/pages/a.html", "{{ log.reopen() }}");
        assert!(complaints(&[DEFINITION, template]).is_empty());
    }

    #[test]
    fn functions_of_a_library_are_called_by_other_programs() {
        let library = ("crates/client/src/lib.rs", "pub const fn dial() {}");
        assert!(complaints(&[library]).is_empty());
    }
}
