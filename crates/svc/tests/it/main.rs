//! The program as its users meet it: a process, its output, its exit code.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test ends where it fails"
)]

mod backup;
mod confirmation;
mod credentials;
mod doctor;
mod explain;
mod forward;
mod hosted;
mod installation;
mod installed;
mod keyring;
mod login;
mod mcp;
mod panel;
mod platform;
mod platform_refusals;
mod program;
mod refusals;
mod story;
mod terminal;
mod token;
mod up;
