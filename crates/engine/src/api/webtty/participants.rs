//! Participants of a session: lists, attaching and detaching.

use std::sync::Arc;

use ::api::webtty::{AttachBody, DetachBody};
use axum::body::Bytes;
use axum::extract::rejection::{BytesRejection, PathRejection};
use axum::extract::{Path, State};
use axum::response::IntoResponse as _;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use daemon::problem::Refusal;
use http::{HeaderMap, StatusCode};
use tty::managed::{GRANT_LEN, NewParticipant, Person, SessionRefusalError};
use tty::message::limits::{MAX_ERROR, MAX_ID};
use types::id::{ParticipantId, unix_millis};
use types::permission::Permission;
use types::problem::Problem;
use types::webtty::{Role, Transport};

use super::{HandlerResult, body, json, path, person_of, refused};
use crate::api::Api;
use crate::api::caller::{Caller, ReadTerminals};
use crate::live::LoadMetric;
use crate::random::random_bytes;
use crate::webtty::display_name;

/// The current and past participants, in the order in which they joined.
pub(super) async fn list<A: LoadMetric>(
    caller: Caller<ReadTerminals>,
    State(api): State<Arc<Api<A>>>,
    id: Result<Path<String>, PathRejection>,
) -> HandlerResult {
    let known = api.session_of(&caller, &path(id)?)?;
    Ok(json(known.participants()))
}

/// Attaches the caller as a spectator (WT-4). The grant in the response is valid once, on the
/// stream.
pub(super) async fn attach<A: LoadMetric>(
    caller: Caller<ReadTerminals>,
    State(api): State<Arc<Api<A>>>,
    headers: HeaderMap,
    id: Result<Path<String>, PathRejection>,
    bytes: Result<Bytes, BytesRejection>,
) -> HandlerResult {
    let request: AttachBody = body(bytes)?;
    check(&request)?;
    let permission = api.terminal_permission(&caller.token, &caller.project)?;
    let session = api.running_of(&caller, &path(id)?, permission)?;
    let lifetime = caller
        .lifetime(&api, &headers, permission)
        .ok_or_else(Problem::unauthenticated)?;
    let grant: [u8; GRANT_LEN] = random_bytes();
    let name = display_name(caller.token.user_id.as_deref(), &api.tenancy)
        .or_else(|| caller.token.client_id.clone());
    let new = NewParticipant {
        id: ParticipantId::new(unix_millis(api.clock.now()), random_bytes()),
        person: Person {
            name: name.unwrap_or_default(),
            device_id: request.device_id,
            browser_id: request.browser_id,
            ..person_of(&caller.token)
        },
        grant,
        may_control: api
            .tenancy
            .require(
                &caller.token,
                &caller.project,
                Permission::WebttySessionsReadWrite,
            )
            .is_ok(),
    };
    let attached = session.attach(new, Box::new(lifetime)).map_err(refused)?;
    let (mut participant, expires_at) = attached;
    participant.attach_grant = Some(STANDARD.encode(grant));
    participant.attach_grant_expires_at = Some(format!("{expires_at:.3}"));
    Ok(json(participant))
}

/// Removes a participant. Allowed for its own user with a browser session, for an owner of the
/// session with one, and for the credential that attached it, unless it opened the session or has
/// control.
pub(super) async fn detach<A: LoadMetric>(
    caller: Caller<ReadTerminals>,
    State(api): State<Arc<Api<A>>>,
    ids: Result<Path<(String, String)>, PathRejection>,
    bytes: Result<Bytes, BytesRejection>,
) -> HandlerResult {
    let request: DetachBody = body(bytes)?;
    if request
        .reason
        .as_ref()
        .is_some_and(|why| why.len() > MAX_ERROR)
    {
        return Err(refused(SessionRefusalError::Invalid("reason")).into());
    }
    let (id, participant) = path(ids)?;
    let permission = Permission::WebttySessionsReadOnly;
    let session = api.running_of(&caller, &id, permission)?;
    let participant: ParticipantId = participant.parse().map_err(|_| Problem::not_found())?;
    let owns = api.owns(&caller, &session);
    let person = person_of(&caller.token);
    session
        .update(|session, now| session.dismiss(participant, &person, owns, now))
        .map_err(refused)?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

fn check(asked: &AttachBody) -> Result<(), Refusal> {
    let invalid = |field: &str, why: &'static str| {
        Err(Problem::invalid_request(why).with_field(field).into())
    };
    if asked.role.is_some_and(|role| role != Role::Spectator) {
        return Err(refused(SessionRefusalError::NotAsController).into());
    }
    if asked.transport.is_some_and(|by| by != Transport::Websocket) {
        return invalid(
            "transport",
            "the stream of a participant must be a WebSocket",
        );
    }
    let state = asked.grant_state.as_deref();
    if state.is_some_and(|state| state != "requested") {
        return invalid("grant_state", "expected `requested`");
    }
    let bad = |id: &Option<String>| {
        id.as_ref()
            .is_some_and(|id| id.len() > MAX_ID || id.chars().any(char::is_control))
    };
    if bad(&asked.device_id) {
        return invalid("device_id", "too long, or not text");
    }
    if bad(&asked.browser_id) {
        return invalid("browser_id", "too long, or not text");
    }
    Ok(())
}
