//! Keys of the platform: those that sign tokens, those of the relays, and keys that are derived for
//! one purpose each.
//!
//! One secret is outside the database, in a file that every process has. Everything else is in the
//! database, encrypted with it. So neither the database nor the file alone is enough to sign, and
//! two processes on one database have the same keys.

mod files;
mod identity_keys;
mod jwks;
mod key_set;
pub mod refresh;
mod relay_key;
mod rotation;
mod routes;
mod seal;
mod secret;
mod turn;

use std::path::PathBuf;
use std::sync::Arc;
use std::{fmt, io};

use credentials::{Secret, SigningKey};
use jiff::{SignedDuration, Timestamp};
use parking_lot::{Mutex, RwLock};
use store::Store;
use tokio::sync::Semaphore;
use types::problem::Problem;

pub(crate) use self::files::cluster_secret;
pub use self::key_set::KeySet;
pub use self::rotation::{LEAD, Rotation};
pub use self::routes::routes;
pub(crate) use self::seal::Seal;
pub use self::turn::RelayKey;
use self::turn::TurnKeys;
use crate::config::Config;
use crate::http_api::problem::HandlerResult;

/// The keys of a running platform.
pub struct Keys {
    secret: Secret,
    /// Encrypts private signing keys in the database.
    seal: Seal,
    /// Keys of the configuration. If there are any, the first of them signs.
    files: Vec<Arc<SigningKey>>,
    compat: bool,
    rotate_every: Option<SignedDuration>,
    key_set: RwLock<Arc<KeySet>>,
    /// Only one task queries the database at a time. The others use its result.
    query_permits: Semaphore,
    /// Time of the last query for an unknown key.
    queried_at: Mutex<Timestamp>,
    /// Time of the last search for unneeded keys.
    purged_at: Mutex<Timestamp>,
    turn: TurnKeys,
}

impl Keys {
    /// Reads the keys, and creates missing ones.
    ///
    /// # Errors
    /// A file or the database cannot be read or written, or the secret is not the one that
    /// encrypted the database.
    pub async fn open(config: &Config, store: &Store, now: Timestamp) -> Result<Self, KeyError> {
        let secret = secret::open(config, store, now).await?;
        let seal = sealing(&secret, "signing-keys")?;
        let files = files::signing_keys(config)?;
        if files.is_empty() {
            rotation::create_first(config, store, &seal, now).await?;
        }
        let key_set = key_set::load(store, &files, &seal, config.compat_rstream).await?;
        let turn = TurnKeys::open(config, store, &secret, now).await?;
        Ok(Self {
            secret,
            seal,
            files,
            compat: config.compat_rstream,
            rotate_every: config.rotate_keys_every,
            key_set: RwLock::new(Arc::new(key_set)),
            query_permits: Semaphore::new(1),
            queried_at: Mutex::new(Timestamp::MIN),
            purged_at: Mutex::new(Timestamp::MIN),
            turn,
        })
    }

    /// The key that signs new tokens.
    pub fn signing(&self) -> Arc<SigningKey> {
        Arc::clone(self.key_set().signing())
    }

    /// The current keys that sign and verify the platform's own tokens.
    pub fn key_set(&self) -> Arc<KeySet> {
        Arc::clone(&self.key_set.read())
    }

    /// Reads the keys of the database again.
    ///
    /// # Errors
    /// The database cannot be read, or contains a key that cannot be decrypted. The keys remain
    /// unchanged.
    pub async fn reload(&self, store: &Store) -> Result<(), KeyError> {
        let read = key_set::load(store, &self.files, &self.seal, self.compat).await?;
        let mut key_set = self.key_set.write();
        *key_set = Arc::new(read.with_epoch_after(&key_set));
        Ok(())
    }

    /// Queries the database for a key that a token names, because another process may have created
    /// it. True if the key is now available and the token should be verified again.
    ///
    /// Any client can name any key, so the database is queried at most once in
    /// [`MIN_QUERY_INTERVAL`].
    pub(crate) async fn fetch_unknown_key(&self, store: &Store, kid: &str, now: Timestamp) -> bool {
        if self.key_set().has(kid) {
            return false;
        }
        let Ok(_turn) = self.query_permits.acquire().await else {
            return false;
        };
        if self.key_set().has(kid) {
            return true;
        }
        {
            let mut asked_at = self.queried_at.lock();
            // If the clock was set back, keys must not be blocked until it catches up.
            if now.duration_since(*asked_at).abs() < MIN_QUERY_INTERVAL {
                return false;
            }
            *asked_at = now;
        }
        if let Err(error) = self.reload(store).await {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "the keys could not be reloaded"
            );
        }
        self.key_set().has(kid)
    }

    /// The secret that TURN relays share.
    pub fn turn_secret(&self) -> &Secret {
        self.turn.secret()
    }

    /// The key of a realm's relay, for the relay itself and for clients that request its public
    /// half. `None` if the platform has no such realm.
    pub fn turn_relay(&self, realm: &str) -> Option<&RelayKey> {
        self.turn.relay(realm)
    }

    /// A key for one purpose (RFC 5869). It is the same on every process of the platform, and
    /// useless for another purpose.
    pub fn derive(&self, purpose: &str) -> HandlerResult<[u8; 32]> {
        secret::derive(&self.secret, purpose).ok_or_else(|| Problem::internal().into())
    }
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keys")
            .field("key_set", &self.key_set())
            .finish_non_exhaustive()
    }
}

/// Errors of keys.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// A file cannot be read or created.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The content of a file is invalid.
    #[error("{}: {message}", path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// The error. It does not repeat any of the file.
        message: String,
    },
    /// A secret in the database cannot be decrypted, or is invalid.
    #[error("{name} in the database cannot be decrypted")]
    Sealed {
        /// Its name.
        name: String,
    },
    /// The database.
    #[error("the database of the keys failed: {0}")]
    Database(#[from] store::Error),
    /// Keys of the configuration cannot be rotated by the platform.
    #[error("the keys are set in platform.signing_keys: put a new file first there, and restart")]
    Configured,
    /// Tokens without expiry keep too many old keys public.
    #[error(
        "there are {} keys that personal access tokens without an expiry need; revoke some of \
         these tokens",
        rotation::MAX_KEYS
    )]
    TooMany,
    /// The cryptographic library failed, for example because of missing randomness.
    #[error("the system's cryptography failed")]
    Cryptography,
}

/// Creates the encryption of one purpose.
fn sealing(secret: &Secret, purpose: &str) -> Result<Seal, KeyError> {
    let key = secret::derive(secret, purpose).ok_or(KeyError::Cryptography)?;
    Seal::new(&key).map_err(|_| KeyError::Cryptography)
}

/// Minimum interval between queries for unknown keys, because any client can name any key. A key of
/// another process is public long before it signs, so few tokens are affected.
const MIN_QUERY_INTERVAL: SignedDuration = SignedDuration::from_secs(10);
