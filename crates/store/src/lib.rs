//! The platform's durable state: one code base for SQLite (the default, in the data directory) and
//! PostgreSQL.
//!
//! Start reading at [`Store`]. Each module below is one entity: its row, and functions of one
//! statement each. Reading functions take a [`Conn`], to which [`ReadConnection`] and [`Tx`]
//! dereference; changing functions take a [`Tx`]. A missing object is `Ok(None)`, a violated
//! constraint is a [`Conflict`], and a single-use object is consumed by one conditional statement
//! that returns its success.
//!
//! Ids, times and randomness are arguments, except for the marks of the change log, which no caller
//! could choose better. Times have microseconds. Data of a tenant is queried together with the
//! tenant: a user, a workspace or a project that was found through one of them. The crate does not
//! deal with HTTP, permissions or keys (sealed data stays sealed).

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
