//! Lanes, extension `lane/2`: many small streams on one connection.
//!
//! Most of what a small exchange costs is system calls and TLS records of its own. So the engine
//! turns a standing connection ([`pool`](crate::pool)) into a lane with the frame `LANE`, and from
//! then on both ends send the frames of this module: each with the number of its stream, so that
//! one write carries what many streams have to say.
//!
//! What of a stream may be on a lane and has not been read is limited ([`SendWindow`], [`ReceiveWindow`]). A
//! stream that has more to say does not wait for room: it moves to a standing connection of its own,
//! where TCP's flow control is. So nothing big is on a lane, and nobody waits behind it.
//!
//! A frame is an 8-byte [`Head`], type, 24-bit length and 32-bit stream number, big-endian, and its
//! payload:
//!
//! | type | name | payload | meaning |
//! |---|---|---|---|
//! | 1 | `OPEN` | [`StreamOpen`], 1..=1 KiB | engine: the stream with this number begins |
//! | 2 | `DATA` | 1..=16 KiB of bytes | bytes of the stream |
//! | 3 | `END` | none | the sender's direction is complete |
//! | 4 | `RESET` | [`Error`](crate::Error), 0..=1 KiB | the sender gives up both directions |
//! | 5 | `MOVE` | none | the sender's direction goes on at a connection of the stream's own |
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

/// Streams of one lane at a time. Each may keep a [`window`] of bytes waiting and a descriptor at
/// the agent; beyond so many, another connection is the smaller cost.
pub const MAX_STREAMS: usize = 1024;

/// Lanes of one control channel, at most. An engine has one for each of its cores, and so many serve
/// more streams than an agent has ports for.
pub const MAX_LANES: usize = 64;

/// Bytes of one answer that an agent has on a lane: what most of an API or a page are below of. One
/// that is larger is worth a connection.
pub const DOWN_LIMIT: usize = 256 * 1024;

/// Bytes of one request that an engine has on a lane.
pub const UP_LIMIT: usize = 64 * 1024;

/// Appends a frame without a payload.
pub fn encode_empty(kind: FrameType, stream: u32, out: &mut Vec<u8>) {
    // Only types whose payload may be empty are asked for; another would be cut at the peer.
    if let Ok(head) = Head::new(kind, stream, 0) {
        out.extend_from_slice(&head.encode());
    }
}

/// Appends a `DATA` frame with the first [`MAX_DATA`] of these bytes; how many it has taken.
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
/// [`HeadError::Length`] when the payload is empty or too long; `out` is left as it was.
pub fn encode_open(stream: u32, open: &StreamOpen, out: &mut Vec<u8>) -> Result<(), HeadError> {
    append(FrameType::Open, stream, open, out)
}

/// Appends a `RESET` frame. A sentence that would not fit is left out, the code stays.
pub fn encode_reset(stream: u32, reason: Option<&crate::Error>, out: &mut Vec<u8>) {
    let reason = reason.cloned().unwrap_or_default();
    if append(FrameType::Reset, stream, &reason, out).is_err() {
        let short = crate::Error {
            message: None,
            ..reason
        };
        // A code alone always fits.
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
