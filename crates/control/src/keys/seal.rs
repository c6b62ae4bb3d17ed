//! Encryption of secrets that must be readable, such as private keys and second factors. The
//! encryption key is not in the database, and each ciphertext is bound to its owner.
//!
//! AES-256-GCM with a random nonce of 96 bits: nonce, then ciphertext and tag. One key encrypts far
//! fewer than the 2^32 values at which random nonces become a risk (NIST SP 800-38D section 8.3).

use std::fmt;

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use types::problem::Problem;
use zeroize::Zeroizing;

use crate::http_api::problem::HandlerResult;
use crate::runtime::random;

/// Encrypts and decrypts the secrets of one purpose.
pub(crate) struct Seal(LessSafeKey);

impl fmt::Debug for Seal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Seal")
    }
}

impl Seal {
    /// Creates the encryption with a key that is only used for this purpose.
    pub(crate) fn new(key: &[u8; 32]) -> HandlerResult<Self> {
        UnboundKey::new(&AES_256_GCM, key)
            .map(|key| Self(LessSafeKey::new(key)))
            .map_err(|_| Problem::internal().into())
    }

    /// Encrypts a secret for the row of `owner`.
    pub(crate) fn seal(&self, owner: &str, secret: &[u8]) -> HandlerResult<Vec<u8>> {
        let nonce = random::bytes::<NONCE_LEN>()?;
        let mut sealed = nonce.to_vec();
        let mut text = secret.to_vec();
        self.0
            .seal_in_place_append_tag(
                Nonce::assume_unique_for_key(nonce),
                Aad::from(owner.as_bytes()),
                &mut text,
            )
            .map_err(|_| Problem::internal())?;
        sealed.append(&mut text);
        Ok(sealed)
    }

    /// Decrypts a secret. `None` if it was modified, or belongs to another row or to another key.
    pub(crate) fn open(&self, owner: &str, sealed: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
        let (nonce, text) = sealed.split_first_chunk::<NONCE_LEN>()?;
        let mut text = Zeroizing::new(text.to_vec());
        let aad = Aad::from(owner.as_bytes());
        let nonce = Nonce::assume_unique_for_key(*nonce);
        let length = self.0.open_in_place(nonce, aad, &mut text).ok()?.len();
        text.truncate(length);
        Some(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sealed_secret_can_only_be_opened_for_its_owner_and_key() {
        let seal = Seal::new(&[7; 32]).unwrap();
        let sealed = seal.seal("usr_1", b"secret").unwrap();
        assert!(!sealed.windows(6).any(|window| window == b"secret"));
        assert_eq!(seal.open("usr_1", &sealed).unwrap().as_slice(), b"secret");
        assert_ne!(seal.seal("usr_1", b"secret").unwrap(), sealed);
        assert!(seal.open("usr_2", &sealed).is_none());
        assert!(
            Seal::new(&[8; 32])
                .unwrap()
                .open("usr_1", &sealed)
                .is_none()
        );
        for at in 0..sealed.len() {
            let mut changed = sealed.clone();
            changed[at] ^= 1;
            assert!(seal.open("usr_1", &changed).is_none(), "{at}");
        }
        assert!(seal.open("usr_1", &sealed[..11]).is_none());
        assert!(seal.open("usr_1", b"").is_none());
    }
}
