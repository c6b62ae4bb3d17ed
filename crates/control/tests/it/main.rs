//! Tests of the control plane through its router, with a database for each test.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::expect_used,
    reason = "a test ends where it fails"
)]

mod addresses;
mod app_tokens;
#[expect(dead_code, reason = "the kinds of keys are tested where they are read")]
#[path = "../../../webauthn/tests/authenticator/mod.rs"]
mod authenticator;
mod bad_tokens;
mod callers;
mod checkout;
mod chromium;
mod contracts;
mod credential_chains;
mod credentials;
mod deleted;
mod email_change;
mod engines;
mod faults;
mod inputs;
mod invitations;
mod jobs;
mod judged;
mod keys;
mod mail;
#[path = "../../../store/tests/it/migrated.rs"]
mod migrated;
mod node;
mod oauth;
mod openid;
mod operator;
mod operator_pages;
mod pages;
mod pages_chromium;
mod passkeys;
mod passkeys_chromium;
#[path = "../../../store/tests/it/postgres.rs"]
mod postgres;
mod projects;
#[path = "../../../store/tests/it/proxy.rs"]
mod proxy;
mod races;
mod rate_limit;
mod records;
mod reset;
mod same_origin;
mod second_factor;
mod served;
mod settings;
mod sign_in;
mod standing;
mod support;
mod tenancy;
mod terminals;
mod terminals_chromium;
mod tokens;
mod turn;
mod walk;
mod webhooks;
mod webtty_servers;
mod whoami;
mod workspaces;
