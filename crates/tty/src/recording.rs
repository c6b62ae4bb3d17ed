//! Recordings of sessions, in which every manipulation is detected.
//!
//! A recording is a sequence of [`Record`]s. The hash of each record covers the hash of its
//! predecessor. If a record is changed, removed, added or moved, the chain breaks at this record,
//! and [`verify`] reports it. The hash of the last record is stored separately ([`Head`]), because
//! a chain alone does not show that its end is missing.
//!
//! Most records contain a single pressed key, so a hash over a record alone would disclose the key
//! by trial. The hash of a record covers its content only through a hash of the content and of
//! random bytes ([`ContentHash`], [`Salt`]). The random bytes are only shown together with the
//! content. A record without its content ([`Record::withhold_content`]) discloses nothing about it,
//! and stays part of a chain that anyone can verify.
//!
//! The records are authoritative. [`export`] creates transcripts and casts from them, which contain
//! less. [`vault`] encrypts stored recordings.

mod chain;
pub mod export;
pub mod search;
#[cfg(test)]
mod tests;
pub mod vault;

use bytes::Bytes;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use types::webtty::{RecordDirection, RecordType, StreamType};

pub use chain::{ChainError, ChainFault, Head, Verifier, verify};

use crate::size::Size;

/// Maximum bytes of one record. The caller splits larger data; commands write pieces of 4 KiB to 64
/// KiB.
pub const MAX_PAYLOAD: usize = 256 * 1024;

/// An event before it is added to the chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Type of the event.
    pub record_type: RecordType,
    /// Direction of the event.
    pub direction: RecordDirection,
    /// Stream, for data.
    pub stream: Option<StreamType>,
    /// Participant that caused the event.
    pub participant_id: Option<String>,
    /// Bytes, for data; empty if they are masked.
    pub payload: Bytes,
    /// Number of bytes, including masked ones.
    pub payload_length: u64,
    /// True if the bytes are omitted, because the command did not echo them.
    pub masked: bool,
    /// Size, for a resize and for the open.
    pub size: Option<Size>,
    /// Exit code, for a close.
    pub exit_code: Option<i32>,
    /// Short description of the event.
    pub detail: Option<String>,
}

impl Entry {
    /// An event of the session.
    pub fn new(record_type: RecordType, direction: RecordDirection) -> Self {
        Self {
            record_type,
            direction,
            stream: None,
            participant_id: None,
            payload: Bytes::new(),
            payload_length: 0,
            masked: false,
            size: None,
            exit_code: None,
            detail: None,
        }
    }

    /// Output of the command.
    pub fn output(stream: StreamType, bytes: Bytes) -> Self {
        Self {
            stream: Some(stream),
            payload_length: length(&bytes),
            payload: bytes,
            ..Self::new(RecordType::Data, RecordDirection::ServerToClient)
        }
    }

    /// Input of a participant. Without echo (`echo_off`) it may be a password, and only its length
    /// is kept.
    pub fn input(participant_id: &str, bytes: Bytes, echo_off: bool) -> Self {
        Self {
            stream: Some(StreamType::Stdin),
            participant_id: Some(participant_id.to_owned()),
            payload_length: length(&bytes),
            payload: if echo_off { Bytes::new() } else { bytes },
            masked: echo_off,
            ..Self::new(RecordType::Data, RecordDirection::ClientToServer)
        }
    }

    /// A new size of the terminal.
    pub fn resize(participant_id: &str, size: Size) -> Self {
        Self {
            participant_id: Some(participant_id.to_owned()),
            size: Some(size),
            ..Self::new(RecordType::Resize, RecordDirection::ClientToServer)
        }
    }

    /// An event of the platform, with the participant that it concerns.
    pub fn internal(record_type: RecordType, participant_id: Option<&str>, detail: &str) -> Self {
        Self {
            participant_id: participant_id.map(str::to_owned),
            detail: Some(detail.to_owned()),
            ..Self::new(record_type, RecordDirection::EngineInternal)
        }
    }
}

/// One line of a recording. As JSON, absent fields are omitted and bytes are in base64.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Record {
    /// Number of the record, from 1.
    #[serde(with = "chain::decimal")]
    pub seq: u64,
    /// Time of the event, in microseconds.
    pub created_at: Timestamp,
    /// Type of the event.
    #[serde(rename = "type")]
    pub record_type: RecordType,
    /// Direction of the event.
    pub direction: RecordDirection,
    /// Stream, for data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stream_type: Option<StreamType>,
    /// Participant that caused the event.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub participant_id: Option<String>,
    /// Number of bytes, including masked ones.
    pub payload_length: u64,
    /// Bytes, for data.
    #[serde(
        with = "chain::base64_bytes",
        default,
        skip_serializing_if = "Bytes::is_empty"
    )]
    pub payload: Bytes,
    /// True if the bytes are omitted.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub masked: bool,
    /// Rows and columns, for a resize and for the open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub terminal_size: Option<Size>,
    /// Exit code, for a close.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// Short description of the event.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// Random bytes of this record, which are only shown together with the payload. They are absent
    /// in the oldest recordings, whose hashes disclose the content.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub salt: Option<Salt>,
    /// Hash of salt, payload and detail. It is absent in older recordings, whose records cannot be
    /// verified without their content.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content_hash: Option<ContentHash>,
    /// Hash of the previous record; for the first record, of the session's id.
    #[serde(with = "chain::hex")]
    pub prev_hash: [u8; 32],
    /// Hash of all other fields.
    #[serde(with = "chain::hex")]
    pub hash: [u8; 32],
}

