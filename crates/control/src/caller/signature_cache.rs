//! Signatures that were verified a moment ago.
//!
//! Only what the token's own bytes decide is kept: that a key signed them, and what they say.
//! Whether the credential behind them is in force is asked of the database with each request, so
//! that a revocation holds from the next one on, on every process.

use std::collections::HashMap;
use std::mem;
use std::sync::Arc;

use credentials::Verified;
use parking_lot::Mutex;
use types::id::CredentialId;

use super::token::UnverifiedClaims;

/// A bounded memory of verdicts by the SHA-256 of the token: two generations, of which the old one
/// goes when the young one is full. What is used moves to the young one, and so stays.
#[derive(Debug, Default)]
pub struct SignatureCache(Mutex<Generations>);

#[derive(Debug, Default)]
struct Generations {
    young: HashMap<[u8; 32], CachedSignature>,
    old: HashMap<[u8; 32], CachedSignature>,
}

/// A signature that was good.
#[derive(Clone, Debug)]
pub(super) struct CachedSignature {
    pub(super) said: Arc<UnverifiedClaims>,
    pub(super) verified: Arc<Verified>,
    /// With which key. A verdict holds for that key alone.
    pub(super) signer: Signer,
}

/// Whose key verified a signature.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Signer {
    /// A key of the platform, out of the ring of this epoch.
    Platform { epoch: u64 },
    /// The key of an application, by the SHA-256 of its text.
    Application { id: CredentialId, key: [u8; 32] },
}

impl SignatureCache {
    /// The verdict about a token, whoever's key it was found with.
    pub(super) fn get(&self, digest: &[u8; 32]) -> Option<CachedSignature> {
        let mut generations = self.0.lock();
        if let Some(verdict) = generations.young.get(digest) {
            return Some(verdict.clone());
        }
        let verdict = generations.old.remove(digest)?;
        generations.put(*digest, verdict.clone());
        Some(verdict)
    }

    /// Keeps the verdict about a token of this text, unless it is too long for that.
    pub(super) fn put(&self, token: &str, verdict: CachedSignature) {
        if token.len() <= MAX_KEPT_BYTES {
            let digest = verdict.verified.digest;
            self.0.lock().put(digest, verdict);
        }
    }
}

impl Generations {
    fn put(&mut self, digest: [u8; 32], verdict: CachedSignature) {
        if self.young.len() >= GENERATION {
            self.old = mem::take(&mut self.young);
        }
        self.young.insert(digest, verdict);
    }
}

/// Two generations are 8192 tokens, of some kilobytes each at the most: more than the callers of
/// one process within a token's life, and far less memory than a process has.
const GENERATION: usize = 4096;

/// Tokens with boundaries of usual size are shorter. A longer one is verified each time, so that
/// nobody fills the memory with them.
const MAX_KEPT_BYTES: usize = 2048;

#[cfg(test)]
mod tests {
    use credentials::{Identity, TokenKind};

    use super::*;

    fn verdict(number: u64) -> CachedSignature {
        let verified = Verified {
            kind: TokenKind::Pat,
            identity: Identity::User("ann".to_owned()),
            user_id: None,
            client_id: None,
            limits: ::credentials::Limits::none(),
            issued_at: None,
            credential_id: None,
            id: None,
            root: types::root::Root::Token(digest(number)),
            digest: digest(number),
        };
        CachedSignature {
            said: Arc::default(),
            verified: Arc::new(verified),
            signer: Signer::Platform { epoch: 0 },
        }
    }

    fn digest(number: u64) -> [u8; 32] {
        let mut digest = [0; 32];
        digest[..8].copy_from_slice(&number.to_be_bytes());
        digest
    }

    fn kept(verdicts: &SignatureCache) -> usize {
        let generations = verdicts.0.lock();
        generations.young.len() + generations.old.len()
    }

    #[test]
    fn what_is_used_stays_and_the_rest_goes() {
        let verdicts = SignatureCache::default();
        for number in 0..20_000 {
            verdicts.put("a.b.c", verdict(number));
            assert!(verdicts.get(&digest(0)).is_some(), "used again and again");
            assert!(kept(&verdicts) <= 2 * GENERATION);
        }
        assert!(verdicts.get(&digest(19_999)).is_some());
        assert!(verdicts.get(&digest(1)).is_none());
    }

    #[test]
    fn a_long_token_is_not_kept() {
        let verdicts = SignatureCache::default();
        verdicts.put(&"a".repeat(MAX_KEPT_BYTES + 1), verdict(1));
        assert_eq!(kept(&verdicts), 0);
    }
}
