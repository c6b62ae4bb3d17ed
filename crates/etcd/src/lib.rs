//! The store of a cluster of engines: names and their owners, kept by etcd.
//!
//! [`Cluster`] is the membership of one engine: its lease, its copy of all names, and the claims of
//! its agents. The rules are in the crate `ownership`; this crate applies them with transactions of
//! etcd's API v3.
//!
//! The messages of that API are written by hand, because generating them needs a compiler of
//! protocol buffers at build time.

mod changes;
mod claims;
mod client;
mod clock;
mod cluster;
mod connection;
mod entries;
mod error;
mod locks;
mod membership;
mod parking;
mod proto;
mod records;
mod settings;
mod state;
mod status;
mod tls;

pub use changes::ChangedNames;
pub use claims::{Claim, ClaimError, EntryTooLarge};
pub use cluster::Cluster;
pub use error::StoreError;
pub use records::MAX_ENTRY_BYTES;
pub use settings::{Endpoint, InvalidEndpoint, Login, Password, Settings};
pub use status::Status;
pub use tls::{TlsFiles, TlsFilesError};
