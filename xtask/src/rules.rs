//! `docs/rules.md`: each rule of the interface, the code that implements it, and the test that
//! proves it.
//!
//! A rule has an id (`EN-5b`). Code that implements a rule cites the id in a comment; a test that
//! proves it cites the id above the test function or in its body. This module looks for both: a
//! rule is closed if it has both, else open. The document is generated, and a test of this package
//! fails if it differs from the sources, or if a rule is open.

mod catalogue;
mod citations;
mod document;

use std::collections::BTreeMap;
use std::fs;

use anyhow::{Context as _, Result};

use self::catalogue::AREAS;
use self::citations::Citations;
use crate::repository::Repository;

/// Writes the document again.
pub(crate) fn run(repository: &Repository) -> Result<()> {
    let files = repository.text_files()?;
    let report = Report::of(&files);
    write(repository, DOCUMENT, &document::render(&report))?;
    let open = report.open.len();
    eprintln!("{DOCUMENT}: {} closed, {open} open", report.closed.len());
    Ok(())
}

fn write(repository: &Repository, relative: &str, text: &str) -> Result<()> {
    fs::write(repository.path(relative), text).with_context(|| format!("cannot write {relative}"))
}

/// Complaints: a document that differs, open rules, and citations of unknown rules.
pub(crate) fn check(files: &BTreeMap<String, String>) -> Vec<String> {
    let report = Report::of(files);
    let mut complaints: Vec<_> = report
        .unknown
        .iter()
        .map(|(id, file)| format!("{file}: cites rule {id}, which does not exist"))
        .collect();
    if files.get(DOCUMENT) != Some(&document::render(&report)) {
        complaints.push(format!(
            "{DOCUMENT} is not what the sources say: run `cargo xtask rules`"
        ));
    }
    let open = report.open.keys();
    complaints.extend(open.map(|id| format!("rules: {id} is open: no code or no test cites it")));
    complaints
}

/// Every rule, by state.
struct Report {
    closed: BTreeMap<&'static str, Proof>,
    open: BTreeMap<&'static str, OpenReason>,
    /// Ids that are cited but not in the catalogue, with a file that cites each.
    unknown: Vec<(String, String)>,
}

/// Citations that close a rule.
struct Proof {
    /// The files that implement it, sorted by path.
    implemented_in: Vec<String>,
    /// The tests that prove it, as `file::name`.
    proved_by: Vec<String>,
}

/// Reason why a rule is open.
#[derive(Debug, PartialEq)]
enum OpenReason {
    NotBuilt,
    /// A file cites it, but no test does.
    Untested,
    /// A test cites it, but no code does.
    Unnamed,
}

impl Report {
    fn of(files: &BTreeMap<String, String>) -> Self {
        let mut citations = Citations::of(files);
        let mut report = Self {
            closed: BTreeMap::new(),
            open: BTreeMap::new(),
            unknown: Vec::new(),
        };
        for (id, _) in AREAS.iter().flat_map(|area| area.rules) {
            let kept_in = citations.code.remove(*id).unwrap_or_default();
            let proved_by = citations.tests.remove(*id).unwrap_or_default();
            let lack = match (kept_in.is_empty(), proved_by.is_empty()) {
                (false, false) => {
                    report.closed.insert(
                        id,
                        Proof {
                            implemented_in: kept_in,
                            proved_by,
                        },
                    );
                    continue;
                }
                (true, true) => OpenReason::NotBuilt,
                (false, true) => OpenReason::Untested,
                (true, false) => OpenReason::Unnamed,
            };
            report.open.insert(id, lack);
        }
        let rest = citations.code.into_iter().chain(citations.tests);
        report.unknown = rest
            .filter_map(|(id, places)| Some((id, places.into_iter().next()?)))
            .collect();
        report
    }
}

const DOCUMENT: &str = "docs/rules.md";

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    const CODE: &str = "/// Keeps EN-5b.\nfn keeps() {}\n";
    const TEST: &str = "// EN-5b\n#[test]\nfn proves() {\n    keeps();\n}\n";

    fn report(sources: &[(&str, &str)]) -> Report {
        let files = sources
            .iter()
            .map(|(path, text)| ((*path).to_owned(), (*text).to_owned()));
        Report::of(&files.collect())
    }

    #[test]
    fn a_rule_is_closed_by_code_and_a_test_together() {
        let both = report(&[
            ("crates/a/src/k.rs", CODE),
            ("crates/a/tests/it/p.rs", TEST),
        ]);
        let proof = &both.closed["EN-5b"];
        assert_eq!(proof.implemented_in, ["crates/a/src/k.rs"]);
        assert_eq!(proof.proved_by, ["crates/a/tests/it/p.rs::proves"]);

        let code = report(&[("crates/a/src/k.rs", CODE)]);
        assert_eq!(code.open.get("EN-5b"), Some(&OpenReason::Untested));
        let test = report(&[("crates/a/tests/it/p.rs", TEST)]);
        assert_eq!(test.open.get("EN-5b"), Some(&OpenReason::Unnamed));
        assert_eq!(report(&[]).open.get("EN-5b"), Some(&OpenReason::NotBuilt));
    }

    #[test]
    fn every_rule_is_reported_once_and_in_one_state() {
        let ids: Vec<_> = AREAS
            .iter()
            .flat_map(|area| area.rules)
            .map(|(id, _)| *id)
            .collect();
        assert_eq!(ids.iter().collect::<BTreeSet<_>>().len(), ids.len());
        let report = report(&[
            ("crates/a/src/k.rs", CODE),
            ("crates/a/tests/it/p.rs", TEST),
        ]);
        assert_eq!((report.closed.len(), report.open.len()), (1, ids.len() - 1));
        for id in ids {
            assert!(
                report.closed.contains_key(id) != report.open.contains_key(id),
                "{id}"
            );
        }
    }

    #[test]
    fn a_rule_that_does_not_exist_is_found() {
        let report = report(&[("crates/a/src/k.rs", "// EN-99\n")]);
        assert_eq!(
            report.unknown,
            [("EN-99".to_owned(), "crates/a/src/k.rs".to_owned())]
        );
    }
}
