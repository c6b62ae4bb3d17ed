//! Tests of the control plane through its router, with a database for each test.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::expect_used,
    reason = "a test ends where it fails"
)]

mod access;
mod accounts;
#[expect(dead_code, reason = "the kinds of keys are tested where they are read")]
#[path = "../../../webauthn/tests/authenticator/mod.rs"]
mod authenticator;
mod chromium;
mod dashboard;
mod http_api;
mod inputs;
#[path = "../../../store/tests/it/migrated.rs"]
mod migrated;
mod node;
mod operation;
mod pages;
mod pages_chromium;
#[path = "../../../store/tests/it/postgres.rs"]
mod postgres;
#[path = "../../../store/tests/it/proxy.rs"]
mod proxy;
mod support;
mod tenants;
