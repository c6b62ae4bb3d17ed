//! Participation in another user's managed session: the screen, the control state, and the requests
//! for control.
//!
//! There is no polling: the stream reports when control is granted, refused or revoked.

use std::collections::VecDeque;

use api::webtty::{
    CONTROL_REQUESTS, Capabilities, ControlRequest, PARTICIPANTS, Participant as Listed, SESSION,
    STREAM, Session,
};
use base64::Engine as _;
use client::{
    Config,
    api::{Api, ApiError, Call, path},
};
use http::Method;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use terminal::client::{
    Attachment, CommandEnd, Endpoint, Input, Participant, ParticipantEvent, SessionError,
};
use tty::{
    managed::MAX_PENDING,
    message::{Notice, NoticeKind},
    screen::Screen,
    size::Size,
};

use crate::failure::{Code, Failure};

/// A participant of a session.
#[derive(Debug)]
pub(crate) struct JoinedParticipant {
    requester: ControlRequester,
    participant: Participant,
    input: Input,
    participant_id: String,
    screen: Option<Screen>,
    control: Control,
    /// Name of the other participant with control. `None` if it is this one.
    controller: Option<String>,
    /// Requests for control that this participant can answer.
    pending_requests: VecDeque<PendingControlRequest>,
    was_kicked: bool,
    is_recorded: bool,
}

/// State of this participant's control.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Control {
    /// Only watching.
    None,
    /// Requested, with this request id.
    Requested(String),
    /// Has control through this request.
    Granted(String),
    /// Result of the last request.
    Answered {
        request_id: String,
        outcome: &'static str,
    },
}

/// A pending request of another participant.
#[derive(Clone, Debug)]
pub(crate) struct PendingControlRequest {
    pub(crate) request_id: String,
    pub(crate) user: String,
    pub(crate) reason: String,
}

/// The requested amount of control, and the reason.
#[derive(Clone, Debug, Default)]
pub(crate) struct ControlOptions {
    pub(crate) reason: Option<String>,
    pub(crate) lines: Option<u32>,
    pub(crate) seconds: Option<u64>,
}

/// A change of the session.
#[derive(Debug)]
pub(crate) enum Change {
    /// The screen has changed.
    Screen,
    /// A change of participants or control, as text.
    Participants(String),
    /// The session has ended.
    Ended(Result<CommandEnd, SessionError>),
}

/// Sends requests for control. Can be used while the session is watched.
#[derive(Clone, Debug)]
pub(crate) struct ControlRequester {
    api: Api,
    session_id: String,
    participant_id: String,
    metadata: Option<Map<String, Value>>,
}

impl JoinedParticipant {
    /// Joins as a spectator. `metadata` is stored with the participant and with its requests.
    pub(crate) async fn join(
        config: &Config,
        session_id: &str,
        metadata: Option<Map<String, Value>>,
    ) -> Result<Self, Failure> {
        let api = Api::new(config)?;
        let named = |template| path(template, &[("id", session_id)]);
        let capabilities: Capabilities =
            call_json(&api, Method::GET, api::webtty::CAPABILITIES, None).await?;
        if !capabilities.live_attach {
            return Err(Failure::new(
                Code::NotAvailable,
                "this engine does not support joining sessions",
            ));
        }
        let session: Session = call_json(&api, Method::GET, &named(SESSION), None).await?;
        if !session.live.attachable {
            return Err(not_attachable(&session));
        }
        let mut body = json!({"role": "spectator", "transport": "websocket"});
        if let (Some(metadata), Value::Object(body)) = (&metadata, &mut body) {
            body.insert("metadata".to_owned(), metadata.clone().into());
        }
        let own_participant: Listed =
            call_json(&api, Method::POST, &named(PARTICIPANTS), Some(&body)).await?;
        let grant = own_participant.attach_grant.as_deref().unwrap_or_default();
        let grant = base64::engine::general_purpose::STANDARD.decode(grant);
        let attachment = Attachment {
            session_id: session_id.to_owned(),
            participant_id: own_participant.id.clone(),
            grant: grant.unwrap_or_default(),
            may_type: capabilities.control_transfer,
        };
        let stream = path(
            STREAM,
            &[("id", session_id), ("participant_id", &own_participant.id)],
        );
        let address = format!("wss://{}{stream}", config.engine);
        let endpoint = Endpoint::url(
            &address,
            config.tokens.fixed().cloned(),
            config.trust.clone(),
        )
        .map_err(|error| Failure::from_error("the stream has no address", error))?
        .with_proxies(config.proxies.clone());
        let (participant, input) = Participant::start(endpoint, attachment);
        let mut joined = Self {
            requester: ControlRequester {
                api,
                session_id: session_id.to_owned(),
                participant_id: own_participant.id.clone(),
                metadata,
            },
            participant,
            input,
            participant_id: own_participant.id,
            screen: Screen::new(Size::DEFAULT),
            control: Control::None,
            controller: None,
            pending_requests: VecDeque::new(),
            was_kicked: false,
            is_recorded: session.recording_mode == types::webtty::RecordingMode::Recorded,
        };
        joined.controller = joined.find_controller(&session).await?;
        Ok(joined)
    }

