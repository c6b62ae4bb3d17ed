//! Forced end of a session, before its command has ended.

use jiff::Timestamp;
use types::id::ParticipantId;
use types::webtty::{RecordType, SessionStatus};

use super::Command;
use super::session::Session;
use crate::message::{Kind, TerminationReason};

/// Reason of a forced end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndReason {
    /// A permitted caller ended it.
    Terminated,
    /// It must not continue unrecorded.
    Recording,
    /// The credential of its opener was revoked.
    Revoked,
    /// The engine shuts down.
    Drain,
    /// No participant that could continue it is present.
    Abandoned,
}

impl EndReason {
    /// Machine-readable name of the reason.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Terminated => "terminated",
            Self::Recording => "recording",
            Self::Revoked => "revoked",
            Self::Drain => "drain",
            Self::Abandoned => "abandoned",
        }
    }

    /// Message for participants, if the server sends no better one.
    pub fn message(self) -> &'static str {
        match self {
            Self::Terminated => "the session was terminated",
            Self::Recording => "the session could not be recorded any more",
            Self::Revoked => "the permission for this session was revoked",
            Self::Drain => "the engine is shutting down",
            Self::Abandoned => "no client returned to the session",
        }
    }

    /// True if output is hidden immediately: access was revoked, or unrecorded output must not be
    /// seen. With the other reasons, output is shown until the command has ended.
    pub fn hides_output(self) -> bool {
        matches!(self, Self::Terminated | Self::Revoked | Self::Recording)
    }

    /// The reason in a `Close` message.
    pub fn reason(self) -> TerminationReason {
        match self {
            Self::Terminated | Self::Revoked => TerminationReason::Terminated,
            Self::Recording => TerminationReason::Recording,
            Self::Drain => TerminationReason::Drain,
            Self::Abandoned => TerminationReason::ClientLost,
        }
    }
}

impl Session {
    /// Starts to end the session, which takes as long as its command takes. Only the first reason
    /// counts.
    pub fn stop(&mut self, reason: EndReason, by: Option<ParticipantId>, now: Timestamp) {
        if !matches!(self.status, SessionStatus::Opening | SessionStatus::Active) {
            return;
        }
        self.ending.get_or_insert(reason);
        if reason.hides_output() {
            for participant in self.participants.values_mut() {
                if let Some(viewer) = &mut participant.viewer {
                    viewer.drop_output();
                }
            }
            self.commands.push_back(Command::DropInput);
        }
        self.record(RecordType::Control, by, reason.as_str());
        self.start_deadline = None;
        self.start_ending(now);
    }

    /// Reason of the forced end; `None` if the session runs or ended normally.
    pub fn ending(&self) -> Option<EndReason> {
        self.ending
    }

    /// Handles the deadline of the start: the client sent no `Open`, or the server did not answer
    /// it.
    pub(super) fn on_start_timeout(&mut self, now: Timestamp) {
        self.start_deadline = None;
        if self.open_received {
            self.fail("the server did not answer in time".to_owned(), now);
        } else {
            self.send_to(self.initiator, Kind::error("no command was opened in time"));
            self.leave(self.initiator, now);
        }
    }
}
