//! Encryption of stored recordings, in chunks. Their content and order are authenticated.
//!
//! A file is a header (8 bytes of magic, 16 random bytes) and chunks, each a 4-byte big-endian
//! length and that many bytes of AES-256-GCM output. HKDF-SHA256 derives the key of a file from the
//! platform's key, the header and the session's id. Two files therefore never share a key, and the
//! number of a chunk can be its nonce. The nonce also marks the last chunk, so that a truncated
//! file cannot look complete. (The construction is known as STREAM.)

use std::fmt;
use std::io::{self, Read};

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use aws_lc_rs::hkdf::{HKDF_SHA256, Salt};
use zeroize::Zeroizing;

/// Length of the random bytes in a file's header.
pub const SALT_LEN: usize = 16;

/// Maximum plaintext bytes of one chunk. A reader holds a whole chunk in memory.
pub const MAX_CHUNK: usize = 1024 * 1024;

/// Length of the header.
pub const HEADER_LEN: usize = MAGIC.len() + SALT_LEN;

/// The platform's key for recordings. `Debug` does not print it.
#[derive(Clone)]
pub struct VaultKey(Zeroizing<[u8; 32]>);

impl VaultKey {
    /// Wraps a key of 32 random bytes.
    pub fn new(bytes: [u8; 32]) -> Self {
        Self(Zeroizing::new(bytes))
    }
}

impl fmt::Debug for VaultKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("VaultKey(..)")
    }
}

/// Encrypts a file.
pub struct Sealer {
    key: LessSafeKey,
    header: [u8; HEADER_LEN],
    number: u32,
}

impl Sealer {
    /// Starts a new file for this session; `salt` must be new random bytes. Returns `None` only if
    /// the library rejects the key.
    pub fn new(key: &VaultKey, session_id: &str, salt: [u8; SALT_LEN]) -> Option<Self> {
        let header = header(salt);
        Some(Self {
            key: file_key(key, session_id, &header)?,
            header,
            number: 0,
        })
    }

    /// The header of the file.
    pub fn header(&self) -> &[u8; HEADER_LEN] {
        &self.header
    }

    /// Encrypts one chunk and prefixes its length. Another chunk must follow.
    ///
    /// # Errors
    /// See [`VaultError`].
    pub fn chunk(&mut self, clear: &[u8]) -> Result<Vec<u8>, VaultError> {
        self.seal(clear, false)
    }

    /// Encrypts the last chunk, which may be empty, and prefixes its length.
    ///
    /// # Errors
    /// See [`VaultError`].
    pub fn finish(mut self, clear: &[u8]) -> Result<Vec<u8>, VaultError> {
        self.seal(clear, true)
    }

    fn seal(&mut self, clear: &[u8], last: bool) -> Result<Vec<u8>, VaultError> {
        if clear.len() > MAX_CHUNK {
            return Err(VaultError::TooLarge);
        }
        let mut sealed = clear.to_vec();
        self.key
            .seal_in_place_append_tag(
                nonce(self.number, last),
                Aad::from(self.header),
                &mut sealed,
            )
            .map_err(|_| VaultError::Modified)?;
        // An overflow would repeat a nonce. A session would need years for that many chunks.
        self.number = self.number.checked_add(1).ok_or(VaultError::TooLarge)?;
        let len = u32::try_from(sealed.len()).map_err(|_| VaultError::TooLarge)?;
        Ok([len.to_be_bytes().as_slice(), &sealed].concat())
    }
}

/// Decrypts a file.
pub struct Opener<R> {
    reader: R,
    key: LessSafeKey,
    header: [u8; HEADER_LEN],
    number: u32,
    has_ended: bool,
}

impl<R: Read> Opener<R> {
    /// Reads the header.
    ///
    /// # Errors
    /// See [`VaultError`]. A wrong key is only detected with the first chunk.
    pub fn new(mut reader: R, key: &VaultKey, session_id: &str) -> Result<Self, VaultError> {
        let mut header = [0; HEADER_LEN];
        reader.read_exact(&mut header).map_err(truncated)?;
        if !header.starts_with(MAGIC) {
            return Err(VaultError::NotARecording);
        }
        Ok(Self {
            key: file_key(key, session_id, &header).ok_or(VaultError::Modified)?,
            reader,
            header,
            number: 0,
            has_ended: false,
        })
    }

