//! The frames of the plain transport: a 4-byte big-endian length, then one message. On a WebSocket
//! each binary message is a message by itself, and [`decode`](crate::message::decode) reads it.

use bytes::{Buf as _, Bytes, BytesMut};

use crate::message::{self, BadMessage, Kind, limits::MAX_MESSAGE};

/// Bytes before a message.
pub const HEADER_LEN: usize = 4;

/// One message with its length before it.
///
/// # Errors
/// As [`message::encode`].
pub fn encode(kind: &Kind) -> Result<Bytes, BadMessage> {
    message::encode(kind).map(|payload| wrap(&payload))
}

/// Puts the length before a message that is written already.
pub fn wrap(payload: &[u8]) -> Bytes {
    let len = u32::try_from(payload.len()).unwrap_or(u32::MAX);
    let mut out = Vec::with_capacity(HEADER_LEN + payload.len());
    out.extend_from_slice(&len.to_be_bytes());
    out.extend_from_slice(payload);
    out.into()
}

/// Cuts a stream of bytes into messages.
///
/// Bytes go in with [`push`](Self::push) as they arrive, messages come out of
/// [`next`](Self::next). An error is final: the connection is closed.
#[derive(Debug, Default)]
pub struct Decoder {
    buffer: BytesMut,
}

impl Decoder {
    /// An empty decoder, without memory.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds what arrived. A caller reads no more than it wants held, and takes all messages before
    /// it adds more: so no more is held than one message and one read.
    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// The next message; `None` until more bytes arrive.
    ///
    /// # Errors
    /// A frame that is too large or empty, judged before its content is waited for, or whatever is
    /// wrong with the message.
    #[expect(
        clippy::should_implement_trait,
        reason = "`None` means later, not the end"
    )]
    pub fn next(&mut self) -> Result<Option<Kind>, BadMessage> {
        let Some(head) = self.buffer.first_chunk::<HEADER_LEN>() else {
            return Ok(None);
        };
        let len = usize::try_from(u32::from_be_bytes(*head)).unwrap_or(usize::MAX);
        match len {
            0 => return Err(BadMessage::Malformed),
            1..=MAX_MESSAGE => {}
            _ => return Err(BadMessage::TooLarge("message")),
        }
        if self.buffer.len() - HEADER_LEN < len {
            return Ok(None);
        }
        self.buffer.advance(HEADER_LEN);
        message::decode(self.buffer.split_to(len).freeze()).map(Some)
    }

    /// Whether a frame has begun and not ended: then the end of the stream is a broken one.
    pub fn is_partial(&self) -> bool {
        !self.buffer.is_empty()
    }
}
