//! Passkeys, as the platform that people sign in to sees them: what a browser and an authenticator
//! sent is read strictly and verified (Web Authentication level 3, sections 7.1 and 7.2).
//!
//! Small on purpose. Attestation is not asked for and never believed: who makes an authenticator
//! is not our business, so no certificates are read. Keys are ES256, `EdDSA` and RS256, which is
//! what authenticators have. Extensions are passed over.
//!
//! There is no state here: challenges are the caller's, who says whether one is its own and keeps
//! it from working twice. So are counters, keys and people. Start with [`RelyingParty`].

mod authenticator_data;
mod cbor;
mod client_data;
mod key;
mod relying_party;

pub use self::key::ALGORITHMS;
pub use self::relying_party::{
    Assertion, NewPasskey, PasskeyAssertion, Registration, RelyingParty,
};

/// Why a response is not taken, for the log: the person learns only that it was not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct CeremonyError(pub &'static str);

/// Longest name that an authenticator gives a credential, in bytes (level 3, section 4,
/// "Credential ID").
pub const MAX_CREDENTIAL_ID: usize = 1023;
