//! Why a session is made to end, before its command did.

use jiff::Timestamp;
use types::id::ParticipantId;
use types::webtty::{RecordType, SessionStatus};

use super::Command;
use super::session::Session;
use crate::message::{Kind, TerminationReason};

/// Why a session is made to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndReason {
    /// Somebody who may ended it.
    Terminated,
    /// It may not go on unrecorded.
    Recording,
    /// What had let in who opened it was taken back.
    Revoked,
    /// The engine goes down.
    Drain,
    /// Nobody who could go on with it is there.
    Abandoned,
}

impl EndReason {
    /// The word for programs.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Terminated => "terminated",
            Self::Recording => "recording",
            Self::Revoked => "revoked",
            Self::Drain => "drain",
            Self::Abandoned => "abandoned",
        }
    }

    /// What those who take part are told, where the server says nothing better.
    pub fn told(self) -> &'static str {
        match self {
            Self::Terminated => "the session was terminated",
            Self::Recording => "the session could not be recorded any more",
            Self::Revoked => "what had let this session in was taken back",
            Self::Drain => "the engine goes down",
            Self::Abandoned => "nobody was there to go on with the session",
        }
    }

    /// Whether nobody is shown anything from then on: it was taken back, or is not to be seen where it
    /// is not recorded. The others end as the command wants to.
    pub fn silences(self) -> bool {
        matches!(self, Self::Terminated | Self::Revoked | Self::Recording)
    }

    /// The same in a close.
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
    /// Makes the session end, which takes as long as its command takes. The first reason counts.
    pub fn stop(&mut self, why: EndReason, by: Option<ParticipantId>, now: Timestamp) {
        if !matches!(self.status, SessionStatus::Opening | SessionStatus::Active) {
            return;
        }
        self.ending.get_or_insert(why);
        if why.silences() {
            for participant in self.participants.values_mut() {
                if let Some(viewer) = &mut participant.viewer {
                    viewer.forget_output();
                }
            }
            self.commands.push_back(Command::DropInput);
        }
        self.record(RecordType::Control, by, why.as_str());
        self.begin_by = None;
        self.end_soon(now);
    }

    /// Why the session is made to end; `None` while it is not, and where it ended by itself.
    pub fn ending(&self) -> Option<EndReason> {
        self.ending
    }

    /// The client has not said what it wants, or the server not whether it runs.
    pub(super) fn not_begun(&mut self, now: Timestamp) {
        self.begin_by = None;
        if self.opened {
            self.fail("the server did not answer in time".to_owned(), now);
        } else {
            self.tell(self.initiator, Kind::error("nothing was opened in time"));
            self.leave(self.initiator, now);
        }
    }
}
