//! The control plane with the persistent state: users, workspaces, projects, plans, credentials,
//! tokens and the issuance of TURN credentials. It provides an HTTP API and stores its data in a
//! database.
//!
//! It has no list of the tunnels that are online: only engines have one, and they connect over the
//! network. Start reading with [`router::router`]. Each part of the API is a module with
//! `routes()`, and each handler that is not public extracts a [`caller::Caller`] first.

pub mod app;
pub mod audit;
pub mod billing;
pub mod caller;
pub mod config;
pub mod credentials;
pub mod domains;
pub mod engines;
pub mod forwarder;
pub mod http_api;
pub mod keys;
pub mod logs;
pub mod mail;
pub mod oauth;
pub mod operator;
pub mod pages;
pub mod people;
pub mod projects;
pub mod router;
pub mod runtime;
mod server;
pub mod turn;
pub mod webhooks;
pub mod webtty_servers;
pub mod workspaces;

pub use self::operator::first_admin::{
    Operator, draw_password, ensure_operator, first_admin, operator_token, operators,
};
pub use self::server::{
    BoundListeners, RunningPlatform, StartError, backup, listen_at, open, restore, start,
    start_inheriting, start_on, start_routes,
};
