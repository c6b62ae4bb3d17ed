//! Identity of an endpoint: its encryption key, its signing key, and the file with both.
//!
//! A registered server proves with its signing key that it is the enrolled one
//! ([`crate::admission`]). Clients that seal messages to it ([`crate::seal`]) identify it by its
//! encryption key. All texts are canonical base64url without padding.

use std::fmt;

use aws_lc_rs::encoding::{AsDer as _, PublicKeyX509Der};
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_ASN1, ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair as _,
    ParsedPublicKey,
};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use zeroize::{Zeroize as _, Zeroizing};

use crate::seal::{Identity, KEY_LEN, PublicKey, digest};

/// Name of the two keys' algorithms in registered servers.
pub const KEY_ALGORITHM: &str = "webtty-x25519-hpke-v1";

/// Maximum size of an identity file, in bytes: seven short texts.
pub const MAX_FILE: usize = 8 * 1024;

/// The suite of an identity file: X25519 and ECDSA on P-256.
const SUITE: &str = "svc-webtty-x25519-p256-v1";

const FILE_VERSION: u32 = 1;

/// DER prefix of all public keys on P-256 (RFC 5480): the algorithm, the curve, and the marker of
/// an uncompressed point.
const SPKI_PREFIX: [u8; 27] = [
    0x30, 0x59, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a,
    0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07, 0x03, 0x42, 0x00, 0x04,
];

/// Length of a public key on P-256 as DER, in bytes.
const SPKI_LEN: usize = SPKI_PREFIX.len() + 64;

/// The keys of an endpoint.
#[derive(Debug)]
pub struct EndpointIdentity {
    /// Key to which messages are sealed.
    pub encryption: Identity,
    /// Key that signs.
    pub signing: SigningKey,
}

impl EndpointIdentity {
    /// Generates new keys with the cryptographic library.
    ///
    /// # Errors
    /// [`InvalidKeyError`] only if the library fails.
    pub fn generate() -> Result<Self, InvalidKeyError> {
        Ok(Self {
            encryption: Identity::generate().map_err(|_| InvalidKeyError)?,
            signing: SigningKey::generate()?,
        })
    }

    /// The public keys.
    pub fn public(&self) -> PublicIdentity {
        PublicIdentity {
            encryption: self.encryption.public(),
            signing: self.signing.public().clone(),
        }
    }

    /// The text of an identity file, as JSON. It contains the private keys, so only its owner may
    /// read the file (mode 0600).
    pub fn to_file(&self, created_at: Timestamp) -> Zeroizing<String> {
        let encode = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
        let public = self.encryption.public();
        let file = File {
            version: FILE_VERSION,
            crypto_suite: SUITE.to_owned(),
            encryption_key_id: encode(&public.id()),
            encryption_public_key: encode(public.as_bytes()),
            encryption_private_key: encode(self.encryption.expose_private()),
            signing_key_id: self.signing.public().id(),
            signing_public_key: self.signing.public().to_text(),
            signing_private_key: encode(&self.signing.pkcs8),
            created_at,
        };
        // Serialising a struct of texts never fails.
        Zeroizing::new(serde_json::to_string_pretty(&file).unwrap_or_default())
    }

    /// Parses an identity file.
    ///
    /// # Errors
    /// [`IdentityFileError`], which contains nothing of the file.
    pub fn from_file(text: &str) -> Result<Self, IdentityFileError> {
        if text.len() > MAX_FILE {
            return Err(IdentityFileError::Shape);
        }
        let file: File = serde_json::from_str(text).map_err(|_| IdentityFileError::Shape)?;
        if file.version != FILE_VERSION || file.crypto_suite != SUITE {
            return Err(IdentityFileError::Suite);
        }
        let private = decode::<KEY_LEN>(&file.encryption_private_key).map(Zeroizing::new)?;
        let public = PublicKey::new(decode(&file.encryption_public_key)?);
        let encryption = Identity::from_parts(&private, public).map_err(|_| InvalidKeyError)?;
        let pkcs8 = URL_SAFE_NO_PAD
            .decode(file.signing_private_key.as_bytes())
            .map_err(|_| InvalidKeyError)?;
        let signing = SigningKey::from_pkcs8(pkcs8)?;
        let named = *signing.public() == SigningPublicKey::parse(&file.signing_public_key)?
            && signing.public().id() == file.signing_key_id
            && URL_SAFE_NO_PAD.encode(public.id()) == file.encryption_key_id;
        if !named {
            return Err(IdentityFileError::Keys);
        }
        Ok(Self {
            encryption,
            signing,
        })
    }
}

