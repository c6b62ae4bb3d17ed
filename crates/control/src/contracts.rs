//! The machine-readable contracts (CP-7, CP-8, CP-9), public and cacheable.

use std::sync::{Arc, LazyLock};

use api::control::contracts::{
    API_CATALOG, API_CATALOG_HEAD, CONTROL_PLANE, ENGINE, LINKSET_MEDIA_TYPE,
};
use api::engine::OPENAPI_MEDIA_TYPE;
use aws_lc_rs::digest::{SHA256, digest};
use axum::Router;
use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, ETAG, IF_NONE_MATCH, LINK};
use http::{HeaderMap, HeaderValue, StatusCode};
use serde_json::json;

use crate::app::App;
use crate::route::Serve as _;

/// The documents and the catalogue of them.
pub fn routes() -> Router<Arc<App>> {
    Router::new()
        .serve(CONTROL_PLANE, control_plane)
        .serve(ENGINE, engine)
        .serve(API_CATALOG, api_catalog)
        .serve(API_CATALOG_HEAD, api_catalog)
}

/// CP-7.
async fn control_plane(headers: HeaderMap) -> Response {
    static DOCUMENT: LazyLock<Bytes> = LazyLock::new(|| api::control::document_json().into());
    cached(OPENAPI_MEDIA_TYPE, &DOCUMENT, &headers)
}

/// CP-9: out of the same function as the engine's own.
async fn engine(headers: HeaderMap) -> Response {
    static DOCUMENT: LazyLock<Bytes> = LazyLock::new(|| api::engine::document_json().into());
    cached(OPENAPI_MEDIA_TYPE, &DOCUMENT, &headers)
}

/// CP-8: a linkset (RFC 9264) with the profile of RFC 9727 section 4.2, by GET and by HEAD.
async fn api_catalog(State(app): State<Arc<App>>, headers: HeaderMap) -> Response {
    let config = &app.config;
    let described =
        |document: &str| json!({"href": config.url(document), "type": OPENAPI_MEDIA_TYPE});
    let linkset = json!({"linkset": [
        {
            "anchor": config.url(API_CATALOG.path),
            "item": [{"href": config.url("/api")}],
        },
        {
            "anchor": config.url("/api"),
            "service-desc": [described(CONTROL_PLANE.path), described(ENGINE.path)],
        },
    ]});
    let media_type = format!("{LINKSET_MEDIA_TYPE}; profile=\"{PROFILE}\"");
    let mut response = cached(&media_type, &linkset.to_string().into(), &headers);
    // RFC 9727 section 2: by HEAD too, the catalogue says where it is.
    let link = format!("<{}>; rel=\"api-catalog\"", API_CATALOG.path);
    if let Ok(link) = HeaderValue::try_from(link) {
        response.headers_mut().insert(LINK, link);
    }
    response
}

/// RFC 9727 section 7.3.
const PROFILE: &str = "https://www.rfc-editor.org/info/rfc9727";

/// A public document that caches may keep for five minutes and then ask whether it is still good.
pub(crate) fn cached(media_type: &str, body: &Bytes, request: &HeaderMap) -> Response {
    let tag = URL_SAFE_NO_PAD.encode(digest(&SHA256, body).as_ref());
    let tag = format!("\"{tag}\"");
    let is_current = request
        .get_all(IF_NONE_MATCH)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(str::trim)
        .any(|value| value == "*" || value.strip_prefix("W/").unwrap_or(value) == tag);
    let headers = [
        (CACHE_CONTROL, "public, max-age=300".to_owned()),
        (ETAG, tag),
    ];
    if is_current {
        return (StatusCode::NOT_MODIFIED, headers).into_response();
    }
    (
        headers,
        [(CONTENT_TYPE, media_type.to_owned())],
        body.clone(),
    )
        .into_response()
}
