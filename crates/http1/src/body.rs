//! Bodies: the positions of their payload and of their end.

use std::ops::Range;

use self::chunk::ChunkScanner;
use crate::request::BodyLength;
use crate::response::ResponseBody;

/// Reads the body that follows a head, with any framing.
///
/// Call [`advance`](Self::advance) with the unread bytes and remove the consumed ones. Read more
/// from the peer if it consumed all bytes or none and the state is [`BodyState::More`]. At the end
/// of the connection call [`finish`](Self::finish): a truncated body is an error, never a shorter
/// body.
#[derive(Debug, Clone)]
pub enum BodyReader {
    /// `Content-Length`.
    Length {
        /// Bytes that have not arrived yet.
        left: u64,
    },
    /// `Transfer-Encoding: chunked`.
    Chunked(ChunkScanner),
    /// Until the peer closes the connection.
    UntilClose,
    /// The end has been read.
    Done,
}

/// The result of [`BodyReader::advance`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Advance {
    /// Bytes of the buffer that were processed. Pass the bytes after them again in the next call,
    /// together with later ones.
    pub consumed: usize,
    /// Payload, a part of the consumed bytes; may be empty.
    pub data: Range<usize>,
    /// The state after this step.
    pub state: BodyState,
}

/// The result of [`BodyReader::advance_verbatim`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VerbatimBytes {
    /// Bytes of the buffer that were processed.
    pub consumed: usize,
    /// Bytes of the buffer that can be passed on unchanged, including framing: all consumed ones,
    /// except for a chunk extension, padding or a trailer section at their end.
    pub pass: usize,
    /// The state after this step.
    pub state: BodyState,
}

/// The progress of reading a body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BodyState {
    /// More bytes follow.
    More,
    /// The body ended with a trailer section, which has this position in the buffer, including its
    /// final empty line. It is within the limits and can be parsed with
    /// [`parse_trailers`](crate::parse_trailers). A step of [`BodyReader::advance`] with this state
    /// has no payload.
    Trailers(Range<usize>),
    /// The body ended.
    Done,
}

/// Reasons why a body cannot be passed on as complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BodyError {
    /// The framing does not follow the strict chunk grammar that every reader interprets in the
    /// same way.
    #[error("malformed body: {0}")]
    Malformed(&'static str),
    /// The connection ended before the body did.
    #[error("the body breaks off")]
    BrokeOff,
}

impl BodyReader {
    /// Reads the next part of the body from the start of `buf`: at most one run of payload.
    pub fn advance(&mut self, buf: &[u8]) -> Result<Advance, BodyError> {
        let Self::Chunked(scanner) = self else {
            let verbatim = self.advance_verbatim(buf)?;
            let consumed = verbatim.consumed;
            return Ok(Advance {
                consumed,
                data: 0..consumed,
                state: verbatim.state,
            });
        };
        let advance = scanner.advance(buf)?;
        if advance.state != BodyState::More {
            *self = Self::Done;
        }
        Ok(advance)
    }

    /// Reads as much of the body as `buf` contains, for a peer that gets the same framing.
    pub fn advance_verbatim(&mut self, buf: &[u8]) -> Result<VerbatimBytes, BodyError> {
        let verbatim = match self {
            Self::Length { left } => {
                let taken = usize::try_from(*left).map_or(buf.len(), |left| left.min(buf.len()));
                *left = left.saturating_sub(taken as u64);
                let state = if *left == 0 {
                    BodyState::Done
                } else {
                    BodyState::More
                };
                VerbatimBytes {
                    consumed: taken,
                    pass: taken,
                    state,
                }
            }
            Self::Chunked(scanner) => scanner.advance_verbatim(buf)?,
            Self::UntilClose => VerbatimBytes {
                consumed: buf.len(),
                pass: buf.len(),
                state: BodyState::More,
            },
            Self::Done => VerbatimBytes {
                consumed: 0,
                pass: 0,
                state: BodyState::Done,
            },
        };
        if verbatim.state != BodyState::More {
            *self = Self::Done;
        }
        Ok(verbatim)
    }

    /// Returns true if the end has been read.
    pub fn is_done(&self) -> bool {
        matches!(self, Self::Done | Self::Length { left: 0 })
    }

    /// Checks that the connection may end here. Bytes that were not consumed do not count.
    pub fn finish(&self) -> Result<(), BodyError> {
        if self.is_done() || matches!(self, Self::UntilClose) {
            Ok(())
        } else {
            Err(BodyError::BrokeOff)
        }
    }
}

impl From<BodyLength> for BodyReader {
    fn from(body: BodyLength) -> Self {
        match body {
            BodyLength::Empty | BodyLength::Length(0) => Self::Done,
            BodyLength::Length(left) => Self::Length { left },
            BodyLength::Chunked => Self::Chunked(ChunkScanner::new()),
        }
    }
}

impl From<ResponseBody> for BodyReader {
    fn from(body: ResponseBody) -> Self {
        match body {
            ResponseBody::Empty | ResponseBody::Length(0) => Self::Done,
            ResponseBody::Length(left) => Self::Length { left },
            ResponseBody::Chunked => Self::Chunked(ChunkScanner::of_response()),
            ResponseBody::UntilClose => Self::UntilClose,
        }
    }
}

pub(crate) mod chunk;
#[cfg(test)]
mod tests;
pub(crate) mod trailers;