    /// The next change. `None` after the end. Cancel safe.
    pub(crate) async fn next(&mut self) -> Option<Change> {
        loop {
            let change = match self.participant.event().await? {
                ParticipantEvent::Snapshot(size) => {
                    // The data that follows starts with an empty terminal.
                    self.screen = Screen::new(size.unwrap_or(Size::DEFAULT));
                    Change::Screen
                }
                ParticipantEvent::Resized(size) => {
                    if let Some(screen) = &mut self.screen {
                        screen.resize(size);
                    }
                    Change::Screen
                }
                ParticipantEvent::Output(_, bytes) => {
                    if let Some(screen) = &mut self.screen {
                        screen.feed(&bytes);
                    }
                    Change::Screen
                }
                ParticipantEvent::OutputEnd(_) => continue,
                ParticipantEvent::Notice(notice) => match self.notice(&notice) {
                    Some(text) => Change::Participants(text),
                    None => continue,
                },
                ParticipantEvent::Ended(ended) => Change::Ended(ended),
            };
            return Some(change);
        }
    }

    /// The current screen.
    pub(crate) fn screen(&self) -> Option<&Screen> {
        self.screen.as_ref()
    }

    /// The state of control.
    pub(crate) fn control(&self) -> &Control {
        &self.control
    }

    /// True if this participant may type.
    pub(crate) fn holds_control(&self) -> bool {
        matches!(self.control, Control::Granted(_))
    }

    /// The other participant with control.
    pub(crate) fn controller(&self) -> Option<&str> {
        self.controller.as_deref()
    }

    /// The id of this participant.
    pub(crate) fn participant_id(&self) -> &str {
        &self.participant_id
    }

    /// True if input and output are recorded.
    pub(crate) fn is_recorded(&self) -> bool {
        self.is_recorded
    }

    /// The oldest pending request that this participant can answer.
    pub(crate) fn first_request(&self) -> Option<&PendingControlRequest> {
        self.pending_requests.front()
    }

    /// Answers the oldest request.
    pub(crate) async fn answer(&mut self, grant: bool) {
        if let Some(request) = self.pending_requests.pop_front() {
            // If the session has ended, the end is reported separately.
            self.input.decide(&request.request_id, grant).await;
        }
    }

    /// The input side of the session.
    pub(crate) fn input(&self) -> &Input {
        &self.input
    }

    /// A sender of requests for control.
    pub(crate) fn requester(&self) -> ControlRequester {
        self.requester.clone()
    }

    /// Stores that the engine has accepted a request.
    pub(crate) fn set_requested(&mut self, request: &ControlRequest) {
        // The stream may have delivered the answer before.
        let is_answered = match &self.control {
            Control::None => false,
            Control::Requested(_) | Control::Granted(_) => true,
            Control::Answered { request_id, .. } => *request_id == request.id,
        };
        if !is_answered {
            self.control = Control::Requested(request.id.clone());
        }
    }

    /// True if an owner removed this participant.
    pub(crate) fn was_kicked(&self) -> bool {
        self.was_kicked
    }

    /// Leaves the session, which continues.
    pub(crate) async fn leave(self) {
        self.participant.leave().await;
    }

    /// Applies a notice, and describes it as text.
    fn notice(&mut self, notice: &Notice) -> Option<String> {
        let is_own = notice.participant_id == self.participant_id;
        let who = if notice.user.is_empty() {
            notice.participant_id.clone()
        } else {
            notice.user.clone()
        };
        Some(match notice.kind() {
            NoticeKind::Joined => format!("{who} is watching"),
            NoticeKind::Left => format!("{who} left"),
            NoticeKind::Granted if is_own => {
                self.control = Control::Granted(notice.request_id.clone());
                "you have control".to_owned()
            }
            NoticeKind::Granted => {
                if let Control::Granted(request) = &self.control {
                    let request = request.clone();
                    self.end_control(&request, "revoked");
                }
                let text = format!("{who} has control");
                let is_back = self.controller.replace(who).is_none();
                match &self.control {
                    // Control returned to its previous holder, so this is the message.
                    Control::Answered { outcome, .. } if is_back => {
                        describe_outcome(outcome).to_owned()
                    }
                    _ => text,
                }
            }
            NoticeKind::Refused if is_own => self.record_outcome(notice, "refused"),
            NoticeKind::Expired if is_own => self.record_outcome(notice, "expired"),
            NoticeKind::Revoked if is_own || notice.participant_id.is_empty() => {
                self.record_outcome(notice, "revoked")
            }
            NoticeKind::Requested => {
                let text = format!("{who} requests control");
                if self.pending_requests.len() < MAX_PENDING {
                    self.pending_requests.push_back(PendingControlRequest {
                        request_id: notice.request_id.clone(),
                        user: who,
                        reason: notice.reason.clone(),
                    });
                }
                text
            }
            NoticeKind::Kicked => {
                self.was_kicked = true;
                "you were asked to leave".to_owned()
            }
            // This participant's answer came too late.
            NoticeKind::Unspecified if !notice.reason.is_empty() => notice.reason.clone(),
            kind => {
                let before = self.pending_requests.len();
                self.pending_requests
                    .retain(|request| request.request_id != notice.request_id);
                if self.pending_requests.len() == before {
                    return None;
                }
                match kind {
                    NoticeKind::Revoked => format!("{who} has withdrawn the request for control"),
                    NoticeKind::Refused => format!("{who} was refused control"),
                    NoticeKind::Expired => format!("the request of {who} has expired"),
                    _ => return None,
                }
            }
        })
    }

