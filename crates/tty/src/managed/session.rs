use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use jiff::Timestamp;
use subtle::ConstantTimeEq as _;
use types::id::{ControlRequestId, ParticipantId, WebttySessionId};
use types::webtty::{ControlStatus, RecordType, SessionStatus};

use super::control::{ControlRequest, Controller};
use super::participant::{
    Grant, NewParticipant, Participant, Person, Viewer, notice, notice_of_kind,
};
use super::{
    ABANDONED_TIMEOUT, Command, EndReason, Event, GRANT_TTL, KILL_GRACE, MAX_LISTED,
    MAX_PARTICIPANTS, SessionRefusalError, TERMINATE_GRACE, after,
};
use crate::message::{Attach, AttachRole, Heartbeat, Kind, Notice, NoticeKind, Signal};
use crate::recording::Entry;
use crate::screen::{LazyScreen, SET_NEW_LINE_MODE};
use crate::session::{HEARTBEAT, OPEN_DEADLINE};
use crate::size::Size;

/// One session. The [module](super) describes its rules.
#[derive(Debug)]
pub struct Session {
    pub(super) id: WebttySessionId,
    pub(super) status: SessionStatus,
    pub(super) started_at: Timestamp,
    pub(super) ended_at: Option<Timestamp>,
    pub(super) exit_code: Option<i32>,
    pub(super) error: Option<String>,
    /// The opener, as the participant of its latest stream.
    pub(super) initiator: ParticipantId,
    pub(super) participants: BTreeMap<ParticipantId, Participant>,
    pub(super) requests: BTreeMap<ControlRequestId, ControlRequest>,
    pub(super) controller: Option<Controller>,
    pub(super) open_received: bool,
    pub(super) sealed: bool,
    pub(super) terminal: bool,
    pub(super) size: Size,
    pub(super) screen: Option<LazyScreen>,
    pub(super) secret_input: bool,
    pub(super) heartbeat_at: Timestamp,
    pub(super) abandoned_at: Option<Timestamp>,
    pub(super) terminate_at: Option<Timestamp>,
    /// True if the kill signal was sent.
    pub(super) killed: bool,
    /// Deadline for the client's first message, and then for the server's answer to it.
    pub(super) start_deadline: Option<Timestamp>,
    pub(super) ending: Option<EndReason>,
    pub(super) commands: VecDeque<Command>,
}

/// A new session at a managed server.
#[derive(Debug)]
pub struct NewSession {
    /// Id of the session.
    pub id: WebttySessionId,
    /// Participant id of the client that opens it.
    pub initiator: ParticipantId,
    /// The person or program behind the client.
    pub person: Person,
    /// True if only client and server can read input and output.
    pub sealed: bool,
}

impl Session {
    /// Creates a session. Its first participant is connected and has control.
    pub fn new(new: NewSession, now: Timestamp) -> Self {
        let initiator = Participant {
            id: new.initiator,
            person: new.person,
            attached_at: now,
            detached_at: None,
            grant: None,
            may_control: true,
            viewer: Some(Viewer::default()),
        };
        let mut session = Self {
            id: new.id,
            status: SessionStatus::Opening,
            started_at: now,
            ended_at: None,
            exit_code: None,
            error: None,
            initiator: new.initiator,
            participants: BTreeMap::from([(new.initiator, initiator)]),
            requests: BTreeMap::new(),
            controller: Some(Controller {
                participant: new.initiator,
                request: None,
                until: None,
                lines: None,
            }),
            open_received: false,
            sealed: new.sealed,
            terminal: false,
            size: Size::DEFAULT,
            screen: None,
            secret_input: false,
            heartbeat_at: after(now, HEARTBEAT),
            abandoned_at: None,
            terminate_at: None,
            killed: false,
            start_deadline: Some(after(now, OPEN_DEADLINE)),
            ending: None,
            commands: VecDeque::new(),
        };
        session.event(Event::SessionCreated);
        session
    }

    /// The next command for the owner of this session.
    pub fn command(&mut self) -> Option<Command> {
        self.commands.pop_front()
    }

    /// The next message for this participant.
    pub fn next_message(&mut self, participant: ParticipantId) -> Option<Kind> {
        let viewer = self.participants.get_mut(&participant)?.viewer.as_mut()?;
        let (screen, pipes) = (self.screen.as_mut(), !self.terminal && !self.sealed);
        let drawn = || match screen {
            Some(screen) => Some(screen.current().snapshot()),
            None => pipes.then(|| Bytes::from(SET_NEW_LINE_MODE)),
        };
        viewer.take(drawn, self.size)
    }

