//! Limits of open connections, in total and for each source.
//!
//! Each connection uses a file descriptor, and the process has a limit of descriptors. One source
//! may have `limits.max_connections_per_source`, and all together `limits.max_connections`. The
//! remaining descriptors are for connections that the engine opens, and for agents' data
//! connections, which are not counted here once they are recognised. The last part of the total
//! (one in [`RESERVE`]) is for agents and the Engine API: further connections of visitors are
//! closed.

use std::any::Any;
use std::net::IpAddr;
use std::sync::Arc;

use daemon::connections::{self, ConnectionLimitError, descriptors};
use transport::Socket;

use crate::config::Limits;

/// The connections of all workers.
#[derive(Debug)]
pub(crate) struct Connections {
    open: Arc<connections::Connections>,
    /// Limit for visitors. Their connections beyond it are closed.
    max_visitors: usize,
}

/// Counts one connection until it is dropped. The socket owns it.
#[derive(Debug)]
pub(super) struct SocketPermit {
    _permit: connections::ConnectionPermit,
    in_reserve: bool,
}

impl Connections {
    pub(crate) fn new(limits: &Limits) -> Self {
        let (max_total, per_source) = (limits.max_connections, limits.max_connections_per_source);
        let (max_total, per_source) = limits_of(max_total, per_source, descriptors());
        Self::with_limits(max_total, per_source)
    }

    fn with_limits(max_total: usize, per_source: usize) -> Self {
        Self {
            open: connections::Connections::new(max_total, per_source),
            max_visitors: max_total - max_total / RESERVE,
        }
    }

    /// Counts a connection from `source`.
    pub(super) fn acquire(&self, source: IpAddr) -> Result<SocketPermit, ConnectionLimitError> {
        let permit = self.open.acquire(Some(source))?;
        Ok(SocketPermit {
            in_reserve: permit.open_count() > self.max_visitors,
            _permit: permit,
        })
    }
}

impl SocketPermit {
    /// True if the connection uses the part that is reserved for agents and the Engine API.
    pub(super) fn is_in_reserve(socket: &mut Socket) -> bool {
        let slot = socket
            .slot()
            .and_then(<dyn Any + Send + Sync>::downcast_ref);
        slot.is_some_and(|counted: &Self| counted.in_reserve)
    }
}

/// Computes the limit of all connections and the limit of one source.
fn limits_of(
    max_total: Option<usize>,
    per_source: Option<usize>,
    descriptors: usize,
) -> (usize, usize) {
    // Each visitor may need a data connection of its agent.
    let half = descriptors.saturating_sub(OWN_DESCRIPTORS) / 2;
    let max_total = max_total.unwrap_or(half).max(1);
    let part = (max_total / SOURCES).max(MIN_PER_SOURCE).min(max_total);
    (max_total, per_source.unwrap_or(part))
}

/// Descriptors for listeners, logs, certificates, the link, runtimes, and recordings that are being
/// written.
const OWN_DESCRIPTORS: usize = 256;

/// One connection in this many of the total is reserved for agents and the Engine API.
const RESERVE: usize = 16;

/// By default one source may have the total divided by this number.
const SOURCES: usize = 8;

/// Minimum of the default limit of one source. A browser opens some dozens of connections.
const MIN_PER_SOURCE: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_follow_from_the_descriptors() {
        assert_eq!(limits_of(None, None, 20_256), (10_000, 1_250));
        assert_eq!(limits_of(Some(32), None, 20_256), (32, 32));
        assert_eq!(limits_of(Some(32), Some(2), 20_256), (32, 2));
    }

    #[test]
    fn the_last_connections_are_reserved() {
        let connections = Connections::with_limits(32, 32);
        let begin = || connections.acquire("192.0.2.1".parse().unwrap());
        let open: Vec<_> = (0..32).map(|_| begin().unwrap()).collect();
        assert_eq!(open.iter().filter(|permit| permit.in_reserve).count(), 2);
        assert_eq!(begin().unwrap_err(), ConnectionLimitError::Total);
    }
}
