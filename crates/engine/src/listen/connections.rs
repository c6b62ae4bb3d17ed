//! Connections that are open, in all and by where they come from.
//!
//! Each holds a descriptor, and the process has so many. One source may have a part of them
//! (`limits.max_connections_per_source`), all of them together `limits.max_connections`; the rest of
//! what the system allows is for what the engine opens itself and for agents' data connections, which
//! do not count here once they have shown to be ones. The last [`RESERVE`] of the total is for agents
//! and the Engine API: visitors that come then are closed.

use std::any::Any;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::IpAddr;
use std::sync::Arc;

use nix::sys::resource::{Resource, getrlimit};
use parking_lot::Mutex;
use transport::Socket;

use super::handshakes::site;
use crate::config::Limits;

/// The connections of all workers. Its size is bounded by their number.
#[derive(Debug)]
pub(crate) struct Connections {
    most: usize,
    /// Beyond these, visitors are closed.
    most_visitors: usize,
    most_per_source: usize,
    open: Mutex<Open>,
}

#[derive(Debug, Default)]
struct Open {
    count: usize,
    by_source: HashMap<IpAddr, usize>,
}

/// One connection, counted until this is dropped. It belongs to its socket.
#[derive(Debug)]
pub(super) struct Counted {
    connections: Arc<Connections>,
    source: IpAddr,
    in_reserve: bool,
}

/// Why a connection is closed unread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// There are as many as there may be.
    Total,
    /// Its source has as many as it may have.
    Source,
}

impl Connections {
    pub(crate) fn new(limits: &Limits) -> Arc<Self> {
        let (most, per_source) = (limits.max_connections, limits.max_connections_per_source);
        Self::with(most, per_source, descriptors())
    }

    fn with(most: Option<usize>, per_source: Option<usize>, descriptors: usize) -> Arc<Self> {
        // Each visitor may need a data connection of its agent.
        let half = descriptors.saturating_sub(OWN_DESCRIPTORS) / 2;
        let most = most.unwrap_or(half).max(1);
        let part = (most / SOURCES).max(FEW).min(most);
        Arc::new(Self {
            most,
            most_visitors: most - most / RESERVE,
            most_per_source: per_source.unwrap_or(part),
            open: Mutex::default(),
        })
    }

    /// Counts one more from `source`.
    pub(super) fn begin(self: &Arc<Self>, source: IpAddr) -> Result<Counted, Refused> {
        let source = site(source);
        let mut open = self.open.lock();
        if open.count >= self.most {
            return Err(Refused::Total);
        }
        let count = open.by_source.entry(source).or_default();
        if *count >= self.most_per_source {
            return Err(Refused::Source);
        }
        *count += 1;
        open.count += 1;
        Ok(Counted {
            connections: Arc::clone(self),
            source,
            in_reserve: open.count > self.most_visitors,
        })
    }
}

impl Counted {
    /// Whether it came when what is left is for agents and the Engine API.
    pub(super) fn is_in_reserve(socket: &mut Socket) -> bool {
        let slot = socket
            .slot()
            .and_then(<dyn Any + Send + Sync>::downcast_ref);
        slot.is_some_and(|counted: &Self| counted.in_reserve)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        let mut open = self.connections.open.lock();
        open.count = open.count.saturating_sub(1);
        if let Entry::Occupied(mut count) = open.by_source.entry(self.source) {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
    }
}

/// What the process may have open. A system that does not say is taken for a small one.
fn descriptors() -> usize {
    let limit = getrlimit(Resource::RLIMIT_NOFILE).map_or(1024, |(soft, _hard)| soft);
    usize::try_from(limit).unwrap_or(usize::MAX)
}

/// Listeners, logs, certificates, the link, runtimes, and files of recordings that are written.
const OWN_DESCRIPTORS: usize = 256;

/// The part of the total that is for agents and the Engine API: one in so many.
const RESERVE: usize = 16;

/// One source may have what is left when as many do the same.
const SOURCES: usize = 8;

/// What one source may have where that part is very small: a browser, or several, open some dozens.
const FEW: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    fn limited(most: Option<usize>, per_source: Option<usize>) -> Arc<Connections> {
        Connections::with(most, per_source, 20_256)
    }

    #[test]
    fn limits_follow_from_the_descriptors() {
        let connections = limited(None, None);
        let limits = (connections.most, connections.most_per_source);
        assert_eq!(limits, (10_000, 1_250));
        assert_eq!(connections.most_visitors, 9_375);
        assert_eq!(limited(Some(32), None).most_per_source, 32);
    }

    #[test]
    fn each_source_has_its_part_and_what_is_over_is_forgotten() {
        let connections = limited(Some(32), Some(2));
        let begin = |source: &str| connections.begin(source.parse().unwrap());
        let first = begin("192.0.2.1").unwrap();
        let _second = begin("192.0.2.1").unwrap();
        assert_eq!(begin("192.0.2.1").unwrap_err(), Refused::Source);
        drop(first);
        drop(begin("192.0.2.1").unwrap());
        // Of one network and of another.
        let six = [begin("2001:db8::1").unwrap(), begin("2001:db8::2").unwrap()];
        assert_eq!(begin("2001:db8::3").unwrap_err(), Refused::Source);
        drop(begin("2001:db8:0:1::1").unwrap());
        drop(six);
        assert_eq!(connections.open.lock().by_source.len(), 1);
    }

    #[test]
    fn the_last_ones_are_not_for_visitors() {
        let connections = limited(Some(32), Some(32));
        let begin = || connections.begin("192.0.2.1".parse().unwrap());
        let open: Vec<_> = (0..32).map(|_| begin().unwrap()).collect();
        assert_eq!(open.iter().filter(|counted| counted.in_reserve).count(), 2);
        assert_eq!(begin().unwrap_err(), Refused::Total);
    }
}
