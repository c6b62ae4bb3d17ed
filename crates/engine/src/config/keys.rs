//! The keys that a configuration contains or names.

use credentials::{Keyring, Secret};
use daemon::config::ConfigError;
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
        let refused = |problem: &str| {
            let key = format!("auth.jwt.public_keys.{index}");
            ConfigError::new(key, format!("{} {problem}", path.display()))
        };
        let bytes = read_bounded(path, MAX_KEY_FILE_BYTES)
            .map_err(|error| refused(&format!("cannot be read: {error}")))?;
        let pem = String::from_utf8(bytes).map_err(|_| refused("is not PEM"))?;
        keyring = keyring
            .with_pem(&pem)
            .map_err(|error| refused(&format!("contains no usable public key: {error}")))?;
    }
    Ok(keyring)
}
