//! The scripts of the forms. Pages work without them, except for passkeys, which browsers offer only
//! to scripts.
//!
//! They are files of the platform. Only the policies of the pages that need them allow them.

use axum::response::{IntoResponse as _, Response};
use http::header::{CACHE_CONTROL, CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS};

/// `GET /passkeys.js`: submits the forms for passkeys. The response is a page as for any other form.
pub(super) async fn passkeys() -> Response {
    script(include_str!("passkeys.js"))
}

/// `GET /fragment.js`: keeps the fragment of an address over a sign-in.
pub(super) async fn fragment() -> Response {
    script(include_str!("fragment.js"))
}

fn script(text: &'static str) -> Response {
    let headers = [
        (CONTENT_TYPE, "text/javascript; charset=utf-8"),
        // The scripts are small and must have the same version as the page that loads them.
        (CACHE_CONTROL, "no-cache"),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ];
    (headers, text).into_response()
}
