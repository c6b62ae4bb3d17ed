//! The vocabulary of the platform: ids, permissions, boundaries, filters, tunnels, clients, events, problems.
//!
//! Everything here is a value: parsed once at the border, then proof of its own validity. The
//! crate knows no socket, no clock, no randomness and no HTTP library; times and random bytes are
//! arguments. Start with [`tunnel::Tunnel`] and [`boundary::Boundary`].
//!
//! `compat: bool` in signatures is the configuration key `compat.rstream`: with it the other
//! brand's spelling of a field is read (and written) beside ours.

pub mod backoff;
#[cfg(feature = "vocabulary")]
pub mod boundary;
#[cfg(feature = "vocabulary")]
pub mod callback;
pub mod causes;
#[cfg(feature = "vocabulary")]
pub mod client;
#[cfg(feature = "vocabulary")]
pub mod event;
#[cfg(feature = "vocabulary")]
pub mod filter;
#[cfg(feature = "vocabulary")]
pub mod form;
#[cfg(feature = "vocabulary")]
pub mod id;
#[cfg(feature = "vocabulary")]
pub mod json;
#[cfg(feature = "vocabulary")]
pub mod network;
#[cfg(feature = "vocabulary")]
pub mod path;
#[cfg(feature = "vocabulary")]
pub mod pattern;
#[cfg(feature = "vocabulary")]
pub mod permission;
#[cfg(feature = "vocabulary")]
pub mod problem;
#[cfg(feature = "vocabulary")]
pub mod query_credential;
#[cfg(feature = "vocabulary")]
pub mod root;
#[cfg(feature = "vocabulary")]
mod timestamp;
#[cfg(feature = "vocabulary")]
pub mod tunnel;
#[cfg(feature = "vocabulary")]
pub mod webtty;
#[cfg(feature = "vocabulary")]
mod words;
