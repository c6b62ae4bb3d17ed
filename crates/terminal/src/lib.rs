//! Terminals through tunnels: the WebTTY server and client.
//!
//! The server runs commands of this host for clients that come over WebSockets or plain streams
//! (`server`); the client asks for them, from a name or an address on ([`client`]); both keep their
//! keys in the same files ([`keys`]), and [`inventory`] is how a server is found. What is on the wire
//! is the crate `tty`'s, and what runs is the crate `pty`'s.

pub mod client;
pub mod enrollment;
pub mod identity_file;
pub mod inventory;
pub mod keys;
#[cfg(unix)]
pub mod server;
