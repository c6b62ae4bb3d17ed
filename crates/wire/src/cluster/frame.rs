//! Frames of the control connection between two engines.

use super::hello::{HelloError, PeerIdentity};
use crate::error::Error;

/// Bytes of a frame's head.
const HEAD_LEN: usize = 4;

/// Largest payload of any frame.
pub const MAX_FRAME: usize = 4 * 1024;

/// Largest payload of a hello and of a refusal: ids, or a sentence.
const MAX_SMALL: usize = 1024;

/// Tunnels in one frame. Their ids fit into [`MAX_FRAME`].
pub const MAX_ENDED: usize = 64;

/// Largest length of the id of a tunnel.
const MAX_TUNNEL_ID: usize = 60;

const HELLO: u8 = 1;
const PING: u8 = 2;
const DRAIN: u8 = 3;
const ENDED: u8 = 4;
const REFUSAL: u8 = 5;
const CLOSING: u8 = 6;

/// A checked frame.
#[derive(Clone, Debug, PartialEq)]
pub enum PeerFrame {
    /// The first frame of both ends.
    Hello(PeerIdentity),
    /// A sign of life.
    Ping,
    /// The sender is stopping.
    Drain,
    /// These tunnels are offline at the sender; at most [`MAX_ENDED`].
    Ended(Vec<String>),
    /// The sender closes the connection, for this reason.
    Refusal(Error),
    /// The drain of the sender ends soon: WebSockets through it are closed.
    Closing,
}

/// Payload of `ENDED`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct EndedTunnels {
    /// Ids of the tunnels.
    #[prost(string, repeated, tag = "1")]
    pub tunnels: Vec<String>,
}

/// Reasons why bytes are not a valid frame.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PeerFrameError {
    /// An unknown type.
    #[error("frame type {0} is unknown")]
    Type(u8),
    /// A length that frames of this type cannot have.
    #[error("a frame of type {kind} cannot have {len} bytes")]
    Length {
        /// Type of the frame.
        kind: u8,
        /// Its length.
        len: usize,
    },
    /// A payload that cannot be read.
    #[error("a frame's payload cannot be read")]
    Message(#[from] prost::DecodeError),
    /// A hello that is not accepted.
    #[error(transparent)]
    Hello(#[from] HelloError),
    /// Too many tunnels, or an id that no tunnel has.
    #[error("a list of tunnels is invalid")]
    Tunnels,
}

/// Appends a frame.
///
/// # Errors
/// [`PeerFrameError::Length`] if its payload is empty or too long; `out` is unchanged.
pub fn encode_frame(frame: &PeerFrame, out: &mut Vec<u8>) -> Result<(), PeerFrameError> {
    match frame {
        PeerFrame::Hello(identity) => append(HELLO, &identity.hello(), out),
        PeerFrame::Ping => append(PING, &(), out),
        PeerFrame::Drain => append(DRAIN, &(), out),
        PeerFrame::Ended(tunnels) => {
            let ended = EndedTunnels {
                tunnels: tunnels.clone(),
            };
            append(ENDED, &ended, out)
        }
        PeerFrame::Refusal(error) => append(REFUSAL, error, out),
        PeerFrame::Closing => append(CLOSING, &(), out),
    }
}

fn append(
    kind: u8,
    payload: &impl prost::Message,
    out: &mut Vec<u8>,
) -> Result<(), PeerFrameError> {
    let len = payload.encoded_len();
    check_len(kind, len)?;
    // At most `MAX_FRAME`, so the first byte is zero.
    let [_, high, middle, low] = u32::try_from(len).unwrap_or(u32::MAX).to_be_bytes();
    out.extend_from_slice(&[kind, high, middle, low]);
    payload.encode_raw(out);
    Ok(())
}

/// Checks a length before memory is taken for it.
fn check_len(kind: u8, len: usize) -> Result<(), PeerFrameError> {
    let limits = match kind {
        HELLO | REFUSAL => 1..=MAX_SMALL,
        PING | DRAIN | CLOSING => 0..=0,
        ENDED => 1..=MAX_FRAME,
        _ => return Err(PeerFrameError::Type(kind)),
    };
    if limits.contains(&len) {
        Ok(())
    } else {
        Err(PeerFrameError::Length { kind, len })
    }
}

/// Collects received bytes into frames.
#[derive(Debug, Default)]
pub struct PeerDecoder {
    /// Received bytes that are not decoded yet.
    buffer: Vec<u8>,
}

impl PeerDecoder {
    /// Adds received bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// Bytes that are missing until the current frame is complete, so that a caller can read one
    /// frame and no byte beyond it. 0 if a frame is complete.
    ///
    /// # Errors
    /// The head of the frame is invalid.
    pub fn missing(&self) -> Result<usize, PeerFrameError> {
        let Some((_, len)) = self.head()? else {
            return Ok(HEAD_LEN - self.buffer.len());
        };
        Ok((HEAD_LEN + len).saturating_sub(self.buffer.len()))
    }

    /// The next complete frame, if there is one.
    ///
    /// # Errors
    /// Bytes that are not a frame. The connection must be closed.
    pub fn next_frame(&mut self) -> Result<Option<PeerFrame>, PeerFrameError> {
        let Some((kind, len)) = self.head()? else {
            return Ok(None);
        };
        let Some(payload) = self.buffer.get(HEAD_LEN..HEAD_LEN + len) else {
            return Ok(None);
        };
        let frame = decode(kind, payload)?;
        self.buffer.drain(..HEAD_LEN + len);
        Ok(Some(frame))
    }

    fn head(&self) -> Result<Option<(u8, usize)>, PeerFrameError> {
        let Some(&[kind, high, middle, low]) = self.buffer.first_chunk::<HEAD_LEN>() else {
            return Ok(None);
        };
        let len = u32::from_be_bytes([0, high, middle, low]);
        let len = usize::try_from(len).unwrap_or(usize::MAX);
        check_len(kind, len)?;
        Ok(Some((kind, len)))
    }
}

fn decode(kind: u8, payload: &[u8]) -> Result<PeerFrame, PeerFrameError> {
    Ok(match kind {
        HELLO => PeerFrame::Hello(PeerIdentity::decode(payload)?),
        PING => PeerFrame::Ping,
        DRAIN => PeerFrame::Drain,
        ENDED => {
            let ended = <EndedTunnels as prost::Message>::decode(payload)?;
            let is_id = |id: &String| {
                (1..=MAX_TUNNEL_ID).contains(&id.len())
                    && id.bytes().all(|byte| byte.is_ascii_graphic())
            };
            if ended.tunnels.len() > MAX_ENDED || !ended.tunnels.iter().all(is_id) {
                return Err(PeerFrameError::Tunnels);
            }
            PeerFrame::Ended(ended.tunnels)
        }
        REFUSAL => PeerFrame::Refusal(<Error as prost::Message>::decode(payload)?),
        CLOSING => PeerFrame::Closing,
        _ => return Err(PeerFrameError::Type(kind)),
    })
}
