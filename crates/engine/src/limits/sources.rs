//! Concurrent HTTP/2 requests of one source.
//!
//! Each HTTP/1.1 or raw connection is one visit, so the limit of connections applies to them
//! (`limits.max_connections_per_source`). An HTTP/2 connection carries hundreds of visits. A
//! connection looks up its source once ([`SourceVisits::counter_for`]), so requests need no lock.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::IpAddr;
use std::sync::Arc;

use parking_lot::Mutex;
use transport::permit::{Counter, Permit};
use types::problem::Problem;

/// The sources that have an HTTP/2 connection. Its size is bounded by their number.
#[derive(Debug)]
pub(crate) struct SourceVisits {
    most: usize,
    by_source: Mutex<HashMap<IpAddr, SourceCounts>>,
}

#[derive(Debug, Default)]
struct SourceCounts {
    connections: usize,
    visits: Arc<Counter>,
}

/// The visits of one source, for one of its connections.
#[derive(Debug)]
pub(crate) struct VisitCount {
    visits: Arc<SourceVisits>,
    source: IpAddr,
    count: Arc<Counter>,
}

/// One visit, counted until this is dropped.
pub(crate) type SourceVisit = Permit<VisitCount>;

/// The source has reached its limit of visits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("your address has reached its limit of requests in progress: {0}")]
pub(crate) struct SourceBusy(usize);

impl SourceVisits {
    pub(crate) fn new(most: usize) -> Arc<Self> {
        Arc::new(Self {
            most,
            by_source: Mutex::default(),
        })
    }

    /// The count of a source: an IPv4 address, or an IPv6 network of 64 bits.
    pub(crate) fn counter_for(self: &Arc<Self>, source: IpAddr) -> Arc<VisitCount> {
        let mut by_source = self.by_source.lock();
        let shared = by_source.entry(source).or_default();
        shared.connections += 1;
        Arc::new(VisitCount {
            visits: Arc::clone(self),
            source,
            count: Arc::clone(&shared.visits),
        })
    }
}

impl VisitCount {
    pub(crate) fn enter(self: &Arc<Self>) -> Result<SourceVisit, SourceBusy> {
        let most = self.visits.most;
        SourceVisit::try_take(self, most).ok_or(SourceBusy(most))
    }
}

impl AsRef<Counter> for VisitCount {
    fn as_ref(&self) -> &Counter {
        &self.count
    }
}

impl Drop for VisitCount {
    fn drop(&mut self) {
        let mut by_source = self.visits.by_source.lock();
        if let Entry::Occupied(mut shared) = by_source.entry(self.source) {
            shared.get_mut().connections -= 1;
            if shared.get().connections == 0 {
                shared.remove();
            }
        }
    }
}

impl From<SourceBusy> for Problem {
    fn from(busy: SourceBusy) -> Self {
        Self::unavailable()
            .with_detail(format!("This tunnel cannot accept requests now: {busy}."))
            .with_retry_after(RETRY)
    }
}

/// Seconds after which a visitor may try again: most visits are shorter.
const RETRY: u32 = 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_connections_of_a_source_share_a_count() {
        let visits = SourceVisits::new(2);
        let of = |source: &str| visits.counter_for(source.parse().unwrap());
        let (first, second) = (of("192.0.2.1"), of("192.0.2.1"));
        let (one, two) = (first.enter().unwrap(), second.enter().unwrap());
        assert_eq!(first.enter().unwrap_err(), SourceBusy(2));
        assert_eq!(
            second.enter().unwrap_err(),
            SourceBusy(2),
            "a refusal does not count"
        );
        let other = of("192.0.2.2");
        drop(other.enter().unwrap());
        // A visit counts until its end, even if its connection is closed earlier.
        drop((first, other));
        assert_eq!(visits.by_source.lock().len(), 1);
        drop(one);
        drop(of("192.0.2.1").enter().unwrap());
        drop(second);
        drop(two);
        assert!(visits.by_source.lock().is_empty());
    }
}
