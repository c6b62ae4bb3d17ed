//! Sessions: lists, a single session, and its end.

use std::collections::HashSet;
use std::sync::Arc;

use ::api::webtty::{KeyGrant, Session, SessionFilter};
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::response::IntoResponse as _;
use http::{StatusCode, Uri};
use types::filter::{Filter as _, ListParams};
use types::permission::Permission;
use types::tunnel::Tunnel;

use super::recordings::{read_problem, stored_session};
use super::{HandlerResult, at_most, check_may_list, json, not_allowed, path, refused, shows};
use crate::api::Api;
use crate::api::caller::{Caller, ReadTerminals, WriteTerminals};
use crate::live::LoadMetric;

/// The sessions that match: active ones, the newest first, then those that ended last, then stored
/// ones.
pub(super) async fn list<A: LoadMetric>(
    caller: Caller<ReadTerminals>,
    State(api): State<Arc<Api<A>>>,
    uri: Uri,
) -> HandlerResult {
    let query = uri.query().unwrap_or_default();
    let params = ListParams::<SessionFilter>::from_query(query, api.compat)?;
    check_may_list(&caller, Permission::WebttySessionsReadOnly)?;
    let all = api.sessions_of(&caller.token, &caller.project);
    let visible = all.iter().map(crate::webtty::SessionEntry::session);
    let matching = visible.filter(|session| params.filters.matches(session));
    let limit = at_most(params.limit.or(SessionFilter::DEFAULT_LIMIT));
    let mut sessions: Vec<_> = matching.take(limit).collect();
    let listed: HashSet<_> = all.iter().map(|known| known.session().id).collect();
    let (token, project) = (&caller.token, &caller.project);
    let select = |session: &Session, tunnel: &Tunnel| {
        !listed.contains(&session.id)
            && shows(token, project, tunnel)
            && params.filters.matches(session)
    };
    let rest = limit - sessions.len();
    let stored = api.terminals.recorder.sessions(&project.id, rest, select);
    let stored = stored.await.map_err(|why| read_problem(&why))?;
    sessions.extend(stored.into_iter().map(|stored| stored.session));
    let visible = sessions.into_iter();
    let visible = visible.map(|session| api.session_for(&caller, session));
    Ok(json(visible.collect::<Vec<_>>()))
}

/// One session.
pub(super) async fn one<A: LoadMetric>(
    caller: Caller<ReadTerminals>,
    State(api): State<Arc<Api<A>>>,
    id: Result<Path<String>, PathRejection>,
) -> HandlerResult {
    let id = path(id)?;
    let session = match api.session_of(&caller, &id) {
        Ok(known) => known.session(),
        Err(_) => stored_session(&api, &caller, &id).await?.1.session,
    };
    Ok(json(api.session_for(&caller, session)))
}

/// Ends a session. Only owners may.
pub(super) async fn terminate<A: LoadMetric>(
    caller: Caller<WriteTerminals>,
    State(api): State<Arc<Api<A>>>,
    id: Result<Path<String>, PathRejection>,
) -> HandlerResult {
    let permission = Permission::WebttySessionsReadWrite;
    let session = api.running_of(&caller, &path(id)?, permission)?;
    if !api.owns(&caller, &session) {
        return Err(not_allowed("only an owner can end a session").into());
    }
    session
        .update(|session, now| session.terminate(None, now))
        .map_err(refused)?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// Keys that were wrapped for participants. A sealed session has no participants except its opener,
/// so there are none.
pub(super) async fn key_grants<A: LoadMetric>(
    caller: Caller<ReadTerminals>,
    State(api): State<Arc<Api<A>>>,
    id: Result<Path<String>, PathRejection>,
) -> HandlerResult {
    api.session_of(&caller, &path(id)?)?;
    Ok(json(Vec::<KeyGrant>::new()))
}
