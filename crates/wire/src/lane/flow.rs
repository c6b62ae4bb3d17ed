use super::{DOWN_LIMIT, UP_LIMIT};
use crate::pool::Side;

/// Bytes of one direction of a stream that may be on a lane without being acknowledged by `TAKEN`:
/// the largest exchange, and the rest of the previous one.
pub const fn window(from: Side) -> usize {
    2 * limit(from)
}

/// Bytes that one `TAKEN` acknowledges as read. It is a quarter of the window, so that a reader
/// sends it rarely, and well before the window is full.
pub const fn unit(from: Side) -> usize {
    limit(from) / 2
}

const fn limit(from: Side) -> usize {
    match from {
        Side::Engine => UP_LIMIT,
        Side::Agent => DOWN_LIMIT,
    }
}

/// One direction of a stream on a lane, at its sender.
#[derive(Clone, Copy, Debug)]
pub struct SendWindow {
    from: Side,
    /// Bytes that were sent and not acknowledged as read.
    waiting: usize,
}

impl SendWindow {
    /// The direction whose sender is `side`.
    pub fn new(side: Side) -> Self {
        Self {
            from: side,
            waiting: 0,
        }
    }

    /// Bytes that may be sent now.
    pub fn available(&self) -> usize {
        window(self.from) - self.waiting
    }

    /// Records that bytes are sent, at most [`available`](Self::available).
    pub fn on_send(&mut self, len: usize) {
        self.waiting = (self.waiting + len).min(window(self.from));
    }

    /// Records a `TAKEN` of the peer.
    ///
    /// # Errors
    /// It acknowledges more than was sent: the lane must be closed.
    pub fn on_taken(&mut self) -> Result<(), InvalidWindowUpdateError> {
        let left = self.waiting.checked_sub(unit(self.from));
        self.waiting = left.ok_or(InvalidWindowUpdateError)?;
        Ok(())
    }
}

/// One direction of a stream on a lane, at its receiver.
#[derive(Clone, Copy, Debug)]
pub struct ReceiveWindow {
    from: Side,
    /// Bytes that arrived and were not acknowledged.
    waiting: usize,
    /// Part of them that has been read.
    read: usize,
}

impl ReceiveWindow {
    /// The direction whose receiver is `side`.
    pub fn new(side: Side) -> Self {
        let from = match side {
            Side::Engine => Side::Agent,
            Side::Agent => Side::Engine,
        };
        Self {
            from,
            waiting: 0,
            read: 0,
        }
    }

    /// Records bytes that have arrived.
    ///
    /// # Errors
    /// They exceed the window: the lane must be closed.
    pub fn on_data(&mut self, len: usize) -> Result<(), WindowExceededError> {
        let waiting = self.waiting.saturating_add(len);
        if waiting > window(self.from) {
            return Err(WindowExceededError);
        }
        self.waiting = waiting;
        Ok(())
    }

    /// Records that bytes have been read; returns the number of `TAKEN` frames to send.
    pub fn on_read(&mut self, len: usize) -> usize {
        self.read = (self.read + len).min(self.waiting);
        let frames = self.read / unit(self.from);
        self.read -= frames * unit(self.from);
        self.waiting -= frames * unit(self.from);
        frames
    }
}

/// More unread bytes of one stream than a lane allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("more data of one stream than a lane accepts")]
pub struct WindowExceededError;

/// A `TAKEN` for bytes that were not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("more was taken than was sent")]
pub struct InvalidWindowUpdateError;
