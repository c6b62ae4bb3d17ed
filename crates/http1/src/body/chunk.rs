//! The chunked transfer coding (RFC 9112 §7.1), with a strict parser:
//!
//! ```text
//! 1..=16 HEXDIG  [";" extension]  CR LF  data  CR LF      any number of chunks that are not empty
//! 1..=16 "0"     [";" extension]  CR LF                   the last chunk
//! trailer section, CR LF
//! ```
//!
//! Chunk extensions are ignored and never passed on (RFC 9112 §7.1.1), because parsers that skip
//! them differently enable request smuggling. Their bytes are limited. Spaces and tabs after a size
//! are accepted from services only, and removed in the same way. Bare line feeds, control bytes in
//! an extension, and sizes that do not fit a signed 64-bit number are refused, as for
//! `Content-Length`: a reader whose number overflows would find another end.

use crate::body::trailers::{TRAILER_BYTES, parse_trailers};
use crate::body::{Advance, BodyError, BodyState, VerbatimBytes};
use crate::fields::Slots;

/// Finds the payload in a chunked body, for any split of the bytes over the calls.
#[derive(Debug, Clone)]
pub struct ChunkScanner {
    state: ChunkState,
    /// Spaces and tabs may follow a size.
    accepts_padding: bool,
    /// Bytes of extensions and padding that may still follow.
    extension_budget: u64,
}

/// The meaning of the next byte.
#[derive(Debug, Clone, Copy)]
enum ChunkState {
    Size {
        digits: u8,
        size: u64,
    },
    /// After a size: spaces and tabs that are removed.
    Padding {
        size: u64,
    },
    /// After a size and a semicolon: an extension that is removed.
    Extension {
        size: u64,
    },
    SizeReturn {
        size: u64,
    },
    SizeLineFeed {
        size: u64,
    },
    Data {
        left: u64,
    },
    DataReturn,
    DataLineFeed,
    /// Bytes of the section that were scanned but not consumed.
    Trailers {
        seen: usize,
    },
    Done,
    Broken,
}

/// Result of one scan.
struct Scan {
    advance: Advance,
    /// The consumed bytes are an extension or padding.
    is_removed: bool,
}

impl ChunkScanner {
    /// Starts before the first chunk of a request.
    pub fn new() -> Self {
        Self {
            state: SIZE_START,
            accepts_padding: false,
            extension_budget: EXTENSION_BYTES,
        }
    }

    /// Starts before the first chunk of a response. Spaces and tabs may follow a size: some servers
    /// write sizes of a fixed width.
    pub fn of_response() -> Self {
        Self {
            accepts_padding: true,
            ..Self::new()
        }
    }

    /// Reads the next part from the start of `buf`: at most one run of payload, with all framing
    /// around it.
    ///
    /// A trailer section is consumed in one piece. Until `buf` contains all of it, it stays in the
    /// buffer and must be passed again, so the buffer needs space for
    /// [`TRAILER_BYTES`](crate::TRAILER_BYTES).
    pub fn advance(&mut self, buf: &[u8]) -> Result<Advance, BodyError> {
        self.scan_or_break(buf, false).map(|scan| scan.advance)
    }

    fn scan_or_break(&mut self, buf: &[u8], verbatim: bool) -> Result<Scan, BodyError> {
        self.scan(buf, verbatim)
            .inspect_err(|_| self.state = ChunkState::Broken)
    }

    /// Reads as much as `buf` contains, up to the end of an extension.
    pub(crate) fn advance_verbatim(&mut self, buf: &[u8]) -> Result<VerbatimBytes, BodyError> {
        let mut consumed = 0;
        loop {
            let scan = self.scan_or_break(buf.get(consumed..).unwrap_or_default(), true)?;
            let step = scan.advance;
            let start = consumed;
            consumed += step.consumed;
            match step.state {
                _ if scan.is_removed => {
                    return Ok(VerbatimBytes {
                        consumed,
                        pass: start,
                        state: BodyState::More,
                    });
                }
                BodyState::More if step.consumed > 0 && consumed < buf.len() => {}
                BodyState::Trailers(section) => {
                    let section = start + section.start..start + section.end;
                    let pass = section.start;
                    return Ok(VerbatimBytes {
                        consumed,
                        pass,
                        state: BodyState::Trailers(section),
                    });
                }
                state => {
                    return Ok(VerbatimBytes {
                        consumed,
                        pass: consumed,
                        state,
                    });
                }
            }
        }
    }

