//! Groups of sessions, as declared by their openers: one task of an agent, one incident.

use std::collections::BTreeMap;
use std::sync::Arc;

use ::api::webtty::{GroupFilter, Session, SessionGroup};
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use http::Uri;
use types::filter::ListParams;
use types::permission::Permission;
use types::problem::Problem;

use super::{HandlerResult, at_most, check_may_list, json, path};
use crate::api::Api;
use crate::api::caller::{Caller, ReadTerminals};
use crate::live::LoadMetric;
use crate::webtty::SessionEntry;

/// The groups that match, the newest first.
pub(super) async fn list<A: LoadMetric>(
    caller: Caller<ReadTerminals>,
    State(api): State<Arc<Api<A>>>,
    uri: Uri,
) -> HandlerResult {
    let query = uri.query().unwrap_or_default();
    let params = ListParams::<GroupFilter>::from_query(query, api.compat)?;
    check_may_list(&caller, Permission::WebttySessionsReadOnly)?;
    let mut groups: Vec<_> = groups(&api.sessions_of(&caller.token, &caller.project));
    groups.sort_by(|left, right| right.created_at.cmp(&left.created_at));
    groups.retain(|group| params.filters.matches(group));
    groups.truncate(at_most(params.limit));
    Ok(json(groups))
}

/// One group.
pub(super) async fn one<A: LoadMetric>(
    caller: Caller<ReadTerminals>,
    State(api): State<Arc<Api<A>>>,
    id: Result<Path<String>, PathRejection>,
) -> HandlerResult {
    let id = path(id)?;
    let all = groups(&api.sessions_of(&caller.token, &caller.project));
    let found = all.into_iter().find(|group| group.id == id);
    Ok(json(found.ok_or_else(Problem::not_found)?))
}

fn groups(sessions: &[SessionEntry]) -> Vec<SessionGroup> {
    let mut groups: BTreeMap<String, SessionGroup> = BTreeMap::new();
    let mut sessions: Vec<Session> = sessions.iter().map(SessionEntry::session).collect();
    // The first session of a group describes its purpose.
    sessions.sort_by(|left, right| left.id.cmp(&right.id));
    for session in sessions {
        let Some(id) = session.group_id.clone() else {
            continue;
        };
        let changed = session
            .ended_at
            .clone()
            .max(Some(session.started_at.clone()));
        let changed = changed.unwrap_or_default();
        if let Some(group) = groups.get_mut(&id) {
            // All times have the same format, so they can be compared as text.
            group.updated_at = group.updated_at.clone().max(changed);
            group.closed_at = match (group.closed_at.take(), session.ended_at) {
                (Some(before), Some(ended)) => Some(before.max(ended)),
                _ => None,
            };
        } else {
            let group = SessionGroup {
                id: id.clone(),
                workspace_id: session.workspace_id,
                project_id: session.project_id,
                initiator_user_id: session.initiator_user_id,
                context: session.context,
                created_at: session.started_at,
                updated_at: changed,
                closed_at: session.ended_at,
            };
            groups.insert(id, group);
        }
    }
    groups.into_values().collect()
}