    /// True if the server must not be read until the controller has taken more.
    pub fn pauses_server(&self) -> bool {
        let pace = self.pace_setter().and_then(|id| self.participants.get(&id));
        let viewer = pace.and_then(|participant| participant.viewer.as_ref());
        viewer.is_some_and(Viewer::is_full)
    }

    /// Id of the session.
    pub fn id(&self) -> WebttySessionId {
        self.id
    }

    /// Status of the session.
    pub fn status(&self) -> SessionStatus {
        self.status
    }

    /// Time of the start.
    pub fn started_at(&self) -> Timestamp {
        self.started_at
    }

    /// Time of the end.
    pub fn ended_at(&self) -> Option<Timestamp> {
        self.ended_at
    }

    /// Exit code of the command.
    pub fn exit_code(&self) -> Option<i32> {
        self.exit_code
    }

    /// Error message, from the server or from this module.
    pub fn error(&self) -> Option<&str> {
        self.error.as_deref()
    }

    /// True if the command has a terminal.
    pub fn has_terminal(&self) -> bool {
        self.terminal
    }

    /// Size of the terminal.
    pub fn size(&self) -> Size {
        self.size
    }

    /// Present and past participants, in the order in which they joined.
    pub fn participants(&self) -> impl Iterator<Item = &Participant> {
        self.participants.values()
    }

    /// All requests for control, in their order.
    pub fn requests(&self) -> impl Iterator<Item = &ControlRequest> {
        self.requests.values()
    }

    /// The participant that has control.
    pub fn controller_id(&self) -> Option<ParticipantId> {
        self.controller
            .as_ref()
            .map(|controller| controller.participant)
    }

    /// True if a participant can attach now.
    pub fn is_attachable(&self) -> bool {
        self.status == SessionStatus::Active && !self.sealed
    }

    /// Adds a participant that will connect to watch, and returns the expiry of its grant.
    ///
    /// # Errors
    /// See [`SessionRefusalError`].
    pub fn attach(
        &mut self,
        new: NewParticipant,
        now: Timestamp,
    ) -> Result<Timestamp, SessionRefusalError> {
        if self.sealed {
            return Err(SessionRefusalError::Sealed);
        }
        if !matches!(self.status, SessionStatus::Opening | SessionStatus::Active) {
            return Err(SessionRefusalError::NotActive);
        }
        self.drop_late_grants(now);
        let present = self
            .participants
            .values()
            .filter(|p| p.detached_at.is_none());
        if present.count() >= MAX_PARTICIPANTS {
            return Err(SessionRefusalError::TooMany);
        }
        if self.participants.contains_key(&new.id) {
            return Err(SessionRefusalError::Invalid("id"));
        }
        self.remove_oldest_detached();
        let expires_at = after(now, GRANT_TTL);
        self.participants.insert(
            new.id,
            Participant {
                id: new.id,
                person: new.person,
                attached_at: now,
                detached_at: None,
                grant: Some(Grant::new(&new.grant, expires_at)),
                may_control: new.may_control,
                viewer: None,
            },
        );
        Ok(expires_at)
    }

    /// Connects the stream of a participant, after its first message.
    ///
    /// # Errors
    /// See [`SessionRefusalError`]. The error for a wrong grant discloses nothing else.
    pub fn connect(
        &mut self,
        attach: &Attach,
        now: Timestamp,
    ) -> Result<ParticipantId, SessionRefusalError> {
        if attach.requested_role() == AttachRole::Controller {
            return Err(SessionRefusalError::NotAsController);
        }
        if !bool::from(
            attach
                .session_id
                .as_bytes()
                .ct_eq(self.id.as_str().as_bytes()),
        ) {
            return Err(SessionRefusalError::BadGrant);
        }
        if !matches!(self.status, SessionStatus::Opening | SessionStatus::Active) {
            return Err(SessionRefusalError::NotActive);
        }
        let id: ParticipantId = attach
            .participant_id
            .parse()
            .map_err(|_| SessionRefusalError::BadGrant)?;
        let participant = self
            .participants
            .get_mut(&id)
            .ok_or(SessionRefusalError::BadGrant)?;
        let grant = participant
            .grant
            .as_ref()
            .filter(|_| participant.detached_at.is_none());
        let grant = grant.ok_or(SessionRefusalError::BadGrant)?;
        if !grant.matches(&attach.attach_grant) {
            return Err(SessionRefusalError::BadGrant);
        }
        if grant.expires_at <= now {
            return Err(SessionRefusalError::Expired);
        }
        // A grant is valid once, so that a stolen copy is useless.
        participant.grant = None;
        participant.viewer = Some(Viewer::for_late_join());
        let (name, may_control) = (participant.person.name.clone(), participant.may_control);
        if may_control && !self.is_connected(self.initiator) && self.is_opener(id) {
            // The opener has reconnected over another stream: control that others give back now
            // returns to this one.
            self.initiator = id;
        }
        self.commands.push_back(Command::Wake(id));
        self.record(RecordType::Participant, Some(id), "attached");
        self.event(Event::ParticipantAttached(id));
        self.notify_others(id, NoticeKind::Joined, &name);
        Ok(id)
    }

