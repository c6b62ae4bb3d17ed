//! Requests for control, and the responses to them.

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
use tty::managed::{Approver, ControlLimit, NewControlRequest, SessionRefusalError};
use tty::message::limits::MAX_ERROR;
use types::filter::ListParams;
use types::id::{ControlRequestId, ParticipantId, unix_millis};
use types::permission::Permission;
use types::problem::Problem;

use super::{HandlerResult, at_most, body, json, not_allowed, path, person_of, refused};
use crate::api::Api;
use crate::api::caller::{Caller, ReadTerminals, WriteTerminals};
use crate::live::LoadMetric;
use crate::random::random_bytes;
use crate::webtty::RunningSession;

/// The requests that match, in their order.
pub(super) async fn list<A: LoadMetric>(
    caller: Caller<ReadTerminals>,
    State(api): State<Arc<Api<A>>>,
    uri: Uri,
    id: Result<Path<String>, PathRejection>,
) -> HandlerResult {
    let query = uri.query().unwrap_or_default();
    let params = ListParams::<ControlRequestFilter>::from_query(query, api.compat)?;
    let known = api.session_of(&caller, &path(id)?)?;
    let mut requests = known.requests();
    requests.retain(|request| params.filters.matches(request));
    requests.truncate(at_most(params.limit));
    Ok(json(requests))
}

/// Requests control for a participant of the caller (WT-4).
pub(super) async fn create<A: LoadMetric>(
    caller: Caller<WriteTerminals>,
    State(api): State<Arc<Api<A>>>,
    id: Result<Path<String>, PathRejection>,
    bytes: Result<Bytes, BytesRejection>,
) -> HandlerResult {
    let requested: ControlRequestBody = body(bytes)?;
    let missing = || Problem::invalid_request("is required").with_field("participant_id");
    let participant = requested.participant_id.as_deref().ok_or_else(missing)?;
    let expires_at = requested.expires_at.as_deref().map(str::parse::<Timestamp>);
    let expires_at = expires_at
        .transpose()
        .map_err(|_| refused(SessionRefusalError::Invalid("expires_at")))?;
    let ask = NewControlRequest {
        reason: requested.reason,
        expires_at,
        limit: ControlLimit {
            time: requested.control_seconds.map(Duration::from_secs),
            lines: requested.control_lines,
        },
    };
    let permission = Permission::WebttySessionsReadWrite;
    let session = api.running_of(&caller, &path(id)?, permission)?;
    let participant = own_participant(&caller, &session, participant)?;
    let now = unix_millis(api.clock.now());
    let request = ControlRequestId::new(now, random_bytes());
    let request = session
        .request_control(request, participant, ask, requested.metadata)
        .map_err(refused)?;
    Ok((StatusCode::CREATED, json(request)).into_response())
}

/// Resolves a request or revokes control: allowed for the participant in control and for owners.
pub(super) async fn resolve<A: LoadMetric>(
    caller: Caller<WriteTerminals>,
    State(api): State<Arc<Api<A>>>,
    ids: Result<Path<(String, String)>, PathRejection>,
    bytes: Result<Bytes, BytesRejection>,
) -> HandlerResult {
    let requested: ResolveBody = body(bytes)?;
    let missing = || Problem::invalid_request("is required").with_field("action");
    let action = requested.action.ok_or_else(missing)?;
    if requested
        .reason
        .as_ref()
        .is_some_and(|why| why.len() > MAX_ERROR)
    {
        return Err(refused(SessionRefusalError::Invalid("reason")).into());
    }
    let (id, request) = path(ids)?;
    let permission = Permission::WebttySessionsReadWrite;
    let session = api.running_of(&caller, &id, permission)?;
    let request: ControlRequestId = request.parse().map_err(|_| Problem::not_found())?;
    session.request(&request).ok_or_else(Problem::not_found)?;
    let by = match &requested.approver_participant_id {
        Some(participant) => Approver::Caller {
            participant: own_participant(&caller, &session, participant)?,
            caller: person_of(&caller.token),
        },
        None if api.owns(&caller, &session) => Approver::Owner(person_of(&caller.token)),
        None => {
            let why = "only the controller or an owner can answer a request";
            return Err(not_allowed(why).into());
        }
    };
    session
        .update(|session, now| session.resolve(request, &by, action, now).map(drop))
        .map_err(refused)?;
    let resolved = session.request(&request).ok_or_else(Problem::not_found)?;
    Ok(json(resolved))
}

/// Finds a participant of the caller: with credentials of the same chain, or of the user whose
/// browser session it is. Other credentials of the account have participants of their own.
fn own_participant<N>(
    caller: &Caller<N>,
    session: &RunningSession,
    participant: &str,
) -> Result<ParticipantId, Refusal> {
    let not_there = || {
        let problem = Problem::invalid_request("you have no participant with this id");
        problem.with_field("participant_id")
    };
    let id: ParticipantId = participant.parse().map_err(|_| not_there())?;
    let own = session.inspect(|session| {
        let mut all = session.participants();
        let person = person_of(&caller.token);
        all.any(|one| {
            let theirs = person.has_session() && person.has_same_account(&one.person);
            one.id == id && (theirs || person.is_same_party(&one.person))
        })
    });
    if own { Ok(id) } else { Err(not_there().into()) }
}
