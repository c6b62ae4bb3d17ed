//! HTTP/2 connections to services, which several requests share.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use bytes::Bytes;
use h2::client::SendRequest;
use tokio::sync::{Notify, watch};
use tokio::time::timeout;
use transport::permit::{Counter, Permit};

use crate::agents::SharedRequests;

/// A slot for one request on a shared HTTP/2 connection.
pub(crate) struct Http2 {
    pub(crate) send: SendRequest<Bytes>,
    pub(crate) permit: StreamPermit,
    /// There were requests on the connection before.
    pub(crate) is_reused: bool,
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
    /// Bytes that were written to the stream of the connection.
    written: AtomicU64,
    delivery: watch::Sender<Delivery>,
}

/// Bytes of a connection that reached the service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Delivery {
    /// The connection is in use.
    Open,
    Reported(u64),
    /// The connection has ended without a report.
    Unknown,
}

/// Time for the agent's report, which is requested when the connection ends.
const DELIVERY_TIMEOUT: Duration = Duration::from_secs(6);

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
        Some(Http2 {
            send,
            permit,
            is_reused: true,
        })
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

    /// Bytes that were written to the stream of the connection.
    pub(in crate::edge) fn written(&self) -> u64 {
        self.limit.written.load(Ordering::Relaxed)
    }

    /// Waits for the agent's report on a connection that has failed. Returns true if only the first
    /// `before` bytes reached the service.
    pub(in crate::edge) async fn is_undelivered(&self, before: u64) -> bool {
        let mut delivery = self.limit.delivery.subscribe();
        let known = delivery.wait_for(|delivery| *delivery != Delivery::Open);
        let known = timeout(DELIVERY_TIMEOUT, known).await;
        known.is_ok_and(|known| {
            known.is_ok_and(
                |known| matches!(*known, Delivery::Reported(delivered) if delivered <= before),
            )
        })
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
            written: AtomicU64::new(0),
            delivery: watch::Sender::new(Delivery::Open),
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

    /// Records the bytes that were written to the stream of the connection.
    pub(super) fn set_written(&self, written: u64) {
        self.written.store(written, Ordering::Relaxed);
    }

    /// Records the agent's report on a connection that has ended.
    pub(super) fn set_delivered(&self, delivered: Option<u64>) {
        let delivery = delivered.map_or(Delivery::Unknown, Delivery::Reported);
        self.delivery.send_replace(delivery);
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
