use prost::Message as _;

use super::head::{FrameType, HEAD_LEN, Head, HeadError};
use super::state::FrameStep;
use crate::Error;
use crate::pool::{PayloadError, StreamOpen};

/// Decodes the frames of a lane from bytes in pieces of any size.
///
/// The bytes of `DATA` are not buffered: they are passed on as they arrive, in as many pieces. Of
/// other frames at most one payload of 1 KiB is buffered.
#[derive(Debug, Default)]
pub struct Decoder {
    head: [u8; HEAD_LEN],
    head_read: usize,
    /// The frame whose payload is being received.
    frame: Option<Head>,
    /// Bytes of a `DATA` payload that have not arrived.
    due: usize,
    /// The received part of the payload of a small frame.
    small: Vec<u8>,
}

/// A decoded frame, or a piece of one.
#[derive(Clone, Debug, PartialEq)]
pub enum Event<'b> {
    /// A stream starts.
    Open {
        /// Its number.
        stream: u32,
        /// Description of the stream.
        open: StreamOpen,
    },
    /// A step of a stream. For [`FrameStep::Data`] it has a piece of the payload, for
    /// [`FrameStep::Reset`] the reason.
    Step {
        /// Its number.
        stream: u32,
        /// The step.
        step: FrameStep,
        /// The bytes of `DATA`: at least one; empty otherwise.
        bytes: &'b [u8],
        /// The reason of `RESET`, if there is one.
        error: Option<Error>,
    },
}

/// An error in the bytes of a lane.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LaneError {
    /// An invalid head.
    #[error(transparent)]
    Head(#[from] HeadError),
    /// A payload that does not match its frame's type.
    #[error(transparent)]
    Payload(#[from] PayloadError),
}

impl Decoder {
    /// A decoder for the start of a lane.
    pub fn new() -> Self {
        Self::default()
    }

    /// Decodes the next event from the front of `input`; `None` if all of it was consumed and more
    /// is needed.
    ///
    /// # Errors
    /// The bytes are invalid: the lane must be closed, and no further bytes of it may be read.
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

    /// Returns true if the last byte was the last one of its frame.
    pub fn is_between_frames(&self) -> bool {
        self.frame.is_none() && self.head_read == 0
    }

    /// The current frame, once its head is complete.
    fn frame(&mut self, input: &mut &[u8]) -> Result<Option<Head>, HeadError> {
        if self.frame.is_some() {
            return Ok(self.frame);
        }
        let received = take(input, HEAD_LEN - self.head_read);
        let place = self.head_read..self.head_read + received.len();
        if let Some(place) = self.head.get_mut(place) {
            place.copy_from_slice(received);
        }
        self.head_read += received.len();
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

/// Takes at most `count` bytes from the front.
fn take<'b>(input: &mut &'b [u8], count: usize) -> &'b [u8] {
    let (front, rest) = input.split_at(count.min(input.len()));
    *input = rest;
    front
}
