//! Requests that can be sent again.
//!
//! A service may close an idle connection while a request is on its way. The edge therefore keeps
//! what it has sent on a reused connection, until the service has responded.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::time::Instant;

/// The bytes of one request that were sent.
#[derive(Debug)]
pub(in crate::edge) struct ReplayBuffer {
    bytes: Vec<u8>,
    limit: usize,
    started: Instant,
}

/// Limit of the bytes of one request: an upload of a megabyte and its head.
const MAX_REQUEST: usize = 1024 * 1024 + 128 * 1024;

/// Limit of the bytes of all requests of the process. Beyond it, requests are sent without being
/// kept.
const MAX_TOTAL: usize = 64 * 1024 * 1024;

/// Time after which an agent would have reported that the service had closed, even over a bad line.
/// A slow upload does not need memory for longer.
const MAX_TIME: Duration = Duration::from_secs(5);

static TOTAL: AtomicUsize = AtomicUsize::new(0);

impl ReplayBuffer {
    /// A buffer for a request on a connection that was used before.
    pub(in crate::edge) fn new() -> Self {
        Self::with_limit(MAX_REQUEST)
    }

    /// A buffer that keeps nothing.
    pub(in crate::edge) fn disabled() -> Self {
        Self::with_limit(0)
    }

    fn with_limit(limit: usize) -> Self {
        Self {
            bytes: Vec::new(),
            limit,
            started: Instant::now(),
        }
    }

    /// Adds sent bytes. Returns false if the request can no longer be kept.
    pub(in crate::edge) fn record(&mut self, sent: &[u8]) -> bool {
        if sent.is_empty() {
            return true;
        }
        if self.bytes.len() + sent.len() > self.limit || self.started.elapsed() > MAX_TIME {
            return false;
        }
        let total = TOTAL.fetch_add(sent.len(), Ordering::Relaxed);
        self.bytes.extend_from_slice(sent);
        total + sent.len() <= MAX_TOTAL
    }

    /// Takes the bytes. The same limits apply to the next attempt.
    pub(in crate::edge) fn take(&mut self) -> Vec<u8> {
        TOTAL.fetch_sub(self.bytes.len(), Ordering::Relaxed);
        self.started = Instant::now();
        std::mem::take(&mut self.bytes)
    }
}

impl Drop for ReplayBuffer {
    fn drop(&mut self) {
        TOTAL.fetch_sub(self.bytes.len(), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_request_is_kept_up_to_its_limits() {
        let mut replay = ReplayBuffer::new();
        assert!(replay.record(b"head"));
        assert!(replay.record(&vec![0; 1024 * 1024]));
        assert!(!replay.record(&vec![0; 128 * 1024]));
        let mut replay = ReplayBuffer::new();
        assert!(replay.record(b"head"));
        tokio::time::advance(Duration::from_secs(6)).await;
        assert!(!replay.record(b"body"));
        assert_eq!(replay.take(), b"head");
        assert!(!ReplayBuffer::disabled().record(b"head"));
    }

    #[test]
    fn the_requests_of_the_process_are_limited() {
        let mut kept = Vec::new();
        for _ in 0..64 {
            let mut replay = ReplayBuffer::new();
            if !replay.record(&vec![0; 1024 * 1024]) {
                break;
            }
            kept.push(replay);
        }
        let mut beyond = ReplayBuffer::new();
        assert!(!beyond.record(&vec![0; 1024 * 1024]));
        drop((kept, beyond));
        assert!(ReplayBuffer::new().record(b"head"));
    }
}
