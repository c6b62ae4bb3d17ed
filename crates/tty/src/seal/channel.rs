//! Sealed messages in sequence.

use std::fmt;

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use bytes::Bytes;

use super::SealError;
use crate::message::{EncryptedPayload, Stream, limits};
use crate::session::TOKEN_LEN;

/// Both directions of a session, for one end.
#[derive(Debug)]
pub struct Channel {
    /// Seals messages of this end.
    pub sealer: Sealer,
    /// Opens messages of the peer.
    pub opener: Opener,
}

impl Channel {
    pub(super) fn new(side: Side, up: &[u8; 32], down: &[u8; 32]) -> Result<Self, SealError> {
        let (ours, theirs) = match side {
            Side::Client => ((up, CLIENT_TO_SERVER), (down, SERVER_TO_CLIENT)),
            Side::Server => ((down, SERVER_TO_CLIENT), (up, CLIENT_TO_SERVER)),
        };
        Ok(Self {
            sealer: Sealer(Direction::new(ours.0, ours.1)?),
            opener: Opener {
                direction: Direction::new(theirs.0, theirs.1)?,
                failed: false,
            },
        })
    }
}

/// One of the two ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Client,
    Server,
}

/// Content of a sealed message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// Bytes of the stream, at most [`MAX_CLEAR`].
    Data(Bytes),
    /// The stream has ended.
    End,
    /// The command has ended with this code.
    Exit(i32),
    /// The session can be resumed, or was resumed.
    Mark(Mark),
}

/// Data that the server sends with an ack. Sealing prevents others from reading or changing it.
#[derive(Clone, PartialEq, Eq)]
pub struct Mark {
    /// Token with which the client resumes next time.
    pub token: [u8; TOKEN_LEN],
    /// Number of the next output byte that the server sends.
    pub output_from: u64,
    /// Number of input bytes that have arrived.
    pub input_received: u64,
}

impl Mark {
    fn to_bytes(&self) -> [u8; MARK_LEN] {
        let mut bytes = [0; MARK_LEN];
        let numbers = [self.output_from, self.input_received].map(u64::to_be_bytes);
        let all = self.token.iter().chain(numbers.as_flattened());
        for (to, from) in bytes.iter_mut().zip(all) {
            *to = *from;
        }
        bytes
    }

    fn of_bytes(bytes: &[u8]) -> Option<Self> {
        let (token, numbers) = bytes.split_first_chunk::<TOKEN_LEN>()?;
        let (output_from, input_received) = numbers.split_first_chunk::<8>()?;
        Some(Self {
            token: *token,
            output_from: u64::from_be_bytes(*output_from),
            input_received: u64::from_be_bytes(input_received.try_into().ok()?),
        })
    }
}

impl fmt::Debug for Mark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (from, received) = (self.output_from, self.input_received);
        write!(f, "Mark(output from {from}, input to {received})")
    }
}

/// Maximum plaintext bytes of one message: as much as fits into one with its header and tag.
pub const MAX_CLEAR: usize = limits::MAX_DATA - 64;

/// Seals messages of this end.
pub struct Sealer(Direction);

impl Sealer {
    /// Seals one message.
    ///
    /// # Errors
    /// More than [`MAX_CLEAR`], or the library failed.
    pub fn seal(
        &mut self,
        stream: Stream,
        content: &Content,
    ) -> Result<EncryptedPayload, SealError> {
        let mut sealed = match content {
            Content::Data(bytes) => [&[DATA], bytes.as_ref()].concat(),
            Content::End => vec![END],
            Content::Exit(code) => [&[EXIT], code.to_be_bytes().as_slice()].concat(),
            Content::Mark(mark) => [&[MARK], mark.to_bytes().as_slice()].concat(),
        };
        let clear = sealed.len() - 1;
        if clear > MAX_CLEAR {
            return Err(SealError::Crypto);
        }
        let Direction { key, label, number } = &mut self.0;
        let sequence = *number;
        key.seal_in_place_append_tag(nonce(sequence), aad(label, stream, sequence), &mut sealed)
            .map_err(|_| SealError::Crypto)?;
        *number = sequence.checked_add(1).ok_or(SealError::Crypto)?;
        Ok(EncryptedPayload {
            ciphertext: sealed.into(),
            plaintext_length: u32::try_from(clear).unwrap_or(u32::MAX),
            payload_crypto: None,
            sequence: Some(sequence),
        })
    }
}

