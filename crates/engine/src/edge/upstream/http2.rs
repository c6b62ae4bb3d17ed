//! HTTP/2 connections to services, which several requests share.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use bytes::Bytes;
use h2::client::SendRequest;
use tokio::sync::Notify;
use transport::permit::{Counter, Permit};

use crate::agents::SharedRequests;

/// A slot for one request on a shared HTTP/2 connection.
pub(crate) struct Http2 {
    pub(crate) send: SendRequest<Bytes>,
    pub(crate) permit: StreamPermit,
}

/// Counts one request on its connection, until its response ends.
#[derive(Debug)]
pub(crate) struct StreamPermit {
    /// Empty only while this is being dropped.
    counted: Option<Permit<StreamLimit>>,
    limit: Arc<StreamLimit>,
}

/// The number of requests on a connection, and their limit.
#[derive(Debug)]
pub(crate) struct StreamLimit {
    active: Counter,
    max: AtomicUsize,
    /// True once the service has sent its limit, which precedes its first response.
    is_known: AtomicBool,
    response_received: Notify,
    /// A request had no complete response because of the service or its connection.
    has_failed: AtomicBool,
    /// A request has ended.
    ended: Notify,
}

/// Limit of requests that share a connection, even if the service allows more. They share the
/// flow-control window of the connection.
pub(super) const MAX_CONCURRENT_STREAMS: usize = 32;

#[derive(Debug)]
pub(super) struct SharedHttp2 {
    pub(super) send: SendRequest<Bytes>,
    pub(super) limit: Arc<StreamLimit>,
    pub(super) last_used: Instant,
}

impl SharedHttp2 {
    /// Acquires a slot, if one is free.
    pub(super) fn try_acquire(&mut self) -> Option<Http2> {
        if self.is_closed() || !self.limit.has_room() {
            return None;
        }
        self.last_used = Instant::now();
        let (send, permit) = (self.send.clone(), StreamPermit::new(&self.limit));
        Some(Http2 { send, permit })
    }

    /// True if the connection has ended, or accepts no more requests.
    pub(super) fn is_closed(&self) -> bool {
        // A clone waits for no stream of its own, so the state is available immediately.
        let mut send = self.send.clone();
        let polled = send.poll_ready(&mut Context::from_waker(Waker::noop()));
        matches!(polled, Poll::Ready(Err(_)))
    }
}

impl StreamPermit {
    pub(super) fn new(limit: &Arc<StreamLimit>) -> Self {
        Self {
            counted: Some(Permit::take(limit)),
            limit: Arc::clone(limit),
        }
    }

    /// True if the permit belongs to the connection with this limit.
    pub(super) fn is_of(&self, limit: &Arc<StreamLimit>) -> bool {
        Arc::ptr_eq(&self.limit, limit)
    }

    /// The service has sent a response.
    pub(in crate::edge) fn mark_answered(&self) {
        self.limit.mark_answered();
    }

    /// The request has no complete response because of the service or its connection. The agent
    /// reports the connection as failed when it ends.
    pub(in crate::edge) fn record_failure(&self) {
        self.limit.has_failed.store(true, Ordering::Relaxed);
    }
}

impl Drop for StreamPermit {
    fn drop(&mut self) {
        drop(self.counted.take());
        self.limit.ended.notify_one();
    }
}

impl StreamLimit {
    /// The limit of a connection whose service has not sent its own yet.
    pub(super) fn unknown() -> Arc<Self> {
        Arc::new(Self {
            active: Counter::default(),
            max: AtomicUsize::new(MAX_CONCURRENT_STREAMS),
            is_known: AtomicBool::new(false),
            response_received: Notify::new(),
            has_failed: AtomicBool::new(false),
            ended: Notify::new(),
        })
    }

    /// Sets the limit of the service.
    pub(super) fn set(&self, most: usize) {
        self.max
            .store(most.min(MAX_CONCURRENT_STREAMS), Ordering::Relaxed);
    }

    fn mark_answered(&self) {
        if !self.is_known.swap(true, Ordering::Relaxed) {
            self.response_received.notify_one();
        }
    }

    /// Waits for the first response of the service.
    pub(super) async fn answered(&self) {
        self.response_received.notified().await;
    }

    fn has_room(&self) -> bool {
        self.active.count() < self.max.load(Ordering::Relaxed)
    }

    pub(super) fn is_idle(&self) -> bool {
        self.active.count() == 0
    }

    /// Waits for the end of all requests of a connection that has ended.
    pub(super) async fn all_ended(&self) {
        while !self.is_idle() {
            self.ended.notified().await;
        }
    }

    /// True if a request had no complete response.
    pub(super) fn has_failed(&self) -> bool {
        self.has_failed.load(Ordering::Relaxed)
    }
}

impl SharedRequests for StreamLimit {
    fn is_complete(&self) -> bool {
        self.is_idle() && !self.has_failed()
    }
}

impl AsRef<Counter> for StreamLimit {
    fn as_ref(&self) -> &Counter {
        &self.active
    }
}
