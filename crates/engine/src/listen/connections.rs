//! Connections that are open, in all and by where they come from.
//!
//! Each holds a descriptor, and the process has so many. One source may have a part of them
//! (`limits.max_connections_per_source`), all of them together `limits.max_connections`; the rest of
//! what the system allows is for what the engine opens itself and for agents' data connections, which
//! do not count here once they have shown to be ones. The last [`RESERVE`] of the total is for agents
//! and the Engine API: visitors that come then are closed.

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
    /// Beyond these, visitors are closed.
    most_visitors: usize,
}

/// One connection, counted until this is dropped. It belongs to its socket.
#[derive(Debug)]
pub(super) struct SocketPermit {
    _permit: connections::ConnectionPermit,
    in_reserve: bool,
}

impl Connections {
    pub(crate) fn new(limits: &Limits) -> Self {
        let (most, per_source) = (limits.max_connections, limits.max_connections_per_source);
        let (most, per_source) = limits_of(most, per_source, descriptors());
        Self::with(most, per_source)
    }

    fn with(most: usize, per_source: usize) -> Self {
        Self {
            open: connections::Connections::new(most, per_source),
            most_visitors: most - most / RESERVE,
        }
    }

    /// Counts one more from `source`.
    pub(super) fn begin(&self, source: IpAddr) -> Result<SocketPermit, ConnectionLimitError> {
        let permit = self.open.begin(Some(source))?;
        Ok(SocketPermit {
            in_reserve: permit.open_with_it() > self.most_visitors,
            _permit: permit,
        })
    }
}

impl SocketPermit {
    /// Whether it came when what is left is for agents and the Engine API.
    pub(super) fn is_in_reserve(socket: &mut Socket) -> bool {
        let slot = socket
            .slot()
            .and_then(<dyn Any + Send + Sync>::downcast_ref);
        slot.is_some_and(|counted: &Self| counted.in_reserve)
    }
}

/// Of all, and of one source.
fn limits_of(most: Option<usize>, per_source: Option<usize>, descriptors: usize) -> (usize, usize) {
    // Each visitor may need a data connection of its agent.
    let half = descriptors.saturating_sub(OWN_DESCRIPTORS) / 2;
    let most = most.unwrap_or(half).max(1);
    let part = (most / SOURCES).max(FEW).min(most);
    (most, per_source.unwrap_or(part))
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

    #[test]
    fn limits_follow_from_the_descriptors() {
        assert_eq!(limits_of(None, None, 20_256), (10_000, 1_250));
        assert_eq!(limits_of(Some(32), None, 20_256), (32, 32));
        assert_eq!(limits_of(Some(32), Some(2), 20_256), (32, 2));
    }

    #[test]
    fn the_last_ones_are_not_for_visitors() {
        let connections = Connections::with(32, 32);
        let begin = || connections.begin("192.0.2.1".parse().unwrap());
        let open: Vec<_> = (0..32).map(|_| begin().unwrap()).collect();
        assert_eq!(open.iter().filter(|permit| permit.in_reserve).count(), 2);
        assert_eq!(begin().unwrap_err(), ConnectionLimitError::Total);
    }
}
