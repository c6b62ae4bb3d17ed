//! Terminals through tunnels: the WebTTY server and client.
//!
//! The server runs commands of this host for clients that come over WebSockets or plain streams
//! (`server`); what is on the wire is the crate `tty`'s, and what runs is the crate `pty`'s.

pub mod enrollment;
