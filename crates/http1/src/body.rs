//! Bodies: where the payload lies and where it ends.

use std::ops::Range;

use crate::chunk::ChunkScanner;
use crate::request::BodyLength;
use crate::response::ResponseBody;

/// Reads the body that follows a head, whatever its framing.
///
/// Call [`advance`](Self::advance) with the unread bytes; take away what was consumed; read more
/// from the peer when it consumed all or nothing and the state is [`BodyState::More`]. At the end
/// of the connection call [`finish`](Self::finish): a body that broke off is an error, never a
/// shorter body.
#[derive(Debug, Clone)]
pub enum BodyReader {
    /// `Content-Length`.
    Length {
        /// Bytes still to come.
        left: u64,
    },
    /// `Transfer-Encoding: chunked`.
    Chunked(ChunkScanner),
    /// Until the peer closes the connection.
    UntilClose,
    /// The end has been read.
    Done,
}

/// What [`BodyReader::advance`] found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Advance {
    /// Bytes of the buffer that are dealt with. Bytes behind them are offered again in the next
    /// call, together with what arrives later.
    pub consumed: usize,
    /// Payload, a part of the consumed bytes; may be empty.
    pub data: Range<usize>,
    /// What comes next.
    pub state: BodyState,
}

/// What [`BodyReader::advance_verbatim`] found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verbatim {
    /// Bytes of the buffer that are dealt with.
    pub consumed: usize,
    /// Bytes of the buffer that can be passed on as they are, framing included: all that were
    /// consumed, but for a trailer section.
    pub pass: usize,
    /// What comes next.
    pub state: BodyState,
}

/// How far a body has been read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BodyState {
    /// There is more to come.
    More,
    /// The body ended with a trailer section, which lies here in the buffer with its final empty
    /// line. It keeps the limits and can be read with [`parse_trailers`](crate::parse_trailers).
    /// A step of [`BodyReader::advance`] that says so has no payload.
    Trailers(Range<usize>),
    /// The body ended.
    Done,
}

/// Why a body cannot be passed on as whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadBody {
    /// The framing is not the one chunk grammar that every reader understands alike.
    #[error("malformed body: {0}")]
    Malformed(&'static str),
    /// The connection ended before the body did.
    #[error("the body breaks off")]
    BrokeOff,
}

impl BodyReader {
    /// Reads the next stretch of the body from the start of `buf`: at most one run of payload.
    pub fn advance(&mut self, buf: &[u8]) -> Result<Advance, BadBody> {
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

    /// Reads as much of the body as `buf` holds, for a peer that gets the same framing.
    pub fn advance_verbatim(&mut self, buf: &[u8]) -> Result<Verbatim, BadBody> {
        let verbatim = match self {
            Self::Length { left } => {
                let taken = usize::try_from(*left).map_or(buf.len(), |left| left.min(buf.len()));
                *left = left.saturating_sub(taken as u64);
                let state = if *left == 0 {
                    BodyState::Done
                } else {
                    BodyState::More
                };
                Verbatim {
                    consumed: taken,
                    pass: taken,
                    state,
                }
            }
            Self::Chunked(scanner) => scanner.advance_verbatim(buf)?,
            Self::UntilClose => Verbatim {
                consumed: buf.len(),
                pass: buf.len(),
                state: BodyState::More,
            },
            Self::Done => Verbatim {
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

    /// Whether the end has been read.
    pub fn is_done(&self) -> bool {
        matches!(self, Self::Done | Self::Length { left: 0 })
    }

    /// Judges the end of the connection. Bytes that were not consumed do not count.
    pub fn finish(&self) -> Result<(), BadBody> {
        if self.is_done() || matches!(self, Self::UntilClose) {
            Ok(())
        } else {
            Err(BadBody::BrokeOff)
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
            ResponseBody::Chunked => Self::Chunked(ChunkScanner::new()),
            ResponseBody::UntilClose => Self::UntilClose,
        }
    }
}

#[cfg(test)]
mod tests;
