//! The stored objects and their queries.

pub(crate) mod access;
mod audit;
mod billing;
mod credential_chains;
pub(crate) mod domains;
mod idempotency;
pub(crate) mod log_search;
mod oauth;
mod people;
mod projects;
pub(crate) mod records;
mod takedowns;
mod traffic;
mod webhooks;
mod workspaces;
