//! Settings of a server, and the commands for its owner.

use std::time::Duration;

use bytes::Bytes;

use crate::message::{Config, Kind, Signal};
use crate::size::Size;

/// Settings of a server's sessions.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Id of the session, for the client and for logs.
    pub session_id: String,
    /// Time for which a command outlives its connection; zero ends it immediately.
    pub grace: Duration,
    /// Maximum time without input and output.
    pub idle: Option<Duration>,
    /// Maximum duration of a session.
    pub duration: Option<Duration>,
}

/// Tasks for the owner of a [`Server`](super::Server).
#[derive(Clone, Debug, PartialEq)]
pub enum Command {
    /// Start a command. The result is `on_started` or `on_start_failed`.
    Start(Box<Start>),
    /// Send a message to the client.
    Send(Kind),
    /// Write to the command, and report accepted bytes with `on_input_taken`.
    Input(Bytes),
    /// Close the input of the command. Never sent with a terminal, in which the end of input is a
    /// key.
    EndInput,
    /// Set the size of the terminal.
    Resize(Size),
    /// Send a signal to the command and its processes in the terminal.
    Signal(Signal),
    /// Stop reading output of the command, until `ReadOutput`.
    HoldOutput,
    /// Read output of the command again.
    ReadOutput,
    /// The client has lost output: make the program redraw its screen.
    Redraw,
    /// Close the connection once everything is sent: on a WebSocket with a close frame with the
    /// reason `finished`; on a plain stream wait for the peer to close. Call `on_lost` immediately,
    /// and `on_end_received` when the peer has closed after everything was sent.
    Disconnect,
    /// Drop the session. The command has ended, or never started.
    Release,
}

/// A command to start.
#[derive(Clone, Debug, PartialEq)]
pub struct Start {
    /// The command and its environment.
    pub config: Config,
    /// Its terminal; `None` for pipes.
    pub terminal: Option<Size>,
}

/// End of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// Exit code.
    Code(i32),
    /// Signal: its number on this system, and its name without `SIG`.
    Signal(i32, &'static str),
}
