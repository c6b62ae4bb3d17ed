//! Cache of recently verified signatures.
//!
//! It only stores results that depend on the token's bytes: the signing key and the claims. Each
//! request checks in the database that the credential is valid, so that a revocation takes effect
//! with the next request in every process.

use std::sync::Arc;

use credentials::VerifiedToken;
use daemon::generations::Generations;
use parking_lot::Mutex;
use types::id::CredentialId;

use super::token::UnverifiedClaims;

/// A bounded cache of verified signatures by the SHA-256 of the token. A used entry stays.
#[derive(Debug)]
pub struct SignatureCache(Mutex<Generations<[u8; 32], CachedSignature>>);

impl Default for SignatureCache {
    fn default() -> Self {
        Self(Mutex::new(Generations::new(GENERATION)))
    }
}

/// A verified signature.
#[derive(Clone, Debug)]
pub(super) struct CachedSignature {
    pub(super) claims: Arc<UnverifiedClaims>,
    pub(super) verified: Arc<VerifiedToken>,
    /// The key that verified it. The entry is only valid for that key.
    pub(super) signer: Signer,
}

/// Owner of the key that verified a signature.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Signer {
    /// A key of the platform, from the key set of this epoch.
    Platform { epoch: u64 },
    /// The key of an application, by the SHA-256 of its text.
    Application { id: CredentialId, key: [u8; 32] },
}

impl SignatureCache {
    /// The entry of a token, whichever key verified it.
    pub(super) fn get(&self, digest: &[u8; 32]) -> Option<CachedSignature> {
        self.0.lock().touch(digest).cloned()
    }

    /// Stores the entry of a token, unless the token is too long.
    pub(super) fn put(&self, token: &str, entry: CachedSignature) {
        if token.len() <= MAX_KEPT_BYTES {
            let digest = entry.verified.digest;
            self.0.lock().put(digest, entry);
        }
    }
}

/// Two generations are 8192 tokens of some kilobytes each at most. This exceeds the number of
/// callers of one process within a token's lifetime, and takes little memory.
const GENERATION: usize = 4096;

/// Tokens with boundaries of usual size are shorter. A longer one is verified each time, so that
/// long tokens cannot fill the memory.
const MAX_KEPT_BYTES: usize = 2048;

#[cfg(test)]
mod tests {
    use credentials::{Identity, TokenKind};

    use super::*;

    fn entry(number: u64) -> CachedSignature {
        let verified = VerifiedToken {
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
            claims: Arc::default(),
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
        verdicts.0.lock().len()
    }

    #[test]
    fn used_entries_stay_and_others_are_evicted() {
        let verdicts = SignatureCache::default();
        for number in 0..20_000 {
            verdicts.put("a.b.c", entry(number));
            assert!(verdicts.get(&digest(0)).is_some(), "a used entry stays");
            assert!(kept(&verdicts) <= 2 * GENERATION);
        }
        assert!(verdicts.get(&digest(19_999)).is_some());
        assert!(verdicts.get(&digest(1)).is_none());
    }

    #[test]
    fn a_long_token_is_not_cached() {
        let verdicts = SignatureCache::default();
        verdicts.put(&"a".repeat(MAX_KEPT_BYTES + 1), entry(1));
        assert_eq!(kept(&verdicts), 0);
    }
}
