//! Lanes, extension `lane/2`: many small streams on one connection.
//!
//! System calls and TLS records are the largest part of the cost of a small exchange. So the engine
//! turns a standing connection ([`pool`](crate::pool)) into a lane with the frame `LANE`. From then
//! on both ends send the frames of this module, each with the number of its stream, so that one
//! write carries frames of many streams.
//!
//! The unread bytes of a stream on a lane are limited ([`SendWindow`], [`ReceiveWindow`]). A stream
//! with more data does not wait for the window: it moves to a standing connection of its own, which
//! has TCP's flow control. So there is no large stream on a lane for which others would have to
//! wait.
//!
//! A frame is an 8-byte [`Head`] (type, 24-bit length and 32-bit stream number, big-endian) and its
//! payload:
//!
//! | type | name | payload | meaning |
//! |---|---|---|---|
//! | 1 | `OPEN` | [`StreamOpen`], 1..=1 KiB | engine: the stream with this number starts |
//! | 2 | `DATA` | 1..=16 KiB of bytes | bytes of the stream |
//! | 3 | `END` | none | the sender's direction is complete |
//! | 4 | `RESET` | [`Error`](crate::Error), 0..=1 KiB | the sender aborts both directions |
//! | 5 | `MOVE` | none | the sender's direction continues on the stream's own connection |
//! | 6 | `TAKEN` | none | the sender has read a further [`unit()`] of the stream |
//!
//! An unknown type, a length outside these limits, or a frame that [`StreamState`] does not allow
//! ends the connection.

mod decoder;
mod flow;
mod head;
mod state;
#[cfg(test)]
mod tests;

pub use crate::pool::{Side, StreamOpen};
pub use decoder::{Decoder, Event, LaneError};
pub use flow::{
    InvalidWindowUpdateError, ReceiveWindow, SendWindow, WindowExceededError, unit, window,
};
pub use head::{FrameType, HEAD_LEN, Head, HeadError, MAX_DATA, MAX_OPEN, MAX_RESET};
pub use state::{FrameEffect, FrameStep, ProtocolError, StreamState};

/// Concurrent streams of one lane. Each may have a [`window`] of waiting bytes and a descriptor at
/// the agent; beyond this number another connection costs less.
pub const MAX_STREAMS: usize = 1024;

/// Limit of the lanes of one control channel. An engine has one for each of its cores, and this
/// many serve more streams than an agent has ports.
pub const MAX_LANES: usize = 64;

/// Bytes of one response that an agent sends on a lane: most responses of APIs and pages are
/// smaller. A larger one is worth a connection.
pub const DOWN_LIMIT: usize = 256 * 1024;

/// Bytes of one request that an engine sends on a lane.
pub const UP_LIMIT: usize = 64 * 1024;

/// Appends a frame without a payload.
pub fn encode_empty(kind: FrameType, stream: u32, out: &mut Vec<u8>) {
    // Only called for types without a payload; the peer would close the connection for others.
    if let Ok(head) = Head::new(kind, stream, 0) {
        out.extend_from_slice(&head.encode());
    }
}

/// Appends a `DATA` frame with the first [`MAX_DATA`] of these bytes; returns the number of bytes
/// in it.
pub fn encode_data(stream: u32, bytes: &[u8], out: &mut Vec<u8>) -> usize {
    let taken = bytes.get(..MAX_DATA).unwrap_or(bytes);
    if let Ok(head) = Head::new(FrameType::Data, stream, taken.len()) {
        out.reserve(HEAD_LEN + taken.len());
        out.extend_from_slice(&head.encode());
        out.extend_from_slice(taken);
    }
    taken.len()
}

/// Appends an `OPEN` frame.
///
/// # Errors
/// [`HeadError::Length`] if the payload is empty or too long; `out` is unchanged.
pub fn encode_open(stream: u32, open: &StreamOpen, out: &mut Vec<u8>) -> Result<(), HeadError> {
    append(FrameType::Open, stream, open, out)
}

/// Appends a `RESET` frame. A sentence that would not fit is omitted; the code stays.
pub fn encode_reset(stream: u32, reason: Option<&crate::Error>, out: &mut Vec<u8>) {
    let reason = reason.cloned().unwrap_or_default();
    if append(FrameType::Reset, stream, &reason, out).is_err() {
        let short = crate::Error {
            message: None,
            ..reason
        };
        // A code without a sentence always fits.
        append(FrameType::Reset, stream, &short, out).ok();
    }
}

fn append(
    kind: FrameType,
    stream: u32,
    payload: &impl prost::Message,
    out: &mut Vec<u8>,
) -> Result<(), HeadError> {
    let len = payload.encoded_len();
    let head = Head::new(kind, stream, len)?;
    out.reserve(HEAD_LEN + len);
    out.extend_from_slice(&head.encode());
    payload.encode_raw(out);
    Ok(())
}
