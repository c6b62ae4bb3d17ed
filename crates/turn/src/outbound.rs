//! Queue of data for a client's connection.

use std::collections::VecDeque;

use parking_lot::Mutex;
use tokio::sync::Notify;

/// A queue of whole frames. Data that does not fit is lost, like datagrams. A response that does
/// not fit ends the connection, because its client would wait for it.
#[derive(Debug, Default)]
pub(crate) struct Outbound {
    queue: Mutex<Queue>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct Queue {
    bytes: VecDeque<u8>,
    /// Length of each frame.
    lengths: Vec<usize>,
    is_over: bool,
}

impl Queue {
    fn push(&mut self, frame: &[u8]) {
        self.bytes.extend(frame);
        self.lengths.push(frame.len());
    }
}

/// Maximum bytes of data: about a tenth of a second of a good video. Older data is useless.
const MAX_BYTES: usize = 256 * 1024;
/// Maximum number of frames: as many small ones as can be sent in that time.
const MAX_FRAMES: usize = 4096;

impl Outbound {
    /// Queues data, which may be lost.
    pub(crate) fn push_data(&self, frame: &[u8]) {
        let mut queue = self.queue.lock();
        if queue.bytes.len() + frame.len() <= MAX_BYTES && queue.lengths.len() < MAX_FRAMES {
            queue.push(frame);
            drop(queue);
            self.changed.notify_one();
        }
    }

    /// Queues a response, which must not be lost.
    pub(crate) fn push_response(&self, frame: &[u8]) {
        let mut queue = self.queue.lock();
        // Data cannot fill the part of the queue that is reserved for responses.
        if queue.bytes.len() + frame.len() <= 2 * MAX_BYTES {
            queue.push(frame);
        } else {
            queue.is_over = true;
        }
        drop(queue);
        self.changed.notify_one();
    }

    /// Moves all queued data into `buffer`, and the length of each frame into `lengths`. Returns
    /// false when nothing follows.
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

/// Size to which an emptied queue is shrunk.
const KEPT_BYTES: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn data_that_does_not_fit_is_lost_and_responses_are_not() {
        let outbound = Outbound::default();
        for _ in 0..1000 {
            outbound.push_data(&[1; 1000]);
        }
        outbound.push_response(&[2; 100]);
        let mut taken = Vec::new();
        let mut lengths = Vec::new();
        assert!(outbound.take(&mut taken, &mut lengths).await);
        assert_eq!((taken.len(), lengths.len()), (262 * 1000 + 100, 263));
        assert_eq!(taken.last(), Some(&2));
        taken.clear();
        lengths.clear();
        for _ in 0..5000 {
            outbound.push_data(&[1]);
        }
        assert!(outbound.take(&mut taken, &mut lengths).await);
        assert_eq!((taken.len(), lengths.len()), (4096, 4096), "small ones");
        for _ in 0..6 {
            outbound.push_response(&vec![2; 100_000]);
        }
        assert!(
            !outbound.take(&mut taken, &mut lengths).await,
            "the client reads nothing"
        );
    }
}
