//! The database: connections, transactions, statements, rows and the log of changes.

pub mod changes;
pub(crate) mod connection;
pub(crate) mod generation;
pub(crate) mod lease;
pub(crate) mod lock;
pub(crate) mod migrate;
pub(crate) mod page;
pub(crate) mod postgres;
pub(crate) mod restore;
pub(crate) mod row;
pub(crate) mod secret;
pub(crate) mod sql;
pub(crate) mod statements;
pub(crate) mod store;
pub(crate) mod timeline;
pub(crate) mod trust;
