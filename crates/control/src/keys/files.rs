//! Keys in files: named by the configuration, or made at the first start.

use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::{fs, str};

use aws_lc_rs::encoding::{AsDer as _, Pkcs8V1Der};
use aws_lc_rs::rand;
use aws_lc_rs::signature::Ed25519KeyPair;
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
use credentials::{BadKey, Keyring, Secret, SigningKey};
use daemon::files::read_bounded;

use super::{Keys, jwks};
use crate::config::Config;

/// A key that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// The file cannot be read or made.
    #[error("{}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// What is in the file is not what is wanted.
    #[error("{}: {message}", path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// What is wrong. It repeats nothing of the file.
        message: String,
    },
}

pub(super) fn load(config: &Config) -> Result<Keys, KeyError> {
    let made = config.data_dir.join("signing-key.pem");
    let files = if config.signing_keys.is_empty() {
        make_once(&made, new_signing_key)?;
        std::slice::from_ref(&made)
    } else {
        &config.signing_keys
    };
    let mut signing = None;
    let mut public = Vec::new();
    for path in files {
        let key = signing_key(path)?;
        public.push(key.public_jwk().ok_or_else(|| not_ed25519(path))?);
        signing.get_or_insert(key);
    }
    let document = jwks::document(&public);
    let keyring = Keyring::new()
        .with_compat(config.compat_rstream)
        .with_jwks(&document)
        .map_err(|error| bad(&made, error.to_string()))?;
    let secret = config.data_dir.join("platform.secret");
    make_once(&secret, new_secret)?;
    let turn = if let Some(path) = &config.turn.secret_file {
        path.clone()
    } else {
        let path = config.data_dir.join("turn.secret");
        make_once(&path, new_secret)?;
        path
    };
    Ok(Keys {
        signing: signing.ok_or_else(|| not_ed25519(&made))?,
        keyring,
        jwks: document.into(),
        secret: read_secret(&secret)?,
        turn: read_secret(&turn)?,
    })
}

/// Larger files are no keys.
const MAX_FILE_BYTES: u64 = 64 * 1024;
/// What HMAC-SHA256 makes use of.
const MIN_SECRET_BYTES: usize = 32;

/// The public halves are published with `EdDSA` alone, so that one algorithm is enough for whoever
/// verifies.
fn signing_key(path: &Path) -> Result<SigningKey, KeyError> {
    let bytes = read(path)?;
    let pem = str::from_utf8(&bytes).map_err(|_| bad(path, "not PEM"))?;
    let key = SigningKey::from_pem(pem).map_err(|error: BadKey| bad(path, error.to_string()))?;
    let id = key.thumbprint().ok_or_else(|| not_ed25519(path))?;
    Ok(key.with_kid(id))
}

fn read_secret(path: &Path) -> Result<Secret, KeyError> {
    let bytes = read(path)?;
    let secret = bytes.trim_ascii();
    if secret.len() < MIN_SECRET_BYTES {
        let message = format!("a secret has at least {MIN_SECRET_BYTES} bytes");
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

/// Makes a file that only we can read, unless it is there. It appears complete or not at all, and
/// where two processes make it at once, one of them wins and both read the same.
fn make_once(path: &Path, content: impl Fn() -> Option<String>) -> Result<(), KeyError> {
    let failed = |source| KeyError::File {
        path: path.to_owned(),
        source,
    };
    if path.try_exists().map_err(failed)? {
        return Ok(());
    }
    if let Some(directory) = path.parent() {
        fs::create_dir_all(directory).map_err(failed)?;
    }
    let content = content().ok_or_else(|| bad(path, "the system has no randomness"))?;
    let draft = path.with_extension(format!("{}.new", std::process::id()));
    let write = || {
        let mut file = fs::OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&draft)?;
        file.write_all(content.as_bytes())?;
        file.sync_all()?;
        match fs::hard_link(&draft, path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            other => other,
        }
    };
    let written = write();
    let removed = fs::remove_file(&draft);
    written.and(removed).map_err(failed)
}

fn new_signing_key() -> Option<String> {
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

fn new_secret() -> Option<String> {
    let mut bytes = [0; 32];
    rand::fill(&mut bytes).ok()?;
    Some(format!("{}\n", STANDARD_NO_PAD.encode(bytes)))
}

fn not_ed25519(path: &Path) -> KeyError {
    bad(path, "an Ed25519 key is wanted")
}

fn bad(path: &Path, message: impl Into<String>) -> KeyError {
    KeyError::Content {
        path: path.to_owned(),
        message: message.into(),
    }
}
