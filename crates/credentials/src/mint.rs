//! Making tokens for one's own engine, and looking into them.

use serde_json::Value;
use types::permission::Permission;

use crate::keyring::BadKey;
use crate::secret::Secret;
use crate::token::{Identity, TokenKind};

/// A key that signs.
#[derive(Debug)]
pub struct SigningKey(());

impl SigningKey {
    /// HS256 with a shared secret.
    pub fn from_secret(secret: &Secret) -> Result<Self, BadKey> {
        let _ = secret;
        Ok(Self(()))
    }

    /// A private key (`PRIVATE KEY` in PEM, PKCS#8): P-256, P-384, P-521, Ed25519 or RSA.
    pub fn from_pem(pem: &str) -> Result<Self, BadKey> {
        let _ = pem;
        Ok(Self(()))
    }

    /// The `kid` that the header names.
    #[must_use]
    pub fn with_kid(self, kid: impl Into<String>) -> Self {
        let _: String = kid.into();
        self
    }
}

/// What a token is to say.
#[derive(Clone, Debug)]
pub struct MintRequest {
    /// Kind of the token.
    pub kind: TokenKind,
    /// Who it speaks for.
    pub identity: Identity,
    /// Seconds to live from now; `None` makes a token without an end.
    pub ttl_seconds: Option<u32>,
    /// Permissions; `None` is not narrowed.
    pub permissions: Option<Vec<Permission>>,
    /// The `resources` claim.
    pub resources: Option<Value>,
}

/// Makes a token at `now` (Unix seconds).
pub fn mint(key: &SigningKey, request: &MintRequest, now: i64) -> Result<Secret, BadMint> {
    let _ = (key, request, now);
    Err(BadMint::Signing)
}

/// Header and claims of a token, unverified: `{header, claims}`. Nothing may be decided on them.
pub fn inspect(token: &str) -> Option<Value> {
    let _ = token;
    None
}

/// A token that cannot be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadMint {
    /// An input at fault.
    #[error(transparent)]
    Param(#[from] types::filter::ParamError),
    /// The key did not sign.
    #[error("the key did not sign")]
    Signing,
}
