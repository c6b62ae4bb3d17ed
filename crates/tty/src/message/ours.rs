//! What this project added. All of it is absent towards a peer that did not ask for it, or in
//! fields that such a peer skips.

use std::fmt;

/// What a client brings along to an open.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct OpenSession {
    /// What the client understands.
    #[prost(enumeration = "Feature", repeated, tag = "1")]
    pub features: Vec<i32>,
    /// The session that it comes back to; then nothing is started, and `config` is not looked at.
    #[prost(message, optional, tag = "2")]
    pub resume: Option<Resume>,
    /// How large the terminal is, so that the command starts with it.
    #[prost(message, optional, tag = "3")]
    pub size: Option<super::TerminalSize>,
}

/// What an end understands beyond the published protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, prost::Enumeration)]
#[repr(i32)]
pub enum Feature {
    /// Says nothing.
    Unspecified = 0,
    /// Signals in a heartbeat, and the termination in a close.
    Signals = 1,
    /// Counts of what arrived, and coming back after a lost connection.
    Resume = 2,
    /// Notices about who takes part.
    Notices = 3,
}

/// How a client comes back.
#[derive(Clone, PartialEq, Eq, prost::Message)]
#[prost(skip_debug)]
pub struct Resume {
    /// The token of the last [`AckSession`] that arrived.
    #[prost(bytes = "vec", tag = "1")]
    pub token: Vec<u8>,
    /// How many bytes of output the client has, both streams together.
    #[prost(uint64, tag = "2")]
    pub received: u64,
}

impl fmt::Debug for Resume {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Resume({} received)", self.received)
    }
}

/// What a server says about the session that it opened.
#[derive(Clone, PartialEq, Eq, prost::Message)]
#[prost(skip_debug)]
pub struct AckSession {
    /// What the server does, of what the client understands.
    #[prost(enumeration = "Feature", repeated, tag = "1")]
    pub features: Vec<i32>,
    /// Names the session in logs.
    #[prost(string, tag = "2")]
    pub session_id: String,
    /// What the client shows to come back.
    #[prost(bytes = "vec", tag = "3")]
    pub resume_token: Vec<u8>,
    /// How long the command outlives its connection, in seconds.
    #[prost(uint32, tag = "4")]
    pub grace_seconds: u32,
    /// The client came back: the number of output bytes before those that follow. Less than, or as
    /// much as, the client said; more where the server no longer has what is missing.
    #[prost(uint64, optional, tag = "5")]
    pub output_from: Option<u64>,
    /// How many bytes of input arrived, so that a client that comes back sends the others again.
    #[prost(uint64, tag = "6")]
    pub input_received: u64,
}

impl fmt::Debug for AckSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AckSession")
            .field("session_id", &self.session_id)
            .field("grace_seconds", &self.grace_seconds)
            .field("output_from", &self.output_from)
            .finish_non_exhaustive()
    }
}

/// A signal for the command and all that it started in its terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, prost::Enumeration)]
#[repr(i32)]
pub enum Signal {
    /// Says nothing.
    Unspecified = 0,
    /// `SIGHUP`.
    Hangup = 1,
    /// `SIGINT`.
    Interrupt = 2,
    /// `SIGQUIT`.
    Quit = 3,
    /// `SIGKILL`.
    Kill = 9,
    /// `SIGUSR1`.
    User1 = 10,
    /// `SIGUSR2`.
    User2 = 12,
    /// `SIGTERM`.
    Terminate = 15,
    /// `SIGCONT`.
    Continue = 18,
    /// `SIGTSTP`.
    Stop = 20,
}

impl Signal {
    /// The name without `SIG`, as shells write it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Unspecified => "",
            Self::Hangup => "HUP",
            Self::Interrupt => "INT",
            Self::Quit => "QUIT",
            Self::Kill => "KILL",
            Self::User1 => "USR1",
            Self::User2 => "USR2",
            Self::Terminate => "TERM",
            Self::Continue => "CONT",
            Self::Stop => "TSTP",
        }
    }
}

/// Why a command ended.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Termination {
    /// What ended it.
    #[prost(enumeration = "TerminationReason", tag = "1")]
    pub reason: i32,
    /// The signal that ended it, without `SIG`; empty where none did.
    #[prost(string, tag = "2")]
    pub signal: String,
    /// More about it, for a person.
    #[prost(string, tag = "3")]
    pub detail: String,
}

