//! The control plane: an HTTP API and the pages for users, workspaces, projects, plans,
//! credentials, tokens and TURN credentials. It stores its data in a database.
//!
//! It has no list of the tunnels that are online. Each engine has the list of its own tunnels, and
//! connects to the control plane over the network.
//!
//! Start reading with [`router::router`]. Each part of the API is a module with `routes()`. Each
//! handler that requires authentication extracts a [`caller::Caller`] first.

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
