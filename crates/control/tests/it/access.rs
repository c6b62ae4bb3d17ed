//! Credentials, tokens, OAuth and signing keys.

mod app_tokens;
mod credential_chains;
pub(crate) mod credentials;
mod keys;
pub(crate) mod oauth;
mod standing;
mod tokens;
mod turn;
mod whoami;