    #[expect(
        clippy::too_many_lines,
        reason = "one state machine: its states read in order"
    )]
    fn scan(&mut self, buf: &[u8], verbatim: bool) -> Result<Scan, BodyError> {
        let mut data = 0..0;
        let mut position = 0;
        let mut is_removed = false;
        while let Some(byte) = buf.get(position).copied() {
            self.state = match self.state {
                ChunkState::Size { digits, size } => {
                    let next = self.read_size_byte(byte, digits, size)?;
                    let removes = matches!(
                        next,
                        ChunkState::Padding { .. } | ChunkState::Extension { .. }
                    );
                    if removes && verbatim && position > 0 {
                        // The bytes before are passed on, so the removed ones are a separate step.
                        break;
                    }
                    is_removed |= removes;
                    position += 1;
                    next
                }
                ChunkState::Padding { size } | ChunkState::Extension { size } if byte == b'\r' => {
                    if verbatim && position > 0 {
                        self.state = ChunkState::SizeReturn { size };
                        break;
                    }
                    ChunkState::SizeReturn { size }
                }
                state @ (ChunkState::Padding { size } | ChunkState::Extension { size }) => {
                    is_removed = true;
                    position += 1;
                    self.read_removed_byte(byte, state, size)?
                }
                ChunkState::SizeReturn { size } => {
                    position += 1;
                    ChunkState::SizeLineFeed { size }
                }
                ChunkState::SizeLineFeed { size } if byte == b'\n' => {
                    position += 1;
                    if size == 0 {
                        ChunkState::Trailers { seen: 0 }
                    } else {
                        ChunkState::Data { left: size }
                    }
                }
                ChunkState::SizeLineFeed { .. } => {
                    return Err(BodyError::Malformed("a chunk size ends with a bare return"));
                }
                // A second run of payload is left for the next call.
                ChunkState::Data { .. } if !data.is_empty() => break,
                ChunkState::Data { left } => {
                    let here = buf.len() - position;
                    let taken = usize::try_from(left).map_or(here, |left| left.min(here));
                    data = position..position + taken;
                    position += taken;
                    self.extension_budget = self.extension_budget.saturating_add(taken as u64);
                    match left - taken as u64 {
                        0 => ChunkState::DataReturn,
                        left => ChunkState::Data { left },
                    }
                }
                ChunkState::DataReturn if byte == b'\r' => {
                    position += 1;
                    ChunkState::DataLineFeed
                }
                ChunkState::DataLineFeed if byte == b'\n' => {
                    position += 1;
                    SIZE_START
                }
                ChunkState::DataReturn | ChunkState::DataLineFeed => {
                    return Err(BodyError::Malformed("a chunk is longer than its size"));
                }
                ChunkState::Trailers { seen } => {
                    let section = buf.get(position..).unwrap_or_default();
                    let Some(len) = section_len(section, seen)? else {
                        self.state = ChunkState::Trailers {
                            seen: section.len(),
                        };
                        break;
                    };
                    if len > EMPTY_SECTION && !data.is_empty() {
                        // Trailers are a separate step, so that callers do not miss them after
                        // data.
                        break;
                    }
                    self.state = ChunkState::Done;
                    let consumed = position + len;
                    let state = if len == EMPTY_SECTION {
                        BodyState::Done
                    } else {
                        BodyState::Trailers(position..consumed)
                    };
                    let advance = Advance {
                        consumed,
                        data,
                        state,
                    };
                    return Ok(Scan {
                        advance,
                        is_removed,
                    });
                }
                ChunkState::Done => break,
                ChunkState::Broken => {
                    return Err(BodyError::Malformed("the body is already known as bad"));
                }
            };
        }
        let state = if matches!(self.state, ChunkState::Done) {
            BodyState::Done
        } else {
            BodyState::More
        };
        let advance = Advance {
            consumed: position,
            data,
            state,
        };
        Ok(Scan {
            advance,
            is_removed,
        })
    }

    fn read_size_byte(&mut self, byte: u8, digits: u8, size: u64) -> Result<ChunkState, BodyError> {
        match char::from(byte).to_digit(16) {
            Some(_) if digits == SIZE_DIGITS => {
                Err(BodyError::Malformed("a chunk size is too long"))
            }
            Some(digit) => Ok(ChunkState::Size {
                digits: digits + 1,
                size: size << 4 | u64::from(digit),
            }),
            None if size > MAX_SIZE => Err(BodyError::Malformed("a chunk size is too large")),
            None if digits == 0 => Err(BodyError::Malformed("a chunk size is malformed")),
            None if byte == b'\r' => Ok(ChunkState::SizeLineFeed { size }),
            None => self.read_removed_byte(byte, ChunkState::Padding { size }, size),
        }
    }

    /// Reads a byte of an extension or of the padding before it. `state` is the part that the byte
    /// continues.
    fn read_removed_byte(
        &mut self,
        byte: u8,
        state: ChunkState,
        size: u64,
    ) -> Result<ChunkState, BodyError> {
        let is_extension = matches!(state, ChunkState::Extension { .. });
        let next = match byte {
            b';' => ChunkState::Extension { size },
            b' ' | b'\t' if is_extension || self.accepts_padding => state,
            b'!'..=b'~' | 0x80.. if is_extension => state,
            _ if is_extension => {
                return Err(BodyError::Malformed("a chunk extension has a control byte"));
            }
            _ => return Err(BodyError::Malformed("a chunk size is malformed")),
        };
        let budget = self.extension_budget.checked_sub(1);
        self.extension_budget =
            budget.ok_or(BodyError::Malformed("chunk extensions are too large"))?;
        Ok(next)
    }
}

