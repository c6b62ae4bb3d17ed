//! End-to-end encryption between our own ends. An engine or any other intermediary sees that there
//! is a session, its command and its sizes, and cannot read or change input and output.
//!
//! Both ends have each other's public key (X25519) beforehand: the client has the server among its
//! known servers, and the server has the client among its authorized clients. There is no trust on
//! first use. Three messages establish the keys of a session:
//!
//! 1. [`SealHello`](crate::message::SealHello): the client seals a secret to the server's key
//!    (HPKE, RFC 9180, base mode), with its own public key and a key that it generated for this
//!    session.
//! 2. [`SealAnswer`](crate::message::SealAnswer): if the client is authorized, the server seals a
//!    secret to each of these two keys. The keys of the session are derived from all three secrets
//!    and all previous messages. A code proves that the server has them, so it is the right server.
//! 3. [`SealConfirm`](crate::message::SealConfirm): a code over the command to start, or over the
//!    session to resume, proves that the client has the keys. So it is the right client, and the
//!    request is its own. Nothing is started or looked up before.
//!
//! An attacker that replays the first message cannot make the third. An attacker that later obtains
//! both long-lived keys lacks the key that was generated for the session. The published end-to-end
//! encryption is another protocol with other domain strings, so keys of one are useless in the
//! other.
//!
//! Afterwards each message is sealed with AES-256-GCM, with a key for each direction. Its number is
//! the nonce and is also in the authenticated data, with direction and stream. The end of a stream,
//! the exit code, and the data for resuming are sealed as well. A message that is missing,
//! repeated, out of order or changed ends the session: after the first failure no further message
//! is opened.

mod channel;
mod handshake;
#[cfg(test)]
mod tests;

use std::fmt;

use aws_lc_rs::digest::{Context, SHA256};
use rustls::crypto::aws_lc_rs::hpke::DH_KEM_X25519_HKDF_SHA256_AES_256 as SUITE;
use rustls::crypto::hpke::{Hpke as _, HpkePrivateKey, HpkePublicKey};

pub use channel::{Channel, Content, MAX_CLEAR, Mark, Opener, Sealer};
pub use handshake::{ClientHandshake, ClientReady, ServerHandshake};

/// The version of this protocol.
pub const VERSION: u32 = 2;

/// Length of a secret that an end generates for a handshake, in bytes.
pub const SECRET_LEN: usize = 32;

/// Length of a public key and of a private key, in bytes.
pub const KEY_LEN: usize = 32;

/// The public key of an end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PublicKey([u8; KEY_LEN]);

impl PublicKey {
    /// A key of 32 bytes.
    pub fn new(bytes: [u8; KEY_LEN]) -> Self {
        Self(bytes)
    }

    /// The bytes of the key.
    pub fn as_bytes(&self) -> &[u8; KEY_LEN] {
        &self.0
    }

    /// Id of the key, in 16 bytes.
    pub fn id(&self) -> [u8; 16] {
        let digest = digest(b"svc-webtty-seal-key-id-v1", &[&self.0]);
        digest.first_chunk().copied().unwrap_or([0; 16])
    }

    fn to_hpke(self) -> HpkePublicKey {
        HpkePublicKey(self.0.to_vec())
    }
}

/// The key pair of an end. `Debug` does not print it.
pub struct Identity {
    public: PublicKey,
    private: HpkePrivateKey,
}

impl Identity {
    /// Generates a new pair with the cryptographic library.
    ///
    /// # Errors
    /// [`SealError::Crypto`].
    pub fn generate() -> Result<Self, SealError> {
        let (public, private) = SUITE.generate_key_pair().map_err(|_| SealError::Crypto)?;
        let public = public.0.try_into().map_err(|_| SealError::Crypto)?;
        Ok(Self {
            public: PublicKey(public),
            private,
        })
    }

    /// Restores a stored pair.
    ///
    /// # Errors
    /// [`SealError::Crypto`] if the two keys do not match.
    pub fn from_parts(private: &[u8; KEY_LEN], public: PublicKey) -> Result<Self, SealError> {
        let identity = Self {
            public,
            private: HpkePrivateKey::from(private.to_vec()),
        };
        let (encapsulated, sealed) = seal_to(&public, b"check", &[], b"check")?;
        identity.open(&encapsulated, b"check", &[], &sealed)?;
        Ok(identity)
    }

    /// The public key.
    pub fn public(&self) -> PublicKey {
        self.public
    }

    /// The private key, which must be stored where only its owner can read it.
    pub fn expose_private(&self) -> &[u8] {
        self.private.secret_bytes()
    }

    fn open(
        &self,
        encapsulated: &[u8],
        info: &[u8],
        aad: &[u8],
        sealed: &[u8],
    ) -> Result<Vec<u8>, SealError> {
        let encapsulated = rustls::crypto::hpke::EncapsulatedSecret(encapsulated.to_vec());
        SUITE
            .open(&encapsulated, info, aad, sealed, &self.private)
            .map_err(|_| SealError::WrongRecipient)
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Identity({:?})", self.public)
    }
}

/// Reasons for which a sealed session cannot start or continue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SealError {
    /// The peer uses another version than [`VERSION`].
    #[error("unsupported version of the encryption")]
    Version,
    /// The message was sealed to another key, or changed on the way.
    #[error("sealed for another key, or modified in transit")]
    WrongRecipient,
    /// The client is not among the authorized ones.
    #[error("the client is not authorized")]
    Unauthorized,
    /// The peer does not have the keys of the session, or the command was changed.
    #[error("the other end could not prove its identity")]
    Unconfirmed,
    /// A message is missing, repeated or out of order.
    #[error("received message {found:?} in place of {expected}")]
    Order {
        /// The expected number.
        expected: u64,
        /// The received number.
        found: Option<u64>,
    },
    /// A message was changed on the way.
    #[error("a message was modified in transit")]
    Changed,
    /// The session failed before, so nothing more is opened.
    #[error("the session is broken")]
    Failed,
    /// The library failed.
    #[error("the encryption failed")]
    Crypto,
}

fn seal_to(
    key: &PublicKey,
    info: &[u8],
    aad: &[u8],
    clear: &[u8],
) -> Result<(Vec<u8>, Vec<u8>), SealError> {
    let sealed = SUITE.seal(info, aad, clear, &key.to_hpke());
    let (encapsulated, sealed) = sealed.map_err(|_| SealError::Crypto)?;
    Ok((encapsulated.0, sealed))
}

/// SHA-256 over parts, each prefixed with its length.
pub(crate) fn digest(domain: &[u8], parts: &[&[u8]]) -> [u8; 32] {
    let mut context = Context::new(&SHA256);
    for part in std::iter::once(&domain).chain(parts) {
        let len = u64::try_from(part.len()).unwrap_or(u64::MAX);
        context.update(&len.to_be_bytes());
        context.update(part);
    }
    // SHA-256 has 32 bytes.
    context.finish().as_ref().try_into().unwrap_or([0; 32])
}
