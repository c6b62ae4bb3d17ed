//! Token formats, claims, keys and their verification, and the signatures of webhooks, without IO
//! and without a clock.
//!
//! [`verify`] turns a token and a time into a [`VerifiedToken`] value or a [`TokenRefusal`] reason
//! for the log. A library implements the cryptography. This crate decides which keys are accepted,
//! which form a token must have, and what its claims mean.
//!
//! The library is the same as for TLS. A JWT crate on top of it was considered and rejected: it
//! lacks ES512, which application tokens use, and does not expose the strict checks that are needed
//! here (duplicate members, integer times, canonical base64url).

mod access;
mod assertion;
mod claims;
mod jws;
mod key;
mod keyring;
pub mod limits;
pub mod link_password;
mod mint;
mod refusal;
#[cfg(test)]
mod sample;
mod secret;
mod statement;
mod token;
pub mod turn;
mod verify;
pub mod watch;
pub mod webhook;

pub use self::access::{AccessClaims, BadAccessClaims, access_claims};
pub use self::assertion::AssertionKey;
pub use self::key::Algorithm;
pub use self::keyring::{BadKey, Keyring, RECOMMENDED_SECRET_BYTES};
pub use self::limits::Limits;
pub use self::link_password::{LinkPassword, LinkPasswordError, LinkPasswords};
pub use self::mint::{
    MintError, MintRequest, PAT_PREFIX, Provenance, SigningKey, Source, application,
    check_consistency, inspect, mint, mint_from, sign_statement,
};
pub use self::refusal::TokenRefusal;
pub use self::secret::Secret;
pub use self::statement::verify_statement;
pub use self::token::{Identity, MAX_TOKEN_BYTES, TokenKind, UnknownKind};
pub use self::verify::{VerifiedToken, digest, verify};
