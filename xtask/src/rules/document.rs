//! The text of `docs/rules.md`.

use std::fmt::Write as _;

use super::catalogue::{AREAS, Area};
use super::{OpenReason, Report};

/// The whole document, which depends only on the report.
pub(super) fn render(report: &Report) -> String {
    let mut text = String::from(HEAD);
    for area in AREAS {
        text.push_str(&section(area, report));
    }
    text.push_str(&open(report));
    text
}

/// One area: every rule in order, the open ones with a mark.
fn section(area: &Area, report: &Report) -> String {
    let mut text = format!("\n## {}\n\n", area.title);
    text.push_str("| rule | what it says | kept in | proved by |\n|---|---|---|---|\n");
    for (id, says) in area.rules {
        let (kept_in, proved_by) = match report.closed.get(id) {
            Some(proof) => (cell(&proof.implemented_in), cell(&proof.proved_by)),
            None => ("–".to_owned(), "[open](#open)".to_owned()),
        };
        let says = says.replace('|', "\\|");
        // Writing to a string cannot fail.
        let _ok = writeln!(text, "| {id} | {says} | {kept_in} | {proved_by} |");
    }
    text
}

fn open(report: &Report) -> String {
    let mut text = format!("\n## Open\n\n{} rules are open.\n", report.open.len());
    for (lack, heading) in [
        (OpenReason::Untested, "Cited by code, without a test"),
        (
            OpenReason::Unnamed,
            "Tested, but no code says that it keeps them",
        ),
        (OpenReason::NotBuilt, "Not built"),
    ] {
        let ids = AREAS.iter().flat_map(|area| area.rules).map(|(id, _)| *id);
        let ids: Vec<_> = ids
            .filter(|id| report.open.get(id) == Some(&lack))
            .collect();
        if !ids.is_empty() {
            let _ok = write!(text, "\n{heading} ({}): {}\n", ids.len(), ids.join(", "));
        }
    }
    text
}

/// The first places; a search for the id finds the rest.
fn cell(places: &[String]) -> String {
    let mut listed: Vec<_> = places
        .iter()
        .take(TESTS_PER_RULE)
        .map(|place| format!("`{place}`"))
        .collect();
    if places.len() > TESTS_PER_RULE {
        listed.push(format!("+{}", places.len() - TESTS_PER_RULE));
    }
    listed.join("<br>")
}

/// Enough to start reading from, and few enough for a table.
const TESTS_PER_RULE: usize = 3;

const HEAD: &str = "\
# The rules and their proofs

<!-- Written by `cargo xtask rules`; edit xtask/src/rules/catalogue.rs instead. -->

Every rule of the platform's interface has an id. The table says where a rule is kept and which
test proves it; `grep -rn <id>` finds every place. A rule is closed when a source file and a test
both cite its id (`CONTRIBUTING.md` has the convention). A test compares this file with the sources,
and fails when a rule is [open](#open).
";

#[cfg(test)]
mod tests {
    use super::super::Proof;
    use super::*;

    #[test]
    fn a_closed_rule_has_its_places_and_an_open_one_is_listed() {
        let [area, ..] = AREAS else {
            panic!("no areas")
        };
        let [(first, _), (second, _), ..] = area.rules else {
            panic!("no rules")
        };
        let places = |count: usize| (0..count).map(|n| format!("f{n}.rs")).collect::<Vec<_>>();
        let mut report = Report {
            closed: [].into(),
            open: [].into(),
            unknown: Vec::new(),
        };
        report.closed.insert(
            first,
            Proof {
                implemented_in: places(1),
                proved_by: places(5),
            },
        );
        report.open.insert(second, OpenReason::Untested);

        let text = render(&report);
        assert!(
            text.contains("| `f0.rs` | `f0.rs`<br>`f1.rs`<br>`f2.rs`<br>+2 |"),
            "{text}"
        );
        assert!(text.contains("1 rules are open."), "{text}");
        assert!(
            text.contains(&format!("Cited by code, without a test (1): {second}")),
            "{text}"
        );
    }
}
