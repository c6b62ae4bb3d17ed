//! What waits to be written to a client's connection.

use std::collections::VecDeque;

use parking_lot::Mutex;
use tokio::sync::Notify;

/// A queue of whole frames. Data that does not fit is lost, as datagrams are; an answer that does
/// not fit ends the connection, because its client would wait for it.
#[derive(Debug, Default)]
pub(crate) struct Outbound {
    queue: Mutex<Queue>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct Queue {
    bytes: VecDeque<u8>,
    /// Where the frames end, each counted from the one before.
    lengths: Vec<usize>,
    is_over: bool,
}

impl Queue {
    fn push(&mut self, frame: &[u8]) {
        self.bytes.extend(frame);
        self.lengths.push(frame.len());
    }
}

/// About a tenth of a second of a good video; what is older is of no use.
const MOST_BYTES: usize = 256 * 1024;
/// Of the smallest ones there are no more than would be sent in that time either.
const MOST_FRAMES: usize = 4096;

impl Outbound {
    /// Data, which may be lost.
    pub(crate) fn offer(&self, frame: &[u8]) {
        let mut queue = self.queue.lock();
        if queue.bytes.len() + frame.len() <= MOST_BYTES && queue.lengths.len() < MOST_FRAMES {
            queue.push(frame);
            drop(queue);
            self.changed.notify_one();
        }
    }

    /// An answer, which may not.
    pub(crate) fn answer(&self, frame: &[u8]) {
        let mut queue = self.queue.lock();
        // Room is kept for answers: data does not fill it.
        if queue.bytes.len() + frame.len() <= 2 * MOST_BYTES {
            queue.push(frame);
        } else {
            queue.is_over = true;
        }
        drop(queue);
        self.changed.notify_one();
    }

    /// Everything that waits, into `buffer`, and how long each frame of it is into `lengths`. False
    /// when there is nothing more to come.
    pub(crate) async fn take(&self, buffer: &mut Vec<u8>, lengths: &mut Vec<usize>) -> bool {
        loop {
            let changed = self.changed.notified();
            {
                let mut queue = self.queue.lock();
                if queue.is_over {
                    return false;
                }
                if !queue.bytes.is_empty() {
                    let (front, back) = queue.bytes.as_slices();
                    buffer.extend_from_slice(front);
                    buffer.extend_from_slice(back);
                    queue.bytes.clear();
                    queue.bytes.shrink_to(KEPT_BYTES);
                    lengths.append(&mut queue.lengths);
                    return true;
                }
            }
            changed.await;
        }
    }
}

/// A queue that was full once does not stay as large.
const KEPT_BYTES: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn data_is_lost_where_it_does_not_fit_and_answers_are_not() {
        let outbound = Outbound::default();
        for _ in 0..1000 {
            outbound.offer(&[1; 1000]);
        }
        outbound.answer(&[2; 100]);
        let mut taken = Vec::new();
        let mut lengths = Vec::new();
        assert!(outbound.take(&mut taken, &mut lengths).await);
        assert_eq!((taken.len(), lengths.len()), (262 * 1000 + 100, 263));
        assert_eq!(taken.last(), Some(&2));
        taken.clear();
        lengths.clear();
        for _ in 0..5000 {
            outbound.offer(&[1]);
        }
        assert!(outbound.take(&mut taken, &mut lengths).await);
        assert_eq!((taken.len(), lengths.len()), (4096, 4096), "small ones");
        for _ in 0..6 {
            outbound.answer(&vec![2; 100_000]);
        }
        assert!(
            !outbound.take(&mut taken, &mut lengths).await,
            "the client reads nothing"
        );
    }
}
