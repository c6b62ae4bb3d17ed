//! `/api/operator/users/{user_id}/sessions`: the browser sessions of any user.

use std::sync::Arc;

use api::control::people::SessionList;
use axum::Json;
use axum::extract::State;
use http::StatusCode;
use serde_json::json;
use store::{sessions, users};
use types::id::{SessionId, UserId};
use types::problem::Problem;

use crate::app::App;
use crate::audit::{self, Action, Actor, AuditTarget};
use crate::caller::Operator;
use crate::http_api::extract::{ClientIp, Path, Segment};
use crate::http_api::problem::HandlerResult;
use crate::people::session_list;

pub(super) async fn list(
    operator: Operator,
    State(app): State<Arc<App>>,
    Segment(id): Segment,
) -> HandlerResult<Json<SessionList>> {
    let id: UserId = id.parse().map_err(|_| Problem::not_found())?;
    let mut read = app.store.read().await?;
    let found = users::by_id(&mut read, id).await?;
    found.ok_or_else(Problem::not_found)?;
    let sessions = session_list::of_user(&mut read, id, &operator.principal, app.now()).await?;
    Ok(Json(sessions))
}

/// Ends a session, and with it all sessions of the user at tunnels.
pub(super) async fn end(
    operator: Operator,
    State(app): State<Arc<App>>,
    ClientIp(ip): ClientIp,
    Path((user, id)): Path<(String, String)>,
) -> HandlerResult<StatusCode> {
    let user: UserId = user.parse().map_err(|_| Problem::not_found())?;
    let id: SessionId = id.parse().map_err(|_| Problem::not_found())?;
    let now = app.now();
    let mut tx = app.store.begin().await?;
    if !sessions::end_one(&mut tx, user, id, now).await? {
        // The sessions at tunnels stay as well.
        return Err(Problem::not_found().into());
    }
    let actor = Actor::caller(&operator.principal).with_ip(ip);
    let (action, target) = (Action::SessionsEnded, AuditTarget::User(user));
    let details = json!({"sessionId": id.to_string()});
    audit::record_with(&mut tx, &actor, None, action, target, details, now).await?;
    tx.commit().await?;
    Ok(StatusCode::NO_CONTENT)
}