/// The public keys of an endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublicIdentity {
    /// Key to which messages are sealed.
    pub encryption: PublicKey,
    /// Key that verifies signatures.
    pub signing: SigningPublicKey,
}

impl PublicIdentity {
    /// Fingerprint for people to compare: `sha256:` and base64url of a hash over both keys.
    pub fn fingerprint(&self) -> String {
        let hash = digest(
            b"svc-webtty-endpoint-fingerprint-v1",
            &[self.encryption.as_bytes(), &self.signing.0],
        );
        format!("sha256:{}", URL_SAFE_NO_PAD.encode(hash))
    }

    /// Id of the encryption key.
    pub fn encryption_key_id(&self) -> String {
        URL_SAFE_NO_PAD.encode(self.encryption.id())
    }

    /// The encryption key.
    pub fn encryption_text(&self) -> String {
        URL_SAFE_NO_PAD.encode(self.encryption.as_bytes())
    }
}

impl fmt::Display for PublicIdentity {
    /// All keys in one text, for other programs: encryption key id, encryption key, signing key id
    /// and signing key, separated by colons.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (id, key) = (self.encryption_key_id(), self.encryption_text());
        write!(
            f,
            "{id}:{key}:{}:{}",
            self.signing.id(),
            self.signing.to_text()
        )
    }
}

impl std::str::FromStr for PublicIdentity {
    type Err = InvalidKeyError;

    fn from_str(text: &str) -> Result<Self, InvalidKeyError> {
        let parts: Vec<&str> = text.split(':').collect();
        let [id, encryption, signing_id, signing] = *parts else {
            return Err(InvalidKeyError);
        };
        let identity = Self {
            encryption: encryption_key(encryption)?,
            signing: SigningPublicKey::parse(signing)?,
        };
        let named = identity.encryption_key_id() == id && identity.signing.id() == signing_id;
        named.then_some(identity).ok_or(InvalidKeyError)
    }
}

/// Parses an encryption key.
///
/// # Errors
/// [`InvalidKeyError`].
pub fn encryption_key(text: &str) -> Result<PublicKey, InvalidKeyError> {
    decode(text).map(PublicKey::new)
}

/// The key pair that signs. `Debug` does not print it.
pub struct SigningKey {
    pair: EcdsaKeyPair,
    pkcs8: Zeroizing<Vec<u8>>,
    public: SigningPublicKey,
}

impl SigningKey {
    /// Generates a new pair with the cryptographic library.
    ///
    /// # Errors
    /// [`InvalidKeyError`] only if the library fails.
    pub fn generate() -> Result<Self, InvalidKeyError> {
        let document =
            EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, &SystemRandom::new())
                .map_err(|_| InvalidKeyError)?;
        Self::from_pkcs8(document.as_ref().to_vec())
    }

    fn from_pkcs8(pkcs8: Vec<u8>) -> Result<Self, InvalidKeyError> {
        let pkcs8 = Zeroizing::new(pkcs8);
        let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, &pkcs8)
            .map_err(|_| InvalidKeyError)?;
        let der: PublicKeyX509Der<'_> = pair.public_key().as_der().map_err(|_| InvalidKeyError)?;
        let public = SigningPublicKey::from_der(der.as_ref())?;
        Ok(Self {
            pair,
            pkcs8,
            public,
        })
    }

    /// The public key.
    pub fn public(&self) -> &SigningPublicKey {
        &self.public
    }

    /// Signs: ECDSA with SHA-256, ASN.1.
    ///
    /// # Errors
    /// [`InvalidKeyError`] only if the library fails.
    pub(crate) fn sign(&self, message: &[u8]) -> Result<Vec<u8>, InvalidKeyError> {
        let signed = self.pair.sign(&SystemRandom::new(), message);
        Ok(signed.map_err(|_| InvalidKeyError)?.as_ref().to_vec())
    }
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SigningKey({})", self.public.id())
    }
}

/// The public half of a signing key: a point on P-256, as DER (`SubjectPublicKeyInfo`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SigningPublicKey([u8; SPKI_LEN]);

impl SigningPublicKey {
    /// Parses base64url.
    ///
    /// # Errors
    /// [`InvalidKeyError`].
    pub fn parse(text: &str) -> Result<Self, InvalidKeyError> {
        Self::from_der(&decode::<SPKI_LEN>(text)?)
    }

