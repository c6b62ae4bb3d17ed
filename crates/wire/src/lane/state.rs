use super::head::FrameType;

/// A frame about an open stream, without its payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameStep {
    /// Bytes of the stream.
    Data,
    /// The sender's direction is complete.
    End,
    /// The sender aborts both directions.
    Reset,
    /// The sender's direction continues on another connection.
    Move,
    /// The sender has read a further unit of the stream.
    Taken,
}

/// State of one stream of a lane at one end, from its `OPEN` on.
///
/// The rules for both ends:
/// - Each side finishes its direction once, with `END`, `MOVE` or `RESET`; no `DATA` follows. The
///   stream is over on the lane when both sides have.
/// - A side that aborts sends `RESET`, also after its own `END` or `MOVE`, and discards the bytes
///   that arrive until the peer has finished its direction. A side that receives `RESET` sends no
///   further `DATA`; if it has not finished its direction, it does so now. The data before an `END`
///   is complete, even if a `RESET` follows.
/// - `TAKEN` refers to the peer's direction. A side may send it after its own direction is
///   finished, but not after the peer's is, nor after it has aborted. A `TAKEN` that crossed the
///   end of the direction that it refers to is ignored.
/// - A `TAKEN` for a stream that is over is ignored: it crossed the peer's last frame. The same
///   applies to a `RESET`, except at a side that still waits for the standing connection: its peer
///   has gone.
/// - A side that receives `MOVE` sends `MOVE` as well, unless its direction is finished. The engine
///   provides the standing connection. Its bytes are read after the `MOVE` on the lane.
///
/// [`on_send`](Self::on_send) is called before a frame is sent, [`on_receive`](Self::on_receive)
/// when one has arrived.
#[derive(Clone, Copy, Debug)]
pub struct StreamState {
    ours: Direction,
    theirs: Direction,
    /// The peer aborted both directions. The data before its `END` is complete nevertheless.
    peer_aborted: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    Open,
    Ended,
    Moved,
    GivenUp,
}

/// The meaning of a received frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameEffect {
    /// Bytes of the stream.
    Data,
    /// Bytes of a stream that we aborted: must be discarded.
    Discard,
    /// The peer's direction is complete.
    End,
    /// The peer aborted the stream: send nothing more, and finish our direction.
    Reset,
    /// A `RESET` of a stream that is over: it has no effect, except that a pending connection will
    /// not arrive.
    Ignored,
    /// The peer's direction continues on another connection.
    Move,
    /// The peer has read a further unit of our direction.
    Taken,
}

impl Default for StreamState {
    fn default() -> Self {
        Self::new()
    }
}

impl StreamState {
    /// A stream after its `OPEN`.
    pub fn new() -> Self {
        Self {
            ours: Direction::Open,
            theirs: Direction::Open,
            peer_aborted: false,
        }
    }

    /// Records that this frame is about to be sent.
    ///
    /// # Errors
    /// A frame that may not be sent now; the state is unchanged.
    pub fn on_send(&mut self, step: FrameStep) -> Result<(), ProtocolError> {
        match step {
            FrameStep::Data if self.may_send() => {}
            FrameStep::Taken if self.is_receiving() && self.ours != Direction::GivenUp => {}
            FrameStep::End if self.ours == Direction::Open => self.ours = Direction::Ended,
            FrameStep::Move if self.may_send() => self.ours = Direction::Moved,
            FrameStep::Reset if !self.is_over() && self.ours != Direction::GivenUp => {
                self.ours = Direction::GivenUp;
            }
            _ => return Err(ProtocolError(step.frame())),
        }
        Ok(())
    }

    /// Records that this frame has arrived.
    ///
    /// # Errors
    /// A frame that the peer may not send now: the lane must be closed.
    pub fn on_receive(&mut self, step: FrameStep) -> Result<FrameEffect, ProtocolError> {
        let open = self.theirs == Direction::Open;
        let given_up = self.ours == Direction::GivenUp;
        match step {
            FrameStep::Data if open && given_up => Ok(FrameEffect::Discard),
            FrameStep::Data if open => Ok(FrameEffect::Data),
            FrameStep::Taken if !self.peer_aborted => Ok(FrameEffect::Taken),
            FrameStep::End if open => {
                self.theirs = Direction::Ended;
                Ok(FrameEffect::End)
            }
            FrameStep::Move if open => {
                self.theirs = Direction::Moved;
                Ok(FrameEffect::Move)
            }
            FrameStep::Reset if self.peer_aborted => Err(ProtocolError(step.frame())),
            FrameStep::Reset if self.is_over() => Ok(FrameEffect::Ignored),
            FrameStep::Reset => {
                self.peer_aborted = true;
                if self.theirs != Direction::Ended {
                    self.theirs = Direction::GivenUp;
                }
                Ok(FrameEffect::Reset)
            }
            _ => Err(ProtocolError(step.frame())),
        }
    }

    /// Returns true if both directions are finished on the lane.
    pub fn is_over(&self) -> bool {
        self.ours != Direction::Open && self.theirs != Direction::Open
    }

    /// Returns true if `DATA` may be sent.
    pub fn may_send(&self) -> bool {
        self.ours == Direction::Open && !self.peer_aborted
    }

    /// Returns true if our direction is not finished on the lane.
    pub fn is_sending(&self) -> bool {
        self.ours == Direction::Open
    }

    /// Returns true if the peer's direction is not finished on the lane.
    pub fn is_receiving(&self) -> bool {
        self.theirs == Direction::Open
    }

    /// Returns true if the peer aborted the stream before its direction was complete.
    pub fn is_reset(&self) -> bool {
        self.theirs == Direction::GivenUp
    }

    /// Returns true if the peer aborted the stream, before or after its end: it reads no more.
    pub fn is_aborted_by_peer(&self) -> bool {
        self.peer_aborted
    }

    /// Returns true if we have aborted the stream.
    pub fn is_aborted(&self) -> bool {
        self.ours == Direction::GivenUp
    }

    /// Returns true if the peer's direction is complete.
    pub fn is_ended(&self) -> bool {
        self.theirs == Direction::Ended
    }

    /// Returns true if the peer's direction continues on another connection.
    pub fn is_moved(&self) -> bool {
        self.theirs == Direction::Moved
    }

    /// Returns true if the stream is over on the lane and continues on another connection in one or
    /// both directions.
    pub fn continues_elsewhere(&self) -> bool {
        use Direction::{Ended, Moved};
        matches!(
            (self.ours, self.theirs),
            (Moved | Ended, Moved) | (Moved, Ended)
        )
    }
}

impl FrameStep {
    fn frame(self) -> FrameType {
        match self {
            Self::Data => FrameType::Data,
            Self::End => FrameType::End,
            Self::Reset => FrameType::Reset,
            Self::Move => FrameType::Move,
            Self::Taken => FrameType::Taken,
        }
    }
}

/// A frame that is not allowed in the current state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a {0:?} frame is not allowed here")]
pub struct ProtocolError(pub FrameType);
