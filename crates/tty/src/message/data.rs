//! What is said while a command runs.

use std::fmt;

use bytes::Bytes;

use super::ours::{Decision, Notice, Termination};

/// What went wrong, for a person.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Error {
    /// One line.
    #[prost(string, tag = "1")]
    pub msg: String,
}

/// The command has ended.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Close {
    /// The exit code; 128 and the signal's number where a signal ended it.
    #[prost(int32, tag = "1")]
    pub return_code: i32,
    /// Ours: why it ended.
    #[prost(message, optional, tag = "100")]
    pub termination: Option<Termination>,
}

/// Bytes of a stream, or its end.
#[derive(Clone, PartialEq, prost::Message)]
#[prost(skip_debug)]
pub struct Data {
    /// Which stream.
    #[prost(enumeration = "Stream", tag = "1")]
    pub r#type: i32,
    /// Its bytes, or its end.
    #[prost(oneof = "Payload", tags = "2, 3, 4")]
    pub payload: Option<Payload>,
}

impl Data {
    /// Bytes of a stream.
    pub fn bytes(stream: Stream, data: impl Into<Bytes>) -> Self {
        Self {
            r#type: stream.into(),
            payload: Some(Payload::Data(data.into())),
        }
    }

    /// The end of a stream.
    pub fn end(stream: Stream) -> Self {
        Self {
            r#type: stream.into(),
            payload: Some(Payload::Eos(EndOfStream {})),
        }
    }
}

/// What is typed and what is shown stays out of logs.
impl fmt::Debug for Data {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let stream = self.r#type();
        match &self.payload {
            Some(Payload::Data(data)) => write!(f, "Data({stream:?}, {} bytes)", data.len()),
            Some(Payload::Eos(_)) => write!(f, "Data({stream:?}, end)"),
            Some(Payload::EncryptedData(data)) => {
                write!(
                    f,
                    "Data({stream:?}, {} bytes sealed)",
                    data.ciphertext.len()
                )
            }
            None => write!(f, "Data({stream:?})"),
        }
    }
}

/// A stream of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, prost::Enumeration)]
#[repr(i32)]
pub enum Stream {
    /// What it reads.
    Stdin = 0,
    /// What it writes; with a terminal, all of it.
    Stdout = 1,
    /// What it writes about errors, without a terminal.
    Stderr = 2,
}

/// What [`Data`] carries.
#[derive(Clone, PartialEq, prost::Oneof)]
pub enum Payload {
    /// Bytes in clear.
    #[prost(bytes = "bytes", tag = "2")]
    Data(Bytes),
    /// The stream is over.
    #[prost(message, tag = "3")]
    Eos(EndOfStream),
    /// Sealed bytes.
    #[prost(message, boxed, tag = "4")]
    EncryptedData(Box<EncryptedPayload>),
}

/// The end of a stream.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct EndOfStream {}

/// Sealed bytes of a stream.
#[derive(Clone, PartialEq, prost::Message)]
pub struct EncryptedPayload {
    /// Ciphertext and tag.
    #[prost(bytes = "bytes", tag = "1")]
    pub ciphertext: Bytes,
    /// How long the clear bytes are.
    #[prost(uint32, tag = "2")]
    pub plaintext_length: u32,
    /// How it was encrypted, in the published protocol.
    #[prost(message, optional, tag = "4")]
    pub payload_crypto: Option<PayloadCrypto>,
    /// Ours: the number of this message among all sealed ones of its direction, from 0. It is
    /// authenticated; it is sent so that a recording can be opened from its middle.
    #[prost(uint64, optional, tag = "100")]
    pub sequence: Option<u64>,
}

/// How bytes were encrypted, in the published protocol.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct PayloadCrypto {
    /// The suite.
    #[prost(enumeration = "super::PayloadSuite", tag = "1")]
    pub payload_suite: i32,
    /// The key.
    #[prost(bytes = "vec", tag = "2")]
    pub payload_key_id: Vec<u8>,
    /// The nonce.
    #[prost(bytes = "vec", tag = "3")]
    pub nonce: Vec<u8>,
    /// What else was authenticated.
    #[prost(bytes = "vec", tag = "4")]
    pub aad_context: Vec<u8>,
}

/// A change of the terminal.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Parameter {
    /// What changed.
    #[prost(oneof = "ParameterKind", tags = "1")]
    pub parameter: Option<ParameterKind>,
}

/// What can change.
#[derive(Clone, PartialEq, Eq, prost::Oneof)]
pub enum ParameterKind {
    /// The size.
    #[prost(message, tag = "1")]
    TerminalSize(TerminalSize),
}

impl From<TerminalSize> for Parameter {
    fn from(size: TerminalSize) -> Self {
        Self {
            parameter: Some(ParameterKind::TerminalSize(size)),
        }
    }
}

/// The size of a terminal. A hidden page sends zeros; they are read and change nothing.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct TerminalSize {
    /// Rows of characters.
    #[prost(uint32, tag = "1")]
    pub row: u32,
    /// Columns of characters.
    #[prost(uint32, tag = "2")]
    pub col: u32,
    /// Width in pixels, 0 where unknown.
    #[prost(uint32, tag = "3")]
    pub xpixel: u32,
    /// Height in pixels, 0 where unknown.
    #[prost(uint32, tag = "4")]
    pub ypixel: u32,
}

/// Still here. The published programs skip what they do not know in it, so ours is here.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Heartbeat {
    /// Ours, client: deliver a signal to the command.
    #[prost(enumeration = "super::Signal", optional, tag = "100")]
    pub signal: Option<i32>,
    /// Ours, both: how many bytes arrived so far (at a client the output of both streams together),
    /// so that the other end need not keep them for a return.
    #[prost(uint64, optional, tag = "101")]
    pub received: Option<u64>,
    /// Ours, engine: something changed about who takes part.
    #[prost(message, optional, boxed, tag = "102")]
    pub notice: Option<Box<Notice>>,
    /// Ours, client: the answer of who has control to somebody who asks for it.
    #[prost(message, optional, tag = "103")]
    pub decision: Option<Decision>,
    /// Ours, server: whether the command hides what is typed, as for a password. Absent: as before,
    /// at first no.
    #[prost(bool, optional, tag = "104")]
    pub secret_input: Option<bool>,
}
