//! The dashboard: a web application (`web/`) that is part of this program if it was built before it
//! (`build.rs`).
//!
//! All its addresses have the same document, which contains no data. Its script requests everything
//! from the API with the session cookie. The names of its other files contain hashes.

use std::sync::Arc;

use askama::Template;
use axum::Router;
use axum::response::Response;
use axum::routing::get;
use http::header::{
    ACCEPT_ENCODING, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_SECURITY_POLICY, CONTENT_TYPE,
    REFERRER_POLICY, VARY, X_CONTENT_TYPE_OPTIONS,
};
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderValue, Uri};
use types::problem::Problem;

use super::layout::{PageRefusal, page};
use super::signed_in;
use crate::app::App;
use crate::http_api::extract::Path;
use crate::people::session::Visitor;

/// The routes of this module. The terminal pages are below `/projects/{project_id}`, too, and take
/// precedence.
pub(super) fn routes() -> Router<Arc<App>> {
    Router::new()
        .route("/", get(show))
        .route("/welcome", get(show))
        .route("/projects", get(show))
        .route("/projects/{project_id}", get(show))
        .route("/projects/{project_id}/{*rest}", get(show))
        .route("/workspaces", get(show))
        .route("/workspaces/{workspace_id}", get(show))
        .route("/workspaces/{workspace_id}/{*rest}", get(show))
        .route("/credentials", get(show))
        .route("/credentials/{*rest}", get(show))
        .route("/installation", get(show))
        .route("/installation/{*rest}", get(show))
        .route("/assets/{file}", get(asset))
}

/// The page of a build without the dashboard.
#[derive(Template)]
#[template(path = "dashboard_absent.html")]
struct AbsentPage;

/// The document of the application, for a signed-in user.
async fn show(visitor: Visitor, headers: HeaderMap, uri: Uri) -> Result<Response, PageRefusal> {
    let path = uri.path_and_query().map_or("/", PathAndQuery::as_str);
    signed_in(visitor, path)?;
    let Some(index) = find(FILES, INDEX) else {
        return Ok(page(&AbsentPage));
    };
    let mut response = index.response(&headers);
    let fields = response.headers_mut();
    let fixed = HeaderValue::from_static;
    // The document must have the same version as the API.
    fields.insert(CACHE_CONTROL, fixed("no-store"));
    fields.insert(CONTENT_SECURITY_POLICY, fixed(POLICY));
    fields.insert(REFERRER_POLICY, fixed("same-origin"));
    fields.insert("cross-origin-opener-policy", fixed("same-origin"));
    Ok(response)
}

/// `GET /assets/{file}`
async fn asset(Path(name): Path<String>, headers: HeaderMap) -> Result<Response, PageRefusal> {
    let file = find(FILES, &name).filter(|file| file.name != INDEX);
    let file = file.ok_or_else(Problem::not_found)?;
    let mut response = file.response(&headers);
    // The name changes with the contents.
    let forever = HeaderValue::from_static("public, max-age=31536000, immutable");
    response.headers_mut().insert(CACHE_CONTROL, forever);
    Ok(response)
}

/// Name, contents, and contents compressed with gzip.
type EmbeddedFile = (&'static str, &'static [u8], &'static [u8]);

/// A file of the application.
#[derive(Clone, Copy, Debug)]
struct File {
    name: &'static str,
    plain: &'static [u8],
    compressed: &'static [u8],
}

fn find(files: &[EmbeddedFile], name: &str) -> Option<File> {
    let mut files = files.iter();
    let (name, plain, compressed) = *files.find(|(known, ..)| *known == name)?;
    Some(File {
        name,
        plain,
        compressed,
    })
}

impl File {
    fn response(self, request: &HeaderMap) -> Response {
        let fixed = HeaderValue::from_static;
        let is_compressed = accepts_gzip(request) && self.compressed.len() < self.plain.len();
        let body = if is_compressed {
            self.compressed
        } else {
            self.plain
        };
        let mut response = Response::new(body.into());
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, fixed(self.media_type()));
        headers.insert(VARY, fixed("accept-encoding"));
        headers.insert(X_CONTENT_TYPE_OPTIONS, fixed("nosniff"));
        headers.insert("cross-origin-resource-policy", fixed("same-origin"));
        if is_compressed {
            headers.insert(CONTENT_ENCODING, fixed("gzip"));
        }
        response
    }

    fn media_type(self) -> &'static str {
        match self.name.rsplit_once('.') {
            Some((_, "html")) => "text/html; charset=utf-8",
            Some((_, "js")) => "text/javascript; charset=utf-8",
            Some((_, "css")) => "text/css; charset=utf-8",
            Some((_, "json")) => "application/json",
            Some((_, "svg")) => "image/svg+xml",
            Some((_, "png")) => "image/png",
            Some((_, "woff2")) => "font/woff2",
            _ => "text/plain; charset=utf-8",
        }
    }
}

