//! Issuance of TURN credentials (CP-6, TU-1, TU-2, TU-3).

mod issue;

use std::sync::Arc;

use api::control::turn::{ISSUE_BY_ENDPOINT, ISSUE_BY_ID, IssueTurnCredential, TurnCredential};
use axum::extract::State;
use axum::{Json, Router};
use types::permission::Permission;

use crate::app::App;
use crate::caller::access;
use crate::caller::{Caller, TurnCredentialsCreate};
use crate::http_api::extract::{OptionalBody, Path};
use crate::http_api::problem::HandlerResult;
use crate::http_api::route::OperationRouter as _;

/// Issuance by id and by endpoint.
pub fn routes() -> Router<Arc<App>> {
    Router::new()
        .serve(ISSUE_BY_ID, by_id)
        .serve(ISSUE_BY_ENDPOINT, by_endpoint)
}

async fn by_id(
    Caller { principal: who, .. }: Caller<TurnCredentialsCreate>,
    State(app): State<Arc<App>>,
    Path(project_id): Path<String>,
    OptionalBody(body): OptionalBody<IssueTurnCredential>,
) -> HandlerResult<Json<TurnCredential>> {
    let ttl = issue::Ttl::parse(body.unwrap_or_default())?;
    let mut read = app.store.read().await?;
    let found = access::project(&mut read, &who, &project_id, CREATE_PERMISSION).await?;
    drop(read);
    access::require_usable(&found.project)?;
    issue::issue(&app, &who, &found.project, ttl)
        .await
        .map(Json)
}

async fn by_endpoint(
    Caller { principal: who, .. }: Caller<TurnCredentialsCreate>,
    State(app): State<Arc<App>>,
    Path(project_endpoint): Path<String>,
    OptionalBody(body): OptionalBody<IssueTurnCredential>,
) -> HandlerResult<Json<TurnCredential>> {
    let ttl = issue::Ttl::parse(body.unwrap_or_default())?;
    let mut read = app.store.read().await?;
    let found =
        access::project_of_endpoint(&mut read, &who, &project_endpoint, CREATE_PERMISSION).await?;
    drop(read);
    access::require_usable(&found.project)?;
    issue::issue(&app, &who, &found.project, ttl)
        .await
        .map(Json)
}

const CREATE_PERMISSION: Permission = Permission::TurnCredentialsCreate;