    /// The next decrypted chunk; `None` after the last one.
    ///
    /// # Errors
    /// See [`VaultError`]. Chunks before the error are authentic.
    pub fn chunk(&mut self) -> Result<Option<Vec<u8>>, VaultError> {
        if self.has_ended {
            // The last chunk is also the end of the file.
            let mut more = [0];
            return match self.reader.read(&mut more)? {
                0 => Ok(None),
                _ => Err(VaultError::Modified),
            };
        }
        let mut len = [0; 4];
        self.reader.read_exact(&mut len).map_err(truncated)?;
        let len = usize::try_from(u32::from_be_bytes(len)).unwrap_or(usize::MAX);
        if len > MAX_CHUNK + AES_256_GCM.tag_len() {
            return Err(VaultError::TooLarge);
        }
        let mut sealed = vec![0; len];
        self.reader.read_exact(&mut sealed).map_err(truncated)?;
        // The nonce states whether the chunk is the last one, and the file does not: try both.
        for last in [false, true] {
            let mut clear = sealed.clone();
            let nonce = nonce(self.number, last);
            let opened = self
                .key
                .open_in_place(nonce, Aad::from(self.header), &mut clear);
            if let Ok(opened) = opened {
                let len = opened.len();
                clear.truncate(len);
                self.number = self.number.checked_add(1).ok_or(VaultError::TooLarge)?;
                self.has_ended = last;
                return Ok(Some(clear));
            }
        }
        Err(VaultError::Modified)
    }
}

/// An error of encryption or decryption.
#[derive(Debug, thiserror::Error)]
pub enum VaultError {
    /// The file is of another kind.
    #[error("this is not a recording")]
    NotARecording,
    /// A chunk was changed, moved or added, or the key is wrong.
    #[error("the recording was changed, or the key is wrong")]
    Modified,
    /// The end is missing: the file was truncated, or its writer did not finish.
    #[error("the end of the recording is missing")]
    Truncated,
    /// A chunk exceeds [`MAX_CHUNK`], or there are too many chunks.
    #[error("the recording is too large")]
    TooLarge,
    /// The file could not be read.
    #[error("the recording could not be read")]
    Io(#[from] io::Error),
}

fn truncated(error: io::Error) -> VaultError {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => VaultError::Truncated,
        _ => VaultError::Io(error),
    }
}

fn header(salt: [u8; SALT_LEN]) -> [u8; HEADER_LEN] {
    let mut header = [0; HEADER_LEN];
    let bytes = MAGIC.iter().chain(&salt);
    for (to, from) in header.iter_mut().zip(bytes) {
        *to = *from;
    }
    header
}

/// Derives the key of a file.
fn file_key(key: &VaultKey, session_id: &str, header: &[u8; HEADER_LEN]) -> Option<LessSafeKey> {
    let info = [DOMAIN, session_id.as_bytes()];
    let secret = Salt::new(HKDF_SHA256, header).extract(key.0.as_slice());
    let expanded = secret.expand(&info, &AES_256_GCM).ok()?;
    Some(LessSafeKey::new(UnboundKey::from(expanded)))
}

/// The nonce of a chunk: zeros, its number (4 bytes, big-endian), and 1 for the last chunk.
fn nonce(number: u32, last: bool) -> Nonce {
    let mut nonce = [0; 12];
    let bytes = number.to_be_bytes().into_iter().chain([u8::from(last)]);
    for (to, from) in nonce.iter_mut().rev().zip(bytes.rev()) {
        *to = from;
    }
    Nonce::assume_unique_for_key(nonce)
}

const MAGIC: &[u8] = b"svcwtr\x01\n";
const DOMAIN: &[u8] = b"svc-webtty-vault-v1";
