//! End-to-end encryption between our own ends: an engine, or whoever else is between, sees that
//! there is a session, its command and its sizes, and cannot read or change what is typed and shown.
//!
//! Both ends know each other's public key (X25519) before: the client has the server among its known
//! servers, the server has the client among its authorized clients. There is no trust on first use.
//! Three messages make the keys of a session:
//!
//! 1. [`SealHello`](crate::message::SealHello): the client seals a secret to the server's key (HPKE, RFC 9180, base mode), with
//!    its own public key and one that it made for this session.
//! 2. [`SealAnswer`](crate::message::SealAnswer): the server, if it knows the client, seals a secret to each of these two keys.
//!    The keys of the session come from all three secrets and everything said so far. A code shows
//!    that the server has them, so it is the server.
//! 3. [`SealConfirm`](crate::message::SealConfirm): a code over the command that is to be opened, or over the session that is come
//!    back to, shows that the client has them, so it is the client, and that it is what it wants.
//!    Only now is anything started, or looked for.
//!
//! Whoever replays the first message cannot make the third; whoever gets hold of both long-lived
//! keys later lacks the one that was made for the session. The published end-to-end encryption is
//! another protocol, with other domain strings; keys of one say nothing in the other.
//!
//! Then each message is AES-256-GCM, with a key for each direction and its number as the nonce and in
//! the authenticated data, beside direction and stream. The end of a stream, the exit code, and what
//! a client comes back with and to, are sealed, too. A message that is missing, twice, out of order or changed ends the session: after the
//! first failure nothing more is opened.

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

/// The version of all this.
pub const VERSION: u32 = 2;

/// Length of a secret that an end draws for a handshake, in bytes.
pub const SECRET_LEN: usize = 32;

/// Length of a public key, and of a private one, in bytes.
pub const KEY_LEN: usize = 32;

/// The public key of an end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PublicKey([u8; KEY_LEN]);

impl PublicKey {
    /// A key of 32 bytes.
    pub fn new(bytes: [u8; KEY_LEN]) -> Self {
        Self(bytes)
    }

    /// Its bytes.
    pub fn as_bytes(&self) -> &[u8; KEY_LEN] {
        &self.0
    }

    /// Names the key, in 16 bytes.
    pub fn id(&self) -> [u8; 16] {
        let digest = digest(b"svc-webtty-seal-key-id-v1", &[&self.0]);
        digest.first_chunk().copied().unwrap_or([0; 16])
    }

    fn to_hpke(self) -> HpkePublicKey {
        HpkePublicKey(self.0.to_vec())
    }
}

/// The key pair of an end. It does not print.
pub struct Identity {
    public: PublicKey,
    private: HpkePrivateKey,
}

impl Identity {
    /// A new pair, drawn by the library.
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

    /// A pair that was kept.
    ///
    /// # Errors
    /// [`SealError::Crypto`] when the two do not belong together.
    pub fn from_parts(private: &[u8; KEY_LEN], public: PublicKey) -> Result<Self, SealError> {
        let identity = Self {
            public,
            private: HpkePrivateKey::from(private.to_vec()),
        };
        let (encapsulated, sealed) = seal_to(&public, b"check", &[], b"check")?;
        identity.open(&encapsulated, b"check", &[], &sealed)?;
        Ok(identity)
    }

    /// Its public half.
    pub fn public(&self) -> PublicKey {
        self.public
    }

    /// Its private half, to be kept where nobody else reads.
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
            .map_err(|_| SealError::NotForUs)
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Identity({:?})", self.public)
    }
}

/// Why two ends have no sealed session, or no longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SealError {
    /// Another version than [`VERSION`].
    #[error("another version of the encryption")]
    Version,
    /// It was sealed to another key, or changed on the way.
    #[error("sealed for another key, or changed on the way")]
    NotForUs,
    /// The client is not among the authorized ones.
    #[error("the client is not authorized")]
    Unauthorized,
    /// The other end does not have the keys of the session, or the command was changed.
    #[error("the other end could not prove who it is")]
    Unconfirmed,
    /// A message is missing, twice or out of order.
    #[error("message {found:?} in the place of {expected}")]
    Order {
        /// The number that was to come.
        expected: u64,
        /// The number that came.
        found: Option<u64>,
    },
    /// A message was changed on the way.
    #[error("a message was changed on the way")]
    Changed,
    /// It failed before, and nothing is opened since.
    #[error("the session is broken")]
    Failed,
    /// The library refused.
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

/// SHA-256 over parts, each with its length before it.
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