impl Default for ChunkScanner {
    fn default() -> Self {
        Self::new()
    }
}

/// Length of the trailer section at the start of `section`, including its final empty line, once it
/// is complete. The first `seen` bytes are known not to contain the end.
fn section_len(section: &[u8], seen: usize) -> Result<Option<usize>, BodyError> {
    match section {
        [b'\r', b'\n', ..] => return Ok(Some(EMPTY_SECTION)),
        [b'\r'] => return Ok(None),
        _ => {}
    }
    let from = seen.saturating_sub(SECTION_END.len() - 1);
    let fresh = section.get(from..).unwrap_or_default();
    let end = fresh
        .windows(SECTION_END.len())
        .position(|bytes| bytes == SECTION_END);
    let end = end.map(|end| from + end + SECTION_END.len());
    if end.unwrap_or(section.len()) > TRAILER_BYTES {
        return Err(BodyError::Malformed("the trailer section is too large"));
    }
    if let Some(whole) = end.and_then(|end| section.get(..end)) {
        parse_trailers(whole, &mut Slots::new())?;
    }
    Ok(end)
}

const SIZE_START: ChunkState = ChunkState::Size { digits: 0, size: 0 };

/// Enough for 64 bits.
const SIZE_DIGITS: u8 = 16;

const MAX_SIZE: u64 = i64::MAX.unsigned_abs();

/// Bytes of extensions and padding that a body may have in addition to as many as it has payload. A
/// peer could otherwise occupy the edge without sending anything.
const EXTENSION_BYTES: u64 = 16 * 1024;

const EMPTY_SECTION: usize = 2;

const SECTION_END: &[u8] = b"\r\n\r\n";
