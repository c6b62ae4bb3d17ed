//! Answers of the Engine API are compared with its document (EN-6): a member that the document does
//! not list fails the test, and so does a missing member.

use std::sync::LazyLock;

use conformance::Document;
use serde_json::Value;

static DOCUMENT: LazyLock<Document> = LazyLock::new(|| Document::new(::api::engine::document()));

/// Compares the JSON answer of a successful request with its schema.
#[track_caller]
pub(crate) fn compare(method: &str, path: &str, status: u16, body: &Value) {
    // The schema of a recording in one of several formats is a text.
    if !(200..300).contains(&status) || body.is_null() || path.contains("/export") {
        return;
    }
    if let Err(differences) = DOCUMENT.check(method, path, status, body) {
        panic!("{differences}");
    }
}
