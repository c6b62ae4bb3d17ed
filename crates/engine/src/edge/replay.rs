//! Requests that can be sent again.
//!
//! A service may close an idle connection while a request is on its way. The edge therefore keeps
//! what it has sent on a reused connection for a few seconds, or until the service responds.

use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use tokio::time::{Instant, Sleep, sleep_until};

/// The bytes of one request that were sent.
#[derive(Debug)]
pub(in crate::edge) struct ReplayBuffer {
    bytes: Vec<u8>,
    limit: usize,
    started: Instant,
    /// Exists while the whole request waits for its response.
    expiry: Option<Pin<Box<Sleep>>>,
    /// Bytes of all buffers.
    total: &'static AtomicUsize,
}

/// Limit of the bytes of one request: an upload of a megabyte and its head.
const MAX_REQUEST: usize = 1024 * 1024 + 128 * 1024;

/// Limit of the bytes of all requests of the process. Beyond it, requests are sent without being
/// kept.
const MAX_TOTAL: usize = 64 * 1024 * 1024;

/// Time after which an agent would have reported that the service had closed, even over a bad line.
/// A slow upload does not need memory for longer, and a slow response neither.
const MAX_TIME: Duration = Duration::from_secs(5);

/// Buffers of this size do not expire while their requests wait. A timer would cost more than the
/// memory.
const SMALL: usize = 16 * 1024;

static TOTAL: AtomicUsize = AtomicUsize::new(0);

impl ReplayBuffer {
    /// A buffer for a request on a connection that was used before.
    pub(in crate::edge) fn new() -> Self {
        Self::with_limit(MAX_REQUEST, &TOTAL)
    }

    /// A buffer that keeps nothing.
    pub(in crate::edge) fn disabled() -> Self {
        Self::with_limit(0, &TOTAL)
    }

    fn with_limit(limit: usize, total: &'static AtomicUsize) -> Self {
        Self {
            bytes: Vec::new(),
            limit,
            started: Instant::now(),
            expiry: None,
            total,
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
        let total = self.total.fetch_add(sent.len(), Ordering::Relaxed);
        self.bytes.extend_from_slice(sent);
        total + sent.len() <= MAX_TOTAL
    }

    /// Ready when the request can no longer be kept, because its response is late.
    pub(in crate::edge) fn poll_expired(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.is_small() {
            return Poll::Pending;
        }
        let due = self.started + MAX_TIME;
        let expiry = self
            .expiry
            .get_or_insert_with(|| Box::pin(sleep_until(due)));
        expiry.as_mut().poll(cx)
    }

    /// True if the buffer is too small to expire while its request waits.
    pub(in crate::edge) fn is_small(&self) -> bool {
        self.bytes.len() <= SMALL
    }

    /// Takes the bytes for the last attempt. They count until they have been sent.
    pub(in crate::edge) fn into_bytes(mut self) -> Bytes {
        self.expiry = None;
        Bytes::from_owner(self)
    }

    /// Takes the bytes. The same limits apply to the next attempt.
    pub(in crate::edge) fn take(&mut self) -> Vec<u8> {
        self.total.fetch_sub(self.bytes.len(), Ordering::Relaxed);
        self.started = Instant::now();
        self.expiry = None;
        std::mem::take(&mut self.bytes)
    }
}

impl AsRef<[u8]> for ReplayBuffer {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for ReplayBuffer {
    fn drop(&mut self) {
        self.total.fetch_sub(self.bytes.len(), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

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

    #[tokio::test(start_paused = true)]
    async fn a_request_is_not_kept_while_its_response_is_late() {
        let mut replay = ReplayBuffer::new();
        assert!(replay.record(&vec![0; SMALL + 1]));
        let started = Instant::now();
        poll_fn(|cx| replay.poll_expired(cx)).await;
        assert_eq!(started.elapsed(), MAX_TIME);
    }

    #[test]
    fn the_requests_of_the_process_are_limited() {
        // Other tests use the total of the process.
        static TOTAL: AtomicUsize = AtomicUsize::new(0);
        let buffer = || ReplayBuffer::with_limit(MAX_REQUEST, &TOTAL);
        let mut kept = Vec::new();
        for _ in 0..64 {
            let mut replay = buffer();
            assert!(replay.record(&vec![0; 1024 * 1024]));
            kept.push(replay);
        }
        let mut beyond = buffer();
        assert!(!beyond.record(&vec![0; 1024 * 1024]));
        drop((kept, beyond));
        assert!(buffer().record(b"head"));
        assert_eq!(TOTAL.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn bytes_of_the_last_attempt_count_until_they_are_sent() {
        // Other tests use the total of the process.
        static TOTAL: AtomicUsize = AtomicUsize::new(0);
        let mut replay = ReplayBuffer::with_limit(MAX_REQUEST, &TOTAL);
        assert!(replay.record(b"body"));
        let mut rest = replay.into_bytes();
        assert_eq!(rest.split_to(3), "bod");
        assert_eq!((&rest[..], TOTAL.load(Ordering::Relaxed)), (&b"y"[..], 4));
        drop(rest);
        assert_eq!(TOTAL.load(Ordering::Relaxed), 0);
    }
}
