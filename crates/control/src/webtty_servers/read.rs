//! `GET` of registered servers.

use std::sync::Arc;

use api::control::webtty_servers::{WebttyServer, WebttyServerList};
use axum::Json;
use axum::extract::State;
use serde::de::DeserializeOwned;
use store::Conn;
use store::projects::Project;
use store::webtty_servers;
use types::permission::Permission;
use types::problem::Problem;
use types::webtty::ServerStatus;

use super::enrollment::EnrollmentRecord;
use crate::app::App;
use crate::caller::access;
use crate::caller::{Caller, WebttyServersRead};
use crate::http_api::extract::{Path, Query, Segment};
use crate::http_api::problem::HandlerResult;
use crate::http_api::wire::date;

pub(super) async fn list(
    caller: Caller<WebttyServersRead>,
    State(app): State<Arc<App>>,
    Segment(id): Segment,
    mut query: Query,
) -> HandlerResult<Json<WebttyServerList>> {
    let page = query.page()?;
    let search = query.text("q").filter(|text| !text.is_empty());
    let status = query.keyword("status", &STATUSES)?;
    query.finish()?;
    let mut conn = app.store.read().await?;
    let found = access::project(&mut conn, &caller.principal, &id, PERMISSION).await?;
    let (search, status) = (search.as_deref(), status.map(ServerStatus::as_str));
    let rows =
        webtty_servers::list(&mut conn, found.project.id, search, status, page.rows()).await?;
    let shown = rows.items.iter().map(|row| to_api(row, &found.project));
    Ok(Json(WebttyServerList {
        servers: shown.collect::<HandlerResult<_>>()?,
        paging: page.position(rows.total),
    }))
}

pub(super) async fn get(
    caller: Caller<WebttyServersRead>,
    State(app): State<Arc<App>>,
    Path((project_id, server_id)): Path<(String, String)>,
    query: Query,
) -> HandlerResult<Json<WebttyServer>> {
    query.finish()?;
    let mut conn = app.store.read().await?;
    let found = access::project(&mut conn, &caller.principal, &project_id, PERMISSION).await?;
    let server = find_server(&mut conn, &found.project, &server_id).await?;
    Ok(Json(to_api(&server, &found.project)?))
}

/// The server with this id, of a project that the caller may see.
pub(super) async fn find_server(
    conn: &mut Conn,
    project: &Project,
    id: &str,
) -> HandlerResult<webtty_servers::WebttyServer> {
    let id = id.parse().map_err(|_| Problem::not_found())?;
    let found = webtty_servers::by_id(conn, project.id, id).await?;
    found.ok_or_else(|| Problem::not_found().into())
}

/// Converts a server into an API response.
pub(super) fn to_api(
    row: &webtty_servers::WebttyServer,
    project: &Project,
) -> HandlerResult<WebttyServer> {
    let enrolled: Option<EnrollmentRecord> = match &row.enrolment {
        Some(kept) => Some(read(row, kept.clone())?),
        None => None,
    };
    let enrolled = enrolled.unwrap_or_default();
    let word = |text: &String| serde_json::Value::String(text.clone());
    Ok(WebttyServer {
        id: row.id.to_string(),
        workspace_id: project.workspace_id.to_string(),
        project_id: row.project_id.to_string(),
        name: row.name.clone(),
        description: row.description.clone(),
        status: read(row, word(&row.status))?,
        recording_policy: read(row, word(&row.recording_policy))?,
        encryption_policy: read(row, word(&row.encryption_policy))?,
        access_policy: read(row, word(&row.access_policy))?,
        labels: read(row, row.labels.clone())?,
        capabilities: enrolled.capabilities,
        server_public_key: enrolled.server_public_key,
        server_signing_key_id: enrolled.server_signing_key_id,
        server_signing_public_key: enrolled.server_signing_public_key,
        server_fingerprint: enrolled.server_fingerprint,
        server_key_algorithm: enrolled.server_key_algorithm,
        enrolled_at: row.enrolled_at.map(date),
        created_by_user_id: row.created_by.to_string(),
        created_at: date(row.created_at),
        updated_at: date(row.updated_at),
    })
}

/// Parses a stored value, which this module has written.
fn read<T: DeserializeOwned>(
    row: &webtty_servers::WebttyServer,
    stored: serde_json::Value,
) -> HandlerResult<T> {
    T::deserialize(stored).map_err(|_| {
        tracing::error!(server.id = %row.id, "the stored record of a server cannot be read");
        Problem::internal().into()
    })
}

const PERMISSION: Permission = Permission::NetworkWebttyServersReadOnly;
const STATUSES: [(&str, ServerStatus); 3] = [
    ("pending_enrollment", ServerStatus::PendingEnrollment),
    ("active", ServerStatus::Active),
    ("suspended", ServerStatus::Suspended),
];
