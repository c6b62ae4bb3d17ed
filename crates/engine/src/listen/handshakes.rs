//! Limit of concurrent TLS handshakes for each source.
//!
//! A handshake costs a signature and, while it lasts, some kilobytes of memory, before the client
//! has sent a name or a token. One source may have `limits.max_handshakes_per_source` at the same
//! time. A further connection is closed before any byte of it is read, so that it does not affect
//! other sources.

use std::net::IpAddr;

use daemon::connections::source_network;
use daemon::counts::Counts;
use parking_lot::Mutex;

/// The handshakes of all workers. The map cannot have more entries than there are open connections.
#[derive(Debug)]
pub(crate) struct Handshakes {
    max_per_source: usize,
    by_source: Mutex<Counts<IpAddr>>,
}

/// Counts one handshake until it is dropped.
#[derive(Debug)]
pub(super) struct HandshakeGuard<'h> {
    handshakes: &'h Handshakes,
    source: IpAddr,
}

impl Handshakes {
    pub(crate) fn new(max_per_source: usize) -> Self {
        Self {
            max_per_source,
            by_source: Mutex::default(),
        }
    }

    /// Counts a handshake from `source`. `None` if the source has reached its limit.
    pub(super) fn start(&self, source: IpAddr) -> Option<HandshakeGuard<'_>> {
        let source = source_network(source);
        let is_free = self
            .by_source
            .lock()
            .increment_below(source, self.max_per_source);
        is_free.then(|| HandshakeGuard {
            handshakes: self,
            source,
        })
    }
}

impl Drop for HandshakeGuard<'_> {
    fn drop(&mut self) {
        self.handshakes.by_source.lock().decrement(&self.source);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_source_has_its_own_limit() {
        let handshakes = Handshakes::new(2);
        let begin = |source: &str| handshakes.start(source.parse().unwrap());
        let first = begin("192.0.2.1").unwrap();
        let _second = begin("192.0.2.1").unwrap();
        assert!(begin("192.0.2.1").is_none());
        assert!(begin("192.0.2.2").is_some());
        drop(first);
        assert!(begin("192.0.2.1").is_some());
        // Addresses of one network share a limit. Another network has its own.
        let _six = [begin("2001:db8::1").unwrap(), begin("2001:db8::2").unwrap()];
        assert!(begin("2001:db8::3").is_none());
        assert!(begin("2001:db8:0:1::1").is_some());
    }

    #[test]
    fn sources_without_handshakes_are_removed() {
        let handshakes = Handshakes::new(2);
        drop(handshakes.start("192.0.2.1".parse().unwrap()));
        assert!(handshakes.by_source.lock().is_empty());
    }
}
