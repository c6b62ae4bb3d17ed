//! The shared types of the platform: ids, permissions, boundaries, filters, tunnels, clients,
//! events, problems.
//!
//! Every type here is a value that is parsed once on input; its existence then proves that it is
//! valid. The crate uses no socket, no clock, no randomness and no HTTP library; times and random
//! bytes are arguments. Start with [`tunnel::Tunnel`] and [`boundary::Boundary`].
//!
//! `compat: bool` in signatures is the configuration key `compat.rstream`. With it, the spelling of
//! a field in rstream is read (and written) in addition to ours.

pub mod backoff;
#[cfg(feature = "vocabulary")]
pub mod boundary;
#[cfg(feature = "vocabulary")]
pub mod callback;
pub mod causes;
#[cfg(feature = "vocabulary")]
pub mod client;
#[cfg(feature = "vocabulary")]
pub mod contact;
#[cfg(feature = "domains")]
pub mod domain_name;
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
pub mod percent;
#[cfg(feature = "vocabulary")]
pub mod permission;
#[cfg(feature = "vocabulary")]
pub mod problem;
pub mod proxy_protocol;
#[cfg(feature = "vocabulary")]
pub mod query_credential;
#[cfg(feature = "vocabulary")]
pub mod root;
#[cfg(feature = "vocabulary")]
mod timestamp;
#[cfg(feature = "vocabulary")]
pub mod trace;
#[cfg(feature = "vocabulary")]
pub mod tunnel;
#[cfg(feature = "vocabulary")]
pub mod webtty;
#[cfg(feature = "vocabulary")]
mod words;

pub use self::tunnel::labels;
