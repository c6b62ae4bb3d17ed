//! Messages of participants and of the server, and their distribution.

use std::time::Duration;

use bytes::Bytes;
use jiff::Timestamp;
use types::id::{ControlRequestId, ParticipantId};
use types::webtty::{ControlAction, RecordDirection, RecordType, SessionStatus, StreamType};

use super::control::Approver;
use super::participant::{notice, notice_of_kind};
use super::session::Session;
use super::{ABANDONED_TIMEOUT, ANSWER_DEADLINE, Command, EndReason, Event, SERVER_LOST, after};
use crate::message::{
    Data, Feature, Heartbeat, Kind, Notice, NoticeKind, OpenCommand, Parameter, ParameterKind,
    Payload, Signal, Stream,
};
use crate::recording::Entry;
use crate::screen::LazyScreen;
use crate::size::Size;

impl Session {
    /// Handles a message of a participant.
    pub fn on_message(&mut self, from: ParticipantId, kind: Kind, now: Timestamp) {
        self.expire(now);
        if !self.is_connected(from) {
            return;
        }
        let is_controller = self.controller_id() == Some(from);
        let before = self.status == SessionStatus::Opening && from == self.initiator;
        match kind {
            Kind::ClientHello(hello) if before && !self.open_received => {
                self.send_server(Kind::ClientHello(hello));
            }
            Kind::Open(open) if before && !self.open_received => self.open(open, now),
            Kind::Data(data) if data.r#type() == Stream::Stdin => {
                if is_controller && self.status == SessionStatus::Active {
                    self.input(from, data, now);
                }
            }
            Kind::Parameter(Parameter {
                parameter: Some(ParameterKind::TerminalSize(given)),
            }) => {
                if let Some(size) = given.size().filter(|_| is_controller && self.terminal) {
                    self.resize(from, size);
                }
            }
            Kind::Heartbeat(heartbeat) => self.on_heartbeat(from, &heartbeat, now),
            Kind::Error(_) => self.leave(from, now),
            kind => {
                let error = Kind::error(&format!("an unexpected {}", kind.name()));
                self.send_to(from, error);
                self.leave(from, now);
            }
        }
    }

    /// Handles the end of a participant's stream.
    pub fn on_lost(&mut self, id: ParticipantId, now: Timestamp) {
        self.leave(id, now);
        if let Some(participant) = self.participants.get_mut(&id) {
            participant.viewer = None;
        }
    }

    /// Handles a message of the server.
    pub fn on_server(&mut self, kind: Kind, now: Timestamp) {
        self.expire(now);
        if self.ended_at.is_some() {
            return;
        }
        match kind {
            // These messages are only accepted before the command runs, because they bypass
            // back-pressure.
            Kind::ServerHello(_) | Kind::ProtocolError(_) if self.start_deadline.is_some() => {
                self.send_to(self.initiator, kind);
            }
            Kind::Ack(mut ack) if self.status == SessionStatus::Opening => {
                self.status = SessionStatus::Active;
                self.start_deadline = None;
                if let Some(session) = &mut ack.session {
                    // The client needs the session's id of the Engine API, where it reconnects.
                    session.session_id = self.id.to_string();
                    let returns = self.terminal && !self.sealed;
                    let grace = if returns {
                        ABANDONED_TIMEOUT
                    } else {
                        Duration::ZERO
                    };
                    session.grace_seconds = u32::try_from(grace.as_secs()).unwrap_or(u32::MAX);
                }
                self.screen = (self.terminal && !self.sealed)
                    .then(|| LazyScreen::new(self.size))
                    .flatten();
                self.send_to(self.initiator, Kind::Ack(ack));
                self.record(RecordType::Ack, None, "");
                self.event(Event::SessionUpdated);
            }
            Kind::Data(data) if data.r#type() != Stream::Stdin => self.output(&data, now),
            Kind::Heartbeat(heartbeat) => {
                self.secret_input = heartbeat.secret_input.unwrap_or(self.secret_input);
            }
            Kind::Close(mut close) => {
                self.exit_code = Some(close.return_code);
                if let (Some(ending), Some(termination)) = (self.ending, &mut close.termination) {
                    // The server only saw a signal, and cannot report its reason.
                    termination.reason = ending.reason().into();
                    ending.as_str().clone_into(&mut termination.detail);
                }
                let entry = Entry {
                    exit_code: Some(close.return_code),
                    detail: close
                        .termination
                        .as_ref()
                        .map(|t| format!("{:?}", t.reason())),
                    ..Entry::new(RecordType::Close, RecordDirection::ServerToClient)
                };
                self.commands.push_back(Command::Record(entry));
                self.end(SessionStatus::Closed, &Kind::Close(close), now);
            }
            Kind::Error(error) => self.fail(error.msg, now),
            kind => self.fail(
                format!("the server sent an unexpected {}", kind.name()),
                now,
            ),
        }
    }

    /// Handles the end of the connection to the server.
    pub fn on_server_lost(&mut self, now: Timestamp) {
        if self.ended_at.is_some() {
            return;
        }
        if self.status == SessionStatus::Closing {
            let message = Kind::error(
                self.ending
                    .map_or("the session has ended", EndReason::message),
            );
            self.end(SessionStatus::Closed, &message, now);
        } else {
            self.fail(SERVER_LOST.to_owned(), now);
        }
    }

    /// Forwards the client's `Open` without the features that need a direct connection of two ends.
    fn open(&mut self, mut open: Box<OpenCommand>, now: Timestamp) {
        self.open_received = true;
        self.start_deadline = Some(after(now, ANSWER_DEADLINE));
        let config = open.config.get_or_insert_default();
        self.terminal = config.options.is_some_and(|options| options.allocate_tty);
        let detail = config.cmd_args.join(" ");
        if let Some(session) = &mut open.session {
            let signals = i32::from(Feature::Signals);
            session.features.retain(|feature| *feature == signals);
            session.resume = None;
            let size = session.size.and_then(|size| size.size());
            self.size = size.unwrap_or(self.size);
        }
        self.commands.push_back(Command::Record(Entry {
            participant_id: Some(self.initiator.to_string()),
            size: self.terminal.then_some(self.size),
            detail: Some(crate::message::truncate(&detail, MAX_DETAIL).to_owned()),
            ..Entry::new(RecordType::Open, RecordDirection::ClientToServer)
        }));
        self.send_server(Kind::Open(open));
    }

    /// Forwards input of the controller.
    fn input(&mut self, from: ParticipantId, mut data: Data, now: Timestamp) {
        let mut spent = false;
        let bytes = match &mut data.payload {
            Some(Payload::Data(bytes)) if !self.sealed => {
                spent = self.count_lines(bytes);
                bytes.clone()
            }
            Some(Payload::EncryptedData(payload)) if self.sealed => payload.ciphertext.clone(),
            // The end of input affects all participants, so a borrowed control cannot send it.
            Some(Payload::Eos(_)) if from == self.initiator => Bytes::new(),
            _ => return,
        };
        let entry = Entry::input(from.as_str(), bytes, self.secret_input);
        self.commands.push_back(Command::Record(entry));
        self.send_server(Kind::Data(data));
        if spent {
            self.return_control(now);
        }
    }

    /// Truncates input after the last permitted line. Returns `true` once the limit is reached.
    fn count_lines(&mut self, bytes: &mut Bytes) -> bool {
        let Some(left) = self.controller.as_mut().and_then(|c| c.lines.as_mut()) else {
            return false;
        };
        let ends = bytes
            .iter()
            .enumerate()
            .filter(|(_, byte)| matches!(byte, b'\r' | b'\n'));
        for (at, _) in ends {
            *left = left.saturating_sub(1);
            if *left == 0 {
                let end = at + 1;
                *bytes = bytes.slice(..end);
                return true;
            }
        }
        false
    }

    fn resize(&mut self, from: ParticipantId, size: Size) {
        self.size = size;
        if let Some(screen) = &mut self.screen {
            screen.resize(size);
        }
        let entry = Entry::resize(from.as_str(), size);
        self.commands.push_back(Command::Record(entry));
        let new_size: crate::message::TerminalSize = size.into();
        self.send_server(Kind::Parameter(new_size.into()));
        self.broadcast(&notice(Notice {
            size: Some(new_size),
            ..notice_of_kind(NoticeKind::Resized)
        }));
    }

    fn on_heartbeat(&mut self, from: ParticipantId, heartbeat: &Heartbeat, now: Timestamp) {
        let is_controller = self.controller_id() == Some(from);
        let signal = heartbeat
            .signal
            .and_then(|signal| Signal::try_from(signal).ok());
        if let Some(signal) = signal.filter(|signal| *signal != Signal::Unspecified)
            && is_controller
            && self.status == SessionStatus::Active
        {
            self.record(
                RecordType::Control,
                Some(from),
                &format!("signal {}", signal.name()),
            );
            self.signal(signal);
        }
        if let Some(decision) = &heartbeat.decision
            && let Ok(request) = decision.request_id.parse::<ControlRequestId>()
        {
            let holds = self.controller.as_ref().and_then(|c| c.request) == Some(request);
            let action = match (decision.grant, holds) {
                (true, _) => ControlAction::Grant,
                (false, false) => ControlAction::Refuse,
                (false, true) => ControlAction::Revoke,
            };
            let answered = self.resolve(request, &Approver::Participant(from), action, now);
            if let Err(refused) = answered.map(drop) {
                // The decision came too late or is not permitted. Nothing changes, and the sender
                // gets the reason.
                let refusal = Notice {
                    request_id: decision.request_id.clone(),
                    reason: refused.to_string(),
                    ..notice_of_kind(NoticeKind::Unspecified)
                };
                self.send_to(from, notice(refusal));
            }
        }
    }

    fn output(&mut self, data: &Data, now: Timestamp) {
        let stream = match data.r#type() {
            Stream::Stderr => StreamType::Stderr,
            _ => StreamType::Stdout,
        };
        let bytes = match &data.payload {
            Some(Payload::Data(bytes)) if !self.sealed => bytes.clone(),
            Some(Payload::EncryptedData(payload)) if self.sealed => payload.ciphertext.clone(),
            Some(Payload::Eos(_)) => Bytes::new(),
            _ => {
                self.fail("the server sent data of the wrong kind".to_owned(), now);
                return;
            }
        };
        if !bytes.is_empty() {
            if let Some(screen) = &mut self.screen {
                screen.feed(&bytes);
            }
            self.commands
                .push_back(Command::Record(Entry::output(stream, bytes)));
        }
        if self.ending.is_some_and(EndReason::hides_output) {
            return;
        }
        let kind = Kind::Data(data.clone());
        let pace = self.pace_setter();
        let mut lost = Vec::new();
        for (id, participant) in &mut self.participants {
            // A participant that left may still be receiving its last messages.
            if participant.detached_at.is_some() {
                continue;
            }
            let Some(viewer) = participant.viewer.as_mut() else {
                continue;
            };
            let ready = viewer.is_ready();
            viewer.output(&kind, pace == Some(*id));
            if !ready && viewer.is_ready() {
                self.commands.push_back(Command::Wake(*id));
            }
            // Without a screen there is no snapshot to replace lost output.
            if viewer.is_full() && self.screen.is_none() && pace != Some(*id) {
                lost.push(*id);
            }
        }
        for id in lost {
            self.send_to(id, Kind::error("too slow to watch this session"));
            self.leave(id, now);
        }
    }

    /// The participant that sets the pace: the controller. Without a terminal no output may be
    /// lost, so the opener sets it.
    pub(super) fn pace_setter(&self) -> Option<ParticipantId> {
        if self.terminal {
            self.controller_id()
        } else {
            Some(self.initiator)
        }
    }

    pub(super) fn signal(&mut self, signal: Signal) {
        self.send_server(Kind::Heartbeat(Heartbeat {
            signal: Some(signal.into()),
            ..Heartbeat::default()
        }));
    }

    pub(super) fn send_server(&mut self, kind: Kind) {
        self.commands.push_back(Command::ToServer(kind));
    }
}

/// Maximum bytes of the command in the record of an open: as much as a line of a list shows.
const MAX_DETAIL: usize = 1024;
