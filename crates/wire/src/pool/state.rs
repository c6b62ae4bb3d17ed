use super::head::FrameType;

/// One end of a standing connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Opens streams.
    Engine,
    /// Accepts streams.
    Agent,
}

/// A frame without its payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PoolFrame {
    /// The engine opens a stream.
    Open,
    /// Bytes of the stream.
    Data,
    /// The sender's direction is complete.
    End,
    /// The sender aborts the stream with this number.
    Reset {
        /// As in [`StreamReset::stream`](super::StreamReset).
        stream: u32,
    },
    /// The sender accepts no further stream here.
    Retire,
    /// The engine turns the connection into a lane.
    Lane,
}

/// State of the successive streams of a standing connection, at one end.
///
/// The rules for both ends:
/// - The engine sends `OPEN` when the previous stream is over and neither side has sent `RETIRE`.
/// - A stream is over when each side has sent `END` or `RESET`; no `DATA` follows either.
/// - A side that aborts sends `RESET`, also after its own `END`, and discards the bytes that arrive
///   until the peer's `END` or `RESET`. A side that receives `RESET` sends no further `DATA`; if it
///   has not ended its direction, it does so now with `END` or `RESET`.
/// - A `RESET` for a stream that is over is ignored: it crossed the peer's `END`.
/// - The response to an `OPEN` that crossed the agent's `RETIRE` is `RESET` (6000). No data of that
///   stream was used, so the engine may use another connection for it.
/// - The engine may send `LANE` whenever it may send `OPEN`; these rules end there.
/// - The connection is closed between streams: by the engine after a `RETIRE` of either side, by
///   the agent after the engine's.
///
/// [`on_send`](Self::on_send) is called before a frame is sent. [`on_receive`](Self::on_receive) is
/// called when a complete frame or, for `DATA`, its head has arrived.
#[derive(Clone, Debug)]
pub struct StreamState {
    side: Side,
    /// Streams opened so far.
    stream: u32,
    /// True while our direction of the current stream is open.
    sending: bool,
    /// True while the peer's direction of the current stream is open.
    receiving: bool,
    aborted: bool,
    peer_aborted: bool,
    retired: bool,
    peer_retired: bool,
}

/// The meaning of a received frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReceivedFrame {
    /// A stream starts.
    Open,
    /// A stream starts that must be refused with `RESET`, because we had sent `RETIRE`.
    OpenAfterRetire,
    /// Bytes of the stream.
    Data,
    /// Bytes of a stream that we aborted: must be discarded.
    Discard,
    /// The peer's direction is complete.
    End,
    /// The peer aborted the stream: send nothing more, and end our direction.
    Reset,
    /// A `RESET` of a stream that is over.
    Ignored,
    /// The peer accepts no further stream here.
    Retire,
    /// The rest of the connection is a lane.
    Lane,
}

impl StreamState {
    /// A connection after its hello, without a stream.
    pub fn new(side: Side) -> Self {
        Self {
            side,
            stream: 0,
            sending: false,
            receiving: false,
            aborted: false,
            peer_aborted: false,
            retired: false,
            peer_retired: false,
        }
    }

    /// Records that this frame is about to be sent.
    ///
    /// # Errors
    /// A frame that may not be sent now; the state is unchanged.
    pub fn on_send(&mut self, step: PoolFrame) -> Result<(), ProtocolError> {
        match step {
            PoolFrame::Open if self.may_open() => self.begin(),
            PoolFrame::Data if self.may_send_data() => {}
            PoolFrame::End if self.sending => self.sending = false,
            PoolFrame::Reset { stream }
                if stream == self.stream && !self.is_over() && !self.aborted =>
            {
                self.aborted = true;
                self.sending = false;
            }
            PoolFrame::Retire if !self.retired => self.retired = true,
            // No further stream starts under these rules.
            PoolFrame::Lane if self.may_open() => self.retired = true,
            _ => return Err(self.violation(step)),
        }
        Ok(())
    }

    /// Records that this frame has arrived.
    ///
    /// # Errors
    /// A frame that the peer may not send now: the connection must be closed.
    pub fn on_receive(&mut self, step: PoolFrame) -> Result<ReceivedFrame, ProtocolError> {
        match step {
            PoolFrame::Open
                if self.side == Side::Agent
                    && self.is_over()
                    && !self.peer_retired
                    && self.stream < u32::MAX =>
            {
                self.begin();
                Ok(if self.retired {
                    ReceivedFrame::OpenAfterRetire
                } else {
                    ReceivedFrame::Open
                })
            }
            PoolFrame::Data if self.receiving => Ok(if self.aborted {
                ReceivedFrame::Discard
            } else {
                ReceivedFrame::Data
            }),
            PoolFrame::End if self.receiving => {
                self.receiving = false;
                Ok(ReceivedFrame::End)
            }
            PoolFrame::Reset { stream } if stream == self.stream && !self.is_over() => {
                if self.peer_aborted {
                    return Err(self.violation(step));
                }
                self.peer_aborted = true;
                self.receiving = false;
                Ok(ReceivedFrame::Reset)
            }
            PoolFrame::Reset { stream } if (1..=self.stream).contains(&stream) => {
                Ok(ReceivedFrame::Ignored)
            }
            PoolFrame::Retire if !self.peer_retired => {
                self.peer_retired = true;
                Ok(ReceivedFrame::Retire)
            }
            PoolFrame::Lane if self.side == Side::Agent && self.is_over() && !self.peer_retired => {
                self.peer_retired = true;
                Ok(ReceivedFrame::Lane)
            }
            _ => Err(self.violation(step)),
        }
    }

    /// The number of the current stream, or of the last one; 0 before the first.
    pub fn stream(&self) -> u32 {
        self.stream
    }

    /// Returns true if there is no stream, or both directions of it have ended.
    pub fn is_over(&self) -> bool {
        !self.sending && !self.receiving
    }

    /// Returns true if `OPEN` may be sent.
    pub fn may_open(&self) -> bool {
        self.side == Side::Engine
            && self.is_over()
            && !self.retired
            && !self.peer_retired
            && self.stream < u32::MAX
    }

    /// Returns true if `DATA` may be sent.
    pub fn may_send_data(&self) -> bool {
        self.sending && !self.peer_aborted
    }

    /// Returns true if our direction of the stream has not ended: `END` or `RESET` is still due.
    pub fn owes_end(&self) -> bool {
        self.sending
    }

    /// Returns true if the connection has no further use and this side may close it.
    pub fn may_close(&self) -> bool {
        let last = match self.side {
            Side::Engine => self.retired || self.peer_retired,
            Side::Agent => self.peer_retired,
        };
        self.is_over() && last
    }

    fn begin(&mut self) {
        self.stream += 1;
        self.sending = true;
        self.receiving = true;
        self.aborted = false;
        self.peer_aborted = false;
    }

    fn violation(&self, step: PoolFrame) -> ProtocolError {
        let frame = match step {
            PoolFrame::Open => FrameType::Open,
            PoolFrame::Data => FrameType::Data,
            PoolFrame::End => FrameType::End,
            PoolFrame::Reset { .. } => FrameType::Reset,
            PoolFrame::Retire => FrameType::Retire,
            PoolFrame::Lane => FrameType::Lane,
        };
        ProtocolError {
            frame,
            stream: self.stream,
        }
    }
}

/// A frame that is not allowed in the current state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a {frame:?} frame is not allowed here, at stream {stream} of the connection")]
pub struct ProtocolError {
    /// The frame that arrived or was to be sent.
    pub frame: FrameType,
    /// The number of the stream at that moment.
    pub stream: u32,
}
