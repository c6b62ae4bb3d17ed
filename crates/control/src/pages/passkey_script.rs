//! The one script of the platform: a browser gives passkeys to scripts alone.
//!
//! It is a file of ours, named in the policy of the pages that need it and of no others. It sends
//! the forms of those pages: what comes back is a page, as from any other form.

use axum::response::{IntoResponse as _, Response};
use http::header::{CACHE_CONTROL, CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS};

/// `GET /passkeys.js`
pub(super) async fn serve() -> Response {
    let headers = [
        (CONTENT_TYPE, "text/javascript; charset=utf-8"),
        // Small, and to be of the same version as the page that names it.
        (CACHE_CONTROL, "no-cache"),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ];
    (headers, include_str!("passkeys.js")).into_response()
}
