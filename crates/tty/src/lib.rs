//! Terminals over WebTTY: messages, sessions, sharing, recordings and sealing.
//!
//! Everything here is a value or a state machine over values. There are no sockets, no processes
//! and no clock: bytes and times are arguments, commands come out. Who runs a shell, and who
//! carries the bytes, is somebody else's.
//!
//! Where to start: [`message::Kind`] lists what can be said, and `docs/webtty-protocol.md` tells it
//! in prose; [`frame`] cuts a stream of bytes into messages; [`session`] is one shell and its one
//! client; [`managed`] is one shell and many who watch or type; [`recording`] keeps what happened;
//! [`screen`] is what who joins late is shown, and [`draw`] shows it on a terminal; [`seal`] keeps
//! the bytes from everybody between; [`identity`] is who an end is, and [`admission`] how a
//! registered server proves it.

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
