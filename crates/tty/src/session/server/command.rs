//! What a server is allowed, and what its owner has to do.

use std::time::Duration;

use bytes::Bytes;

use crate::message::{Config, Kind, Signal};
use crate::size::Size;

/// What a server allows its sessions.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Names the session, towards the client and in logs.
    pub session_id: String,
    /// How long a command outlives its connection; zero ends it at once.
    pub grace: Duration,
    /// How long nothing may be typed or shown.
    pub idle: Option<Duration>,
    /// How long a session may last.
    pub duration: Option<Duration>,
}

/// What the owner of a [`Server`](super::Server) has to do.
#[derive(Clone, Debug, PartialEq)]
pub enum Command {
    /// Start a command; answer with `on_started` or `on_start_failed`.
    Start(Box<Start>),
    /// Send a message to the client.
    Send(Kind),
    /// Write to the command, and say with `on_input_taken` what it took.
    Input(Bytes),
    /// Close what the command reads. Never with a terminal: there, it is a key.
    EndInput,
    /// The terminal has this size now.
    Resize(Size),
    /// Signal the command, and what it started in its terminal.
    Signal(Signal),
    /// Stop reading what the command writes, until `ReadOutput`.
    HoldOutput,
    /// Read what the command writes again.
    ReadOutput,
    /// The client misses a part of what was shown: have the program draw its screen again.
    Redraw,
    /// Hang up, once everything that was sent is out: a close frame with the reason `finished`, or
    /// on a plain stream wait for the peer to close. Answer with `on_lost` at once, and with `on_told`
    /// when the peer did so after everything was out.
    Disconnect,
    /// Forget the session. The command has ended, or never began.
    Release,
}

/// A command to start.
#[derive(Clone, Debug, PartialEq)]
pub struct Start {
    /// The command and its surroundings.
    pub config: Config,
    /// Its terminal; `None` for pipes.
    pub terminal: Option<Size>,
}

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// With a code.
    Code(i32),
    /// By a signal: its number here, and its name without `SIG`.
    Signal(i32, &'static str),
}
