//! Terminals through tunnels: the WebTTY server and client.
//!
//! The server runs commands of this host for clients that connect over WebSockets or plain streams
//! (`server`). The client starts commands on a server with a given name or address ([`client`]).
//! Both store their keys in the same files ([`keys`]), and clients find servers with [`inventory`].
//! The crate `tty` defines the messages, and the crate `pty` runs processes.

pub mod client;
pub mod enrollment;
pub mod identity_file;
pub mod inventory;
pub mod keys;
pub mod private;
#[cfg(unix)]
pub mod server;
