//! The keys that currently sign and verify.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use credentials::{Keyring, SigningKey};
use serde_json::{Value, json};
use store::Store;
use store::signing_keys::{self as stored, Status};

use super::KeyError;
use super::seal::Seal;

/// An immutable set of keys that sign and verify, read in one query. A reload creates another set.
pub struct KeySet {
    /// Increases with each reload that changes the keys of this process. A token that one set
    /// verified must be verified again with another.
    epoch: u64,
    signing: Arc<SigningKey>,
    keyring: Keyring,
    kids: BTreeSet<String>,
    jwks: Bytes,
    /// The keys of the database, oldest first.
    metadata: Vec<KeyMetadata>,
}

/// Rotation state of a key, without the key itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct KeyMetadata {
    pub(super) kid: String,
    pub(super) status: Status,
    pub(super) created_at: jiff::Timestamp,
    pub(super) activated_at: Option<jiff::Timestamp>,
    pub(super) retired_at: Option<jiff::Timestamp>,
}

impl KeySet {
    /// The key that signs.
    pub fn signing(&self) -> &Arc<SigningKey> {
        &self.signing
    }

    /// The keys that verify.
    pub fn keyring(&self) -> &Keyring {
        &self.keyring
    }

    pub(crate) fn epoch(&self) -> u64 {
        self.epoch
    }

    /// True if the set has the key with this id.
    pub(super) fn has(&self, kid: &str) -> bool {
        self.kids.contains(kid)
    }

    pub(crate) fn jwks(&self) -> &Bytes {
        &self.jwks
    }

    pub(super) fn metadata(&self) -> &[KeyMetadata] {
        &self.metadata
    }

    /// The state of the one key with this status. Only the retired ones can be several.
    pub(super) fn find_by_status(&self, status: Status) -> Option<&KeyMetadata> {
        self.metadata.iter().find(|key| key.status == status)
    }

    /// Sets the epoch of this set as the successor of another.
    pub(super) fn with_epoch_after(mut self, before: &Self) -> Self {
        let same = self.jwks == before.jwks;
        self.epoch = if same { before.epoch } else { before.epoch + 1 };
        self
    }
}

impl fmt::Debug for KeySet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeySet")
            .field("epoch", &self.epoch)
            .field("kids", &self.kids)
            .finish_non_exhaustive()
    }
}

/// Reads the keys of the database. Keys of the configuration come before them, and sign.
pub(super) async fn load(
    store: &Store,
    files: &[Arc<SigningKey>],
    seal: &Seal,
    compat: bool,
) -> Result<KeySet, KeyError> {
    let mut read = store.read().await?;
    let rows = stored::all(&mut read).await?;
    drop(read);
    let mut public: Vec<Value> = files.iter().filter_map(|key| key.public_jwk()).collect();
    let mut signing = files.first().cloned();
    for row in &rows {
        if row.status == Status::Active && signing.is_none() {
            signing = Some(Arc::new(open(row, seal)?));
        }
        public.push(row.public_jwk.clone());
    }
    let document = json!({"keys": public}).to_string();
    let broken = || KeyError::Sealed {
        name: "a signing key".to_owned(),
    };
    Ok(KeySet {
        epoch: 0,
        signing: signing.ok_or_else(broken)?,
        keyring: Keyring::new()
            .with_compat(compat)
            .with_jwks(&document)
            .map_err(|_| broken())?,
        kids: public
            .iter()
            .filter_map(|key| key.get("kid")?.as_str().map(str::to_owned))
            .collect(),
        jwks: document.into(),
        metadata: rows
            .into_iter()
            .map(|row| KeyMetadata {
                kid: row.kid,
                status: row.status,
                created_at: row.created_at,
                activated_at: row.activated_at,
                retired_at: row.retired_at,
            })
            .collect(),
    })
}

/// Decrypts the private key of a row. It must match the row's id.
fn open(row: &stored::SigningKey, seal: &Seal) -> Result<SigningKey, KeyError> {
    let broken = || KeyError::Sealed {
        name: format!("signing key {}", row.kid),
    };
    let pem = seal
        .open(&row.kid, &row.sealed_private_key.0)
        .ok_or_else(broken)?;
    let pem = std::str::from_utf8(&pem).map_err(|_| broken())?;
    let key = SigningKey::from_pem(pem).map_err(|_| broken())?;
    if key.thumbprint().as_deref() != Some(&row.kid) {
        return Err(broken());
    }
    Ok(key.with_kid(row.kid.clone()))
}