    /// Ends the session for an owner.
    ///
    /// # Errors
    /// [`SessionRefusalError::NotActive`] if the session has ended.
    pub fn terminate(
        &mut self,
        by: Option<ParticipantId>,
        now: Timestamp,
    ) -> Result<(), SessionRefusalError> {
        if !matches!(self.status, SessionStatus::Opening | SessionStatus::Active) {
            return Err(SessionRefusalError::NotActive);
        }
        self.stop(EndReason::Terminated, by, now);
        Ok(())
    }

    /// Time of the next call to [`on_time`](Self::on_time).
    pub fn deadline(&self) -> Option<Timestamp> {
        if self.ended_at.is_some() {
            return None;
        }
        let requests = self.requests.values();
        let requests = requests.filter(|r| r.status == ControlStatus::Pending);
        let requests = requests.map(|request| request.expires_at);
        let grants = self
            .participants
            .values()
            .filter(|p| p.detached_at.is_none());
        let grants = grants.filter_map(|p| p.grant.as_ref().map(|grant| grant.expires_at));
        let control = self
            .controller
            .as_ref()
            .and_then(|controller| controller.until);
        [
            Some(self.heartbeat_at),
            control,
            self.abandoned_at,
            self.terminate_at,
            self.start_deadline,
        ]
        .into_iter()
        .flatten()
        .chain(requests)
        .chain(grants)
        .min()
    }

    /// Runs the timers that are due.
    pub fn on_time(&mut self, now: Timestamp) {
        if self.ended_at.is_some() {
            return;
        }
        self.expire(now);
        self.drop_late_grants(now);
        if let Some(screen) = &mut self.screen {
            screen.draw_and_free();
        }
        if self.start_deadline.is_some_and(|at| at <= now) {
            self.on_start_timeout(now);
        }
        if self.abandoned_at.is_some_and(|at| at <= now) {
            self.abandoned_at = None;
            self.stop(EndReason::Abandoned, None, now);
        }
        if let Some(at) = self.terminate_at.filter(|at| *at <= now) {
            // An interactive shell ignores the first signal.
            self.terminate_at = (!self.killed).then(|| after(at, KILL_GRACE));
            if !std::mem::replace(&mut self.killed, true) {
                self.signal(Signal::Kill);
            }
            if self.terminate_at.is_none_or(|at| at <= now) {
                self.terminate_at = None;
                self.commands.push_back(Command::HangUpServer);
            }
        }
        if self.heartbeat_at <= now {
            self.heartbeat_at = after(now, HEARTBEAT);
            self.broadcast(&Kind::Heartbeat(Heartbeat::default()));
        }
    }

    pub(super) fn leave(&mut self, id: ParticipantId, now: Timestamp) {
        let Some(participant) = self.participants.get_mut(&id) else {
            return;
        };
        if participant.detached_at.is_some() {
            return;
        }
        participant.detached_at = Some(now);
        participant.grant = None;
        let connected = participant.viewer.is_some();
        let name = participant.person.name.clone();
        if self.controller_id() == Some(id) {
            self.return_control(now);
        }
        let waiting: Vec<_> = self
            .requests
            .values()
            .filter(|r| r.requester == id && r.status == ControlStatus::Pending)
            .map(|request| request.id)
            .collect();
        for request in waiting {
            self.resolve_request(request, ControlStatus::Expired, None, now);
        }
        if connected {
            self.commands.push_back(Command::HangUp(id));
            self.record(RecordType::Participant, Some(id), "detached");
            self.notify_others(id, NoticeKind::Left, &name);
            self.event(Event::ParticipantDetached(id));
        }
        if id == self.initiator && (self.status == SessionStatus::Opening || !self.terminal) {
            // No other participant can continue this session.
            self.stop(EndReason::Abandoned, None, now);
        }
    }

    pub(super) fn set_controller(&mut self, controller: Option<Controller>, now: Timestamp) {
        self.abandoned_at = controller.is_none().then(|| after(now, ABANDONED_TIMEOUT));
        self.controller = controller;
        // The controller's answers must not go to a screen that it has not seen.
        if let Some(holder) = self.controller_id() {
            self.notify_others(holder, NoticeKind::Granted, &self.person(holder).name);
        }
        self.event(Event::SessionUpdated);
    }

