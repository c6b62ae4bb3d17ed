//! Every answer of every test is checked against the document (CP-7). A status, a media type or a
//! member that the document does not list fails the test, and so does a missing member.

use std::sync::LazyLock;

use api::control::{Access, Method, Operation, operations};
use conformance::Document;

use super::Answer;

/// The document of the platform.
pub(crate) static DOCUMENT: LazyLock<Document> =
    LazyLock::new(|| Document::new(api::control::document()));

/// The operation of a request. If two paths match, the one with fewer parameters is used.
pub(super) fn operation(method: &http::Method, path: &str) -> Option<&'static Operation> {
    operations()
        .filter(|operation| http::Method::from(operation.method) == *method)
        .filter(|operation| fits(operation.path, path))
        .min_by_key(|operation| operation.path.matches('{').count())
}

/// Compares an answer with the document's description of the operation.
#[track_caller]
pub(super) fn check(operation: &Operation, answer: &Answer) {
    let (id, status) = (operation.id, answer.status);
    // Answers of guarded operations may contain secrets and private data.
    if operation.access != Access::Public {
        let kept = answer.header("cache-control");
        assert_eq!(kept, "no-store", "{id}: an answer that caches may keep");
    }
    if status == operation.answer.status {
        let promised = operation.answer.content.map_or("", |(kind, _)| kind);
        // The document omits the profile parameter of a linkset (CP-8).
        let kind = answer.header("content-type");
        let is_promised = kind == promised || kind.starts_with(&format!("{promised}; "));
        let has_body = operation.method != Method::Head;
        assert!(
            is_promised || !has_body,
            "{id}: {status} {kind} is not {promised}"
        );
        if has_body && promised.contains("json") {
            compare(operation, answer);
        }
        return;
    }
    let promised = operation.every_refusal();
    assert!(
        promised.contains(&status),
        "{id}: the document lists {promised:?} and not {status}: {}",
        answer.text
    );
    if status != 304 && operation.method != Method::Head {
        answer.problem();
        compare(operation, answer);
    }
}

/// Compares a body with its schema.
#[track_caller]
fn compare(operation: &Operation, answer: &Answer) {
    let method = http::Method::from(operation.method);
    let compared = DOCUMENT.check(
        method.as_str(),
        operation.path,
        answer.status,
        &answer.json(),
    );
    if let Err(differences) = compared {
        panic!("{differences}");
    }
}

fn fits(template: &str, path: &str) -> bool {
    let (template, path) = (template.split('/'), path.split('/'));
    template.clone().count() == path.clone().count()
        && template
            .zip(path)
            .all(|(part, given)| part.starts_with('{') || part == given)
}