/// Random bytes of one record, in hex.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Salt(#[serde(with = "chain::hex")] pub [u8; SALT_LEN]);

/// Length of a [`Salt`], in bytes.
pub const SALT_LEN: usize = 16;

/// SHA-256 over the content of a record and its [`Salt`], in hex.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ContentHash(#[serde(with = "chain::hex")] pub [u8; 32]);

/// Adds entries to the chain, up to a maximum size.
///
/// [`next`](Self::next) makes a record, and [`commit`](Self::commit) confirms that it is stored. A
/// record that could not be stored is made again or dropped. In the second case [`gap`](Self::gap)
/// reports it in the chain. The caller decides if a session may continue without its recording.
///
/// A clone continues independently. To store several records together, make them with a clone, and
/// keep the clone once they are stored.
#[derive(Clone, Debug)]
pub struct Recorder {
    head: Head,
    room: u64,
    state: State,
    lost: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Recording,
    /// The next record reports that the recording is full.
    Filling,
    Full,
}

impl Recorder {
    /// An empty recording, with at most `max_bytes` of payloads and headers together.
    pub fn new(session_id: &str, max_bytes: u64) -> Self {
        Self {
            head: Head::begin(session_id),
            room: max_bytes,
            state: State::Recording,
            lost: 0,
        }
    }

    /// Makes the record of an entry; `None` if the recording is full. The last record that fits is
    /// a `recording_state` that reports this, instead of the entry. `salt` is fresh random bytes.
    pub fn next(&self, entry: Entry, at: Timestamp, salt: [u8; SALT_LEN]) -> Option<Record> {
        let entry = match self.state {
            State::Full => return None,
            State::Filling => Self::full(),
            State::Recording if self.lost > 0 => self.gap(),
            State::Recording if cost(&entry) > self.room => Self::full(),
            State::Recording => entry,
        };
        Some(self.head.record(entry, at, Salt(salt)))
    }

    /// Confirms a stored record. Returns true if it replaced an entry, which must still be
    /// recorded.
    pub fn commit(&mut self, record: &Record) -> bool {
        self.head = record.head();
        self.room = self
            .room
            .saturating_sub(HEAD_COST + length(&record.payload));
        if record.record_type != RecordType::RecordingState {
            return false;
        }
        match record.detail.as_deref() {
            Some(FULL) => {
                self.state = State::Full;
                false
            }
            Some(detail) if detail.starts_with(GAP) => {
                self.lost = 0;
                true
            }
            _ => false,
        }
    }

    /// Counts `entries` entries that will never be stored. The next record reports their number.
    pub fn count_lost_entries(&mut self, entries: u64) {
        if self.state != State::Full {
            self.lost = self.lost.saturating_add(entries);
        }
    }

    /// True if the next record reports missing entries.
    pub fn has_gap(&self) -> bool {
        self.lost > 0 && self.state == State::Recording
    }

    /// True if nothing more is recorded.
    pub fn is_full(&self) -> bool {
        self.state == State::Full
    }

    /// Ends the recording early: the next record reports that it is full.
    pub fn end_early(&mut self) {
        if self.state == State::Recording {
            self.state = State::Filling;
        }
    }

    /// The end of the chain, which must be stored separately.
    pub fn head(&self) -> &Head {
        &self.head
    }

    fn gap(&self) -> Entry {
        let detail = format!("{GAP}{}", self.lost);
        Entry::internal(RecordType::RecordingState, None, &detail)
    }

    fn full() -> Entry {
        Entry::internal(RecordType::RecordingState, None, FULL)
    }
}

/// Bytes of a record in addition to its payload: as JSON, with its salt and its three hashes.
const HEAD_COST: u64 = 520;

const FULL: &str = "full";
const GAP: &str = "lost: ";

fn cost(entry: &Entry) -> u64 {
    // The factor reserves room for this record and for the one that reports a full recording.
    2 * HEAD_COST + length(&entry.payload)
}

fn length(bytes: &[u8]) -> u64 {
    u64::try_from(bytes.len()).unwrap_or(u64::MAX)
}
