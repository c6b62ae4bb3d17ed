//! `/api/user/sessions`: the browser sessions of the caller's user.

use std::sync::Arc;

use api::control::people::{BrowserSession, SessionList};
use api::control::whoami::CallerKind;
use axum::Json;
use axum::extract::State;
use http::StatusCode;
use jiff::Timestamp;
use store::Conn;
use store::sessions::{self, Session};
use types::id::{SessionId, UserId};
use types::permission::Permission;
use types::problem::Problem;

use super::session::is_idle;
use crate::app::App;
use crate::caller::{Caller, CredentialsRead, CredentialsWrite, Principal, Source};
use crate::http_api::extract::{Path, Query};
use crate::http_api::problem::HandlerResult;
use crate::http_api::wire::date;

pub(super) async fn list(
    caller: Caller<CredentialsRead>,
    State(app): State<Arc<App>>,
    query: Query,
) -> HandlerResult<Json<SessionList>> {
    query.finish()?;
    let who = caller.principal;
    let mut read = app.store.read().await?;
    let sessions = of_user(&mut read, who.user.id, &who, app.now()).await?;
    Ok(Json(sessions))
}

/// The sessions of a user that have not ended, as the caller `who` sees them.
pub(crate) async fn of_user(
    read: &mut Conn,
    user: UserId,
    who: &Principal,
    now: Timestamp,
) -> HandlerResult<SessionList> {
    let live = sessions::of_user(read, user, now).await?;
    let live = live.into_iter().filter(|session| !is_idle(session, now));
    Ok(SessionList {
        sessions: live.map(|session| view(session, who)).collect(),
    })
}

/// Ends a session, and with it all sessions of the user at tunnels, as on the account page.
pub(super) async fn end(
    caller: Caller<CredentialsWrite>,
    State(app): State<Arc<App>>,
    Path(id): Path<String>,
) -> HandlerResult<StatusCode> {
    let who = caller.principal;
    let id: SessionId = id.parse().map_err(|_| Problem::not_found())?;
    require_all_rights(&who)?;
    let mut tx = app.store.begin().await?;
    if !sessions::end_one(&mut tx, who.user.id, id, app.now()).await? {
        // The sessions at tunnels stay as well.
        return Err(Problem::not_found().into());
    }
    tx.commit().await?;
    Ok(StatusCode::NO_CONTENT)
}

/// A session has all rights of its user. A credential with fewer rights cannot end it, as it cannot
/// revoke a credential with more. A delegated token was minted for another purpose.
fn require_all_rights(who: &Principal) -> HandlerResult<()> {
    let is_whole = who.limits.permissions().is_none() && who.resources.is_none();
    if is_whole && who.kind != CallerKind::Auth {
        return Ok(());
    }
    let detail = "Only a session or a credential without restrictions can end a session.";
    let refused = Problem::insufficient_scope(Permission::AccountCredentialsReadWrite);
    Err(refused.with_detail(detail).into())
}

fn view(session: Session, who: &Principal) -> BrowserSession {
    BrowserSession {
        current: who.source == Source::Session(session.id),
        id: session.id.to_string(),
        user_agent: session.user_agent,
        ip: session.ip,
        created_at: date(session.created_at),
        last_seen_at: date(session.last_seen_at),
        expires_at: date(session.expires_at),
    }
}
