//! Conversion of a session, its participants and its requests to the API types of the Engine API
//! and of events. None of these contains a byte of a terminal (WT-3).

use api::webtty::{ControlRequest, Participant, ParticipantLive, Session, SessionLive};
use jiff::Timestamp;
use serde_json::{Map, Value};
use tty::managed;
use types::webtty::{Role, SessionMode, SessionStatus};

use super::running::SessionAttributes;

/// Converts a session.
pub(super) fn session(
    facts: &SessionAttributes,
    session: &managed::Session,
    command: Option<&str>,
    has_upstream: bool,
) -> Session {
    let over = session.ended_at().is_some();
    let mode = match (session.has_terminal(), facts.context.mode) {
        (true, _) => SessionMode::Interactive,
        // The mode is decided by the client's first message.
        (false, Some(mode)) if command.is_none() => mode,
        (false, _) => SessionMode::NonInteractive,
    };
    let connected = session.participants().filter(|p| p.is_connected());
    Session {
        id: facts.id.to_string(),
        workspace_id: facts.workspace_id.as_deref().map(str::to_owned),
        project_id: Some(facts.project.id.to_string()),
        cluster_id: facts.tunnel.cluster_id.clone(),
        server_id: Some(facts.policy.server.id.to_string()),
        tunnel_id: facts.tunnel.id.to_string(),
        client_id: Some(facts.tunnel.client_id.to_string()),
        initiator_user_id: facts.opener.user_id.clone(),
        group_id: facts.context.group_id.clone(),
        status: session.status(),
        session_mode: mode,
        recording_mode: facts.policy.recording,
        encryption_mode: facts.policy.encryption,
        downstream_transport: Some(facts.downstream),
        upstream_transport: Some(facts.upstream),
        command_meta: command.map(command_meta),
        context: facts.context.context.clone(),
        started_at: time(session.started_at()),
        ended_at: session.ended_at().map(time),
        exit_code: session.exit_code(),
        error_code: error_code(session).map(str::to_owned),
        error_message: session
            .ending()
            .map(|ending| ending.message().to_owned())
            .or_else(|| session.error().map(str::to_owned)),
        live: SessionLive {
            available: !over,
            attachable: session.is_attachable(),
            participant_count: connected.count(),
            controller_participant_id: session.controller_id().map(|id| id.to_string()),
            has_upstream: has_upstream && !over,
        },
    }
}

/// Machine-readable code of an abnormal end.
fn error_code(session: &managed::Session) -> Option<&'static str> {
    if let Some(ending) = session.ending() {
        return Some(ending.as_str());
    }
    match session.error() {
        Some(managed::SERVER_LOST) => Some("server_lost"),
        Some(_) => Some("server_error"),
        None => (session.status() == SessionStatus::Errored).then_some("session_error"),
    }
}

/// Removes the arguments of the command, which may be secrets, for callers that may only see
/// sessions.
pub(crate) fn without_arguments(mut session: Session) -> Session {
    if let Some(Value::String(line)) = session
        .command_meta
        .as_mut()
        .and_then(|meta| meta.get_mut("command"))
    {
        line.truncate(program(line).len());
    }
    session
}

/// The program of a command line.
pub(crate) fn program(line: &str) -> &str {
    line.split_once(' ').map_or(line, |(program, _)| program)
}

fn command_meta(command: &str) -> Map<String, Value> {
    let command = Value::String(command.to_owned());
    [("command".to_owned(), command)].into_iter().collect()
}

/// Converts a present or past participant.
pub(crate) fn participant(session: &managed::Session, one: &managed::Participant) -> Participant {
    let is_controller = session.controller_id() == Some(one.id);
    let state = match one.detached_at {
        Some(_) => "detached",
        None if one.is_connected() => "attached",
        None => "requested",
    };
    Participant {
        id: one.id.to_string(),
        session_id: session.id().to_string(),
        user_id: one.person.user_id.clone(),
        device_id: one.person.device_id.clone(),
        browser_id: one.person.browser_id.clone(),
        role: if is_controller {
            Role::Controller
        } else {
            Role::Spectator
        },
        attached_at: time(one.attached_at),
        detached_at: one.detached_at.map(time),
        controller: is_controller,
        grant_state: state.to_owned(),
        attach_grant: None,
        attach_grant_expires_at: None,
        live: ParticipantLive {
            connected: one.is_connected(),
            controller: is_controller,
        },
    }
}

/// Converts a control request, with the metadata of its requester.
pub(crate) fn request(
    session: &managed::Session,
    request: &managed::ControlRequest,
    metadata: Option<Map<String, Value>>,
) -> ControlRequest {
    ControlRequest {
        id: request.id.to_string(),
        session_id: session.id().to_string(),
        requester_participant_id: request.requester.to_string(),
        requester_user_id: request.requester_user_id.clone(),
        approver_participant_id: request.approver.map(|id| id.to_string()),
        approver_user_id: request.approver_user_id.clone(),
        status: request.status,
        reason: request.reason.clone(),
        metadata,
        control_seconds: request.limit.time.map(|time| time.as_secs()),
        control_lines: request.limit.lines,
        created_at: time(request.created_at),
        updated_at: time(request.updated_at),
        resolved_at: request.resolved_at.map(time),
        expires_at: Some(time(request.expires_at)),
    }
}

/// RFC 3339 in UTC with milliseconds.
pub(super) fn time(at: Timestamp) -> String {
    format!("{at:.3}")
}
