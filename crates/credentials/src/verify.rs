//! Verification: from a token and a time to verified data or a reason for the refusal.

#[cfg(test)]
mod tests;

use types::permission::Permission;
use types::root::Root;

use crate::claims::Claims;
use crate::jws::Compact;
use crate::keyring::Keyring;
use crate::limits::Limits;
use crate::refusal::TokenRefusal;
use crate::token::{Identity, TokenKind};

/// A token that was valid at the time of its verification.
#[derive(Clone, Debug)]
pub struct VerifiedToken {
    /// Kind of the token.
    pub kind: TokenKind,
    /// The identity that it acts as.
    pub identity: Identity,
    /// `userId`, if present.
    pub user_id: Option<String>,
    /// `clientId`, if present.
    pub client_id: Option<String>,
    /// Its permissions, its boundary and its expiry, intersected with those of the credential
    /// behind it.
    pub limits: Limits,
    /// Time of issue in Unix seconds.
    pub issued_at: Option<i64>,
    /// The stored credential behind it: `token_endpoint`, or `sourceCredentialId` of a delegated
    /// token.
    pub credential_id: Option<String>,
    /// The root of the chain that the token comes from. It is never read from claims: here it is
    /// the token itself, and code with access to the stored credentials replaces it.
    pub root: Root,
    /// `jti`, if present: its key in revocation lists.
    pub id: Option<String>,
    /// SHA-256 of the token's text: its key in caches and revocation lists.
    pub digest: [u8; 32],
}

impl VerifiedToken {
    /// True if the token has this permission.
    pub fn allows(&self, permission: Permission) -> bool {
        self.limits.allows(permission)
    }

    /// True if the token states its time of issue and its expiry, and its lifetime is within this
    /// limit.
    pub fn lives_at_most(&self, seconds: i64) -> bool {
        let (Some(made), Some(ends)) = (self.issued_at, self.limits.expires_at()) else {
            return false;
        };
        (1..=seconds).contains(&ends.saturating_sub(made))
    }

    /// True if the token has expired at `now` (Unix seconds). A cache checks this before each hit.
    pub fn is_expired(&self, now: i64) -> bool {
        self.limits.is_expired(now)
    }
}

/// Verifies a compact JWT at `now` (Unix seconds). `exp` has no leeway; `nbf` and `iat` have
/// five seconds.
pub fn verify(token: &str, keys: &Keyring, now: i64) -> Result<VerifiedToken, TokenRefusal> {
    let compact = Compact::parse(token)?;
    let (algorithm, key_id) = compact.key_hint()?;
    if !keys.verifies(
        algorithm,
        key_id,
        compact.signed.as_bytes(),
        &compact.signature,
    ) {
        return Err(TokenRefusal::Signature);
    }
    let claims = compact.claims().ok_or(TokenRefusal::Payload)?;
    let claims = Claims::read(&claims, keys.compat())?;
    if claims.expires_at.is_some_and(|at| at <= now) {
        return Err(TokenRefusal::Expired);
    }
    let is_ahead =
        |at: Option<i64>| at.is_some_and(|at| at > now.saturating_add(CLOCK_LEEWAY_SECONDS));
    if is_ahead(claims.not_before) || is_ahead(claims.issued_at) {
        return Err(TokenRefusal::NotYetValid);
    }
    let digest = digest(token);
    Ok(VerifiedToken {
        kind: claims.kind,
        identity: claims.identity,
        user_id: claims.user_id,
        client_id: claims.client_id,
        limits: Limits::new(claims.permissions, claims.boundary, claims.expires_at),
        issued_at: claims.issued_at,
        credential_id: claims.credential_id,
        id: claims.id,
        root: Root::Token(digest),
        digest,
    })
}

/// SHA-256 of a token's text.
pub fn digest(token: &str) -> [u8; 32] {
    let mut bytes = [0; 32];
    let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, token.as_bytes());
    for (to, from) in bytes.iter_mut().zip(digest.as_ref()) {
        *to = *from;
    }
    bytes
}

/// Maximum difference between the clocks of an issuer and an engine.
const CLOCK_LEEWAY_SECONDS: i64 = 5;
