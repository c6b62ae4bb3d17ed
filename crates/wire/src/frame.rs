//! The frames of the agent protocol: a 4-byte big-endian length, then one protobuf [`Message`] of
//! 1 to 65,535 bytes.

use prost::Message as _;

use crate::message::Message;

/// Largest payload of a frame, in bytes: the limit that existing SDKs enforce.
pub const MAX_PAYLOAD: usize = 65_535;

/// Bytes before the payload.
pub const HEADER_LEN: usize = 4;

/// Appends one frame with `message` to `out`.
///
/// # Errors
/// [`FrameError::TooLong`] or [`FrameError::Empty`]; `out` is unchanged.
pub fn encode(message: &Message, out: &mut Vec<u8>) -> Result<(), FrameError> {
    let len = message.encoded_len();
    let header = encode_header(len)?;
    out.reserve(HEADER_LEN + len);
    out.extend_from_slice(&header);
    // A `Vec` grows as needed, so encoding cannot run out of space.
    message.encode_raw(out);
    Ok(())
}

/// Decodes messages from a stream of bytes.
///
/// Received bytes are added with [`push`](Self::push), and messages are taken with
/// [`next`](Self::next). [`into_rest`](Self::into_rest) returns the bytes after the last message,
/// because on a data connection the visitor's bytes directly follow the agent's first message
/// (hello). An error is final: the connection must be closed.
#[derive(Debug, Default)]
pub struct Decoder {
    buffer: Vec<u8>,
    /// Bytes at the front of `buffer` that were already decoded.
    consumed: usize,
}

impl Decoder {
    /// An empty decoder, without an allocation.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds received bytes. There is no limit here: the caller bounds memory by how much it reads.
    pub fn push(&mut self, bytes: &[u8]) {
        if self.consumed > 0 {
            self.buffer.drain(..self.consumed);
            self.consumed = 0;
        }
        self.buffer.extend_from_slice(bytes);
    }

    /// The next message; `None` until more bytes arrive.
    ///
    /// # Errors
    /// A frame that is too long, empty, or not a [`Message`]. The length is checked before the
    /// payload has arrived.
    #[expect(
        clippy::should_implement_trait,
        reason = "`None` means later, not the end"
    )]
    pub fn next(&mut self) -> Result<Option<Message>, FrameError> {
        match parse_frame(self.buffer.get(self.consumed..).unwrap_or_default())? {
            FrameParse::Partial { .. } => Ok(None),
            FrameParse::Complete { payload, frame_len } => {
                let message = Message::decode(payload).map_err(FrameError::Undecodable)?;
                self.consumed += frame_len;
                Ok(Some(message))
            }
        }
    }

    /// Minimum number of bytes that are missing for the next message; 0 if it is complete. A reader
    /// that must not read beyond the agent's first message (hello) reads exactly this many.
    ///
    /// # Errors
    /// A frame that is too long or empty.
    pub fn missing(&self) -> Result<usize, FrameError> {
        match parse_frame(self.buffer.get(self.consumed..).unwrap_or_default())? {
            FrameParse::Partial { missing } => Ok(missing),
            FrameParse::Complete { .. } => Ok(0),
        }
    }

    /// The bytes after the last decoded message.
    pub fn into_rest(mut self) -> Vec<u8> {
        self.buffer.drain(..self.consumed);
        self.buffer
    }
}

/// Errors of a frame.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// Longer than [`MAX_PAYLOAD`].
    #[error("a frame of {0} bytes is longer than {MAX_PAYLOAD}")]
    TooLong(usize),
    /// Without a payload.
    #[error("an empty frame")]
    Empty,
    /// Not a message of the agent protocol.
    #[error("not a message of the agent protocol")]
    Undecodable(#[source] prost::DecodeError),
}

impl From<&FrameError> for crate::Error {
    /// The error to send to the peer before closing.
    fn from(error: &FrameError) -> Self {
        Self::invalid_request(error.to_string())
    }
}

enum FrameParse<'a> {
    Partial { missing: usize },
    Complete { payload: &'a [u8], frame_len: usize },
}

fn parse_frame(bytes: &[u8]) -> Result<FrameParse<'_>, FrameError> {
    let Some((header, rest)) = bytes.split_first_chunk::<HEADER_LEN>() else {
        return Ok(FrameParse::Partial {
            missing: HEADER_LEN - bytes.len(),
        });
    };
    let len = usize::try_from(u32::from_be_bytes(*header)).unwrap_or(usize::MAX);
    check_payload_len(len)?;
    match rest.get(..len) {
        Some(payload) => Ok(FrameParse::Complete {
            payload,
            frame_len: HEADER_LEN + len,
        }),
        None => Ok(FrameParse::Partial {
            missing: len - rest.len(),
        }),
    }
}

fn encode_header(len: usize) -> Result<[u8; HEADER_LEN], FrameError> {
    check_payload_len(len)?;
    u32::try_from(len)
        .map(u32::to_be_bytes)
        .map_err(|_| FrameError::TooLong(len))
}

fn check_payload_len(len: usize) -> Result<(), FrameError> {
    match len {
        0 => Err(FrameError::Empty),
        1..=MAX_PAYLOAD => Ok(()),
        _ => Err(FrameError::TooLong(len)),
    }
}
