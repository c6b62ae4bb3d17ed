//! Limits of open connections, in total and per source.

use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

use parking_lot::Mutex;

use crate::counts::Counts;

/// Counts the open connections of a process. Its size is limited by their number.
#[derive(Debug)]
pub struct Connections {
    max_total: usize,
    max_per_source: usize,
    open: Mutex<OpenConnections>,
}

#[derive(Debug, Default)]
struct OpenConnections {
    count: usize,
    by_source: Counts<IpAddr>,
}

/// One connection, counted until this is dropped.
#[derive(Debug)]
pub struct ConnectionPermit {
    connections: Arc<Connections>,
    source: Option<IpAddr>,
    open_count: usize,
}

/// The limit that refuses a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectionLimitError {
    /// The total limit is reached.
    Total,
    /// The limit of the source is reached.
    Source,
}

impl Connections {
    /// Creates an empty counter.
    pub fn new(most: usize, most_per_source: usize) -> Arc<Self> {
        Arc::new(Self {
            max_total: most,
            max_per_source: most_per_source,
            open: Mutex::default(),
        })
    }

    /// Counts one more connection. A connection without a source, such as from a proxy of
    /// many clients, counts only in the total.
    ///
    /// # Errors
    /// A limit is reached.
    pub fn acquire(
        self: &Arc<Self>,
        source: Option<IpAddr>,
    ) -> Result<ConnectionPermit, ConnectionLimitError> {
        let source = source.map(source_network);
        let mut open = self.open.lock();
        if open.count >= self.max_total {
            return Err(ConnectionLimitError::Total);
        }
        if let Some(source) = source
            && !open.by_source.increment_below(source, self.max_per_source)
        {
            return Err(ConnectionLimitError::Source);
        }
        open.count += 1;
        Ok(ConnectionPermit {
            connections: Arc::clone(self),
            source,
            open_count: open.count,
        })
    }
}

impl ConnectionPermit {
    /// Number of open connections when this one was accepted, including it.
    pub fn open_count(&self) -> usize {
        self.open_count
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        let mut open = self.connections.open.lock();
        open.count = open.count.saturating_sub(1);
        if let Some(source) = &self.source {
            open.by_source.decrement(source);
        }
    }
}

/// The source for counting: an IPv4 address, or the /64 network of an IPv6 address, because one
/// customer controls all of its addresses (RFC 6177).
pub fn source_network(source: IpAddr) -> IpAddr {
    match source.to_canonical() {
        IpAddr::V4(v4) => v4.into(),
        IpAddr::V6(v6) => Ipv6Addr::from_bits(v6.to_bits() & (u128::MAX << 64)).into(),
    }
}

/// Maximum number of open file descriptors of the process; 1024 if the system does not report it.
#[cfg(unix)]
pub fn descriptors() -> usize {
    use nix::sys::resource::{Resource, getrlimit};

    let limit = getrlimit(Resource::RLIMIT_NOFILE).map_or(1024, |(soft, _hard)| soft);
    usize::try_from(limit).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn total_and_source_limits_apply_and_closed_ones_are_removed() {
        let connections = Connections::new(4, 2);
        let begin = |source: &str| connections.acquire(Some(source.parse().unwrap()));
        let first = begin("192.0.2.1").unwrap();
        let second = begin("::ffff:192.0.2.1").unwrap();
        assert_eq!((first.open_count(), second.open_count()), (1, 2));
        assert_eq!(
            begin("192.0.2.1").unwrap_err(),
            ConnectionLimitError::Source
        );
        // From the same network and from another one.
        let third = begin("2001:db8:1:2:3:4:5:6").unwrap();
        let fourth = begin("2001:db8:1:2::9").unwrap();
        assert_eq!(
            begin("2001:db8:1:3::1").unwrap_err(),
            ConnectionLimitError::Total
        );
        drop(first);
        assert_eq!(
            begin("2001:db8:1:2::1").unwrap_err(),
            ConnectionLimitError::Source
        );
        drop(begin("2001:db8:1:3::1").unwrap());
        drop((second, third, fourth));
        let open = connections.open.lock();
        assert!(open.count == 0 && open.by_source.is_empty());
    }

    #[test]
    fn a_connection_without_a_source_counts_only_in_the_total() {
        let connections = Connections::new(3, 1);
        let open: Vec<_> = (0..3).map(|_| connections.acquire(None).unwrap()).collect();
        assert_eq!(
            connections.acquire(None).unwrap_err(),
            ConnectionLimitError::Total
        );
        drop(open);
        assert!(connections.acquire(None).is_ok());
    }
}
