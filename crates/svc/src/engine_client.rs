//! Clients of the Engine API: lists, live events and sessions.

pub(crate) mod engine_api;
pub(crate) mod feed;
pub(crate) mod lines;
pub(crate) mod participant;
pub(crate) mod watch;
