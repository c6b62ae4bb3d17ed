//! `/api/openapi.json`: the OpenAPI document, without authentication (EN-6).

use std::sync::LazyLock;

use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::header::CONTENT_TYPE;

pub(super) async fn serve() -> Response {
    static DOCUMENT: LazyLock<Bytes> = LazyLock::new(|| ::api::engine::document_json().into());
    (
        [(CONTENT_TYPE, ::api::engine::OPENAPI_MEDIA_TYPE)],
        DOCUMENT.clone(),
    )
        .into_response()
}
