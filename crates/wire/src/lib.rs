//! The agent protocol: messages, framing, handshake and liveness, without sockets.
//!
//! An agent and an engine exchange [`Message`]s, each in a length-prefixed [`frame`].
//! `docs/agent-protocol.md` describes the meaning of the numbers; `agent.proto` beside this crate
//! has the same as a schema. Everything here is a value or a state machine over values. Bytes, and
//! times if they matter, are arguments, so each rule can be tested without a network.
//!
//! Start with these: [`message::Kind`] lists all messages; [`handshake`] checks the first one;
//! [`liveness`] has both ends of the heartbeat; [`pool`] is the framing of standing data
//! connections (extension 1), and [`lane`] that of many streams on one of them (extension 2);
//! [`properties`] converts an agent's request into checked values. [`cluster`] has the messages
//! between the engines of one cluster, which agents do not use.

pub mod cluster;
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
