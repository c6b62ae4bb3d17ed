//! The hash chain and its verification.

use std::cmp::Ordering;

use aws_lc_rs::digest::{Context, SHA256};
use bytes::Bytes;
use jiff::Timestamp;
use serde::Serialize;

use super::{ContentHash, Entry, Record, Salt};

/// The end of a recording: the number of its records, and the hash of the last one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Head {
    /// Number of records.
    #[serde(with = "decimal")]
    pub seq: u64,
    /// Hash of the last record; for an empty recording, of the session's id.
    #[serde(with = "hex")]
    pub hash: [u8; 32],
}

impl Head {
    /// The head of an empty recording. It depends on the session, so two sessions never have the
    /// same chain.
    pub fn begin(session_id: &str) -> Self {
        let mut hasher = Hasher::new(BEGIN);
        hasher.part(session_id.as_bytes());
        Self {
            seq: 0,
            hash: hasher.finish(),
        }
    }

    /// The next record.
    pub(super) fn record(&self, entry: Entry, at: Timestamp, salt: Salt) -> Record {
        let mut record = Record {
            seq: self.seq + 1,
            created_at: micros(at),
            record_type: entry.record_type,
            direction: entry.direction,
            stream_type: entry.stream,
            participant_id: entry.participant_id,
            payload_length: entry.payload_length,
            payload: entry.payload,
            masked: entry.masked,
            terminal_size: entry.size,
            exit_code: entry.exit_code,
            detail: entry.detail,
            salt: Some(salt),
            content_hash: None,
            prev_hash: self.hash,
            hash: [0; 32],
        };
        record.content_hash = Some(record.computed_content_hash(salt));
        record.hash = record.computed_hash();
        record
    }
}

impl Record {
    /// The head of a recording that ends with this record.
    pub fn head(&self) -> Head {
        Head {
            seq: self.seq,
            hash: self.hash,
        }
    }

    /// The record without payload, detail and salt. Its place in the chain can be verified, but it
    /// discloses nothing about its content. `None` for an older record, which can only be verified
    /// with its content.
    #[must_use]
    pub fn withhold_content(self) -> Option<Self> {
        self.content_hash?;
        Some(Self {
            salt: None,
            payload: Bytes::new(),
            detail: None,
            ..self
        })
    }

    /// True if [`withhold_content`](Self::withhold_content) removed the content.
    pub fn is_withheld(&self) -> bool {
        self.content_hash.is_some() && self.salt.is_none()
    }

    /// True if the content matches its hash.
    fn has_its_content(&self) -> bool {
        match (self.content_hash, self.salt) {
            (Some(hash), Some(salt)) => hash == self.computed_content_hash(salt),
            (Some(_), None) => self.payload.is_empty() && self.detail.is_none(),
            (None, _) => true,
        }
    }

    /// SHA-256 over salt, payload and detail, each prefixed with its length.
    fn computed_content_hash(&self, salt: Salt) -> ContentHash {
        let mut hasher = Hasher::new(CONTENT);
        hasher.part(&salt.0);
        hasher.part(&self.payload);
        hasher.optional(self.detail.as_deref().map(str::as_bytes));
        ContentHash(hasher.finish())
    }

    /// SHA-256 over every field except the hash, each prefixed with its length, so that different
    /// records have different bytes. The content is included through its own hash; in older records
    /// it is included directly.
    fn computed_hash(&self) -> [u8; 32] {
        let content = self.content_hash;
        let mut hasher = match (&content, &self.salt) {
            (Some(ContentHash(content)), _) => {
                let mut hasher = Hasher::new(RECORD_OF_CONTENT_HASH);
                hasher.part(content);
                hasher
            }
            (None, Some(Salt(salt))) => {
                let mut hasher = Hasher::new(SALTED_RECORD);
                hasher.part(salt);
                hasher
            }
            (None, None) => Hasher::new(RECORD),
        };
        hasher.part(&self.prev_hash);
        hasher.part(&self.seq.to_be_bytes());
        hasher.part(&self.created_at.as_microsecond().to_be_bytes());
        hasher.part(self.record_type.as_str().as_bytes());
        hasher.part(self.direction.as_str().as_bytes());
        hasher.optional(self.stream_type.map(|stream| stream.as_str().as_bytes()));
        hasher.optional(self.participant_id.as_deref().map(str::as_bytes));
        hasher.part(&self.payload_length.to_be_bytes());
        if content.is_none() {
            hasher.part(&self.payload);
        }
        hasher.part(&[u8::from(self.masked)]);
        let size = self.terminal_size;
        let size = size.map(|size| [size.rows.to_be_bytes(), size.cols.to_be_bytes()].concat());
        hasher.optional(size.as_deref());
        let code = self.exit_code.map(i32::to_be_bytes);
        hasher.optional(code.as_ref().map(<[u8; 4]>::as_slice));
        if content.is_none() {
            hasher.optional(self.detail.as_deref().map(str::as_bytes));
        }
        hasher.finish()
    }
}

/// Verifies records one by one, and finds the first invalid one.
#[derive(Clone, Debug)]
pub struct Verifier {
    head: Head,
}

impl Verifier {
    /// Verifies the recording of this session from its start.
    pub fn new(session_id: &str) -> Self {
        Self {
            head: Head::begin(session_id),
        }
    }

    /// Verifies the part of a recording that starts with this record. Its predecessor is trusted.
    pub fn from(first: &Record) -> Self {
        Self {
            head: Head {
                seq: first.seq.saturating_sub(1),
                hash: first.prev_hash,
            },
        }
    }

    /// The last verified record.
    pub fn head(&self) -> &Head {
        &self.head
    }

