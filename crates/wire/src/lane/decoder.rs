use prost::Message as _;

use super::head::{FrameType, HEAD_LEN, Head, HeadError};
use super::state::FrameStep;
use crate::Error;
use crate::pool::{PayloadError, StreamOpen};

/// Reads the frames of a lane out of bytes that come in any pieces.
///
/// Of `DATA` nothing is kept: its bytes are handed on as they come, in as many pieces. Of other
/// frames at most one payload is held, 1 KiB.
#[derive(Debug, Default)]
pub struct Decoder {
    head: [u8; HEAD_LEN],
    head_read: usize,
    /// The frame whose payload is being read.
    frame: Option<Head>,
    /// Bytes of a `DATA` payload that have not come.
    due: usize,
    /// The payload of a small frame, as far as it has come.
    small: Vec<u8>,
}

/// What a lane says.
#[derive(Clone, Debug, PartialEq)]
pub enum Event<'b> {
    /// A stream begins.
    Open {
        /// Its number.
        stream: u32,
        /// What it is.
        open: StreamOpen,
    },
    /// Something about a stream; for [`FrameStep::Data`] a piece of it, for [`FrameStep::Reset`] the reason.
    Step {
        /// Its number.
        stream: u32,
        /// What happens.
        step: FrameStep,
        /// The bytes of `DATA`: at least one; empty otherwise.
        bytes: &'b [u8],
        /// The reason of `RESET`, where there is one.
        error: Option<Error>,
    },
}

/// Bytes that no lane has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LaneError {
    /// No head.
    #[error(transparent)]
    Head(#[from] HeadError),
    /// A payload that is not what its frame's type says.
    #[error(transparent)]
    Payload(#[from] PayloadError),
}

impl Decoder {
    /// One at the beginning of a lane.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes the next event off the front of `input`; `None` when all of it is taken and more is
    /// needed.
    ///
    /// # Errors
    /// What no lane has: it is to be closed, and nothing further to be read of it.
    pub fn next<'b>(&mut self, input: &mut &'b [u8]) -> Result<Option<Event<'b>>, LaneError> {
        let Some(frame) = self.frame(input)? else {
            return Ok(None);
        };
        let stream = frame.stream();
        let step = match frame.kind() {
            FrameType::Data => {
                let bytes = take(input, self.due);
                if bytes.is_empty() {
                    return Ok(None);
                }
                self.due -= bytes.len();
                if self.due == 0 {
                    self.frame = None;
                }
                return Ok(Some(Event::Step {
                    stream,
                    step: FrameStep::Data,
                    bytes,
                    error: None,
                }));
            }
            FrameType::Open | FrameType::Reset => {
                let missing = frame.payload_len() - self.small.len();
                self.small.extend_from_slice(take(input, missing));
                if self.small.len() < frame.payload_len() {
                    return Ok(None);
                }
                let payload = std::mem::take(&mut self.small);
                self.frame = None;
                if frame.kind() == FrameType::Open {
                    let open = StreamOpen::decode_payload(&payload)?;
                    return Ok(Some(Event::Open { stream, open }));
                }
                let error = Error::decode(&*payload).map_err(PayloadError::from)?;
                return Ok(Some(Event::Step {
                    stream,
                    step: FrameStep::Reset,
                    bytes: &[],
                    error: (error != Error::default()).then_some(error),
                }));
            }
            FrameType::End => FrameStep::End,
            FrameType::Move => FrameStep::Move,
            FrameType::Taken => FrameStep::Taken,
        };
        self.frame = None;
        Ok(Some(Event::Step {
            stream,
            step,
            bytes: &[],
            error: None,
        }))
    }

    /// Whether the last byte was the last of its frame.
    pub fn is_between_frames(&self) -> bool {
        self.frame.is_none() && self.head_read == 0
    }

    /// The frame that is being read, once its head has come.
    fn frame(&mut self, input: &mut &[u8]) -> Result<Option<Head>, HeadError> {
        if self.frame.is_some() {
            return Ok(self.frame);
        }
        let came = take(input, HEAD_LEN - self.head_read);
        let place = self.head_read..self.head_read + came.len();
        if let Some(place) = self.head.get_mut(place) {
            place.copy_from_slice(came);
        }
        self.head_read += came.len();
        if self.head_read < HEAD_LEN {
            return Ok(None);
        }
        let head = Head::decode(self.head)?;
        self.head_read = 0;
        self.due = head.payload_len();
        self.frame = Some(head);
        Ok(self.frame)
    }
}

/// Takes at most `count` bytes off the front.
fn take<'b>(input: &mut &'b [u8], count: usize) -> &'b [u8] {
    let (front, rest) = input.split_at(count.min(input.len()));
    *input = rest;
    front
}
