use super::{DOWN_LIMIT, UP_LIMIT};
use crate::pool::Side;

/// Bytes of one direction of a stream that may be on a lane before `TAKEN` has told of them: an
/// exchange of the largest kind, and what is left of the one before.
pub const fn window(from: Side) -> usize {
    2 * limit(from)
}

/// Bytes of which one `TAKEN` tells that they have been read. A quarter of the window: whoever
/// reads tells of it seldom, and well before the window is full.
pub const fn unit(from: Side) -> usize {
    limit(from) / 2
}

const fn limit(from: Side) -> usize {
    match from {
        Side::Engine => UP_LIMIT,
        Side::Agent => DOWN_LIMIT,
    }
}

/// One direction of a stream on a lane, as its sender keeps it.
#[derive(Clone, Copy, Debug)]
pub struct SendWindow {
    from: Side,
    /// Sent, and not told to be read.
    waiting: usize,
}

impl SendWindow {
    /// The direction that begins at `side`.
    pub fn new(side: Side) -> Self {
        Self {
            from: side,
            waiting: 0,
        }
    }

    /// Bytes that may be sent now.
    pub fn room(&self) -> usize {
        window(self.from) - self.waiting
    }

    /// Notes that bytes are sent, at most as many as there is [`room`](Self::room) for.
    pub fn on_send(&mut self, len: usize) {
        self.waiting = (self.waiting + len).min(window(self.from));
    }

    /// Notes a `TAKEN` of the peer.
    ///
    /// # Errors
    /// It tells of more than was sent: the lane is to be closed.
    pub fn on_taken(&mut self) -> Result<(), InvalidWindowUpdateError> {
        let left = self.waiting.checked_sub(unit(self.from));
        self.waiting = left.ok_or(InvalidWindowUpdateError)?;
        Ok(())
    }
}

/// One direction of a stream on a lane, as its reader keeps it.
#[derive(Clone, Copy, Debug)]
pub struct ReceiveWindow {
    from: Side,
    /// Arrived, and not told to be read.
    waiting: usize,
    /// Read of these.
    read: usize,
}

impl ReceiveWindow {
    /// The direction that ends at `side`.
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

    /// Notes bytes that have arrived.
    ///
    /// # Errors
    /// They are more than the window has room for: the lane is to be closed.
    pub fn on_data(&mut self, len: usize) -> Result<(), WindowExceededError> {
        let waiting = self.waiting.saturating_add(len);
        if waiting > window(self.from) {
            return Err(WindowExceededError);
        }
        self.waiting = waiting;
        Ok(())
    }

    /// Notes that bytes which arrived have been read; how many `TAKEN` are due.
    pub fn on_read(&mut self, len: usize) -> usize {
        self.read = (self.read + len).min(self.waiting);
        let told = self.read / unit(self.from);
        self.read -= told * unit(self.from);
        self.waiting -= told * unit(self.from);
        told
    }
}

/// More of one stream than a lane takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("more of one stream than a lane takes")]
pub struct WindowExceededError;

/// A `TAKEN` of what was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("more was taken than was sent")]
pub struct InvalidWindowUpdateError;
