//! Verified tokens: keys that can be swapped, a cache in front of the cryptography, revocation.

use std::collections::HashSet;
use std::sync::Arc;

use arc_swap::ArcSwap;
use credentials::{BadKey, Keyring, Refused, Verified};
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};

use super::cache::{Cache, Entry};

/// SHA-256 of a token's text: its name in caches and revocation lists.
pub type Digest = [u8; 32];

/// Verifies tokens. Shared by every worker; verification locks nothing that another one waits for.
#[derive(Debug)]
pub struct Tokens {
    keys: ArcSwap<Keys>,
    cache: Cache,
    revoked: ArcSwap<HashSet<Digest>>,
    /// Held while keys are replaced, so that two sources of keys do not undo each other.
    replacing: Mutex<Sources>,
    changes: watch::Sender<u64>,
    /// Somebody came with a key that is not known.
    unknown_key: Notify,
}

/// The keys in force, and how often they were replaced. A cached verdict holds for one epoch.
#[derive(Debug)]
struct Keys {
    epoch: u64,
    keyring: Keyring,
}

#[derive(Debug)]
struct Sources {
    configured: Keyring,
    /// JWKS document that was read last.
    jwks: Option<String>,
}

/// Why a token is not accepted. For the log: the caller learns only that it is not valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Unverified {
    #[error(transparent)]
    Refused(#[from] Refused),
    #[error("the token was revoked")]
    Revoked,
}

impl Tokens {
    /// Takes the configured keys: shared secrets and public keys. Keys of a JWKS come on top.
    pub fn new(configured: Keyring) -> Arc<Self> {
        let keys = Keys {
            epoch: 0,
            keyring: configured.clone(),
        };
        Arc::new(Self {
            keys: ArcSwap::from_pointee(keys),
            cache: Cache::new(CACHED_TOKENS),
            revoked: ArcSwap::default(),
            replacing: Mutex::new(Sources {
                configured,
                jwks: None,
            }),
            changes: watch::Sender::new(0),
            unknown_key: Notify::new(),
        })
    }

    /// Verifies a token at `now` (Unix seconds), or finds the verdict of a moment ago.
    ///
    /// # Errors
    /// [`Unverified`], never cached: a wrong token costs its sender a verification each time.
    pub fn verify(&self, token: &str, now: i64) -> Result<Arc<Verified>, Unverified> {
        let digest = credentials::digest(token);
        let keys = self.keys.load();
        let verified = match self
            .cache
            .get(&digest)
            .filter(|entry| entry.epoch == keys.epoch)
        {
            Some(entry) if !entry.verified.is_expired(now) => entry.verified,
            // Past its time, or not seen yet: the reason comes from the one place that knows it.
            _ => {
                let verified = credentials::verify(token, &keys.keyring, now)
                    .inspect_err(|refused| self.note(*refused))?;
                let entry = Entry {
                    epoch: keys.epoch,
                    verified: Arc::new(verified),
                };
                let verified = Arc::clone(&entry.verified);
                self.cache.put(digest, entry);
                verified
            }
        };
        if self.revoked.load().contains(&digest) {
            return Err(Unverified::Revoked);
        }
        Ok(verified)
    }

    /// Replaces the configured keys, for example after a reload. Verdicts of the old ones end.
    ///
    /// # Errors
    /// [`BadKey`] where they do not go together with the JWKS that was read; nothing changes then.
    pub fn replace_keys(&self, configured: Keyring) -> Result<(), BadKey> {
        let mut sources = self.replacing.lock();
        let keyring = match &sources.jwks {
            Some(document) => configured.clone().with_jwks(document)?,
            None => configured.clone(),
        };
        sources.configured = configured;
        self.put_in_force(keyring);
        Ok(())
    }

    /// Replaces the keys of the JWKS. A document that says nothing new leaves verdicts in place.
    ///
    /// # Errors
    /// [`BadKey`] where the document holds no set of keys; the old ones stay in force.
    pub fn replace_jwks(&self, document: String) -> Result<(), BadKey> {
        let mut sources = self.replacing.lock();
        if sources.jwks.as_ref() == Some(&document) {
            return Ok(());
        }
        let keyring = sources.configured.clone().with_jwks(&document)?;
        sources.jwks = Some(document);
        self.put_in_force(keyring);
        Ok(())
    }

    /// Replaces the set of revoked tokens. Streams that live on one of them end.
    pub fn set_revoked(&self, revoked: HashSet<Digest>) {
        self.revoked.store(Arc::new(revoked));
        self.announce();
    }

    /// Changes when keys or revocations change: whoever lives on a token then verifies it again.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Waits until a token comes that no known key signed, or returns at once where one came since
    /// the last call. Cancel-safe.
    pub(super) async fn unknown_key(&self) {
        self.unknown_key.notified().await;
    }

    fn put_in_force(&self, keyring: Keyring) {
        let epoch = self.keys.load().epoch + 1;
        self.keys.store(Arc::new(Keys { epoch, keyring }));
        self.announce();
    }

    fn announce(&self) {
        self.changes.send_modify(|count| *count += 1);
    }

    fn note(&self, refused: Refused) {
        if refused == Refused::Signature {
            self.unknown_key.notify_one();
        }
    }
}

/// Some 500 bytes each: 5 MiB for as many bearers as one engine sees within a token's life.
const CACHED_TOKENS: usize = 10_000;
