//! Tests of the store on both databases. Every test runs on SQLite in its own directory, and in its
//! own database on a real PostgreSQL server.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test ends where it fails"
)]

mod access;
mod billing;
mod change_log;
mod changes;
mod credential_chains;
mod database;
mod faults;
mod idempotency;
mod log_search;
mod migrated;
mod migrations;
mod oauth;
mod people;
mod plans;
mod postgres;
mod projects;
mod records;
mod releases;
mod restore;
mod tables;
mod webhooks;
mod workspaces;
mod world;
