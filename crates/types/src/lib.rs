//! The vocabulary of the platform: ids, permissions, boundaries, filters, tunnels, clients, events, problems.
//!
//! Everything here is a value: parsed once at the border, then proof of its own validity. The
//! crate knows no socket, no clock, no randomness and no HTTP library; times and random bytes are
//! arguments. Start with [`tunnel::Tunnel`] and [`boundary::Boundary`].
//!
//! `compat: bool` in signatures is the configuration key `compat.rstream`: with it the other
//! brand's spelling of a field is read (and written) beside ours.

pub mod backoff;
pub mod boundary;
pub mod callback;
pub mod causes;
pub mod client;
pub mod event;
pub mod filter;
pub mod form;
pub mod id;
pub mod json;
pub mod network;
pub mod path;
pub mod pattern;
pub mod permission;
pub mod problem;
pub mod query_credential;
pub mod root;
mod timestamp;
pub mod tunnel;
pub mod webtty;
mod words;
