//! The platform's secret. It is in a file, the same on every process, and never in the database.

use std::fs;

use aws_lc_rs::hkdf;
use credentials::Secret;
use jiff::Timestamp;
use store::platform_secrets::{self as stored, PlatformSecret};
use store::{SealedBytes, Store};

use super::seal::Seal;
use super::{KeyError, files, sealing};
use crate::config::Config;

/// Reads the secret, and checks that it is the one that encrypted the database. The first process
/// creates the secret and the check value.
pub(super) async fn open(
    config: &Config,
    store: &Store,
    now: Timestamp,
) -> Result<Secret, KeyError> {
    let path = match &config.secret_file {
        Some(path) => path.clone(),
        None => config.data_dir.join("platform.secret"),
    };
    let wrong = |message: &str| KeyError::Content {
        path: path.clone(),
        message: message.to_owned(),
    };
    let mark = read_mark(store).await?;
    let mut is_new = false;
    if config.secret_file.is_none() && !files::exists(&path)? {
        if mark.is_some() {
            return Err(wrong(SECRET_MISSING));
        }
        is_new = files::create_once(&path, files::new_secret)?;
    }
    let secret = files::read_secret(&path)?;
    let seal = sealing(&secret, MARK)?;
    let mark = match mark {
        Some(mark) => mark,
        None => store_mark(store, &seal, now).await?,
    };
    if seal.open(MARK, &mark.sealed.0).is_some() {
        return Ok(secret);
    }
    if is_new {
        // Another process that started at the same time was first. A file with a wrong secret must
        // not stay, because the right one belongs in its path.
        let removed = fs::remove_file(&path);
        removed.map_err(|source| KeyError::File {
            path: path.clone(),
            source,
        })?;
        return Err(wrong(SECRET_MISSING));
    }
    Err(wrong(WRONG_SECRET))
}

/// A key for one purpose (RFC 5869).
pub(super) fn derive(secret: &Secret, purpose: &str) -> Option<[u8; 32]> {
    let salt = hkdf::Salt::new(hkdf::HKDF_SHA256, b"svc-platform");
    let mut key = [0; 32];
    salt.extract(secret.expose())
        .expand(&[purpose.as_bytes()], hkdf::HKDF_SHA256)
        .and_then(|okm| okm.fill(&mut key))
        .ok()?;
    Some(key)
}

/// Name of the check value: an empty text that is encrypted. Only the right secret can decrypt it.
const MARK: &str = "platform-secret-mark";

async fn read_mark(store: &Store) -> Result<Option<PlatformSecret>, KeyError> {
    let mut read = store.read().await?;
    Ok(stored::by_name(&mut read, MARK).await?)
}

/// Stores the check value of this secret, or returns the one that another process stored meanwhile.
async fn store_mark(
    store: &Store,
    seal: &Seal,
    now: Timestamp,
) -> Result<PlatformSecret, KeyError> {
    let sealed = seal.seal(MARK, b"").map_err(|_| KeyError::Cryptography)?;
    let new = PlatformSecret {
        name: MARK.to_owned(),
        sealed: SealedBytes(sealed),
        created_at: now,
    };
    let mut tx = store.begin().await?;
    stored::insert(&mut tx, &new).await?;
    tx.commit().await?;
    read_mark(store).await?.ok_or(KeyError::Cryptography)
}

const SECRET_MISSING: &str = "the file does not exist, but the database was encrypted with the secret of \
    another process: copy the file from there, or set platform.secret_file";
const WRONG_SECRET: &str = "this is not the secret that encrypted the database: copy the file from the \
    other process, or from a backup";
