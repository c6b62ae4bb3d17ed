//! The messages of WebTTY, as `docs/webtty-protocol.md` numbers them.
//!
//! Written by hand rather than generated: the set is small and fixed by the published clients, and
//! this way a build needs no schema compiler. Our own additions have numbers from 100 up, and are
//! only ever fields of messages that the published programs read: these skip a field that they do
//! not know, but end a session at a message that they do not know.
//!
//! [`decode`] is the border. What it returns has the sizes and the shape that the rest of the crate
//! relies on; [`limits`](mod@limits) says which, and why.

mod attach;
mod check;
mod data;
mod hello;
pub mod limits;
mod open;
mod ours;
mod scan;

use bytes::Bytes;
use prost::Message as _;

pub use attach::{Attach, AttachCapability, AttachRole, AttachTransport};
pub use check::BadMessage;
pub use data::{
    Close, Data, EncryptedPayload, EndOfStream, Error, Heartbeat, Parameter, ParameterKind,
    Payload, PayloadCrypto, Stream, TerminalSize,
};
pub use hello::{
    AuthRequirement, BytesValue, ClientHello, ClientProof, EndpointIdentity, KeyEnvelope,
    KeyEnvelopeSuite, PayloadSuite, ProtocolError, ProtocolErrorCode, ProtocolVersion, ServerHello,
    ServerProof, SessionKeyGrant, SignatureSuite, StringValue,
};
pub use open::{Ack, Config, Environment, Open, OpenCapability, Options, User, Username, Workdir};
pub use ours::{
    AckSession, Decision, Feature, Notice, NoticeKind, OpenSession, Resume, SealAnswer,
    SealConfirm, SealHello, Signal, Termination, TerminationReason,
};

/// What one frame carries, as protobuf writes it. Everybody but this module uses [`Kind`].
#[derive(Clone, PartialEq, prost::Message)]
pub struct Message {
    /// The one thing that this message says.
    #[prost(oneof = "Kind", tags = "1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11")]
    pub kind: Option<Kind>,
}

/// Everything that can be said. The comment of each variant names who says it.
#[derive(Clone, PartialEq, prost::Oneof)]
pub enum Kind {
    /// Client: start a command.
    #[prost(message, boxed, tag = "1")]
    Open(Box<Open>),
    /// Server: it runs; comes before all output.
    #[prost(message, tag = "2")]
    Ack(Ack),
    /// Both: what went wrong, for a person; the session is over.
    #[prost(message, tag = "3")]
    Error(Error),
    /// Server: the command has ended; the last message.
    #[prost(message, tag = "4")]
    Close(Close),
    /// Both: bytes of a stream, or its end.
    #[prost(message, tag = "5")]
    Data(Data),
    /// Client: the terminal has another size.
    #[prost(message, tag = "6")]
    Parameter(Parameter),
    /// Both: still here; carries most of what we added.
    #[prost(message, tag = "7")]
    Heartbeat(Heartbeat),
    /// Client, to an engine: join a session that runs.
    #[prost(message, boxed, tag = "8")]
    Attach(Box<Attach>),
    /// Server: who it is and what it asks for, before the open.
    #[prost(message, boxed, tag = "9")]
    ServerHello(Box<ServerHello>),
    /// Server: why the hellos failed.
    #[prost(message, tag = "10")]
    ProtocolError(ProtocolError),
    /// Client: asks for the server's hello.
    #[prost(message, tag = "11")]
    ClientHello(ClientHello),
}

impl Kind {
    /// The name of the message, for errors and logs.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Open(_) => "open",
            Self::Ack(_) => "ack",
            Self::Error(_) => "error",
            Self::Close(_) => "close",
            Self::Data(_) => "data",
            Self::Parameter(_) => "parameter",
            Self::Heartbeat(_) => "heartbeat",
            Self::Attach(_) => "attach",
            Self::ServerHello(_) => "server hello",
            Self::ProtocolError(_) => "protocol error",
            Self::ClientHello(_) => "client hello",
        }
    }

    /// Bytes of a stream.
    pub fn data(stream: Stream, data: impl Into<Bytes>) -> Self {
        Self::Data(Data::bytes(stream, data))
    }

    /// The end of a stream.
    pub fn end(stream: Stream) -> Self {
        Self::Data(Data::end(stream))
    }

    /// What went wrong, cut to [`limits::MAX_ERROR`].
    pub fn error(text: &str) -> Self {
        Self::Error(Error {
            msg: cut(text, limits::MAX_ERROR).to_owned(),
        })
    }
}

/// Reads one message: the bytes of one WebSocket message, or of one frame.
///
/// The bytes of [`Data`] share the memory of `bytes`.
///
/// # Errors
/// Everything that [`BadMessage`] lists. The sizes that memory depends on are judged before any is
/// taken.
pub fn decode(bytes: Bytes) -> Result<Kind, BadMessage> {
    scan::scan(&bytes)?;
    let message = Message::decode(bytes).map_err(|_| BadMessage::Malformed)?;
    let kind = message.kind.ok_or(BadMessage::Unknown)?;
    check::check(&kind)?;
    Ok(kind)
}

/// Writes one message, without a frame.
///
/// # Errors
/// [`BadMessage`] when the other side would not read it: too large, or not of the right shape.
pub fn encode(kind: &Kind) -> Result<Bytes, BadMessage> {
    check::check(kind)?;
    // The tag of a kind and the length of its content take at most five bytes more.
    let mut out = Vec::with_capacity(kind.encoded_len());
    kind.encode(&mut out);
    scan::scan(&out)?;
    Ok(out.into())
}

/// As much of `text` as fits into `max` bytes, ended at a character.
pub(crate) fn cut(text: &str, max: usize) -> &str {
    text.get(..text.floor_char_boundary(max)).unwrap_or(text)
}

#[cfg(test)]
mod tests;
