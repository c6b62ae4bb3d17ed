//! `GET /api/credentials/{credential_id}`.

use std::sync::Arc;

use api::control::credentials::Credential;
use axum::Json;
use axum::extract::State;
use store::credentials as stored;
use types::problem::Problem;

use super::view::view;
use crate::app::App;
use crate::caller::{Caller, CredentialsRead};
use crate::http_api::extract::Path;
use crate::http_api::problem::HandlerResult;

pub(super) async fn get(
    Caller { principal: who, .. }: Caller<CredentialsRead>,
    State(app): State<Arc<App>>,
    Path(credential_id): Path<String>,
) -> HandlerResult<Json<Credential>> {
    let Ok(id) = credential_id.parse() else {
        return Err(Problem::not_found().into());
    };
    let mut read = app.store.read().await?;
    let found = stored::of_user_by_id(&mut read, who.user.id, id).await?;
    let found = found.filter(|found| found.revoked_at.is_none());
    let found = found.ok_or_else(Problem::not_found)?;
    Ok(Json(view(&found, app.now())))
}
