//! Every answer of every test is held against the document (CP-7): a status or a media type that
//! the document does not promise fails the test that met it.

use api::control::{Access, Method, Operation, operations};

use super::Answer;

/// The operation that a request is for. Where two paths fit, the one with fewer varying parts does.
pub(super) fn operation(method: &http::Method, path: &str) -> Option<&'static Operation> {
    operations()
        .filter(|operation| name(operation.method) == method.as_str())
        .filter(|operation| fits(operation.path, path))
        .min_by_key(|operation| operation.path.matches('{').count())
}

/// Compares an answer with what the document says of the operation.
#[track_caller]
pub(super) fn check(operation: &Operation, answer: &Answer) {
    let (id, status) = (operation.id, answer.status);
    // Whoever is guarded may be answered with secrets, and with what is theirs alone.
    if operation.access != Access::Public {
        let kept = answer.header("cache-control");
        assert_eq!(kept, "no-store", "{id}: an answer that caches may keep");
    }
    if status == operation.answer.status {
        let promised = operation.answer.content.map_or("", |(kind, _)| kind);
        // The profile of a linkset is a parameter that the document leaves out (CP-8).
        let kind = answer.header("content-type");
        let is_promised = kind == promised || kind.starts_with(&format!("{promised}; "));
        let has_body = operation.method != Method::Head;
        assert!(
            is_promised || !has_body,
            "{id}: {status} {kind} is not {promised}"
        );
        return;
    }
    let promised = operation.every_refusal();
    assert!(
        promised.contains(&status),
        "{id}: the document says {promised:?} and not {status}: {}",
        answer.text
    );
    if status != 304 && operation.method != Method::Head {
        answer.problem();
    }
}

fn fits(template: &str, path: &str) -> bool {
    let (template, path) = (template.split('/'), path.split('/'));
    template.clone().count() == path.clone().count()
        && template
            .zip(path)
            .all(|(part, given)| part.starts_with('{') || part == given)
}

fn name(method: Method) -> &'static str {
    match method {
        Method::Get => "GET",
        Method::Head => "HEAD",
        Method::Post => "POST",
        Method::Put => "PUT",
        Method::Patch => "PATCH",
        Method::Delete => "DELETE",
    }
}
