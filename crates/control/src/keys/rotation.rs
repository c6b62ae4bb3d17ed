//! Rotation of the keys in the database. A key is public before it signs, and stays public until
//! its last token has expired.
//!
//! Every process runs the same steps. Each step is one conditional statement, so that only one of
//! several concurrent attempts has an effect.

use jiff::{SignedDuration, Timestamp};
use store::Store;
use store::signing_keys::{self as stored, Status};
use store::{SealedBytes, Tx};

use super::key_set::KeySet;
use super::seal::Seal;
use super::{KeyError, Keys, files};
use crate::config::Config;

/// A started rotation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rotation {
    /// The key that will sign.
    pub kid: String,
    /// Time from which it signs.
    pub signs_from: Timestamp,
}

/// Period in which a key is public before it signs. By then all verifiers have it: caches keep the
/// document for five minutes, and engines read it every ten.
pub const LEAD: SignedDuration = SignedDuration::from_hours(1);

/// Minimum period in which a retired key stays public: the longest lifetime of a token that is not
/// stored ([`api::control::tokens::MAX_TTL_SECONDS`]), and as much again for a process that still
/// signs with the old key.
const RETIRED_KEY_RETENTION: SignedDuration = SignedDuration::from_hours(2);

/// Maximum number of public keys. Personal tokens without expiry keep their key public permanently.
/// At four rotations a year this limit lasts eight years, and it is half of what verifiers accept.
pub(super) const MAX_KEYS: usize = 32;

/// The search for unneeded keys reads credentials. It is not urgent.
const PURGE_EVERY: SignedDuration = SignedDuration::from_hours(1);

impl Keys {
    /// Starts a rotation, or returns the one that is in progress.
    ///
    /// # Errors
    /// [`KeyError::Configured`], [`KeyError::TooMany`], or the database cannot be used.
    pub async fn rotate(&self, store: &Store, now: Timestamp) -> Result<Rotation, KeyError> {
        if !self.files.is_empty() {
            return Err(KeyError::Configured);
        }
        self.reload(store).await?;
        if self.key_set().find_by_status(Status::Next).is_none() {
            self.publish_next_key(store, now).await?;
        }
        let key_set = self.key_set();
        let next = key_set
            .find_by_status(Status::Next)
            .or(key_set.find_by_status(Status::Active));
        // Another process was so quick that the new key is already the active one.
        let next = next.ok_or(KeyError::Cryptography)?;
        Ok(Rotation {
            kid: next.kid.clone(),
            signs_from: next
                .activated_at
                .unwrap_or_else(|| signs_from(next.created_at)),
        })
    }

    /// Reads the keys again and executes the step that is due, if there is one.
    ///
    /// # Errors
    /// The database cannot be used. The keys remain unchanged.
    pub async fn maintain(&self, store: &Store, now: Timestamp) -> Result<(), KeyError> {
        self.reload(store).await?;
        if !self.files.is_empty() {
            return Ok(());
        }
        let key_set = self.key_set();
        let (active, next) = (
            key_set.find_by_status(Status::Active),
            key_set.find_by_status(Status::Next),
        );
        if let (Some(active), Some(next)) = (active, next) {
            if signs_from(next.created_at) <= now {
                let mut tx = store.begin().await?;
                if stored::rotate(&mut tx, &active.kid, &next.kid, now).await? {
                    tx.commit().await?;
                    tracing::info!(kid = %next.kid, "a new key now signs tokens");
                }
                self.reload(store).await?;
            }
        } else if self.is_due(&key_set, now) {
            match self.publish_next_key(store, now).await {
                Err(error @ KeyError::TooMany) => tracing::warn!(%error, "no new signing key"),
                other => other?,
            }
        }
        self.purge(store, now).await
    }

    /// True if the next key has to be created now, so that it can sign when the period of the
    /// current one ends.
    fn is_due(&self, key_set: &KeySet, now: Timestamp) -> bool {
        let since = key_set
            .find_by_status(Status::Active)
            .and_then(|key| key.activated_at);
        let (Some(every), Some(since)) = (self.rotate_every, since) else {
            return false;
        };
        now.duration_since(since) >= every.saturating_sub(LEAD)
    }

    /// Creates the next key, unless there is one.
    async fn publish_next_key(&self, store: &Store, now: Timestamp) -> Result<(), KeyError> {
        if self.key_set().metadata().len() >= MAX_KEYS {
            return Err(KeyError::TooMany);
        }
        let mut tx = store.begin().await?;
        let pem = files::new_signing_key().ok_or(KeyError::Cryptography)?;
        if insert(&mut tx, &pem, Status::Next, &self.seal, now).await? {
            tx.commit().await?;
            tracing::info!("the next signing key was published");
        }
        self.reload(store).await
    }

    async fn purge(&self, store: &Store, now: Timestamp) -> Result<(), KeyError> {
        let retired_by = now
            .saturating_sub(RETIRED_KEY_RETENTION)
            .unwrap_or(Timestamp::MIN);
        let is_over = |at: Option<Timestamp>| at.is_some_and(|at| at <= retired_by);
        if !self
            .key_set()
            .metadata()
            .iter()
            .any(|key| is_over(key.retired_at))
        {
            return Ok(());
        }
        {
            let mut purged_at = self.purged_at.lock();
            if now.duration_since(*purged_at).abs() < PURGE_EVERY {
                return Ok(());
            }
            *purged_at = now;
        }
        let mut tx = store.begin().await?;
        let forgotten = stored::purge(&mut tx, retired_by, now).await?;
        tx.commit().await?;
        if forgotten > 0 {
            tracing::info!(keys = forgotten, "old signing keys were removed");
            self.reload(store).await?;
        }
        Ok(())
    }
}

/// Creates the first signing key. A key that an older version left in a file keeps signing.
pub(super) async fn create_first(
    config: &Config,
    store: &Store,
    seal: &Seal,
    now: Timestamp,
) -> Result<(), KeyError> {
    let mut read = store.read().await?;
    let active = stored::active(&mut read).await?;
    drop(read);
    if active.is_some() {
        return Ok(());
    }
    let pem = match files::former_signing_key(config)? {
        Some(pem) => pem,
        None => files::new_signing_key().ok_or(KeyError::Cryptography)?,
    };
    let mut tx = store.begin().await?;
    if insert(&mut tx, &pem, Status::Active, seal, now).await? {
        tx.commit().await?;
    }
    Ok(())
}

/// False if another process was quicker.
async fn insert(
    tx: &mut Tx,
    pem: &str,
    status: Status,
    seal: &Seal,
    now: Timestamp,
) -> Result<bool, KeyError> {
    let key = files::with_id(pem).ok_or(KeyError::Cryptography)?;
    let (Some(kid), Some(public_jwk)) = (key.kid(), key.public_jwk()) else {
        return Err(KeyError::Cryptography);
    };
    let sealed = seal.seal(kid, pem.as_bytes());
    let row = stored::SigningKey {
        kid: kid.to_owned(),
        algorithm: "EdDSA".to_owned(),
        sealed_private_key: SealedBytes(sealed.map_err(|_| KeyError::Cryptography)?),
        public_jwk,
        status,
        created_at: now,
        activated_at: (status == Status::Active).then_some(now),
        retired_at: None,
    };
    Ok(stored::insert(tx, &row).await?)
}

fn signs_from(created_at: Timestamp) -> Timestamp {
    created_at.saturating_add(LEAD).unwrap_or(Timestamp::MAX)
}
