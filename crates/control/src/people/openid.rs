//! Signing in through an OpenID Connect provider (OpenID Connect Core 1.0, authorization code with
//! PKCE).
//!
//! The way of a sign-in: [`flow::begin`] draws one secret for the browser's cookie, and `state`,
//! `nonce` and the PKCE verifier are made of it, so that all three are bound to this browser and
//! nothing of them is stored. The provider sends the browser back to [`flow::complete`], which
//! redeems the code ([`provider`]), checks the ID token ([`token`]) and finds or makes the person
//! ([`arrival`]).
//!
//! The provider is asked when somebody needs it, never at the start: one that is away keeps
//! nobody from signing in with a password.

pub mod arrival;
mod fetch;
pub mod flow;
pub mod provider;
mod secrets;
mod section;
pub mod token;

pub use self::provider::{Provider, ProviderError};
pub use self::section::{OpenIdConfig, OpenIdSection, SignUp};
