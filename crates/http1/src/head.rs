//! Common parts of request heads and response heads.

use crate::fields::MAX_FIELDS;

/// Size limits of a message head. The defaults are those of the engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of the complete head, including its final empty line. 32 KiB: four times the limit of
    /// common servers for a single field, so that large cookies fit. Values above 65,535 have no
    /// effect.
    pub head_bytes: usize,
    /// Bytes of the request target as sent. 8 KiB: RFC 9112 §3 recommends at least 8,000.
    pub target_bytes: usize,
    /// Number of fields. 128: browsers send about 20, and chains of proxies add some. Values above
    /// [`MAX_FIELDS`] have no effect.
    pub headers: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            head_bytes: 32 * 1024,
            target_bytes: 8 * 1024,
            headers: DEFAULT_FIELDS,
        }
    }
}

impl Limits {
    /// The part of `buf` that must contain the end of a head within the limits.
    pub(crate) fn window<'b>(&self, buf: &'b [u8]) -> &'b [u8] {
        buf.get(..self.head_limit()).unwrap_or(buf)
    }

    pub(crate) fn head_limit(&self) -> usize {
        self.head_bytes.min(MAX_HEAD_BYTES)
    }

    pub(crate) fn field_limit(&self) -> usize {
        self.headers.min(MAX_FIELDS)
    }
}

/// Result of parsing a head from a buffer that may not contain all of it yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Progress<H> {
    /// No error so far; more bytes are needed. The next call parses the complete buffer again.
    Partial,
    /// The head is complete.
    Complete {
        /// The head; it borrows from the buffer.
        head: H,
        /// Bytes of the buffer that the head occupies; the body or the next message follows.
        head_len: usize,
    },
}

/// Version in the first line of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Version {
    /// `HTTP/1.0`
    Http10,
    /// `HTTP/1.1`
    Http11,
}

impl Version {
    pub(crate) fn from_minor(minor: u8) -> Self {
        if minor == 0 {
            Self::Http10
        } else {
            Self::Http11
        }
    }
}

/// Returns true if parsing `buf` again can have another result than the [`Progress::Partial`] that
/// it had when the buffer contained only its first `seen` bytes.
///
/// A peer that sends its head byte by byte would otherwise cause the complete head to be parsed for
/// every byte. This only checks the new bytes: for an empty line, and for the positions at which a
/// limit is exceeded.
pub fn may_complete(buf: &[u8], seen: usize, limits: &Limits) -> bool {
    let crosses = |bound: usize| seen < bound && buf.len() >= bound;
    if seen == 0 || buf.len() >= limits.head_limit() {
        return true;
    }
    if crosses(LONGEST_BEFORE_TARGET + limits.target_bytes) {
        return true;
    }
    let fresh = buf.get(seen.saturating_sub(2)..).unwrap_or_default();
    fresh.windows(2).any(|pair| pair == b"\n\n") || fresh.windows(3).any(|three| three == b"\n\r\n")
}

/// The longest method that is parsed (RFC 9110 registers none above 17 bytes). Neither this edge
/// nor an upstream implements a longer one.
pub const MAX_METHOD_BYTES: usize = 32;

/// A target that has not ended is too long when the buffer has this many bytes plus those of the
/// longest target: an ignored empty line, the method, a space, and one byte of excess.
const LONGEST_BEFORE_TARGET: usize = 2 + MAX_METHOD_BYTES + 1 + 1;

const DEFAULT_FIELDS: usize = 128;

/// Positions in a head are stored in 16 bits.
const MAX_HEAD_BYTES: usize = u16::MAX as usize;
