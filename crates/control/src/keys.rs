//! Keys of the platform: those that sign tokens, and those that are derived for one purpose each.

mod files;
mod jwks;

use std::sync::Arc;

use api::control::contracts::JWKS;
use aws_lc_rs::hkdf;
use axum::Router;
use bytes::Bytes;
use credentials::{Keyring, Secret, SigningKey};
use types::problem::Problem;

pub use self::files::KeyError;
use crate::app::App;
use crate::config::Config;
use crate::oauth::for_any_origin;
use crate::problem::Answer;
use crate::route::Serve as _;

/// The keys of a running platform.
#[derive(Debug)]
pub struct Keys {
    signing: SigningKey,
    keyring: Keyring,
    jwks: Bytes,
    secret: Secret,
    turn: Secret,
}

impl Keys {
    /// Reads the keys that the configuration names, and makes those that it leaves to us.
    ///
    /// # Errors
    /// A file cannot be read or written, or holds no usable key.
    pub fn load(config: &Config) -> Result<Self, KeyError> {
        files::load(config)
    }

    /// The key that signs new tokens.
    pub fn signing(&self) -> &SigningKey {
        &self.signing
    }

    /// The keys that verify the platform's own tokens.
    pub fn keyring(&self) -> &Keyring {
        &self.keyring
    }

    /// The secret that TURN relays share.
    pub fn turn_secret(&self) -> &Secret {
        &self.turn
    }

    /// A key for one purpose (RFC 5869): the same on every process of the platform, and of no use
    /// for another purpose.
    pub fn derive(&self, purpose: &str) -> Answer<[u8; 32]> {
        let salt = hkdf::Salt::new(hkdf::HKDF_SHA256, b"svc-platform");
        let mut key = [0; 32];
        salt.extract(self.secret.expose())
            .expand(&[purpose.as_bytes()], hkdf::HKDF_SHA256)
            .and_then(|okm| okm.fill(&mut key))
            .map_err(|_| Problem::internal())?;
        Ok(key)
    }
}

/// The public keys, for engines and for whoever verifies tokens of the platform.
pub fn routes() -> Router<Arc<App>> {
    for_any_origin(Router::new().serve(JWKS, jwks::serve), &[JWKS.path])
}
