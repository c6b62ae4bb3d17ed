//! One session with all its participants: viewers, the controller, and requests for control.
//!
//! The engine is between the server and the participants. [`Session`] takes their messages and the
//! calls of the Engine API. It queues commands: messages to the server, entries to record, and
//! events to publish. Messages to a viewer wait in the viewer's own queue.
//!
//! - **One participant types.** The opener of the session has control at first. Another participant
//!   gets it when the controller or an owner grants a request. It returns to the opener when it is
//!   revoked, expires, or its holder leaves. An opener that reconnects with a browser session is
//!   still the opener. Input from other participants is dropped silently, because a participant
//!   that has just lost control may not have received the notice yet.
//! - **A token alone cannot take control.** A token shows its account, not that the person is
//!   present: a program may have the person's own token. Only a connected stream, or a browser
//!   session of the person, takes control without a grant, dismisses participants, and answers
//!   requests of its own party. Participants with credentials of one chain
//!   ([`Root`](types::root::Root)) are one party.
//! - **Input has an author.** All accepted input is recorded with its participant.
//! - **Viewers do not slow a session down.** A viewer's queue is bounded. A viewer that falls behind loses
//!   the waiting output, and gets the current screen when it is ready again. Only the controller
//!   sets the pace.
//! - **A participant attaches over the Engine API and then connects over WebTTY**, with a grant
//!   that is valid once and for half a minute. Only the hash of the grant is kept.

mod control;
mod dismissal;
mod ending;
mod participant;
mod relay;
mod session;
#[cfg(test)]
mod tests;

use std::time::Duration;

use jiff::Timestamp;
use types::event::EventType;
use types::id::{ControlRequestId, ParticipantId};

pub use control::{Approver, ControlLimit, ControlRequest, NewControlRequest};
pub use ending::EndReason;
pub use participant::{GRANT_LEN, NewParticipant, Participant, Person};
pub use session::{NewSession, Session};

use crate::message::Kind;
use crate::recording::Entry;

/// Validity of a grant to attach: a client uses it immediately.
pub const GRANT_TTL: Duration = Duration::from_secs(30);

/// Default validity of a request for control.
pub const REQUEST_TTL: Duration = Duration::from_mins(2);

/// Maximum validity of a request for control.
pub const MAX_REQUEST_TTL: Duration = Duration::from_hours(1);

/// Time from a request for control, if it is withdrawn, to the next one of the same participant:
/// the controller gets a notice of each.
pub const WITHDRAWAL_PAUSE: Duration = Duration::from_secs(5);

/// Time that a session continues without a controller, so that its opener can reconnect.
pub const ABANDONED_TIMEOUT: Duration = Duration::from_mins(1);

/// Time between the signals that a command can handle and the kill signal. With it the command ends
/// within the five seconds of [`STOP_GRACE`](crate::session::STOP_GRACE), including the way to the
/// server.
pub const TERMINATE_GRACE: Duration = Duration::from_secs(4);

/// Time that the server has to report the end after the kill signal, before its connection is
/// closed.
pub const KILL_GRACE: Duration = Duration::from_secs(1);

/// Time that the server has to report that the command runs: lookups in a directory service
/// may take this long.
pub const ANSWER_DEADLINE: Duration = Duration::from_secs(20);

/// Error of a session that lost its server.
pub const SERVER_LOST: &str = "the connection to the server was lost";

/// Maximum of present participants: more than ever watch a terminal, few enough to write to all.
pub const MAX_PARTICIPANTS: usize = 256;

/// Maximum of listed participants. Beyond it the oldest that left are removed.
pub const MAX_LISTED: usize = 1024;

/// Maximum of pending requests: a person has to read them.
pub const MAX_PENDING: usize = 32;

/// Maximum bytes in a viewer's queue: some screens, so that a short stall goes unnoticed.
pub const VIEWER_QUEUE: usize = 256 * 1024;

