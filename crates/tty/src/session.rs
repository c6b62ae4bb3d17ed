//! One command and its one client, over one connection or over several successive ones.
//!
//! [`Server`] runs the command, [`Client`] is the side of the person. Both take events with their
//! time, and queue commands for their owner. The published protocol has no flow control: a server
//! that cannot write must not read from the command. Its owner ensures this, as it sends one
//! [`Kind::Data`](crate::message::Kind) before it takes the next output.
//!
//! Resuming is our addition. A client that supports it gets a token with the `Ack`. Both ends count
//! the bytes of both directions. The server keeps its latest output and the client its latest
//! input, until the peer acknowledges them. After a lost connection the client sends an `Open` with
//! the token and its count. Both ends then send again the bytes that the peer is missing. A token
//! is valid until the client has sent a message with the next one.

mod client;
mod output;
mod server;
#[cfg(test)]
mod tests;

use std::time::Duration;

pub use client::{Client, ClientCommand, ClientError};
pub use output::ReplayBuffer;
pub use server::{Command, Exit, Server, Settings, Start};

/// Time within which a client must send its `Open`: as in the published server.
pub const OPEN_DEADLINE: Duration = Duration::from_secs(5);

/// Time for remaining output after the command has ended (a process that it left behind has its
/// pipe), and time for a peer to close after the `Close`: as in the published server.
pub const CLOSE_DEADLINE: Duration = Duration::from_secs(5);

/// Time that a client waits for the `Ack`: as in the published client when it joins.
pub const ACK_DEADLINE: Duration = Duration::from_secs(10);

/// Time between heartbeats: as in the published programs.
pub const HEARTBEAT: Duration = Duration::from_secs(5);

/// Silence after which a peer that sends heartbeats counts as lost: six heartbeats.
pub const SILENCE: Duration = Duration::from_secs(30);

/// Time between the signal that a command can handle and the kill signal.
pub const STOP_GRACE: Duration = Duration::from_secs(5);

/// Output that is kept for a client that resumes, in bytes: some screens of any program.
pub const REPLAY: usize = 256 * 1024;

/// Length of a resume token, in bytes.
pub const TOKEN_LEN: usize = 32;
