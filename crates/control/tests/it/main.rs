//! The control plane through its real router and a real database for each test.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::expect_used,
    reason = "a test ends where it fails"
)]

mod callers;
mod checkout;
mod contracts;
mod credentials;
mod email_change;
mod judged;
mod mail;
mod oauth;
mod openid;
mod pages;
#[path = "../../../store/tests/it/postgres.rs"]
mod postgres;
mod projects;
mod records;
mod reset;
mod second_factor;
mod settings;
mod sign_in;
mod support;
mod tokens;
mod turn;
mod walk;
mod whoami;
mod workspaces;
