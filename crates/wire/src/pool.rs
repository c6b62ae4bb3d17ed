//! Standing data connections, extension `pool/1`: the bytes.
//!
//! A TLS handshake for each visitor is most of what a new stream costs, so an agent keeps a few
//! authenticated connections open ahead of need. The engine asks for them on the control channel
//! ([`PoolReq`](crate::message::PoolReq)); the agent connects and says [`hello`]; from then on both
//! ends send the frames of this module, and the connection carries one stream after another, one at
//! a time.
//!
//! A frame is a 4-byte [`Head`], the type and a 24-bit big-endian length, and its payload:
//!
//! | type | name | payload | meaning |
//! |---|---|---|---|
//! | 1 | `OPEN` | [`StreamOpen`], 1..=1 KiB | engine: a stream begins |
//! | 2 | `DATA` | 1..=256 KiB of bytes | bytes of the stream |
//! | 3 | `END` | none | the sender's direction is complete |
//! | 4 | `RESET` | [`StreamReset`], 1..=1 KiB | the sender gives up both directions |
//! | 5 | `RETIRE` | none | the sender opens, or accepts, no further stream here |
//! | 6 | `LANE` | none | engine: what follows is a [`lane`](crate::lane) (extension `lane/2`) |
//!
//! An unknown type, or a length outside these limits, ends the connection: what is not understood
//! would need a new name of the extension. [`StreamState`] has the rules about their order.

mod head;
mod payload;
mod state;
#[cfg(test)]
mod tests;

pub use head::{FrameType, HEAD_LEN, Head, HeadError, MAX_CHUNK, MAX_OPEN, MAX_RESET};
pub use payload::{PayloadError, StreamOpen, StreamReset, hello};
pub use state::{Received, Side, Step, StreamState, Violation};