    /// Parses DER. Only an uncompressed point is accepted, so that a key has one encoding and one
    /// id.
    ///
    /// # Errors
    /// [`InvalidKeyError`].
    pub fn from_der(der: &[u8]) -> Result<Self, InvalidKeyError> {
        let der: [u8; SPKI_LEN] = der.try_into().map_err(|_| InvalidKeyError)?;
        if !der.starts_with(&SPKI_PREFIX) {
            return Err(InvalidKeyError);
        }
        // Checks that the point is on the curve.
        ParsedPublicKey::new(&ECDSA_P256_SHA256_ASN1, der).map_err(|_| InvalidKeyError)?;
        Ok(Self(der))
    }

    /// Id of the key: 32 bytes, as base64url.
    pub fn id(&self) -> String {
        URL_SAFE_NO_PAD.encode(digest(b"svc-webtty-signing-key-id-v1", &[&self.0]))
    }

    /// As base64url.
    pub fn to_text(&self) -> String {
        URL_SAFE_NO_PAD.encode(self.0)
    }

    /// True if the key made this signature.
    pub(crate) fn verifies(&self, message: &[u8], signature: &[u8]) -> bool {
        ParsedPublicKey::new(&ECDSA_P256_SHA256_ASN1, self.0)
            .is_ok_and(|key| key.verify_sig(message, signature).is_ok())
    }
}

/// The data is not a key, or not the stated one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a terminal key")]
pub struct InvalidKeyError;

/// Reasons for which an identity file is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IdentityFileError {
    /// The file is not JSON of an identity file.
    #[error("not an identity file")]
    Shape,
    /// The file has another version, or is for other algorithms.
    #[error("an identity file of another version")]
    Suite,
    /// The keys do not match their ids or public keys.
    #[error("the keys of the identity file do not match")]
    Keys,
}

impl From<InvalidKeyError> for IdentityFileError {
    fn from(_: InvalidKeyError) -> Self {
        Self::Keys
    }
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    version: u32,
    crypto_suite: String,
    encryption_key_id: String,
    encryption_public_key: String,
    encryption_private_key: String,
    signing_key_id: String,
    signing_public_key: String,
    signing_private_key: String,
    created_at: Timestamp,
}

impl Drop for File {
    fn drop(&mut self) {
        self.encryption_private_key.zeroize();
        self.signing_private_key.zeroize();
    }
}

fn decode<const N: usize>(text: &str) -> Result<[u8; N], InvalidKeyError> {
    let mut bytes = [0; N];
    let read = URL_SAFE_NO_PAD.decode_slice(text, &mut bytes);
    // The library rejects data that is not canonical or has another length.
    (read == Ok(N)).then_some(bytes).ok_or(InvalidKeyError)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_holds_an_identity() {
        let identity = EndpointIdentity::generate().unwrap();
        let file = identity.to_file(Timestamp::UNIX_EPOCH);
        let read = EndpointIdentity::from_file(&file).unwrap();
        assert_eq!(read.public(), identity.public());
        assert!(read.public().fingerprint().starts_with("sha256:"));
        assert!(!format!("{identity:?}").contains("private"));

        let other = EndpointIdentity::generate().unwrap();
        let changed = file.replace(
            &identity.signing.public().id(),
            &other.signing.public().id(),
        );
        assert_eq!(
            EndpointIdentity::from_file(&changed).err(),
            Some(IdentityFileError::Keys)
        );
        let changed = file.replace("\"version\": 1", "\"version\": 2");
        assert_eq!(
            EndpointIdentity::from_file(&changed).err(),
            Some(IdentityFileError::Suite)
        );
        let changed = file.replace("\"version\": 1", "\"version\": 1, \"more\": 1");
        assert_eq!(
            EndpointIdentity::from_file(&changed).err(),
            Some(IdentityFileError::Shape)
        );
    }

    #[test]
    fn the_text_of_an_endpoint_names_its_keys() {
        let identity = EndpointIdentity::generate().unwrap().public();
        assert_eq!(identity.to_string().parse(), Ok(identity.clone()));
        let other = EndpointIdentity::generate().unwrap().public();
        let mixed = identity
            .to_string()
            .replace(&identity.encryption_text(), &other.encryption_text());
        assert_eq!(mixed.parse::<PublicIdentity>(), Err(InvalidKeyError));
        assert_eq!("a:b".parse::<PublicIdentity>(), Err(InvalidKeyError));
    }

    #[test]
    fn a_signing_key_is_a_point_on_the_curve() {
        let key = SigningKey::generate().unwrap();
        let mut der = URL_SAFE_NO_PAD.decode(key.public().to_text()).unwrap();
        assert!(SigningPublicKey::from_der(&der).is_ok());
        *der.last_mut().unwrap() ^= 1;
        assert_eq!(SigningPublicKey::from_der(&der), Err(InvalidKeyError));
        assert_eq!(SigningPublicKey::parse("AA"), Err(InvalidKeyError));
    }
}
