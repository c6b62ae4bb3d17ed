//! Tests of the store on both databases. Every test runs on SQLite in its own directory, and in its
//! own database on a real PostgreSQL server.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test ends where it fails"
)]

mod change_log;
mod changes;
mod database;
mod entities;
mod faults;
mod migrated;
mod migrations;
mod plans;
mod postgres;
mod releases;
mod restore;
mod tables;
mod world;