    /// Verifies the next record.
    ///
    /// # Errors
    /// The record does not follow its predecessor, or does not match its hash.
    pub fn check(&mut self, record: &Record) -> Result<(), ChainError> {
        let seq = self.head.seq + 1;
        let fault = if record.seq != seq {
            ChainFault::Sequence { found: record.seq }
        } else if record.prev_hash != self.head.hash {
            ChainFault::Link
        } else if !record.has_its_content() || record.hash != record.computed_hash() {
            ChainFault::Content
        } else {
            self.head = record.head();
            return Ok(());
        };
        Err(ChainError { seq, fault })
    }

    /// Verifies the end against `head`, which was stored separately.
    ///
    /// # Errors
    /// The end is missing, or records were added.
    pub fn finish(self, head: &Head) -> Result<(), ChainError> {
        if self.head == *head {
            return Ok(());
        }
        let (seq, fault) = match self.head.seq.cmp(&head.seq) {
            Ordering::Less => (self.head.seq + 1, ChainFault::Missing),
            Ordering::Greater => (head.seq + 1, ChainFault::Added),
            Ordering::Equal => (head.seq, ChainFault::Link),
        };
        Err(ChainError { seq, fault })
    }
}

/// Verifies a whole recording.
///
/// # Errors
/// The first invalid record. Without a `head`, a missing end is not detected.
pub fn verify<'r>(
    session_id: &str,
    records: impl IntoIterator<Item = &'r Record>,
    head: Option<&Head>,
) -> Result<Head, ChainError> {
    let mut verifier = Verifier::new(session_id);
    for record in records {
        verifier.check(record)?;
    }
    let end = verifier.head.clone();
    match head {
        Some(head) => verifier.finish(head).map(|()| end),
        None => Ok(end),
    }
}

/// The first invalid record of a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("record {seq}: {fault}")]
pub struct ChainError {
    /// Number of the expected record.
    pub seq: u64,
    /// The fault of the record.
    pub fault: ChainFault,
}

/// Faults of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChainFault {
    /// The record has another number.
    #[error("record {found} is in its position")]
    Sequence {
        /// The number of the record.
        found: u64,
    },
    /// The record does not follow its predecessor.
    #[error("it does not follow the previous record")]
    Link,
    /// The record was changed.
    #[error("it was changed")]
    Content,
    /// The record is missing.
    #[error("it and all after it are missing")]
    Missing,
    /// The record was never recorded.
    #[error("it was added")]
    Added,
}

struct Hasher(Context);

impl Hasher {
    fn new(domain: &[u8]) -> Self {
        let mut hasher = Self(Context::new(&SHA256));
        hasher.part(domain);
        hasher
    }

    fn part(&mut self, bytes: &[u8]) {
        let len = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        self.0.update(&len.to_be_bytes());
        self.0.update(bytes);
    }

    /// Distinguishes an absent part from an empty one.
    fn optional(&mut self, bytes: Option<&[u8]>) {
        self.part(&[u8::from(bytes.is_some())]);
        self.part(bytes.unwrap_or_default());
    }

    fn finish(self) -> [u8; 32] {
        let digest = self.0.finish();
        // SHA-256 has 32 bytes.
        digest.as_ref().try_into().unwrap_or([0; 32])
    }
}

/// Truncates a time to microseconds, so that it does not change when it is stored and read.
fn micros(at: Timestamp) -> Timestamp {
    Timestamp::from_microsecond(at.as_microsecond()).unwrap_or(at)
}

const BEGIN: &[u8] = b"svc-webtty-recording-v1";
const RECORD: &[u8] = b"svc-webtty-record-v1";
const SALTED_RECORD: &[u8] = b"svc-webtty-record-v2";
const RECORD_OF_CONTENT_HASH: &[u8] = b"svc-webtty-record-v3";
const CONTENT: &[u8] = b"svc-webtty-content-v1";

/// A number as decimal text, because it may exceed the integers of JavaScript.
pub(super) mod decimal {
    use serde::{Deserialize as _, Deserializer, Serializer, de::Error as _};

    #[expect(
        clippy::trivially_copy_pass_by_ref,
        reason = "the signature that serde asks for"
    )]
    pub(crate) fn serialize<S: Serializer>(value: &u64, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(value)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
        let text = String::deserialize(from)?;
        text.parse().map_err(D::Error::custom)
    }
}

/// A hash or a salt as hex digits.
pub(super) mod hex {
    use serde::{Deserialize as _, Deserializer, Serializer, de::Error as _};

    pub(crate) fn serialize<S: Serializer, const N: usize>(
        value: &[u8; N],
        to: S,
    ) -> Result<S::Ok, S::Error> {
        to.serialize_str(&::hex::encode(value))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>, const N: usize>(
        from: D,
    ) -> Result<[u8; N], D::Error> {
        let text = String::deserialize(from)?;
        let mut value = [0; N];
        ::hex::decode_to_slice(text, &mut value)
            .map_err(|_| D::Error::custom(format!("expected {} hex digits", 2 * N)))?;
        Ok(value)
    }
}

/// Bytes as base64.
pub(super) mod base64_bytes {
    use base64::{Engine as _, engine::general_purpose::STANDARD};
    use bytes::Bytes;
    use serde::{Deserialize as _, Deserializer, Serializer, de::Error as _};

    pub(crate) fn serialize<S: Serializer>(value: &Bytes, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&STANDARD.encode(value))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Bytes, D::Error> {
        let text = String::deserialize(from)?;
        let bytes = STANDARD.decode(text).map_err(D::Error::custom)?;
        Ok(bytes.into())
    }
}
