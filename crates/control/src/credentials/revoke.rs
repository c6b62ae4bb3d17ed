//! `DELETE /api/credentials/{credential_id}`.

use std::sync::Arc;

use axum::extract::State;
use http::StatusCode;
use store::credentials as stored;
use types::problem::Problem;

use super::audit::{self, Action};
use crate::app::App;
use crate::caller::{Caller, CredentialsWrite};
use crate::extract::Path;
use crate::problem::Answer;

/// What was minted from it is no good from here on: every verification asks for its source.
pub(super) async fn revoke(
    Caller { who, .. }: Caller<CredentialsWrite>,
    State(app): State<Arc<App>>,
    Path(credential_id): Path<String>,
) -> Answer<StatusCode> {
    let Ok(id) = credential_id.parse() else {
        return Err(Problem::not_found().into());
    };
    let now = app.now();
    let mut tx = app.store.begin().await?;
    if !stored::revoke(&mut tx, who.user.id, id, now).await? {
        return Err(Problem::not_found().into());
    }
    audit::record(&mut tx, &who, Action::Revoked, id, now).await?;
    tx.commit().await?;
    Ok(StatusCode::NO_CONTENT)
}
