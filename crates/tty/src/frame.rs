//! The frames of the plain transport: a 4-byte big-endian length, then one message. On a WebSocket
//! each binary message is one message without a frame, and [`decode`](crate::message::decode) reads
//! it.

use bytes::{Buf as _, Bytes, BytesMut};

use crate::message::{self, Kind, MessageError, limits::MAX_MESSAGE};

/// Size of the header, in bytes.
pub const HEADER_LEN: usize = 4;

/// One message with its length before it.
///
/// # Errors
/// The errors of [`message::encode`].
pub fn encode(kind: &Kind) -> Result<Bytes, MessageError> {
    message::encode(kind).map(|payload| wrap(&payload))
}

/// Prefixes an encoded message with its length.
pub fn wrap(payload: &[u8]) -> Bytes {
    let len = u32::try_from(payload.len()).unwrap_or(u32::MAX);
    let mut out = Vec::with_capacity(HEADER_LEN + payload.len());
    out.extend_from_slice(&len.to_be_bytes());
    out.extend_from_slice(payload);
    out.into()
}

/// Splits a byte stream into messages.
///
/// [`push`](Self::push) adds received bytes, and [`next`](Self::next) returns messages. After an
/// error the connection must be closed.
#[derive(Debug, Default)]
pub struct Decoder {
    buffer: BytesMut,
}

impl Decoder {
    /// An empty decoder, which allocates nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds received bytes. The caller takes all messages before it adds more, so that the buffer
    /// never exceeds one message and one read.
    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// The next message; `None` until more bytes arrive.
    ///
    /// # Errors
    /// The frame is too large or empty, which is checked before its content is received, or its
    /// message is invalid.
    #[expect(
        clippy::should_implement_trait,
        reason = "`None` means later, not the end"
    )]
    pub fn next(&mut self) -> Result<Option<Kind>, MessageError> {
        let Some(head) = self.buffer.first_chunk::<HEADER_LEN>() else {
            return Ok(None);
        };
        let len = usize::try_from(u32::from_be_bytes(*head)).unwrap_or(usize::MAX);
        match len {
            0 => return Err(MessageError::Malformed),
            1..=MAX_MESSAGE => {}
            _ => return Err(MessageError::TooLarge("message")),
        }
        if self.buffer.len() - HEADER_LEN < len {
            return Ok(None);
        }
        self.buffer.advance(HEADER_LEN);
        message::decode(self.buffer.split_to(len).freeze()).map(Some)
    }

    /// True if a frame is incomplete: the end of the stream is then an error.
    pub fn is_partial(&self) -> bool {
        !self.buffer.is_empty()
    }
}
