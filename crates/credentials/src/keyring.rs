//! The keys that an engine trusts. The algorithm belongs to the key, never to the token.

use crate::secret::Secret;

/// The keys that tokens are verified with.
#[derive(Clone, Debug, Default)]
pub struct Keyring {
    compat: bool,
}

impl Keyring {
    /// No key: every token is refused.
    pub fn new() -> Self {
        Self::default()
    }

    /// Reads the other brand's spellings in boundaries (`compat.rstream`).
    #[must_use]
    pub fn with_compat(mut self, compat: bool) -> Self {
        self.compat = compat;
        self
    }

    /// Adds an HS256 secret; two are valid during a rotation.
    pub fn with_secret(self, secret: &Secret) -> Result<Self, BadKey> {
        let _ = secret;
        Ok(self)
    }

    /// Adds a public key (`PUBLIC KEY` in PEM): P-256, P-384, P-521, Ed25519 or RSA.
    pub fn with_pem(self, pem: &str) -> Result<Self, BadKey> {
        let _ = pem;
        Ok(self)
    }

    /// Adds the signature keys of a JWKS document (RFC 7517 section 5). Keys of other kinds in it
    /// are passed over.
    pub fn with_jwks(self, document: &str) -> Result<Self, BadKey> {
        let _ = document;
        Ok(self)
    }

    /// Whether there is no key.
    pub fn is_empty(&self) -> bool {
        true
    }
}

/// A key that cannot be used. It does not repeat the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BadKey(pub(crate) &'static str);
