//! `svc webtty` and `svc mcp`.

pub(crate) mod mcp;
pub(crate) mod webtty_client;
mod webtty_server;
mod webtty_servers;
mod webtty_sessions;
