//! The signal that ends a visit.

use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use futures_util::task::AtomicWaker;

/// Revocation state of a visit, with the tasks to wake on revocation.
#[derive(Debug, Default)]
pub(crate) struct RevocationSignal {
    pub(super) is_revoked: AtomicBool,
    waker: AtomicWaker,
    /// Waker of the task of an HTTP/2 stream, which waits for the visitor without polling the response
    /// body.
    stream_waker: AtomicWaker,
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

    pub(in crate::edge) fn revoke(&self) {
        self.is_revoked.store(true, Ordering::Release);
        self.waker.wake();
        self.stream_waker.wake();
    }
}

/// Waits until the visit is revoked. Without a signal it waits forever. Cancel safe.
pub(crate) async fn revoked(signal: Option<&RevocationSignal>) {
    match signal {
        Some(signal) => std::future::poll_fn(|cx| signal.poll(cx)).await,
        None => std::future::pending().await,
    }
}
