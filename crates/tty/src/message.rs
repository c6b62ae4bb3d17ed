//! The messages of WebTTY, with the numbers of `docs/webtty-protocol.md`.
//!
//! They are written by hand rather than generated: the set is small, the released rstream clients
//! fix it, and a build needs no schema compiler. Our additions have numbers from 100 up. They are
//! fields of messages that those clients read: the clients skip an unknown field, but end a session
//! at an unknown message.
//!
//! [`decode`] validates untrusted input. Its results have the sizes and the shape on which the rest
//! of the crate relies; [`limits`](mod@limits) documents them.

mod attach;
mod check;
mod data;
mod extensions;
mod hello;
pub mod limits;
mod open;
mod scan;

use bytes::Bytes;
use prost::Message as _;

pub use attach::{Attach, AttachCapability, AttachRole, AttachTransport};
pub use check::MessageError;
pub use data::{
    Close, Data, EncryptedPayload, EndOfStream, Error, Heartbeat, Parameter, ParameterKind,
    Payload, PayloadCrypto, Stream, TerminalSize,
};
pub use extensions::{
    AckSession, Decision, Feature, Notice, NoticeKind, OpenSession, Resume, SealAnswer,
    SealConfirm, SealHello, Signal, Termination, TerminationReason,
};
pub use hello::{
    AuthRequirement, BytesValue, ClientHello, ClientProof, EndpointIdentity, KeyEnvelope,
    KeyEnvelopeSuite, PayloadSuite, ProtocolError, ProtocolErrorCode, ProtocolVersion, ServerHello,
    ServerProof, SessionKeyGrant, SignatureSuite, StringValue,
};
pub use open::{
    Ack, Config, Environment, OpenCapability, OpenCommand, Options, User, Username, Workdir,
};

/// One message in protobuf, without its frame. Other modules use [`Kind`].
#[derive(Clone, PartialEq, prost::Message)]
pub struct Message {
    /// The message.
    #[prost(oneof = "Kind", tags = "1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11")]
    pub kind: Option<Kind>,
}

/// All messages. The comment of each variant names its sender.
#[derive(Clone, PartialEq, prost::Oneof)]
pub enum Kind {
    /// Client: starts a command.
    #[prost(message, boxed, tag = "1")]
    Open(Box<OpenCommand>),
    /// Server: the command runs. It precedes all output.
    #[prost(message, tag = "2")]
    Ack(Ack),
    /// Both: an error message for a person. The session is over.
    #[prost(message, tag = "3")]
    Error(Error),
    /// Server: the command has ended. This is the last message.
    #[prost(message, tag = "4")]
    Close(Close),
    /// Both: bytes of a stream, or its end.
    #[prost(message, tag = "5")]
    Data(Data),
    /// Client: a parameter of the session. The terminal size is the only one.
    #[prost(message, tag = "6")]
    Parameter(Parameter),
    /// Both: keep-alive, which also carries most of our additions.
    #[prost(message, tag = "7")]
    Heartbeat(Heartbeat),
    /// Client, to an engine: joins a running session.
    #[prost(message, boxed, tag = "8")]
    Attach(Box<Attach>),
    /// Server: its identity and its requirements, before the `Open`.
    #[prost(message, boxed, tag = "9")]
    ServerHello(Box<ServerHello>),
    /// Server: the reason for a failed handshake.
    #[prost(message, tag = "10")]
    ProtocolError(ProtocolError),
    /// Client: requests the server's hello.
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

    /// An error message, truncated to [`limits::MAX_ERROR`].
    pub fn error(text: &str) -> Self {
        Self::Error(Error {
            msg: truncate(text, limits::MAX_ERROR).to_owned(),
        })
    }
}

/// Decodes one message: the bytes of one WebSocket message, or of one frame.
///
/// The bytes of [`Data`] share the memory of `bytes`.
///
/// # Errors
/// All errors of [`MessageError`]. Sizes are checked before memory is allocated.
pub fn decode(bytes: Bytes) -> Result<Kind, MessageError> {
    scan::scan(&bytes)?;
    let message = Message::decode(bytes).map_err(|_| MessageError::Malformed)?;
    let kind = message.kind.ok_or(MessageError::Unknown)?;
    check::check(&kind)?;
    Ok(kind)
}

/// Encodes one message, without a frame.
///
/// # Errors
/// [`MessageError`] if the peer would reject it: too large, or invalid.
pub fn encode(kind: &Kind) -> Result<Bytes, MessageError> {
    check::check(kind)?;
    let mut out = Vec::with_capacity(kind.encoded_len());
    kind.encode(&mut out);
    // `check` limits only the content. Its tag and its length also count.
    scan::scan(&out)?;
    Ok(out.into())
}

/// Truncates `text` to at most `max` bytes, at a character boundary.
pub(crate) fn truncate(text: &str, max: usize) -> &str {
    text.get(..text.floor_char_boundary(max)).unwrap_or(text)
}

#[cfg(test)]
mod tests;
