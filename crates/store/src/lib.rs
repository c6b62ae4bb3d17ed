//! The platform's durable state: one code base for SQLite (the default, in the data directory) and
//! PostgreSQL.
//!
//! Start reading at [`Store`]. Each module below is one entity: its row, and functions of one
//! statement each. Reading functions take a [`Conn`], to which [`ReadConnection`] and [`Tx`]
//! dereference; changing functions take a [`Tx`]. A missing object is `Ok(None)`, a violated
//! constraint is a [`Conflict`], and a single-use object is consumed by one conditional statement
//! that returns its success.
//!
//! Ids, times and randomness are arguments. The exception: the change log generates a random mark
//! for each version. Times have microseconds. Queries for tenant data filter by its owner: a user,
//! a workspace, or a project found through one of them. The crate does not deal with HTTP,
//! permissions or keys (sealed data stays sealed).

mod accounts;
mod database;
mod error;
mod keys;
mod oauth;

pub mod audit;
pub mod billing;
pub mod credentials;
pub mod directory;
pub mod engines;
pub mod events;
pub mod idempotency;
pub mod logs;
pub mod oldest_rows;
pub mod projects;
pub mod stored_records;
pub mod traffic;
pub mod usage;
pub mod webhooks;
pub mod webtty_servers;
pub mod workspaces;

pub use self::accounts::attempts;
pub use self::accounts::links;
pub use self::accounts::passkeys;
pub use self::accounts::pending_sign_ins;
pub use self::accounts::sessions;
pub use self::accounts::used_challenges;
pub use self::accounts::users;
pub use self::credentials::callers;
pub use self::credentials::revoked_tokens;
pub use self::database::changes;
pub use self::keys::platform_secrets;
pub use self::keys::signing_keys;
pub use self::oauth::device_grants;
pub use self::oauth::oauth_codes;
pub use self::oauth::oauth_requests;
pub use self::projects::addresses;
pub use self::projects::capacity;
pub use self::projects::deleted_projects;
pub use self::projects::domains;
pub use self::projects::takedowns;
pub use self::webhooks::deliveries;
pub use self::workspaces::invitations;
pub use self::workspaces::members;
pub use database::connection::{Conn, ReadConnection, Snapshot, Tx};
pub use database::lock::{Lock, WorkLock};
pub use database::page::{Order, Page, Paging, fold_case};
pub use database::secret::{PasswordHash, SealedBytes, SecretHash};
pub use database::sql::QUERY_SECONDS;
pub use database::store::{Pool, Store};
pub use database::timeline::{COUNT_LIMIT, MAX_SCANNED_ROWS, Period};
pub use error::{Bug, Conflict, Error, Reason};
pub use logs::search::MAX_SEARCH_TOTAL;