/// True if the client accepts gzip by name (RFC 9110 section 12.5.3).
fn accepts_gzip(headers: &HeaderMap) -> bool {
    let values = headers.get_all(ACCEPT_ENCODING).iter();
    let codings = values.filter_map(|value| value.to_str().ok());
    codings.flat_map(|value| value.split(',')).any(|coding| {
        let mut parts = coding.split(';').map(str::trim);
        let is_gzip = parts
            .next()
            .is_some_and(|name| name.eq_ignore_ascii_case("gzip"));
        let is_refused = |parameter| matches!(parameter, "q=0" | "q=0.0" | "q=0.00" | "q=0.000");
        is_gzip && !parts.any(is_refused)
    })
}

/// The files of the application. Empty if it was not built.
const FILES: &[EmbeddedFile] = include!(concat!(env!("OUT_DIR"), "/dashboard.rs"));

const INDEX: &str = "index.html";

/// Scripts and styles are files of the platform, requests are sent only to it, and text cannot
/// become markup or code: no Trusted Types policy may be created.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
     font-src 'self'; connect-src 'self'; manifest-src 'self'; form-action 'self'; \
     frame-ancestors 'none'; base-uri 'none'; require-trusted-types-for 'script'; \
     trusted-types 'none'";

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(accepted: &[&'static str]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for value in accepted {
            headers.append(ACCEPT_ENCODING, HeaderValue::from_static(value));
        }
        headers
    }

    #[test]
    fn gzip_is_sent_only_to_clients_that_accept_it() {
        for good in [
            &["gzip"][..],
            &["br, GZIP;q=0.5"],
            &["br", "deflate, gzip"],
            &["gzip; q=1"],
        ] {
            assert!(accepts_gzip(&headers(good)), "{good:?}");
        }
        for bad in [&[][..], &["br"], &["gzip;q=0"], &["gzip; q=0.0"], &["*"]] {
            assert!(!accepts_gzip(&headers(bad)), "{bad:?}");
        }
    }

    #[test]
    fn a_file_is_compressed_if_it_becomes_shorter() {
        let files: &[EmbeddedFile] = &[
            ("a-12345678.js", b"long text", b"short"),
            ("b-12345678.png", b"x", b"longer"),
        ];
        let encoding = |name, accepted: &[&'static str]| {
            let response = find(files, name).unwrap().response(&headers(accepted));
            let encoding = response.headers().get(CONTENT_ENCODING);
            encoding.is_some_and(|encoding| encoding == "gzip")
        };
        assert!(encoding("a-12345678.js", &["gzip"]));
        assert!(!encoding("a-12345678.js", &[]));
        assert!(!encoding("b-12345678.png", &["gzip"]));
        assert!(find(files, "c").is_none());
    }

    #[test]
    fn the_media_type_follows_from_the_name() {
        let files: &[EmbeddedFile] = &[("a-12345678.js", b"", b""), ("b", b"", b"")];
        let kind = |name| find(files, name).unwrap().media_type();
        assert_eq!(kind("a-12345678.js"), "text/javascript; charset=utf-8");
        assert_eq!(kind("b"), "text/plain; charset=utf-8");
    }
}
