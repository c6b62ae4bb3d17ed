//! The protocol between the engines of one cluster.
//!
//! An engine that receives a visitor of a tunnel whose agent is connected to another engine forwards
//! the stream to it. Both authenticate each other with certificates of the cluster's own authority.
//! The engine that forwards opens all connections: one control connection, and data connections in
//! advance. A connection starts with a [`PeerHello`]. On a data connection the frames of
//! [`pool`](crate::pool) and [`lane`](crate::lane) follow, as towards an agent: the engine that
//! forwards has the engine's side, and the engine with the agent has the agent's side. The opening of
//! a stream contains a [`ForwardHeader`].
//!
//! On the control connection, a frame is a type, a 24-bit big-endian length, and its payload:
//!
//! | type | name | payload | meaning |
//! |---|---|---|---|
//! | 1 | `HELLO` | [`PeerHello`], 1..=1 KiB | the first frame of both ends |
//! | 2 | `PING` | none | a sign of life |
//! | 3 | `DRAIN` | none | the sender is stopping: other engines are preferred |
//! | 4 | `ENDED` | [`EndedTunnels`], 1..=4 KiB | these tunnels are offline at the sender |
//! | 5 | `REFUSAL` | [`Error`](crate::Error), 1..=1 KiB | the sender closes the connection |
//! | 6 | `CLOSING` | none | the drain of the sender ends soon: WebSockets are closed |
//!
//! An unknown type, or a length outside these limits, ends the connection.

mod frame;
mod header;
mod hello;
#[cfg(test)]
mod tests;

pub use frame::{
    EndedTunnels, MAX_ENDED, MAX_FRAME, PeerDecoder, PeerFrame, PeerFrameError, encode_frame,
};
pub use header::{ForwardHeader, ForwardedVisitor, ForwardingError, MAX_NAME, StreamProtocol};
pub use hello::{
    ConnectionPurpose, HelloError, MAX_LABEL, PeerHello, PeerIdentity, VERSION, is_label,
};

/// The protocol name (ALPN) of connections between engines.
pub const ALPN: &[u8] = b"svc-cluster/1";
