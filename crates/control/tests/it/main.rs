//! The control plane through its real router and a real database for each test.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::expect_used,
    reason = "a test ends where it fails"
)]

mod app_tokens;
mod bad_tokens;
mod callers;
mod checkout;
mod contracts;
mod credentials;
mod email_change;
mod faults;
mod inputs;
mod jobs;
mod judged;
mod keys;
mod mail;
mod node;
mod openid;
mod operator;
mod operator_pages;
mod pages;
#[path = "../../../store/tests/it/postgres.rs"]
mod postgres;
mod projects;
#[path = "../../../store/tests/it/proxy.rs"]
mod proxy;
mod records;
mod reset;
mod second_factor;
mod served;
mod settings;
mod sign_in;
mod standing;
mod support;
mod tenancy;
mod tokens;
mod turn;
mod walk;
mod whoami;
mod workspaces;
