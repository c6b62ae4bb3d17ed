//! Terminal operations of AI clients: list servers, run commands, watch sessions, request control,
//! and type with permission.
//!
//! All operations use WebTTY like a user does, with the caller's credential and the AI client's
//! name. A watched session stays joined between two calls in its own task, because control belongs
//! to a participant. The task leaves after a time without calls.

mod exec;
mod watch_task;

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

use ::mcp::{Agent, TerminalAction, TerminalRequest};
use aws_lc_rs::digest::{SHA256, digest};
use bytes::Bytes;
use client::{
    Config,
    api::{Api, ListQuery},
};
use http::{Response, StatusCode};
use parking_lot::Mutex;
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Map, Value, json};
use terminal::client::inventory;

use self::watch_task::WatchTask;
use crate::failure::Failure;

/// All watch tasks of AI clients.
#[derive(Debug, Default)]
pub(crate) struct Terminals {
    watched: Mutex<HashMap<ParticipationKey, Arc<WatchTask>>>,
}

/// Identifies a caller's participation in a session.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct ParticipationKey {
    /// Hash of the token.
    token_hash: Vec<u8>,
    engine: String,
    session: String,
}

/// An error as the API reports it. The code may come from an engine.
#[derive(Debug)]
struct TerminalError(Box<Refusal>);

#[derive(Debug)]
struct Refusal {
    status: u16,
    code: String,
    detail: String,
    /// The invalid argument.
    field: Option<&'static str>,
}

impl TerminalError {
    fn new(status: u16, code: &str, detail: impl Into<String>) -> Self {
        Self(Box::new(Refusal {
            status,
            code: code.to_owned(),
            detail: detail.into(),
            field: None,
        }))
    }