/// Opens messages of the peer, in their order.
pub struct Opener {
    direction: Direction,
    failed: bool,
}

impl Opener {
    /// Opens the next message.
    ///
    /// # Errors
    /// It is not the next message, or was changed. This and all later messages are then rejected.
    pub fn open(
        &mut self,
        stream: Stream,
        payload: &EncryptedPayload,
    ) -> Result<Content, SealError> {
        if self.failed {
            return Err(SealError::Failed);
        }
        let opened = self.try_open(stream, payload);
        self.failed = opened.is_err();
        opened
    }

    fn try_open(
        &mut self,
        stream: Stream,
        payload: &EncryptedPayload,
    ) -> Result<Content, SealError> {
        let Direction { key, label, number } = &mut self.direction;
        let expected = *number;
        if payload.sequence != Some(expected) {
            return Err(SealError::Order {
                expected,
                found: payload.sequence,
            });
        }
        let mut clear = payload.ciphertext.to_vec();
        let len = key
            .open_in_place(nonce(expected), aad(label, stream, expected), &mut clear)
            .map_err(|_| SealError::Changed)?
            .len();
        clear.truncate(len);
        *number = expected.checked_add(1).ok_or(SealError::Failed)?;
        let clear = Bytes::from(clear);
        let (kind, rest) = clear.split_first().ok_or(SealError::Changed)?;
        if usize::try_from(payload.plaintext_length) != Ok(rest.len()) {
            return Err(SealError::Changed);
        }
        match (*kind, rest) {
            (DATA, _) => Ok(Content::Data(clear.slice(1..))),
            (END, []) => Ok(Content::End),
            (EXIT, code) => {
                let code = code.try_into().map_err(|_| SealError::Changed)?;
                Ok(Content::Exit(i32::from_be_bytes(code)))
            }
            (MARK, mark) => Mark::of_bytes(mark)
                .map(Content::Mark)
                .ok_or(SealError::Changed),
            _ => Err(SealError::Changed),
        }
    }
}

/// A key, and the number of the next message.
struct Direction {
    key: LessSafeKey,
    label: &'static [u8],
    number: u64,
}

impl Direction {
    fn new(key: &[u8; 32], label: &'static [u8]) -> Result<Self, SealError> {
        let key = UnboundKey::new(&AES_256_GCM, key).map_err(|_| SealError::Crypto)?;
        Ok(Self {
            key: LessSafeKey::new(key),
            label,
            number: 0,
        })
    }
}

impl fmt::Debug for Sealer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Sealer(at {})", self.0.number)
    }
}

impl fmt::Debug for Opener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Opener(at {})", self.direction.number)
    }
}

fn nonce(number: u64) -> Nonce {
    let mut nonce = [0; 12];
    for (to, from) in nonce.iter_mut().skip(4).zip(number.to_be_bytes()) {
        *to = from;
    }
    Nonce::assume_unique_for_key(nonce)
}

fn aad(label: &[u8], stream: Stream, number: u64) -> Aad<Vec<u8>> {
    let stream = i32::from(stream).to_be_bytes();
    Aad::from([label, &stream, &number.to_be_bytes()].concat())
}

const CLIENT_TO_SERVER: &[u8] = b"svc-webtty-seal-v2 client to server\0";
const SERVER_TO_CLIENT: &[u8] = b"svc-webtty-seal-v2 server to client\0";
const DATA: u8 = 0;
const END: u8 = 1;
const EXIT: u8 = 2;
const MARK: u8 = 3;

const MARK_LEN: usize = TOKEN_LEN + 2 * size_of::<u64>();
