//! The keys that a configuration contains or names.

use std::path::Path;

use credentials::{Keyring, Secret};
use daemon::config::{ConfigError, ConfigErrors};
use daemon::files::read_bounded;

use super::JwtAuth;

/// A public key is a few hundred bytes.
const MAX_KEY_FILE_BYTES: u64 = 64 * 1024;

pub(super) fn keyring(auth: &JwtAuth, compat: bool) -> Result<Keyring, ConfigError> {
    let mut keyring = Keyring::new().with_compat(compat);
    for secret in &auth.secrets {
        keyring = keyring
            .with_secret(&Secret::new(secret.expose()))
            .map_err(|error| ConfigError::new("auth.jwt.token_jwt_secret", error.to_string()))?;
    }
    for (index, path) in auth.public_keys.iter().enumerate() {
        keyring = with_public_key(keyring, index, path)?;
    }
    Ok(keyring)
}

/// Reads each key, and adds the errors of all of them.
pub(super) fn inspect(auth: &JwtAuth, errors: &mut ConfigErrors) {
    let before = errors.iter().count();
    let without_files = JwtAuth {
        public_keys: Vec::new(),
        ..auth.clone()
    };
    errors.keep(keyring(&without_files, false));
    // An empty path is already an error.
    let named = auth.public_keys.iter().enumerate();
    for (index, path) in named.filter(|(_, path)| !path.as_os_str().is_empty()) {
        errors.keep(with_public_key(Keyring::new(), index, path));
    }
    let is_complete = auth
        .public_keys
        .iter()
        .all(|path| !path.as_os_str().is_empty());
    if is_complete && errors.iter().count() == before {
        // Keys that are only wrong together.
        errors.keep(keyring(auth, false));
    }
}

fn with_public_key(keyring: Keyring, index: usize, path: &Path) -> Result<Keyring, ConfigError> {
    let refused = |problem: &str| {
        let key = format!("auth.jwt.public_keys.{index}");
        ConfigError::new(key, format!("{} {problem}", path.display()))
    };
    let bytes = read_bounded(path, MAX_KEY_FILE_BYTES)
        .map_err(|error| refused(&format!("cannot be read: {error}")))?;
    let pem = String::from_utf8(bytes).map_err(|_| refused("is not PEM"))?;
    keyring
        .with_pem(&pem)
        .map_err(|error| refused(&format!("contains no usable public key: {error}")))
}
