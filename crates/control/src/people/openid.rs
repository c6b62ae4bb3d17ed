//! Sign-in through an OpenID Connect provider (OpenID Connect Core 1.0, authorization code with
//! PKCE).
//!
//! Steps of a sign-in: [`flow::begin`] draws one secret for the browser's cookie. `state`, `nonce`
//! and the PKCE verifier are derived from it, so all three are bound to this browser and none of
//! them is stored. The provider sends the browser back to [`flow::complete`]. It redeems the code
//! ([`provider`]), checks the ID token ([`token`]) and finds or creates the user.
//!
//! The provider's groups can give roles ([`groups`]). The provider can end sessions here, and a
//! sign-out here can continue at the provider ([`logout`]).
//!
//! The provider is contacted when a user needs it, never at startup. While it is unavailable, users
//! can still sign in with a password.

pub mod account_link;
mod fetch;
pub mod flow;
mod groups;
mod groups_section;
pub mod logout;
mod logout_token;
pub mod provider;
mod secrets;
mod section;
pub mod token;

pub use self::groups_section::GroupRoles;
pub use self::provider::{Provider, ProviderError};
pub use self::section::{EmailSource, OpenIdConfig, OpenIdSection, SignUp};
