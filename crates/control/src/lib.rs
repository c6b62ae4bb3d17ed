//! The control plane with the persistent state: users, workspaces, projects, plans, credentials,
//! tokens and the issuance of TURN credentials. It provides an HTTP API and stores its data in a
//! database.
//!
//! It knows no tunnel that is alive: that is the engines' business, and the two meet over the
//! network only. Start with [`router::router`]; every part of the API is a module with `routes()`, and
//! every handler that is not public begins with a [`caller::Caller`].

pub mod access;
pub mod addresses;
pub mod app;
pub mod audit;
pub mod billing;
pub mod caller;
pub mod clock_skew;
pub mod config;
pub mod contracts;
pub mod credentials;
pub mod delegation;
pub mod engines;
pub mod extract;
mod first_admin;
pub mod geo;
pub mod health;
pub mod jobs;
pub mod keys;
mod listener;
pub mod logs;
pub mod mail;
mod metrics;
pub mod oauth;
pub mod operator;
pub mod pages;
pub mod people;
pub mod plans;
pub mod problem;
pub mod projects;
pub mod random;
pub mod rate_limit;
pub mod route;
pub mod router;
mod server;
pub mod settings;
pub mod timeline;
pub mod tokens;
pub mod turn;
pub mod usage;
mod user_text;
pub mod webhooks;
pub mod webtty_servers;
pub mod whoami;
mod wire;
pub mod workspaces;

pub use self::first_admin::{
    Operator, draw_password, ensure_operator, first_admin, operator_token,
};
pub use self::server::{
    RunningPlatform, StartError, backup, open, restore, start, start_on, start_routes,
};
