//! The agent protocol: messages, framing, handshake and liveness, without sockets.
//!
//! An agent and an engine exchange [`Message`]s, each in a length-prefixed [`frame`]. What the
//! numbers mean is in `docs/agent-protocol.md`; `agent.proto` beside this crate is the same as a
//! schema. Everything here is a value or a state machine over values: bytes, and the time where it
//! matters, are arguments, so each rule can be tested without a network.
//!
//! Where to start: [`message::Kind`] lists what can be said; [`handshake`] judges the first message;
//! [`liveness`] holds both ends of the heartbeat; [`pool`] is the framing of standing data
//! connections, our extension 1, and [`lane`] that of many streams on one of them, extension 2;
//! [`properties`] turns what an agent asked for into checked values.

pub mod error;
pub mod frame;
pub mod handshake;
pub mod lane;
pub mod liveness;
pub mod message;
pub mod pool;
#[cfg(feature = "properties")]
pub mod properties;

pub use error::{Error, ErrorCode};
pub use frame::{Decoder, FrameError, encode};
pub use message::{Kind, Message};
