//! Requests for control, and the answers to them.

use std::sync::Arc;
use std::time::Duration;

use ::api::webtty::{ControlRequestBody, ControlRequestFilter, ResolveBody};
use axum::body::Bytes;
use axum::extract::rejection::{BytesRejection, PathRejection};
use axum::extract::{Path, State};
use axum::response::IntoResponse as _;
use daemon::problem::Refusal;
use http::{StatusCode, Uri};
use jiff::Timestamp;
use tty::managed::{Approver, Ask, ControlLimit, Refused};
use tty::message::limits::MAX_ERROR;
use types::filter::ListParams;
use types::id::{ControlRequestId, ParticipantId};
use types::permission::Permission;
use types::problem::Problem;
use types::webtty::ControlAction;

use super::{Answer, at_most, body, credential_of, json, not_allowed, path, refused};
use crate::agents::random_bytes;
use crate::api::Api;
use crate::api::caller::{Caller, ReadTerminals, WriteTerminals};
use crate::live::Load;
use crate::webtty::Running;

/// The requests that match, in their order.
pub(super) async fn list<A: Load>(
    caller: Caller<ReadTerminals>,
    State(api): State<Arc<Api<A>>>,
    uri: Uri,
    id: Result<Path<String>, PathRejection>,
) -> Answer {
    let query = uri.query().unwrap_or_default();
    let params = ListParams::<ControlRequestFilter>::from_query(query, api.compat)?;
    let known = api.session_of(&caller, &path(id)?)?;
    let mut requests = known.requests();
    requests.retain(|request| params.filters.matches(request));
    requests.truncate(at_most(params.limit));
    Ok(json(requests))
}

/// Asks for control, for a participant of the caller's (WT-4).
pub(super) async fn ask<A: Load>(
    caller: Caller<WriteTerminals>,
    State(api): State<Arc<Api<A>>>,
    id: Result<Path<String>, PathRejection>,
    bytes: Result<Bytes, BytesRejection>,
) -> Answer {
    let asked: ControlRequestBody = body(bytes)?;
    let missing = || Problem::invalid_request("is required").with_field("participant_id");
    let participant = asked.participant_id.as_deref().ok_or_else(missing)?;
    let expires_at = asked.expires_at.as_deref().map(str::parse::<Timestamp>);
    let expires_at = expires_at
        .transpose()
        .map_err(|_| refused(Refused::Invalid("expires_at")))?;
    let ask = Ask {
        reason: asked.reason,
        expires_at,
        limit: ControlLimit {
            time: asked.control_seconds.map(Duration::from_secs),
            lines: asked.control_lines,
        },
    };
    let permission = Permission::WebttySessionsReadWrite;
    let session = api.running_of(&caller, &path(id)?, permission)?;
    let participant = own(&caller, &session, participant)?;
    let now = u64::try_from(api.clock.now().as_millisecond()).unwrap_or(0);
    let request = ControlRequestId::new(now, random_bytes());
    let with = (credential_of(&caller.token), asked.metadata);
    let request = session
        .request_control(request, participant, ask, with)
        .map_err(refused)?;
    Ok((StatusCode::CREATED, json(request)).into_response())
}

/// Answers a request, or takes back what was given: who has control, through a participant of
/// theirs, or an owner.
pub(super) async fn resolve<A: Load>(
    caller: Caller<WriteTerminals>,
    State(api): State<Arc<Api<A>>>,
    ids: Result<Path<(String, String)>, PathRejection>,
    bytes: Result<Bytes, BytesRejection>,
) -> Answer {
    let asked: ResolveBody = body(bytes)?;
    let missing = || Problem::invalid_request("is required").with_field("action");
    let action = asked.action.ok_or_else(missing)?;
    if asked
        .reason
        .as_ref()
        .is_some_and(|why| why.len() > MAX_ERROR)
    {
        return Err(refused(Refused::Invalid("reason")).into());
    }
    let (id, request) = path(ids)?;
    let permission = Permission::WebttySessionsReadWrite;
    let session = api.running_of(&caller, &id, permission)?;
    let request: ControlRequestId = request.parse().map_err(|_| Problem::not_found())?;
    session.request(&request).ok_or_else(Problem::not_found)?;
    let by = match &asked.approver_participant_id {
        Some(participant) => Approver::Participant(own(&caller, &session, participant)?),
        None if api.owns(&caller, &session) => Approver::Owner {
            user_id: caller.token.user_id.clone(),
        },
        None => {
            let why = "only the controller or an owner answers a request";
            return Err(not_allowed(why).into());
        }
    };
    // A program that acts for somebody has their rights. It must not be its own judge.
    let grants = action == ControlAction::Grant;
    if grants && session.was_asked_with(&request, &credential_of(&caller.token)) {
        let why = "a request is not granted with the credential that made it";
        return Err(not_allowed(why).into());
    }
    session
        .act(|session, now| session.resolve(request, &by, action, now).map(drop))
        .map_err(refused)?;
    let shown = session.request(&request).ok_or_else(Problem::not_found)?;
    Ok(json(shown))
}

/// A participant that is the caller's own.
fn own<N>(
    caller: &Caller<N>,
    session: &Running,
    participant: &str,
) -> Result<ParticipantId, Refusal> {
    let not_there = || {
        let problem = Problem::invalid_request("no participant of yours has this id");
        problem.with_field("participant_id")
    };
    let id: ParticipantId = participant.parse().map_err(|_| not_there())?;
    let own = session.look(|session| {
        let mut all = session.participants();
        all.any(|one| one.id == id && one.person.user_id == caller.token.user_id)
    });
    if own && caller.token.user_id.is_some() {
        Ok(id)
    } else {
        Err(not_there().into())
    }
}
