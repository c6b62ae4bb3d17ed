//! Terminals through tunnels: the WebTTY server and client.

pub mod client;
pub mod keys;
