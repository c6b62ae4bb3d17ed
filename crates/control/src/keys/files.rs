//! Keys and secrets in files, and the generation of new ones.

use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::{fs, str};

use aws_lc_rs::encoding::{AsDer as _, Pkcs8V1Der};
use aws_lc_rs::rand;
use aws_lc_rs::signature::Ed25519KeyPair;
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
use credentials::{BadKey, Secret, SigningKey};
use daemon::files::read_bounded;

use super::KeyError;
use crate::config::Config;

/// The private keys that the configuration names, in its order.
pub(super) fn signing_keys(config: &Config) -> Result<Vec<Arc<SigningKey>>, KeyError> {
    let read = |path: &PathBuf| signing_key(path).map(Arc::new);
    config.signing_keys.iter().map(read).collect()
}

/// The signing key of versions that did not store keys in the database, in PEM.
pub(super) fn former_signing_key(config: &Config) -> Result<Option<String>, KeyError> {
    let path = config.data_dir.join("signing-key.pem");
    if !exists(&path)? {
        return Ok(None);
    }
    signing_key(&path)?;
    text(&path).map(Some)
}

/// The relay secret of versions that did not store it in the database.
pub(super) fn former_turn_secret(config: &Config) -> Result<Option<Secret>, KeyError> {
    let path = config.data_dir.join("turn.secret");
    exists(&path)?.then(|| read_secret(&path)).transpose()
}

/// Larger files are not keys.
const MAX_FILE_BYTES: u64 = 64 * 1024;
/// The key length that HMAC-SHA256 can use fully.
const MIN_SECRET_BYTES: usize = 32;

fn signing_key(path: &Path) -> Result<SigningKey, KeyError> {
    let pem = text(path)?;
    SigningKey::from_pem(&pem).map_err(|error: BadKey| bad(path, error.to_string()))?;
    with_id(&pem).ok_or_else(|| bad(path, "expected an Ed25519 key"))
}

/// A private key in PEM, with the id that is derived from it. `None` if it is not an Ed25519 key.
/// The public halves are published with `EdDSA` only, so verifiers need to support one algorithm.
pub(super) fn with_id(pem: &str) -> Option<SigningKey> {
    let key = SigningKey::from_pem(pem).ok()?;
    let id = key.thumbprint()?;
    Some(key.with_kid(id))
}

fn text(path: &Path) -> Result<String, KeyError> {
    String::from_utf8(read(path)?).map_err(|_| bad(path, "not PEM"))
}

/// True if the path exists.
pub(super) fn exists(path: &Path) -> Result<bool, KeyError> {
    path.try_exists().map_err(|source| KeyError::File {
        path: path.to_owned(),
        source,
    })
}

/// The secret that the engines of a cluster send as a bearer token.
pub(crate) fn cluster_secret(path: &Path) -> Result<String, KeyError> {
    let secret = read_secret(path)?;
    let text = str::from_utf8(secret.expose()).ok();
    let text = text.filter(|text| text.bytes().all(|byte| byte.is_ascii_graphic()));
    let text =
        text.ok_or_else(|| bad(path, "a secret must contain only visible ASCII characters"))?;
    Ok(text.to_owned())
}

pub(super) fn read_secret(path: &Path) -> Result<Secret, KeyError> {
    let bytes = read(path)?;
    let secret = bytes.trim_ascii();
    if secret.len() < MIN_SECRET_BYTES {
        let message = format!("a secret must have at least {MIN_SECRET_BYTES} bytes");
        return Err(bad(path, message));
    }
    Ok(Secret::new(secret))
}

fn read(path: &Path) -> Result<Vec<u8>, KeyError> {
    read_bounded(path, MAX_FILE_BYTES).map_err(|source| KeyError::File {
        path: path.to_owned(),
        source,
    })
}

/// Creates a file that only the platform's user can read, unless it exists. True if this call
/// created it. The file appears complete or not at all. If two processes create it at the same
/// time, one of them wins and both read the same file.
pub(super) fn create_once(
    path: &Path,
    content: impl Fn() -> Option<String>,
) -> Result<bool, KeyError> {
    let failed = |source| KeyError::File {
        path: path.to_owned(),
        source,
    };
    if exists(path)? {
        return Ok(false);
    }
    if let Some(directory) = path.parent() {
        fs::create_dir_all(directory).map_err(failed)?;
    }
    let content = content().ok_or_else(|| bad(path, "the system has no randomness"))?;
    let draft = path.with_extension(format!("{}.new", std::process::id()));
    // A leftover file of an earlier process with the same id is not in use. Creating a new file
    // ensures its mode, and that it is not a link.
    if let Err(error) = fs::remove_file(&draft)
        && error.kind() != io::ErrorKind::NotFound
    {
        return Err(failed(error));
    }
    let write = || {
        let mut file = fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&draft)?;
        file.write_all(content.as_bytes())?;
        file.sync_all()?;
        match fs::hard_link(&draft, path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
            other => other.map(|()| true),
        }
    };
    let written = write();
    let removed = fs::remove_file(&draft);
    let made = written.map_err(failed)?;
    removed.map_err(failed)?;
    Ok(made)
}

pub(super) fn new_signing_key() -> Option<String> {
    let pair = Ed25519KeyPair::generate().ok()?;
    let der: Pkcs8V1Der<'_> = pair.as_der().ok()?;
    let text = STANDARD.encode(der.as_ref());
    let lines: Vec<_> = text
        .as_bytes()
        .chunks(64)
        .filter_map(|line| str::from_utf8(line).ok())
        .collect();
    let lines = lines.join("\n");
    Some(format!(
        "-----BEGIN PRIVATE KEY-----\n{lines}\n-----END PRIVATE KEY-----\n"
    ))
}

pub(super) fn new_secret() -> Option<String> {
    let mut bytes = [0; 32];
    rand::fill(&mut bytes).ok()?;
    Some(format!("{}\n", STANDARD_NO_PAD.encode(bytes)))
}

fn bad(path: &Path, message: impl Into<String>) -> KeyError {
    KeyError::Content {
        path: path.to_owned(),
        message: message.into(),
    }
}
