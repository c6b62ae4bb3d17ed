//! The signal that ends a visit.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use futures_util::task::AtomicWaker;
use types::problem::Problem;

/// Revocation state of a visit, with the tasks to wake on revocation.
#[derive(Debug, Default)]
pub(crate) struct RevocationSignal {
    pub(super) is_revoked: AtomicBool,
    waker: AtomicWaker,
    /// Waker of the task of an HTTP/2 stream, which waits for the visitor without polling the response
    /// body.
    stream_waker: AtomicWaker,
    /// Reference of a request that is revoked before its response has started.
    unanswered: OnceLock<Box<str>>,
}

impl RevocationSignal {
    /// Ready when the visit is revoked.
    pub(crate) fn poll(&self, cx: &Context<'_>) -> Poll<()> {
        self.waker.register(cx.waker());
        if self.is_revoked.load(Ordering::Acquire) {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    }

    /// Like [`Self::poll`], for the task of the HTTP/2 stream.
    pub(crate) fn poll_stream(&self, cx: &Context<'_>) -> Poll<()> {
        self.stream_waker.register(cx.waker());
        if self.is_revoked.load(Ordering::Acquire) {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    }

    /// Marks a revoked request as unanswered. `reference` is the id of its record.
    pub(in crate::edge) fn set_unanswered(&self, reference: &str) {
        // A request has one record.
        self.unanswered.set(reference.into()).ok();
    }

    /// The response to a revoked request whose record has ended. `None` if its response has started:
    /// then only the end of the stream or connection shows that it is incomplete.
    pub(in crate::edge) fn problem(&self) -> Option<Problem> {
        let reference = self.unanswered.get()?;
        Some(access_ended().with_reference(&**reference))
    }

    pub(in crate::edge) fn revoke(&self) {
        self.is_revoked.store(true, Ordering::Release);
        self.waker.wake();
        self.stream_waker.wake();
    }
}

/// The refusal of a request that was admitted, and revoked before its response started. The cause may
/// be any of those that revoke a visit; the next request gets the specific refusal.
pub(in crate::edge) const fn access_ended() -> Problem {
    Problem::new(
        403,
        "access_ended",
        "The access to this address ended before the service answered.",
    )
}

/// Waits until the visit is revoked. Without a signal it waits forever. Cancel safe.
pub(crate) async fn revoked(signal: Option<&RevocationSignal>) {
    match signal {
        Some(signal) => std::future::poll_fn(|cx| signal.poll(cx)).await,
        None => std::future::pending().await,
    }
}
