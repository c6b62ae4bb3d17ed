//! The size of a session's terminal, and forced redraws.

use std::time::{Duration, Instant};

use tty::size::Size;

/// The size that the client has requested, and the end of a forced redraw.
#[derive(Debug)]
pub(super) struct TerminalSize {
    requested: Size,
    /// Time at which the terminal gets its requested size again.
    restore_at: Option<Instant>,
}

impl TerminalSize {
    pub(super) fn new(requested: Size) -> Self {
        Self {
            requested,
            restore_at: None,
        }
    }

    /// Handles a requested size. Returns the size that the terminal gets now.
    ///
    /// A client that resumes sends its size again. If it is the same, a forced redraw continues: a
    /// program that finds its former size draws nothing.
    pub(super) fn request(&mut self, size: Size) -> Option<Size> {
        if self.restore_at.is_some() && size == self.requested {
            return None;
        }
        *self = Self::new(size);
        Some(size)
    }

    /// Starts a forced redraw: the terminal gets another size for a moment. Returns that size.
    pub(super) fn redraw(&mut self, now: Instant) -> Size {
        self.restore_at = Some(now + REDRAW_TIME);
        Size {
            rows: self.requested.rows.saturating_sub(1).max(1),
            cols: self.requested.cols.saturating_add(1),
        }
    }

    /// Ends a forced redraw that is over, and returns the size that the terminal gets again.
    pub(super) fn restore(&mut self, now: Instant) -> Option<Size> {
        self.restore_at.take_if(|at| *at <= now)?;
        Some(self.requested)
    }

    /// Time of the next call to [`restore`](Self::restore).
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.restore_at
    }
}

/// Duration of the temporary size, so that a program notices the change.
const REDRAW_TIME: Duration = Duration::from_millis(50);
