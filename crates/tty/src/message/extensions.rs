//! Additions of this project. They are omitted for peers that did not request them, or are in
//! fields that such peers skip.

use std::fmt;

/// Additions to an `OpenCommand`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct OpenSession {
    /// Features that the client supports.
    #[prost(enumeration = "Feature", repeated, tag = "1")]
    pub features: Vec<i32>,
    /// The session to resume. With it nothing is started, and `config` is ignored.
    #[prost(message, optional, tag = "2")]
    pub resume: Option<Resume>,
    /// Size of the terminal at the start of the command.
    #[prost(message, optional, tag = "3")]
    pub size: Option<super::TerminalSize>,
}

/// Features beyond the published protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, prost::Enumeration)]
#[repr(i32)]
pub enum Feature {
    /// Not specified.
    Unspecified = 0,
    /// Signals in a heartbeat, and the termination in a close.
    Signals = 1,
    /// Counts of received bytes, and resuming after a lost connection.
    Resume = 2,
    /// Notices about participants.
    Notices = 3,
}

/// Data with which a client resumes a session.
#[derive(Clone, PartialEq, Eq, prost::Message)]
#[prost(skip_debug)]
pub struct Resume {
    /// The token of the last received [`AckSession`].
    #[prost(bytes = "vec", tag = "1")]
    pub token: Vec<u8>,
    /// Number of output bytes that the client received, over both streams.
    #[prost(uint64, tag = "2")]
    pub received: u64,
}

impl fmt::Debug for Resume {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Resume({} received)", self.received)
    }
}

/// Session data that a server sends in an `Ack`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
#[prost(skip_debug)]
pub struct AckSession {
    /// Features that both the client and the server support.
    #[prost(enumeration = "Feature", repeated, tag = "1")]
    pub features: Vec<i32>,
    /// Id of the session in logs.
    #[prost(string, tag = "2")]
    pub session_id: String,
    /// Token with which the client can resume.
    #[prost(bytes = "vec", tag = "3")]
    pub resume_token: Vec<u8>,
    /// Seconds for which the command outlives its connection.
    #[prost(uint32, tag = "4")]
    pub grace_seconds: u32,
    /// Only when resuming: number of output bytes before the following ones. It is at most the
    /// client's count, or greater if the server no longer has the missing bytes.
    #[prost(uint64, optional, tag = "5")]
    pub output_from: Option<u64>,
    /// Number of input bytes that arrived, so that a resuming client can send the rest again.
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

/// A signal for the command and its processes in the terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, prost::Enumeration)]
#[repr(i32)]
pub enum Signal {
    /// Not specified.
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
    /// The name without `SIG`, as shells use it.
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

/// Reason of a command's end.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Termination {
    /// The reason.
    #[prost(enumeration = "TerminationReason", tag = "1")]
    pub reason: i32,
    /// Name of the signal that ended the command, without `SIG`; empty if none did.
    #[prost(string, tag = "2")]
    pub signal: String,
    /// Details for a person.
    #[prost(string, tag = "3")]
    pub detail: String,
}

/// Reasons of a command's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, prost::Enumeration)]
#[repr(i32)]
pub enum TerminationReason {
    /// Not specified.
    Unspecified = 0,
    /// The command exited.
    Exited = 1,
    /// A signal from outside this session.
    Signalled = 2,
    /// The client was disconnected for longer than the grace period.
    ClientLost = 3,
    /// There was no input and no output for too long.
    Idle = 4,
    /// The command reached its maximum duration.
    Duration = 5,
    /// The server shuts down.
    Drain = 6,
    /// A permitted caller ended it.
    Terminated = 7,
    /// The recording failed, and the session must be recorded.
    Recording = 8,
}

/// A change of participants, control or size.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Notice {
    /// The change.
    #[prost(enumeration = "NoticeKind", tag = "1")]
    pub kind: i32,
    /// The participant that changed.
    #[prost(string, tag = "2")]
    pub participant_id: String,
    /// The control request that changed.
    #[prost(string, tag = "3")]
    pub request_id: String,
    /// Display name of that participant.
    #[prost(string, tag = "4")]
    pub user: String,
    /// Reason of the requester.
    #[prost(string, tag = "5")]
    pub reason: String,
    /// Expiry in Unix seconds; 0 for none.
    #[prost(uint64, tag = "6")]
    pub expires_at: u64,
    /// The new size of the terminal.
    #[prost(message, optional, tag = "7")]
    pub size: Option<super::TerminalSize>,
}

/// Kinds of changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, prost::Enumeration)]
#[repr(i32)]
pub enum NoticeKind {
    /// Not specified.
    Unspecified = 0,
    /// A participant joined.
    Joined = 1,
    /// A participant left.
    Left = 2,
    /// A participant requests control.
    Requested = 3,
    /// The participant got control.
    Granted = 4,
    /// The request was refused.
    Refused = 5,
    /// The participant lost control.
    Revoked = 6,
    /// The request was not answered in time.
    Expired = 7,
    /// The next output is a snapshot of the screen, not the output since: clear the terminal first.
    Snapshot = 8,
    /// The receiver of this notice must leave.
    Kicked = 9,
    /// This session is recorded.
    Recorded = 10,
    /// The size of the terminal has changed.
    Resized = 11,
}

/// Answer to a request for control.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Decision {
    /// The request.
    #[prost(string, tag = "1")]
    pub request_id: String,
    /// `true` to grant, `false` to refuse.
    #[prost(bool, tag = "2")]
    pub grant: bool,
}

/// Starts a sealed session: see [`seal`](crate::seal).
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct SealHello {
    /// The only version is 1.
    #[prost(uint32, tag = "1")]
    pub version: u32,
    /// The server's key that this is sealed to.
    #[prost(bytes = "vec", tag = "2")]
    pub server_key_id: Vec<u8>,
    /// Encapsulated secret, from which the server derives the opening key.
    #[prost(bytes = "vec", tag = "3")]
    pub encapsulated: Vec<u8>,
    /// The client's secret and its public keys.
    #[prost(bytes = "vec", tag = "4")]
    pub sealed: Vec<u8>,
}

/// The server's part of a sealed session.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct SealAnswer {
    /// Encapsulated secret for the client's long-term key, from which the client derives the
    /// opening key.
    #[prost(bytes = "vec", tag = "1")]
    pub encapsulated: Vec<u8>,
    /// The server's first secret.
    #[prost(bytes = "vec", tag = "2")]
    pub sealed: Vec<u8>,
    /// Encapsulated secret for the key that the client made for this session.
    #[prost(bytes = "vec", tag = "3")]
    pub fresh_encapsulated: Vec<u8>,
    /// The server's second secret.
    #[prost(bytes = "vec", tag = "4")]
    pub fresh_sealed: Vec<u8>,
    /// Proves that the server has the keys of the session.
    #[prost(bytes = "vec", tag = "5")]
    pub confirmation: Vec<u8>,
}

/// Proves that the client has the keys of the session, and authenticates its `OpenCommand`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct SealConfirm {
    /// An authentication code over the handshake and the `OpenCommand`.
    #[prost(bytes = "vec", tag = "1")]
    pub confirmation: Vec<u8>,
}
