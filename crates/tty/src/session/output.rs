//! Replay buffer with the latest output or input, kept until the peer has received it.

use std::collections::VecDeque;

use bytes::Bytes;

use crate::message::Stream;

/// Numbered data: each byte of all streams has a number, from 0.
#[derive(Debug, Default)]
pub struct ReplayBuffer {
    chunks: VecDeque<(Stream, Bytes)>,
    /// Number of the first kept byte.
    start: u64,
    /// Number of the next byte.
    next: u64,
}

impl ReplayBuffer {
    /// Adds output of the command.
    pub fn push(&mut self, stream: Stream, bytes: Bytes) {
        self.next += count(&bytes);
        self.chunks.push_back((stream, bytes));
    }

    /// Drops acknowledged output: all bytes before `received`. An acknowledgement of bytes that
    /// were never sent is an error.
    ///
    /// # Errors
    /// `received` exceeds the number of sent bytes.
    pub fn acknowledge(&mut self, received: u64) -> Result<(), AcknowledgementError> {
        if received > self.next {
            return Err(AcknowledgementError);
        }
        self.drop_before(received);
        Ok(())
    }

    /// Keeps at most the newest `max` bytes.
    pub fn shrink_to(&mut self, max: usize) {
        let max = u64::try_from(max).unwrap_or(u64::MAX);
        self.drop_before(self.next.saturating_sub(max));
    }

    /// Number of kept bytes.
    pub fn len(&self) -> u64 {
        self.next - self.start
    }

    /// True if no bytes are kept.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Number of the first kept byte.
    pub fn start(&self) -> u64 {
        self.start
    }

    /// The kept output, in order.
    pub fn iter(&self) -> impl Iterator<Item = (Stream, Bytes)> + '_ {
        self.chunks.iter().cloned()
    }

    fn drop_before(&mut self, number: u64) {
        while self.start < number {
            let Some((_, first)) = self.chunks.front_mut() else {
                return;
            };
            let wanted = usize::try_from(number - self.start).unwrap_or(usize::MAX);
            if wanted >= first.len() {
                self.start += count(first);
                self.chunks.pop_front();
            } else {
                *first = first.slice(wanted..);
                self.start = number;
            }
        }
    }
}

/// The peer acknowledged bytes that were never sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("more was received than was sent")]
pub struct AcknowledgementError;

fn count(bytes: &[u8]) -> u64 {
    u64::try_from(bytes.len()).unwrap_or(u64::MAX)
}