    fn record_outcome(&mut self, notice: &Notice, outcome: &'static str) -> String {
        self.end_control(&notice.request_id, outcome);
        describe_outcome(outcome).to_owned()
    }

    fn end_control(&mut self, request_id: &str, outcome: &'static str) {
        if self.holds_control() {
            // The next notice contains the new holder.
            self.controller = None;
        }
        let request_id = request_id.to_owned();
        self.control = Control::Answered {
            request_id,
            outcome,
        };
        self.pending_requests.clear();
    }

    /// The name of the participant with control.
    async fn find_controller(&self, session: &Session) -> Result<Option<String>, Failure> {
        let Some(id) = &session.live.controller_participant_id else {
            return Ok(None);
        };
        let all = path(PARTICIPANTS, &[("id", &session.id)]);
        let all: Vec<Listed> = call_json(&self.requester.api, Method::GET, &all, None).await?;
        let who = all.into_iter().find(|one| one.id == *id);
        Ok(Some(
            who.and_then(|who| who.user_id)
                .unwrap_or_else(|| id.clone()),
        ))
    }
}

impl ControlRequester {
    /// Requests control. The stream reports the result.
    pub(crate) async fn request_control(
        &self,
        options: &ControlOptions,
    ) -> Result<ControlRequest, ApiError> {
        let mut body = Map::new();
        body.insert("participant_id".to_owned(), json!(self.participant_id));
        if let Some(reason) = &options.reason {
            body.insert("reason".to_owned(), json!(reason));
        }
        if let Some(lines) = options.lines {
            body.insert("control_lines".to_owned(), json!(lines));
        }
        if let Some(seconds) = options.seconds {
            body.insert("control_seconds".to_owned(), json!(seconds));
        }
        if let Some(metadata) = &self.metadata {
            body.insert("metadata".to_owned(), metadata.clone().into());
        }
        let requests = path(CONTROL_REQUESTS, &[("id", &self.session_id)]);
        let body = Value::Object(body);
        call_json(&self.api, Method::POST, &requests, Some(&body)).await
    }
}

/// The reason why a session cannot be joined.
fn not_attachable(session: &Session) -> Failure {
    use types::webtty::{EncryptionMode, SessionStatus};
    let why = match (session.status, session.encryption_mode) {
        (SessionStatus::Closed | SessionStatus::Errored, _) => "the session has ended",
        (SessionStatus::Closing, _) => "the session is ending",
        (_, EncryptionMode::E2e) => {
            "the session is end-to-end encrypted: only its two ends can see it"
        }
        (SessionStatus::Opening, _) => "the session has not started",
        (SessionStatus::Active, _) => "this session cannot be joined",
    };
    let failure = Failure::new(Code::Failed, why).named("session_not_attachable");
    match session.status {
        SessionStatus::Closed | SessionStatus::Errored => {
            failure.hint("`svc webtty sessions replay` shows what was recorded")
        }
        _ => failure,
    }
}

async fn call_json<T: DeserializeOwned>(
    api: &Api,
    method: Method,
    path: &str,
    body: Option<&Value>,
) -> Result<T, ApiError> {
    let answer = {
        let mut call = Call::new(method, path);
        if let Some(body) = body {
            call = call.with_body(body);
        }
        api.call(call).await?
    };
    serde_json::from_value(answer).map_err(|error| ApiError::Unexpected(error.to_string()))
}

/// The result of a request as text.
fn describe_outcome(outcome: &str) -> &'static str {
    match outcome {
        "revoked" => "control was revoked",
        "expired" => "the request was not answered in time",
        _ => "control was refused",
    }
}
