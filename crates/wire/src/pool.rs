//! Standing data connections, extension `pool/1`: the framing.
//!
//! The TLS handshake is the largest part of the cost of a new stream, so an agent keeps a few
//! authenticated connections open in advance. The engine requests them on the control channel
//! ([`PoolReq`](crate::message::PoolReq)); the agent connects and sends [`hello`]. From then on
//! both ends send the frames of this module, and the connection carries one stream after another,
//! one at a time.
//!
//! A frame is a 4-byte [`Head`], the type and a 24-bit big-endian length, and its payload:
//!
//! | type | name | payload | meaning |
//! |---|---|---|---|
//! | 1 | `OPEN` | [`StreamOpen`], 1..=1 KiB | engine: a stream starts |
//! | 2 | `DATA` | 1..=256 KiB of bytes | bytes of the stream |
//! | 3 | `END` | none | the sender's direction is complete |
//! | 4 | `RESET` | [`StreamReset`], 1..=1 KiB | the sender aborts both directions |
//! | 5 | `RETIRE` | none | the sender opens, or accepts, no further stream here |
//! | 6 | `LANE` | none | engine: a [`lane`](crate::lane) follows (extension `lane/2`) |
//!
//! An unknown type, or a length outside these limits, ends the connection: a new type would need a
//! new name of the extension. [`StreamState`] has the rules about the order of frames.

mod head;
mod payload;
mod state;
#[cfg(test)]
mod tests;

pub use head::{FrameType, HEAD_LEN, Head, HeadError, MAX_CHUNK, MAX_OPEN, MAX_RESET};
pub use payload::{PayloadError, REPORT_REQUEST, StreamOpen, StreamReset, hello};
pub use state::{PoolFrame, ProtocolError, ReceivedFrame, Side, StreamState};
