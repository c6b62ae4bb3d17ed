//! The platform's durable state: one code base for SQLite (the default, in the data directory)
//! and PostgreSQL.
//!
//! Begin at [`Store`]. Each module below is one entity: its row, and functions that are one
//! statement each. Those that read take a [`Conn`], which a [`ReadConnection`] and a [`Tx`] both are; those
//! that change take a [`Tx`]. "Not there" is `Ok(None)`, a rule that the data holds is a
//! [`Conflict`], and what may be used once is one conditional statement that says whether it was.
//!
//! Ids, times and randomness are arguments, but for the marks of the log of changes, which no caller
//! could choose better. Times are kept in microseconds. Whatever belongs to a
//! tenant is asked for with the tenant: a user, a workspace or a project that was found through
//! one of them. What it does not know: HTTP, permissions, keys (what is sealed stays sealed).

mod connection;
mod error;
mod generation;
mod lease;
mod lock;
mod log_search;
mod migrate;
mod page;
mod postgres;
mod restore;
mod row;
mod secret;
mod sql;
mod statements;
mod store;
mod timeline;
mod trust;

pub mod addresses;
pub mod attempts;
pub mod audit;
pub mod billing;
pub mod callers;
pub mod capacity;
pub mod changes;
pub mod credentials;
pub mod deleted_projects;
pub mod deliveries;
pub mod device_grants;
pub mod directory;
pub mod engines;
pub mod events;
pub mod idempotency;
pub mod invitations;
pub mod links;
pub mod logs;
pub mod members;
pub mod oauth_codes;
pub mod oauth_requests;
pub mod oldest;
pub mod passkeys;
pub mod pending_sign_ins;
pub mod platform_secrets;
pub mod projects;
pub mod revoked_tokens;
pub mod sessions;
pub mod signing_keys;
pub mod stored_records;
pub mod usage;
pub mod used_challenges;
pub mod users;
pub mod webhooks;
pub mod webtty_servers;
pub mod workspaces;

pub use connection::{Conn, ReadConnection, Snapshot, Tx};
pub use error::{Bug, Conflict, Error, Reason};
pub use lock::{Lock, WorkLock};
pub use log_search::FOUND;
pub use page::{Order, Page, Paging, fold};
pub use secret::{PasswordHash, SealedBytes, SecretHash};
pub use sql::QUERY_SECONDS;
pub use store::{Pool, Store};
pub use timeline::{COUNTED, Period, SEARCHED};