/// Maximum messages in a viewer's queue, whatever their size.
pub const VIEWER_MESSAGES: usize = 4096;

/// Tasks for the owner of a [`Session`].
#[derive(Clone, Debug, PartialEq)]
pub enum Command {
    /// Send this message to the server.
    ToServer(Kind),
    /// Drop the input that waits for the server.
    DropInput,
    /// Close the connection to the server, which ends its command.
    HangUpServer,
    /// This participant has a message in its queue ([`Session::next_message`]).
    Wake(ParticipantId),
    /// Close the connection to this participant, once its queue is empty or it does not read.
    HangUp(ParticipantId),
    /// Record this.
    Record(Entry),
    /// Publish this event to the watchers of the project.
    Event(Event),
}

/// Changes for the live stream. The session provides the changed objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The session started.
    SessionCreated,
    /// It has another status, or another controller.
    SessionUpdated,
    /// It ended.
    SessionClosed,
    /// A participant connected.
    ParticipantAttached(ParticipantId),
    /// A participant left.
    ParticipantDetached(ParticipantId),
    /// A participant requests control.
    ControlRequestCreated(ControlRequestId),
    /// A request has another status.
    ControlRequestResolved(ControlRequestId),
}

impl Event {
    /// The type of the event on the live stream.
    pub fn event_type(self) -> EventType {
        match self {
            Self::SessionCreated => EventType::WebttySessionCreated,
            Self::SessionUpdated => EventType::WebttySessionUpdated,
            Self::SessionClosed => EventType::WebttySessionClosed,
            Self::ParticipantAttached(_) => EventType::WebttyParticipantAttached,
            Self::ParticipantDetached(_) => EventType::WebttyParticipantDetached,
            Self::ControlRequestCreated(_) => EventType::WebttyControlRequestCreated,
            Self::ControlRequestResolved(_) => EventType::WebttyControlRequestResolved,
        }
    }
}

/// Reasons for which a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SessionRefusalError {
    /// The participant or the request does not exist.
    #[error("not found")]
    NotFound,
    /// The session has ended, or has not started.
    #[error("the session is not active")]
    NotActive,
    /// An end-to-end encrypted session cannot be watched.
    #[error("the session is end-to-end encrypted")]
    Sealed,
    /// A session without a terminal has no control to hand over.
    #[error("the session has no terminal")]
    NoTerminal,
    /// The grant is wrong, used, or for another participant.
    #[error("the attach grant is not valid")]
    BadGrant,
    /// The request or the grant has expired.
    #[error("it has expired")]
    Expired,
    /// A client cannot attach as the controller.
    #[error("control must be requested")]
    NotAsController,
    /// The participant has no stream.
    #[error("the participant is not connected")]
    NotConnected,
    /// The participant already has control.
    #[error("the participant already has control")]
    HasControl,
    /// The participant already has a pending request, or one that was made and withdrawn within
    /// [`WITHDRAWAL_PAUSE`].
    #[error("the participant already has a pending request, or has just withdrawn one")]
    IsPending,
    /// The request was already answered.
    #[error("the request is not pending")]
    NotPending,
    /// The request does not currently give control.
    #[error("the request is not granted")]
    NotGranted,
    /// The caller is neither the controller nor an owner.
    #[error("only the controller or an owner may do this")]
    NotAllowed,
    /// The caller answers its own request.
    #[error(
        "a request cannot be granted with the credential that made it, nor with one of the same \
         chain"
    )]
    OwnRequest,
    /// A token alone does not permit this.
    #[error("this needs the stream of the participant itself, or a browser session of the user")]
    NeedsPerson,
    /// A limit is reached.
    #[error("there are too many")]
    TooMany,
    /// A time or a text exceeds its limit.
    #[error("{0} is not valid")]
    Invalid(&'static str),
}

fn after(now: Timestamp, wait: Duration) -> Timestamp {
    now.saturating_add(wait).unwrap_or(Timestamp::MAX)
}
