//! The messages of a running command.

use std::fmt;

use bytes::Bytes;

use super::extensions::{Decision, Notice, Termination};

/// An error message for a person.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Error {
    /// One line.
    #[prost(string, tag = "1")]
    pub msg: String,
}

/// The command has ended.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Close {
    /// The exit code; 128 plus the signal's number if a signal ended it.
    #[prost(int32, tag = "1")]
    pub return_code: i32,
    /// Ours: the reason of the end.
    #[prost(message, optional, tag = "100")]
    pub termination: Option<Termination>,
}

/// Bytes of a stream, or its end.
#[derive(Clone, PartialEq, prost::Message)]
#[prost(skip_debug)]
pub struct Data {
    /// The stream.
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

/// Input and output stay out of logs.
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
    /// Input of the command.
    Stdin = 0,
    /// Output of the command; with a terminal, all of it.
    Stdout = 1,
    /// Error output of the command, without a terminal.
    Stderr = 2,
}

/// Payload of [`Data`].
#[derive(Clone, PartialEq, prost::Oneof)]
pub enum Payload {
    /// Unencrypted bytes.
    #[prost(bytes = "bytes", tag = "2")]
    Data(Bytes),
    /// The stream has ended.
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
    /// Length of the decrypted bytes.
    #[prost(uint32, tag = "2")]
    pub plaintext_length: u32,
    /// Parameters of the encryption, in the published protocol.
    #[prost(message, optional, tag = "4")]
    pub payload_crypto: Option<PayloadCrypto>,
    /// Ours: the number of this message among all sealed ones of its direction, from 0. It is
    /// authenticated. It is sent so that a recording can be decrypted from its middle.
    #[prost(uint64, optional, tag = "100")]
    pub sequence: Option<u64>,
}

/// Parameters of an encryption, in the published protocol.
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
    /// Additional authenticated data.
    #[prost(bytes = "vec", tag = "4")]
    pub aad_context: Vec<u8>,
}

/// A change of the terminal.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Parameter {
    /// The changed parameter.
    #[prost(oneof = "ParameterKind", tags = "1")]
    pub parameter: Option<ParameterKind>,
}

/// Parameters that can change.
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

/// The size of a terminal. A hidden page sends zeros, which are accepted and ignored.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct TerminalSize {
    /// Rows of characters.
    #[prost(uint32, tag = "1")]
    pub row: u32,
    /// Columns of characters.
    #[prost(uint32, tag = "2")]
    pub col: u32,
    /// Width in pixels, 0 if unknown.
    #[prost(uint32, tag = "3")]
    pub xpixel: u32,
    /// Height in pixels, 0 if unknown.
    #[prost(uint32, tag = "4")]
    pub ypixel: u32,
}

/// Keep-alive. The published programs skip its unknown fields, so it carries our additions.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Heartbeat {
    /// Ours, client: a signal for the command.
    #[prost(enumeration = "super::Signal", optional, tag = "100")]
    pub signal: Option<i32>,
    /// Ours, both: number of bytes received so far, at a client over both output streams. The peer
    /// can then drop them from its replay buffer.
    #[prost(uint64, optional, tag = "101")]
    pub received: Option<u64>,
    /// Ours, engine: a change of participants, control or size.
    #[prost(message, optional, boxed, tag = "102")]
    pub notice: Option<Box<Notice>>,
    /// Ours, client: the controller's answer to a request for control.
    #[prost(message, optional, tag = "103")]
    pub decision: Option<Decision>,
    /// Ours, server: true while the command hides input, as for a password. If absent, the value is
    /// unchanged; it is initially false.
    #[prost(bool, optional, tag = "104")]
    pub secret_input: Option<bool>,
}
