//! Tests of the program as a process: its output and its exit code.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test ends where it fails"
)]

mod backup;
mod completions;
mod confirmation;
mod context;
mod credentials;
mod dial;
mod doctor;
mod events;
mod explain;
mod forward;
mod hosted;
mod inspect_tls;
mod installation;
mod installed;
#[cfg(all(feature = "keyring", target_os = "linux"))]
mod keyring;
mod lists;
mod login;
mod mcp;
mod mistakes;
mod panel;
mod platform;
mod platform_refusals;
mod program;
mod refusals;
mod run;
mod run_docker;
mod service;
mod story;
mod supervised;
mod terminal;
mod token;
mod up;
mod webtty_client;
mod webtty_server;
mod webtty_servers;
mod webtty_sessions;
