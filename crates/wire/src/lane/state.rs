use super::head::FrameType;

/// A frame about a stream that has begun, without its payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameStep {
    /// Bytes of the stream.
    Data,
    /// The sender's direction is complete.
    End,
    /// The sender gives up both directions.
    Reset,
    /// The sender's direction goes on elsewhere.
    Move,
    /// The sender has read a further unit of the stream.
    Taken,
}

/// What one end knows about one stream of a lane, from its `OPEN` on.
///
/// The rules, which both ends keep:
/// - Each side finishes its direction once, with `END`, `MOVE` or `RESET`; no `DATA`
///   follows. The stream is over on the lane when both sides have.
/// - A side that gives up sends `RESET`, also after its own `END` or `MOVE`, and throws away what
///   still arrives until the peer has finished its direction. A side that receives `RESET` sends
///   no further `DATA`; if it has not finished its direction, it does so now. What came before an
///   `END` is complete, though a `RESET` follows.
/// - `TAKEN` tells of the peer's direction, also when our own is finished; not when the peer's is, or
///   when we have given up. It means nothing where it crossed the end of what it tells of.
/// - A `TAKEN` for a stream that is over means nothing: it crossed the peer's last frame. So does a
///   `RESET`, except to a side that still waits for the standing connection: its peer has gone.
/// - Whoever receives `MOVE` sends `MOVE` too, unless its direction is finished. The engine brings
///   the standing connection. What comes there is read after the `MOVE` on the lane.
///
/// [`on_send`](Self::on_send) is called before a frame is sent, [`on_receive`](Self::on_receive)
/// when one arrives.
#[derive(Clone, Copy, Debug)]
pub struct StreamState {
    ours: Direction,
    theirs: Direction,
    /// The peer gave up both directions. Behind its `END` what it had said is complete all the same.
    gave_up: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    Open,
    Ended,
    Moved,
    GivenUp,
}

/// What a frame that arrived means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameEffect {
    /// Bytes of the stream.
    Data,
    /// Bytes of a stream that we gave up: to be thrown away.
    Discard,
    /// The peer's direction is complete.
    End,
    /// The peer gave the stream up: send nothing more, finish our direction.
    Reset,
    /// A `RESET` of a stream that is over: nothing, or the connection that is waited for will not
    /// come.
    Late,
    /// The peer's direction goes on elsewhere.
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
            gave_up: false,
        }
    }

    /// Notes that this frame is about to be sent.
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

    /// Notes that this frame has arrived.
    ///
    /// # Errors
    /// A frame that the peer may not send now: the lane is to be closed.
    pub fn on_receive(&mut self, step: FrameStep) -> Result<FrameEffect, ProtocolError> {
        let open = self.theirs == Direction::Open;
        let given_up = self.ours == Direction::GivenUp;
        match step {
            FrameStep::Data if open && given_up => Ok(FrameEffect::Discard),
            FrameStep::Data if open => Ok(FrameEffect::Data),
            FrameStep::Taken if !self.gave_up => Ok(FrameEffect::Taken),
            FrameStep::End if open => {
                self.theirs = Direction::Ended;
                Ok(FrameEffect::End)
            }
            FrameStep::Move if open => {
                self.theirs = Direction::Moved;
                Ok(FrameEffect::Move)
            }
            FrameStep::Reset if self.gave_up => Err(ProtocolError(step.frame())),
            FrameStep::Reset if self.is_over() => Ok(FrameEffect::Late),
            FrameStep::Reset => {
                self.gave_up = true;
                if self.theirs != Direction::Ended {
                    self.theirs = Direction::GivenUp;
                }
                Ok(FrameEffect::Reset)
            }
            _ => Err(ProtocolError(step.frame())),
        }
    }

    /// Whether both directions are finished on the lane.
    pub fn is_over(&self) -> bool {
        self.ours != Direction::Open && self.theirs != Direction::Open
    }

    /// Whether `DATA` may be sent.
    pub fn may_send(&self) -> bool {
        self.ours == Direction::Open && !self.gave_up
    }

    /// Whether our direction is not finished on the lane.
    pub fn is_sending(&self) -> bool {
        self.ours == Direction::Open
    }

    /// Whether the peer's direction is not finished on the lane.
    pub fn is_receiving(&self) -> bool {
        self.theirs == Direction::Open
    }

    /// Whether the peer has given the stream up before its direction was complete.
    pub fn is_reset(&self) -> bool {
        self.theirs == Direction::GivenUp
    }

    /// Whether the peer has given the stream up, before its end or behind it: it hears no more.
    pub fn is_deaf(&self) -> bool {
        self.gave_up
    }

    /// Whether we have given the stream up.
    pub fn is_given_up(&self) -> bool {
        self.ours == Direction::GivenUp
    }

    /// Whether the peer's direction is complete.
    pub fn is_ended(&self) -> bool {
        self.theirs == Direction::Ended
    }

    /// Whether the peer's direction goes on elsewhere.
    pub fn is_moved(&self) -> bool {
        self.theirs == Direction::Moved
    }

    /// Whether it is over on the lane, and goes on elsewhere in one direction or both.
    pub fn goes_on(&self) -> bool {
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

/// A frame at a moment that does not allow it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a {0:?} frame is not allowed here")]
pub struct ProtocolError(pub FrameType);
