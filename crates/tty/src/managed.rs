//! One session and all who take part: who watches, who types, who asks to, and who said yes.
//!
//! The engine stands between the server and everybody else. [`Session`] takes what they say and what
//! the Engine API is asked for, and queues what is to be done: what the server is told, what is
//! recorded, which events go out. What a viewer is told waits in the viewer's own queue.
//!
//! - **One types.** Whoever opened the session has control at first. Somebody else gets it when the
//!   one who has it, or an owner, grants a request; it goes back when it is revoked, runs out, or
//!   its holder goes. Who opened the session and comes back with a browser session is who opened it.
//!   What others type does not pass: it is dropped without a word, because who has just lost control
//!   cannot know yet.
//! - **No token is enough to take control.** A token shows whose it is, and not that a person is
//!   there: a program may have the person's own. Only a stream that is there, or a browser session of
//!   the person, gets control without being given it, sends others away, and answers for its party.
//!   Whoever was let in by credentials of one chain ([`Root`](types::root::Root)) is one party.
//! - **Each key has an owner.** Every input that passes is recorded with its participant.
//! - **Nobody is slowed by who watches.** A viewer's queue is bounded; one who falls behind loses
//!   what waits and gets the screen as it is when ready again. Only who has control sets the pace.
//! - **An attachment is asked for over the Engine API and made over WebTTY**, with a grant that is
//!   good once and for half a minute. Only its hash is kept.

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

pub use control::{Approver, Ask, ControlLimit, ControlRequest};
pub use ending::EndReason;
pub use participant::{GRANT_LEN, NewParticipant, Participant, Person};
pub use session::{NewSession, Session};

use crate::message::Kind;
use crate::recording::Entry;

/// How long a grant to attach is good: a client uses it at once.
pub const GRANT_TTL: Duration = Duration::from_secs(30);

/// How long a request for control waits where its maker does not say.
pub const REQUEST_TTL: Duration = Duration::from_mins(2);

/// How long it may wait at most.
pub const MAX_REQUEST_TTL: Duration = Duration::from_hours(1);

/// How long a session goes on while nobody has control, so that who opened it can come back.
pub const ABANDONED: Duration = Duration::from_mins(1);

/// How long a command has between the signals that ask it to end and the one that does not ask: it is
/// gone within the five seconds of [`STOP_GRACE`](crate::session::STOP_GRACE), the way to the server
/// included.
pub const TERMINATE_GRACE: Duration = Duration::from_secs(4);

/// How long the server has to tell of that, before it is hung up to.
pub const KILL_GRACE: Duration = Duration::from_secs(1);

/// How long the server has to say that the command runs: as long as accounts of a directory take.
pub const ANSWER_DEADLINE: Duration = Duration::from_secs(20);

/// What is said of a session whose server is gone.
pub const SERVER_LOST: &str = "the connection to the server is gone";

/// Who takes part at the same time: more than ever watch a terminal, few enough to write to all.
pub const MAX_PARTICIPANTS: usize = 256;

/// Who has taken part and is listed: the oldest who left are forgotten beyond.
pub const MAX_LISTED: usize = 1024;

/// Requests that wait at the same time: a person has to read them.
pub const MAX_PENDING: usize = 32;

/// What waits for one viewer, in bytes: some screens, so that a short stall goes unnoticed.
pub const VIEWER_QUEUE: usize = 256 * 1024;

/// Messages that wait for one viewer, whatever their size.
pub const VIEWER_MESSAGES: usize = 4096;

/// What the owner of a [`Session`] has to do.
#[derive(Clone, Debug, PartialEq)]
pub enum Command {
    /// Tell the server.
    ToServer(Kind),
    /// What was typed and waits for the server is not for it any more.
    DropInput,
    /// Hang up to the server: then its command ends.
    HangUpServer,
    /// There is something in the queue of this participant ([`Session::take`]).
    Wake(ParticipantId),
    /// Hang up to this participant, once its queue is empty or it does not read.
    HangUp(ParticipantId),
    /// Record this.
    Record(Entry),
    /// Tell those who watch the project, as the types of [`Event`] say.
    Event(Event),
}

/// What changed, for the live stream. The objects are had from the session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The session began.
    SessionCreated,
    /// It has another status, or another controller.
    SessionUpdated,
    /// It ended.
    SessionClosed,
    /// Somebody's stream is there.
    ParticipantAttached(ParticipantId),
    /// Somebody is gone.
    ParticipantDetached(ParticipantId),
    /// Somebody asks for control.
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

/// Why something is not done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// There is no such participant or request.
    #[error("not found")]
    NotFound,
    /// The session has ended, or has not begun.
    #[error("the session is not active")]
    NotActive,
    /// Nobody can watch what only the two ends can read.
    #[error("the session is end-to-end encrypted")]
    Sealed,
    /// Control is of a terminal.
    #[error("the session has no terminal")]
    NoTerminal,
    /// The grant is wrong, was used, or is for somebody else.
    #[error("the attach grant is not valid")]
    BadGrant,
    /// It came too late.
    #[error("it has expired")]
    Expired,
    /// Nobody attaches as the controller.
    #[error("control has to be requested")]
    NotAsController,
    /// The participant has no stream.
    #[error("the participant is not connected")]
    NotConnected,
    /// The participant has control.
    #[error("the participant has control already")]
    HasControl,
    /// The participant waits for an answer.
    #[error("the participant has a request that is pending")]
    IsPending,
    /// Somebody has answered.
    #[error("the request is not pending")]
    NotPending,
    /// The request does not hold control.
    #[error("the request is not granted")]
    NotGranted,
    /// Neither the one who has control nor an owner.
    #[error("only the controller or an owner may do this")]
    NotAllowed,
    /// Who answers is who asks.
    #[error(
        "a request is not granted with the credential that made it, nor with one of the same chain"
    )]
    OwnRequest,
    /// What a token alone does not do.
    #[error("this needs the stream of the participant itself, or a browser session of the person")]
    NeedsPerson,
    /// A limit.
    #[error("there are too many")]
    TooMany,
    /// A time or a text beyond its limit.
    #[error("{0} is not valid")]
    Invalid(&'static str),
}

fn after(now: Timestamp, wait: Duration) -> Timestamp {
    now.saturating_add(wait).unwrap_or(Timestamp::MAX)
}
