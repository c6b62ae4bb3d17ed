//! The TURN relay (RFC 8656, RFC 8489): `svc turn`.
//!
//! [`core`] is the relay as a function, without sockets and without a clock. The other modules are
//! [`config`], the workers with their sockets, [`directory`] with the valid credentials, and the
//! link to the platform, which updates the directory.

mod addresses;
pub mod config;
mod connections;
pub mod core;
pub mod directory;
mod managed;
mod metrics;
mod outbound;
mod ports;
mod server;
mod start_error;
mod worker;

pub use server::{RunningRelay, start, start_with_clock};
pub use start_error::StartError;
