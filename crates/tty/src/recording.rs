//! What happened in a session, kept so that nobody can change it unseen.
//!
//! A recording is a sequence of [`Record`]s. Each has the hash of the one before it in its own, so
//! whoever changes, removes, adds or moves one breaks the chain at that place, and [`verify`] names
//! it. The hash of the last record is kept elsewhere ([`Head`]), because nothing in a chain says
//! that it has lost its end.
//!
//! Most records hold one key that somebody pressed, so a hash over a record alone would tell it to who
//! tries them all. The hash of a record covers its content only through a hash of the content and of
//! random bytes ([`ContentHash`], [`Salt`]), and the random bytes are shown together with the content
//! alone. A record without its content ([`Record::withhold_content`]) tells nothing about it, and keeps
//! its place in a chain that anybody can verify.
//!
//! The records are the truth; [`export`] makes transcripts and casts of them, which hold less.
//! [`vault`] encrypts what is stored.

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

pub use chain::{BrokenChain, Fault, Head, Verifier, verify};

use crate::size::Size;

/// The bytes of one record, at most. More is cut into several by the caller; commands write pieces
/// of 4 KiB to 64 KiB.
pub const MAX_PAYLOAD: usize = 256 * 1024;

/// What happened, before it has its place in the chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// What it is about.
    pub record_type: RecordType,
    /// Which way it went.
    pub direction: RecordDirection,
    /// The stream, of data.
    pub stream: Option<StreamType>,
    /// Whose doing it was.
    pub participant_id: Option<String>,
    /// The bytes, of data; empty where they are masked.
    pub payload: Bytes,
    /// How many bytes there were.
    pub payload_length: u64,
    /// The bytes were left out: the command did not show what was typed.
    pub masked: bool,
    /// The size, of a resize and of the open.
    pub size: Option<Size>,
    /// The exit code, of a close.
    pub exit_code: Option<i32>,
    /// What happened, in a word or a line.
    pub detail: Option<String>,
}

impl Entry {
    /// Something about the session.
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

    /// What the command wrote.
    pub fn output(stream: StreamType, bytes: Bytes) -> Self {
        Self {
            stream: Some(stream),
            payload_length: length(&bytes),
            payload: bytes,
            ..Self::new(RecordType::Data, RecordDirection::ServerToClient)
        }
    }

    /// What somebody typed. While the command does not show it (`echo_off`), it may be a password:
    /// then its length is all that is kept.
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

    /// The terminal has another size.
    pub fn resize(participant_id: &str, size: Size) -> Self {
        Self {
            participant_id: Some(participant_id.to_owned()),
            size: Some(size),
            ..Self::new(RecordType::Resize, RecordDirection::ClientToServer)
        }
    }

    /// Something that the platform did, about somebody or nobody.
    pub fn internal(record_type: RecordType, participant_id: Option<&str>, detail: &str) -> Self {
        Self {
            participant_id: participant_id.map(str::to_owned),
            detail: Some(detail.to_owned()),
            ..Self::new(record_type, RecordDirection::EngineInternal)
        }
    }
}

/// One line of a recording. As JSON, absent fields are left out and bytes are in base64.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Record {
    /// Its number, from 1.
    #[serde(with = "chain::decimal")]
    pub seq: u64,
    /// When it happened; microseconds count.
    pub created_at: Timestamp,
    /// What it is about.
    #[serde(rename = "type")]
    pub record_type: RecordType,
    /// Which way it went.
    pub direction: RecordDirection,
    /// The stream, of data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stream_type: Option<StreamType>,
    /// Whose doing it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub participant_id: Option<String>,
    /// How many bytes there were.
    pub payload_length: u64,
    /// The bytes.
    #[serde(
        with = "chain::base64_bytes",
        default,
        skip_serializing_if = "Bytes::is_empty"
    )]
    pub payload: Bytes,
    /// The bytes were left out.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub masked: bool,
    /// Rows and columns, of a resize and of the open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub terminal_size: Option<Size>,
    /// The exit code, of a close.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// What happened.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// Random bytes of its own, shown with the payload alone; absent in the oldest recordings, whose
    /// hashes tell what they are of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub salt: Option<Salt>,
    /// The hash of salt, payload and detail; absent in older recordings, whose records cannot be
    /// verified without their content.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content_hash: Option<ContentHash>,
    /// The hash of the record before it; of the first, of the session's id.
    #[serde(with = "chain::hex")]
    pub prev_hash: [u8; 32],
    /// The hash of all of this.
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

/// Gives what happens its place in the chain, until there is too much of it.
///
/// [`next`](Self::next) makes a record and [`commit`](Self::commit) says that it is stored. A record
/// that could not be stored is made again, or left out: then [`gap`](Self::gap) says so in the
/// chain. Whether a session may go on without its recording is not decided here.
///
/// A copy goes on by itself: who stores several records in one piece makes them with a copy, and
/// keeps that once they are stored.
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
    /// The next record says that there is no room for more.
    Filling,
    Full,
}

impl Recorder {
    /// An empty recording, of at most `max_bytes` of payload and heads together.
    pub fn new(session_id: &str, max_bytes: u64) -> Self {
        Self {
            head: Head::begin(session_id),
            room: max_bytes,
            state: State::Recording,
            lost: 0,
        }
    }

    /// The record of an entry; `None` where the recording is full. The last one that there is room
    /// for is a `recording_state` that says so, in the place of what was to be recorded. `salt` is
    /// fresh random bytes.
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

    /// Whether the record was stored in the place of an entry, which is still to be recorded.
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

    /// An entry was not stored and will not be. The next record says how many there were.
    pub fn lose(&mut self) {
        self.lose_many(1);
    }

    /// So many entries were not stored and will not be.
    pub fn lose_many(&mut self, entries: u64) {
        if self.state != State::Full {
            self.lost = self.lost.saturating_add(entries);
        }
    }

    /// Whether the next record says that something is missing.
    pub fn has_gap(&self) -> bool {
        self.lost > 0 && self.state == State::Recording
    }

    /// Whether nothing more is recorded.
    pub fn is_full(&self) -> bool {
        self.state == State::Full
    }

    /// No more than this is recorded, whatever room there is.
    pub fn fill(&mut self) {
        if self.state == State::Recording {
            self.state = State::Filling;
        }
    }

    /// The end of the chain, to be kept apart from it.
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

/// Bytes of a record beside its payload: as JSON, with its salt and its three hashes.
const HEAD_COST: u64 = 520;

const FULL: &str = "full";
const GAP: &str = "lost: ";

fn cost(entry: &Entry) -> u64 {
    // Room for this one, and for the one that says that there is none.
    2 * HEAD_COST + length(&entry.payload)
}

fn length(bytes: &[u8]) -> u64 {
    u64::try_from(bytes.len()).unwrap_or(u64::MAX)
}
