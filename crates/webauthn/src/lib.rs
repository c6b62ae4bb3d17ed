//! Passkeys, from the view of the platform as relying party: responses of browsers and
//! authenticators are parsed strictly and verified (Web Authentication level 3, sections 7.1 and
//! 7.2).
//!
//! The crate is small on purpose. It neither requests nor trusts attestation, because the
//! manufacturer of an authenticator does not matter, so it reads no certificates. Keys are ES256,
//! `EdDSA` and RS256, which authenticators use. Extensions are ignored.
//!
//! The crate has no state. The caller manages challenges, recognises its own and prevents their
//! reuse. It also stores counters, keys and people. Start reading with [`RelyingParty`].

mod authenticator_data;
mod cbor;
mod client_data;
mod key;
mod relying_party;

pub use self::key::ALGORITHMS;
pub use self::relying_party::{
    Assertion, NewPasskey, PasskeyAssertion, Registration, RelyingParty,
};

/// Reason why a response is refused, for the log: the user only sees that it was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct CeremonyError(pub &'static str);

/// Maximum length of a credential id, in bytes (level 3, section 4, "Credential ID").
pub const MAX_CREDENTIAL_ID: usize = 1023;
