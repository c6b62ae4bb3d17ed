//! Terminals over WebTTY: messages, sessions, sharing, recordings and sealing.
//!
//! Everything here is a value or a state machine over values. There are no sockets, no processes
//! and no clock: bytes and times are arguments, and commands are results. Callers run shells and
//! move bytes.
//!
//! Start at [`message::Kind`], which lists all messages; `docs/webtty-protocol.md` describes them.
//! [`frame`] splits a byte stream into messages. [`session`] is one shell with its one client.
//! [`managed`] is one shell with many participants that watch or type. [`recording`] stores the
//! events of a session. [`screen`] makes the snapshot that a late participant receives, and
//! [`draw`] shows it on a terminal. [`seal`] encrypts the bytes from end to end. [`identity`]
//! identifies an end, and with [`admission`] a registered server proves its identity.

pub mod admission;
pub mod draw;
pub mod frame;
pub mod identity;
pub mod managed;
pub mod message;
pub mod recording;
pub mod screen;
pub mod seal;
pub mod session;
pub mod size;
