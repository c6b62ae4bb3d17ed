//! The HTTP surface: requests, routes, responses and their limits.

pub mod contracts;
pub mod extract;
pub(crate) mod listener;
pub(crate) mod origin;
pub(crate) mod plain;
pub mod problem;
pub mod rate_limit;
pub mod route;
pub(crate) mod user_text;
pub(crate) mod wire;
