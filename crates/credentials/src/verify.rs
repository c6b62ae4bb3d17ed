//! Verification: a token and a time in, proof or a reason out.

#[cfg(test)]
mod tests;

use types::permission::Permission;
use types::root::Root;

use crate::claims::Claims;
use crate::jws::Compact;
use crate::keyring::Keyring;
use crate::limits::Limits;
use crate::token::{Identity, TokenKind};

/// Proof that a token was good at the time it was verified.
#[derive(Clone, Debug)]
pub struct Verified {
    /// Kind of the token.
    pub kind: TokenKind,
    /// Who it speaks for.
    pub identity: Identity,
    /// `userId`, where it has one.
    pub user_id: Option<String>,
    /// `clientId`, where it has one.
    pub client_id: Option<String>,
    /// Its permissions, its boundary and its end, within those of what is behind it.
    pub limits: Limits,
    /// Unix seconds of its making.
    pub issued_at: Option<i64>,
    /// The stored credential behind it: `token_endpoint`, or `sourceCredentialId` of a delegated
    /// token.
    pub credential_id: Option<String>,
    /// What stands at the beginning of the chain that the token comes from. Never from claims: here
    /// it is the token itself, and whoever knows the stored credentials replaces it.
    pub root: Root,
    /// `jti`, where it has one: its name in lists of what was revoked.
    pub id: Option<String>,
    /// SHA-256 of the token's text: its name in caches and revocation lists.
    pub digest: [u8; 32],
}

impl Verified {
    /// Whether the permissions hold this one.
    pub fn allows(&self, permission: Permission) -> bool {
        self.limits.allows(permission)
    }

    /// Whether the token says when it was made and when it ends, and lives no longer than this.
    pub fn lives_at_most(&self, seconds: i64) -> bool {
        let (Some(made), Some(ends)) = (self.issued_at, self.limits.expires_at()) else {
            return false;
        };
        (1..=seconds).contains(&ends.saturating_sub(made))
    }

    /// Whether the token is past its time at `now` (Unix seconds). A cache asks this before it
    /// answers.
    pub fn is_expired(&self, now: i64) -> bool {
        self.limits.is_expired(now)
    }
}

/// Verifies a compact JWT at `now` (Unix seconds). `exp` has no leeway; `nbf` and `iat` have
/// five seconds.
pub fn verify(token: &str, keys: &Keyring, now: i64) -> Result<Verified, Refused> {
    let compact = Compact::parse(token)?;
    let (algorithm, key_id) = compact.key_hint()?;
    if !keys.verifies(
        algorithm,
        key_id,
        compact.signed.as_bytes(),
        &compact.signature,
    ) {
        return Err(Refused::Signature);
    }
    let claims = compact.claims().ok_or(Refused::Payload)?;
    let claims = Claims::read(&claims, keys.compat())?;
    if claims.expires_at.is_some_and(|at| at <= now) {
        return Err(Refused::Expired);
    }
    let is_ahead =
        |at: Option<i64>| at.is_some_and(|at| at > now.saturating_add(CLOCK_LEEWAY_SECONDS));
    if is_ahead(claims.not_before) || is_ahead(claims.issued_at) {
        return Err(Refused::NotYetValid);
    }
    let digest = digest(token);
    Ok(Verified {
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

/// Why a token was refused. For the log: no caller is told which part failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// More than [`MAX_TOKEN_BYTES`](crate::MAX_TOKEN_BYTES).
    #[error("the token is too long")]
    TooLong,
    /// Not three parts of canonical base64url.
    #[error("not a compact JWS")]
    Form,
    /// A header member that is missing, of a wrong type or not allowed.
    #[error("header: {0}")]
    Header(&'static str),
    /// No key of ours with this algorithm made the signature.
    #[error("no trusted key made the signature")]
    Signature,
    /// The payload is no JSON object of the strict form.
    #[error("the payload is no JSON object")]
    Payload,
    /// The `type` is missing or none of ours.
    #[error("unknown token type")]
    UnknownType,
    /// A claim of the wrong type or form.
    #[error("claim: {0}")]
    Claim(&'static str),
    /// Neither `userId` nor `clientId`.
    #[error("the token speaks for nobody")]
    NoIdentity,
    /// Past its `exp`.
    #[error("expired")]
    Expired,
    /// Before its `nbf` or `iat`.
    #[error("not valid yet")]
    NotYetValid,
}

/// What the clocks of an issuer and an engine may differ by.
const CLOCK_LEEWAY_SECONDS: i64 = 5;
