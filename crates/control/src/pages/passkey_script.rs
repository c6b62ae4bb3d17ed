//! The passkey script. Browsers offer passkeys only to scripts.
//!
//! It is a file of the platform. Only the policies of the pages that need it allow it. It submits
//! the forms of those pages, and the response is a page as for any other form.

use axum::response::{IntoResponse as _, Response};
use http::header::{CACHE_CONTROL, CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS};

/// `GET /passkeys.js`
pub(super) async fn serve() -> Response {
    let headers = [
        (CONTENT_TYPE, "text/javascript; charset=utf-8"),
        // The script is small and must have the same version as the page that loads it.
        (CACHE_CONTROL, "no-cache"),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ];
    (headers, include_str!("passkeys.js")).into_response()
}