    fn response(&self) -> Response<Bytes> {
        let Self(refusal) = self;
        let problem =
            json!({"code": refusal.code, "detail": refusal.detail, "field": refusal.field});
        let mut response = Response::new(Bytes::from(problem.to_string()));
        *response.status_mut() =
            StatusCode::from_u16(refusal.status).unwrap_or(StatusCode::BAD_GATEWAY);
        response
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Screen {
    session_id: String,
    #[serde(default)]
    wait_seconds: u64,
    #[serde(default)]
    leave: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TypeArguments {
    session_id: String,
    #[serde(rename = "line")]
    text: String,
    #[serde(default)]
    wait_seconds: u64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RequestControlArguments {
    session_id: String,
    reason: String,
    lines: Option<u32>,
    minutes: Option<u64>,
}

impl Terminals {
    /// Performs an operation of an AI client on this engine, with its token. Returns an HTTP
    /// response.
    pub(crate) async fn answer(&self, config: Config, ask: TerminalRequest) -> Response<Bytes> {
        // A participation belongs to one credential. A sign-in with another one cannot use it.
        let token = match config.tokens.token().await {
            Ok(token) => token,
            Err(error) => return from_failure(&error.into()).response(),
        };
        let who = digest(&SHA256, token.expose().as_bytes());
        let who = who.as_ref().to_vec();
        match Box::pin(self.act(config, who, ask)).await {
            Ok(value) => Response::new(value.to_string().into()),
            Err(refusal) => refusal.response(),
        }
    }

    /// Leaves all sessions.
    pub(crate) async fn leave_all(&self) {
        let all: Vec<_> = self.watched.lock().drain().collect();
        for (_, watched) in all {
            watched.leave().await;
        }
    }

    async fn act(
        &self,
        config: Config,
        who: Vec<u8>,
        ask: TerminalRequest,
    ) -> Result<Value, TerminalError> {
        let TerminalRequest {
            act,
            arguments,
            agent,
        } = ask;
        match act {
            TerminalAction::List => {
                let servers = list_servers(&config).await?;
                Ok(json!({ "servers": servers }))
            }
            TerminalAction::Exec => exec::exec(config, parse_arguments(arguments)?, &agent).await,
            TerminalAction::Screen => {
                let args: Screen = parse_arguments(arguments)?;
                let key = participation_key(who, &config, args.session_id);
                let watched = self.find_or_join(&key, config, &agent).await?;
                let wait = Duration::from_secs(args.wait_seconds.min(MAX_WAIT));
                let shown = watched.screen(wait).await;
                if args.leave || shown.is_none() {
                    self.forget(&key, &watched);
                    watched.leave().await;
                }
                shown.ok_or_else(session_ended)
            }
            TerminalAction::RequestControl => {
                let args: RequestControlArguments = parse_arguments(arguments)?;
                let key = participation_key(who, &config, args.session_id);
                let watched = self.find_or_join(&key, config, &agent).await?;
                let ask = crate::engine_client::participant::ControlOptions {
                    // The platform shows the account to the approver. The text adds that an AI
                    // client acts for it.
                    reason: Some(format!("{} (AI client): {}", agent.name, args.reason)),
                    lines: args.lines.or(args.minutes.is_none().then_some(1)),
                    seconds: args.minutes.map(|minutes| minutes.saturating_mul(60)),
                };
                let request = watched
                    .request_control(ask)
                    .await
                    .ok_or_else(session_ended)?;
                request.map_err(|failure| from_failure(&failure))
            }
            TerminalAction::Type => {
                let args: TypeArguments = parse_arguments(arguments)?;
                if args.text.chars().any(char::is_control) {
                    let why = "a line must not contain control characters; the line end is added";
                    return Err(invalid("line", why));
                }
                let key = participation_key(who, &config, args.session_id);
                let watched = self.find(&key).ok_or_else(no_control)?;
                let wait = Duration::from_secs(args.wait_seconds.min(MAX_WAIT));
                let typed = watched.type_line(args.text, wait).await;
                typed.ok_or_else(session_ended)?.map_err(|()| no_control())
            }
        }
    }

    fn find(&self, key: &ParticipationKey) -> Option<Arc<WatchTask>> {
        let mut watched = self.watched.lock();
        // Ended tasks do not count towards the limit. Their last screen was already reported.
        watched.retain(|_, watched| !watched.is_over());
        watched.get(key).cloned()
    }

    async fn find_or_join(
        &self,
        key: &ParticipationKey,
        config: Config,
        agent: &Agent,
    ) -> Result<Arc<WatchTask>, TerminalError> {
        if let Some(watched) = self.find(key) {
            return Ok(watched);
        }
        let (all, own) = {
            let watched = self.watched.lock();
            let own = watched
                .keys()
                .filter(|known| known.token_hash == key.token_hash);
            (watched.len(), own.count())
        };
        check_capacity(all, own)?;
        let about = agent_attributes(agent);
        let joined = crate::engine_client::participant::JoinedParticipant::join(
            &config,
            &key.session,
            Some(about),
        )
        .await;
        let joined = joined.map_err(|failure| from_failure(&failure))?;
        let started = Arc::new(WatchTask::start(key.session.clone(), joined));
        // If two calls join at the same time, the second participant leaves when it is dropped.
        let mut watched = self.watched.lock();
        let kept = watched.entry(key.clone()).or_insert(started);
        Ok(Arc::clone(kept))
    }

    fn forget(&self, key: &ParticipationKey, over: &Arc<WatchTask>) {
        let mut watched = self.watched.lock();
        if watched
            .get(key)
            .is_some_and(|known| Arc::ptr_eq(known, over))
        {
            watched.remove(key);
        }
    }
}

/// The servers of an engine.
async fn list_servers(config: &Config) -> Result<Vec<inventory::Server>, TerminalError> {
    let api = Api::new(config).map_err(|error| from_failure(&error.into()))?;
    let tunnels = api.tunnels(&ListQuery::new()).await;
    let tunnels = tunnels.map_err(|error| from_failure(&error.into()))?;
    Ok(inventory::servers(&tunnels))
}

/// Attributes of the AI client, for viewers of the session.
fn agent_attributes(agent: &Agent) -> Map<String, Value> {
    let fields = [
        ("origin", "api"),
        ("initiator_kind", "agent"),
        ("agent_name", &agent.name),
        ("agent_version", &agent.version),
    ];
    let fields = fields.into_iter().filter(|(_, value)| !value.is_empty());
    fields
        .map(|(name, value)| (name.to_owned(), value.into()))
        .collect()
}

fn participation_key(who: Vec<u8>, config: &Config, session: String) -> ParticipationKey {
    ParticipationKey {
        token_hash: who,
        engine: config.engine.to_string(),
        session,
    }
}

fn parse_arguments<T: DeserializeOwned>(arguments: Map<String, Value>) -> Result<T, TerminalError> {
    serde_json::from_value(Value::Object(arguments))
        .map_err(|error| invalid("arguments", error.to_string()))
}

fn invalid(argument: &'static str, why: impl Into<String>) -> TerminalError {
    let mut refusal = TerminalError::new(400, "invalid_request", why);
    refusal.0.field = Some(argument);
    refusal
}

fn session_ended() -> TerminalError {
    let why = "The session has ended, or you left it.";
    TerminalError::new(409, "session_not_active", why)
}

/// The error for typing without control, with the next step.
fn no_control() -> TerminalError {
    let why = "Nothing was typed: you do not have control of this session. Ask for it with \
               svc_webtty_control_request_create (a reason, and lines or minutes), then call \
               svc_webtty_session_screen with wait_seconds until control.state is held; a user \
               decides. Then type.";
    TerminalError::new(409, "control_required", why)
}

/// Converts a failure of a command to a problem.
fn from_failure(failure: &Failure) -> TerminalError {
    use crate::failure::Code;
    let status = match failure.code() {
        Code::Refused => 403,
        Code::Usage => 400,
        Code::Conflict => 409,
        Code::NotAvailable => 501,
        Code::Failed | Code::OutputClosed => 502,
    };
    let mut detail = failure.message().to_owned();
    if let Some(hint) = failure.next_step() {
        detail.push_str("; ");
        detail.push_str(hint);
    }
    TerminalError::new(status, failure.name(), detail)
}

/// Checks the limits of watched sessions, in total and for one caller.
fn check_capacity(all: usize, own: usize) -> Result<(), TerminalError> {
    if own >= MAX_WATCHED_PER_CALLER {
        let why = "You take part in the maximum number of sessions. Leave one: \
                   svc_webtty_session_screen with leave.";
        return Err(TerminalError::new(409, "too_many_sessions", why));
    }
    // Sessions of other callers, which this caller cannot leave.
    if all >= MAX_WATCHED {
        let why = "Too many terminals are being watched. Call again in a few minutes.";
        return Err(TerminalError::new(503, "too_many_terminals", why));
    }
    Ok(())
}

/// The remaining part of a wait that started at `from`.
fn remaining(from: Instant, wait: Duration) -> Duration {
    wait.saturating_sub(from.elapsed())
}

/// Limit of `wait_seconds`. Clients time out after about half a minute.
const MAX_WAIT: u64 = 25;
/// Limit of sessions that one process watches. Each has a connection and a screen.
const MAX_WATCHED: usize = 256;
/// Limit of sessions that one caller watches.
const MAX_WATCHED_PER_CALLER: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_caller_without_sessions_is_not_advised_to_leave() {
        let refused = |all, own| {
            check_capacity(all, own)
                .err()
                .map(|TerminalError(refusal)| refusal.status)
        };
        assert_eq!(refused(MAX_WATCHED - 1, MAX_WATCHED_PER_CALLER - 1), None);
        assert_eq!(
            refused(MAX_WATCHED_PER_CALLER, MAX_WATCHED_PER_CALLER),
            Some(409)
        );
        assert_eq!(refused(MAX_WATCHED, MAX_WATCHED_PER_CALLER), Some(409));
        assert_eq!(refused(MAX_WATCHED, 0), Some(503));
    }
}
