//! `GET /link/v1/changes`: opening the stream of changes.

use std::sync::Arc;

use api::link::{Cursor, VERSION};
use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use http::HeaderValue;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use store::changes::{self, Version};

use super::caller::{Engine, LINK_VERSION};
use super::cluster::Cluster;
use super::lines::lines;
use super::link::Link;
use crate::app::App;
use crate::http_api::extract::{ClientIp, Query};
use crate::http_api::problem::HandlerResult;

/// Opens a link. It fails if the database does not respond.
pub(super) async fn stream(
    engine: Engine,
    State(app): State<Arc<App>>,
    ClientIp(ip): ClientIp,
    mut query: Query,
) -> HandlerResult<Response> {
    let since = query.text("since");
    query.finish()?;
    let permit = app.engines.acquire_link_permit()?;
    let version = since.and_then(|text| parse_cursor(&engine.cluster, &text));
    let mut conn = app.store.read().await?;
    let is_kept = match &version {
        Some(version) => changes::is_in_log(&mut conn, version).await?,
        None => changes::head(&mut conn).await.map(|_| false)?,
    };
    drop(conn);
    let (out, body) = lines();
    let link = Link::new(
        Arc::clone(&app),
        engine,
        ip,
        version.filter(|_| is_kept),
        out,
    )?;
    app.engines.tasks.spawn(async move {
        link.run().await;
        drop(permit);
    });
    let mut response = Response::new(Body::new(body));
    let headers = response.headers_mut();
    headers.insert(
        CONTENT_TYPE,
        HeaderValue::from_static("application/x-ndjson"),
    );
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(LINK_VERSION, HeaderValue::from_static(VERSION));
    Ok(response)
}

/// The cursor for the engine.
pub(super) fn cursor_at(cluster: &Cluster, at: &Version) -> Cursor {
    Cursor(format!("{}.{}{}", at.version, at.mark, cluster.fingerprint))
}

/// The log position of a cursor. `None` if the cursor is from another configuration or invalid.
fn parse_cursor(cluster: &Cluster, cursor: &str) -> Option<Version> {
    let (version, mark) = cursor.split_once('.')?;
    let mark = mark.strip_suffix(cluster.fingerprint.as_str())?;
    let is_plain = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric());
    (cursor.len() <= MAX_CURSOR_BYTES && is_plain(version) && is_plain(mark)).then_some(())?;
    Some(Version {
        version: version.parse().ok()?,
        mark: mark.to_owned(),
    })
}

/// Upper bound for a 64-bit number, a mark and a fingerprint.
const MAX_CURSOR_BYTES: usize = 64;