/// What ended a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, prost::Enumeration)]
#[repr(i32)]
pub enum TerminationReason {
    /// Says nothing.
    Unspecified = 0,
    /// It ended by itself.
    Exited = 1,
    /// A signal that nobody of this session sent.
    Signalled = 2,
    /// The client was gone for longer than the grace.
    ClientLost = 3,
    /// Nobody typed and nothing was shown for too long.
    Idle = 4,
    /// It ran for as long as it may.
    Duration = 5,
    /// The server goes down.
    Drain = 6,
    /// Somebody who may ended it.
    Terminated = 7,
    /// The recording could not go on, and it may not go on without.
    Recording = 8,
}

/// Something changed about who takes part.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Notice {
    /// What changed.
    #[prost(enumeration = "NoticeKind", tag = "1")]
    pub kind: i32,
    /// Whom it is about.
    #[prost(string, tag = "2")]
    pub participant_id: String,
    /// The request that it is about.
    #[prost(string, tag = "3")]
    pub request_id: String,
    /// Who that is, as the platform knows them.
    #[prost(string, tag = "4")]
    pub user: String,
    /// What they gave as their reason.
    #[prost(string, tag = "5")]
    pub reason: String,
    /// Until when it holds, in Unix seconds; 0 for no end.
    #[prost(uint64, tag = "6")]
    pub expires_at: u64,
    /// How large the terminal is now.
    #[prost(message, optional, tag = "7")]
    pub size: Option<super::TerminalSize>,
}

/// What can change about who takes part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, prost::Enumeration)]
#[repr(i32)]
pub enum NoticeKind {
    /// Says nothing.
    Unspecified = 0,
    /// Somebody joined.
    Joined = 1,
    /// Somebody left.
    Left = 2,
    /// Somebody asks for control.
    Requested = 3,
    /// They have it.
    Granted = 4,
    /// They do not get it.
    Refused = 5,
    /// They have it no longer.
    Revoked = 6,
    /// Nobody answered in time.
    Expired = 7,
    /// What follows is the screen as it is, not what was written since: draw it anew.
    Snapshot = 8,
    /// The one who reads this must leave.
    Kicked = 9,
    /// This session is recorded.
    Recorded = 10,
    /// The terminal has another size.
    Resized = 11,
}

/// An answer to somebody who asks for control.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Decision {
    /// The request.
    #[prost(string, tag = "1")]
    pub request_id: String,
    /// Yes or no.
    #[prost(bool, tag = "2")]
    pub grant: bool,
}

/// Begins a sealed session: see [`seal`](crate::seal).
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct SealHello {
    /// The only version is 1.
    #[prost(uint32, tag = "1")]
    pub version: u32,
    /// The server's key that this is sealed to.
    #[prost(bytes = "vec", tag = "2")]
    pub server_key_id: Vec<u8>,
    /// What the server makes the opening key of.
    #[prost(bytes = "vec", tag = "3")]
    pub encapsulated: Vec<u8>,
    /// The client's secret and its public keys.
    #[prost(bytes = "vec", tag = "4")]
    pub sealed: Vec<u8>,
}

/// The server's part of a sealed session.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct SealAnswer {
    /// What the client makes the opening key of, with the key that it is known by.
    #[prost(bytes = "vec", tag = "1")]
    pub encapsulated: Vec<u8>,
    /// The server's first secret.
    #[prost(bytes = "vec", tag = "2")]
    pub sealed: Vec<u8>,
    /// The same with the key that it made for this session.
    #[prost(bytes = "vec", tag = "3")]
    pub fresh_encapsulated: Vec<u8>,
    /// The server's second secret.
    #[prost(bytes = "vec", tag = "4")]
    pub fresh_sealed: Vec<u8>,
    /// Shows that the server holds the keys of the session.
    #[prost(bytes = "vec", tag = "5")]
    pub confirmation: Vec<u8>,
}

/// Shows that the client holds the keys of the session, and what it wants to open.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct SealConfirm {
    /// A code over the handshake and the open.
    #[prost(bytes = "vec", tag = "1")]
    pub confirmation: Vec<u8>,
}
