//! One command and its one client, over one connection or over several that follow each other.
//!
//! [`Server`] is the side that runs the command, [`Client`] the side of the person. Both take what
//! happened together with the time, and queue what is to be done. The published protocol has no
//! flow control: a server that cannot write does not read from the command, which is its owner's to
//! hold (it sends one [`Kind::Data`](crate::message::Kind) before it takes the next output).
//!
//! Coming back is our addition. A client that asks for it gets a token with the ack. Both ends count
//! the bytes of both directions; the server keeps the last of its output and the client its last
//! input, until the other says that they arrived. After a lost connection the client opens with the
//! token and its count, and both send again what the other does not have. A token is good until the client has spoken with the next one.

mod client;
mod output;
mod server;
#[cfg(test)]
mod tests;

use std::time::Duration;

pub use client::{Client, ClientCommand, ClientError};
pub use output::Output;
pub use server::{Command, Exit, Server, Settings, Start};

/// How long a client may take to say what it wants: what the published server waits.
pub const OPEN_DEADLINE: Duration = Duration::from_secs(5);

/// How long output may go on after the command ended (something that it left behind has its pipe),
/// and how long a peer may take to hang up after the close: what the published server waits.
pub const CLOSE_DEADLINE: Duration = Duration::from_secs(5);

/// How long a client waits for the ack: what the published client waits when it joins.
pub const ACK_DEADLINE: Duration = Duration::from_secs(10);

/// Time between heartbeats: what the published programs take.
pub const HEARTBEAT: Duration = Duration::from_secs(5);

/// After how much silence a peer that sends heartbeats is taken for lost: six of them.
pub const SILENCE: Duration = Duration::from_secs(30);

/// How long a command has between the signal that asks it to end and the one that does not ask.
pub const STOP_GRACE: Duration = Duration::from_secs(5);

/// Output that is kept for a client that comes back, in bytes: some screens of any program.
pub const REPLAY: usize = 256 * 1024;

/// Length of a resume token, in bytes.
pub const TOKEN_LEN: usize = 32;