    pub(super) fn start_ending(&mut self, now: Timestamp) {
        if !matches!(self.status, SessionStatus::Opening | SessionStatus::Active) {
            return;
        }
        if self.status == SessionStatus::Active {
            self.signal(Signal::Terminate);
            if self.terminal {
                // An interactive program in a terminal ignores `Terminate`.
                self.signal(Signal::Hangup);
            }
            self.terminate_at = Some(after(now, TERMINATE_GRACE));
        } else {
            self.commands.push_back(Command::HangUpServer);
        }
        self.status = SessionStatus::Closing;
        self.event(Event::SessionUpdated);
    }

    pub(super) fn fail(&mut self, why: String, now: Timestamp) {
        self.record(RecordType::Error, None, &why);
        let message = Kind::error(&why);
        self.error = Some(why);
        self.end(SessionStatus::Errored, &message, now);
    }

    pub(super) fn end(&mut self, status: SessionStatus, message: &Kind, now: Timestamp) {
        self.status = status;
        self.start_deadline = None;
        self.ended_at = Some(now);
        self.broadcast(message);
        self.commands.push_back(Command::HangUpServer);
        let pending: Vec<_> = self
            .requests
            .values()
            .filter(|r| matches!(r.status, ControlStatus::Pending | ControlStatus::Granted))
            .map(|request| (request.id, request.status))
            .collect();
        self.controller = None;
        for (id, was) in pending {
            let status = match was {
                ControlStatus::Granted => ControlStatus::Revoked,
                _ => ControlStatus::Expired,
            };
            self.resolve_request(id, status, None, now);
        }
        let present = self.participants.values();
        let present = present.filter(|p| p.detached_at.is_none());
        let present: Vec<_> = present.map(|participant| participant.id).collect();
        for id in present {
            self.leave(id, now);
        }
        self.event(Event::SessionClosed);
    }

    fn drop_late_grants(&mut self, now: Timestamp) {
        for participant in self.participants.values_mut() {
            if participant
                .grant
                .as_ref()
                .is_some_and(|grant| grant.expires_at <= now)
            {
                participant.grant = None;
                participant.detached_at.get_or_insert(now);
            }
        }
    }

    fn remove_oldest_detached(&mut self) {
        while self.participants.len() >= MAX_LISTED {
            let gone = self.participants.values();
            let mut gone = gone.filter(|p| p.detached_at.is_some() && p.viewer.is_none());
            let Some(oldest) = gone.find(|p| p.id != self.initiator).map(|p| p.id) else {
                break;
            };
            self.participants.remove(&oldest);
        }
    }

    pub(super) fn is_connected(&self, id: ParticipantId) -> bool {
        let participant = self.participants.get(&id);
        participant.is_some_and(Participant::is_connected)
    }

    /// True if this participant is the opener: over the opener's stream, or with a browser session
    /// of the same account. A token alone shows an account, but not that the person is present.
    pub(super) fn is_opener(&self, id: ParticipantId) -> bool {
        let person = self.person(id);
        id == self.initiator
            || person.has_session() && person.has_same_account(&self.person(self.initiator))
    }

    pub(super) fn person(&self, id: ParticipantId) -> Person {
        let participant = self.participants.get(&id);
        participant.map_or_else(Person::default, |participant| participant.person.clone())
    }

    pub(super) fn send_to(&mut self, id: ParticipantId, kind: Kind) {
        let viewer = self
            .participants
            .get_mut(&id)
            .and_then(|p| p.viewer.as_mut());
        let Some(viewer) = viewer else {
            return;
        };
        let ready = viewer.is_ready();
        viewer.push_message(kind);
        if !ready {
            self.commands.push_back(Command::Wake(id));
        }
    }

    pub(super) fn notify_others(&mut self, about: ParticipantId, kind: NoticeKind, user: &str) {
        let message = notice(Notice {
            participant_id: about.to_string(),
            user: crate::message::truncate(user, crate::message::limits::MAX_USER).to_owned(),
            ..notice_of_kind(kind)
        });
        let others: Vec<_> = self
            .participants
            .keys()
            .copied()
            .filter(|id| *id != about)
            .collect();
        for id in others {
            self.send_to(id, message.clone());
        }
    }

    pub(super) fn broadcast(&mut self, kind: &Kind) {
        let all: Vec<_> = self.participants.keys().copied().collect();
        for id in all {
            self.send_to(id, kind.clone());
        }
    }

    pub(super) fn record(
        &mut self,
        record_type: RecordType,
        participant: Option<ParticipantId>,
        detail: &str,
    ) {
        let participant = participant.as_ref().map(ParticipantId::as_str);
        let entry = Entry::internal(record_type, participant, detail);
        self.commands.push_back(Command::Record(entry));
    }

    pub(super) fn event(&mut self, event: Event) {
        self.commands.push_back(Command::Event(event));
    }
}
