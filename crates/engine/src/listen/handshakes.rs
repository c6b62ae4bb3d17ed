//! Handshakes under way, counted by where they come from.
//!
//! A handshake costs a signature and some kilobytes for as long as it takes, and nobody has shown
//! a name or a token yet. One source may have so many at once (`limits.max_handshakes_per_source`);
//! the next connection is closed before a byte of it is read, so that it takes nothing from others.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::IpAddr;

use daemon::connections::source_network;
use parking_lot::Mutex;

/// The handshakes of all workers. Its size is bounded by the connections that are open.
#[derive(Debug)]
pub(crate) struct Handshakes {
    most: usize,
    by_source: Mutex<HashMap<IpAddr, usize>>,
}

/// One handshake, counted until this is dropped.
#[derive(Debug)]
pub(super) struct UnderWay<'h> {
    handshakes: &'h Handshakes,
    source: IpAddr,
}

impl Handshakes {
    pub(crate) fn new(most: usize) -> Self {
        Self {
            most,
            by_source: Mutex::default(),
        }
    }

    /// Counts one more from `source`; `None` where it has as many as it may have.
    pub(super) fn begin(&self, source: IpAddr) -> Option<UnderWay<'_>> {
        let source = source_network(source);
        let mut by_source = self.by_source.lock();
        let count = by_source.entry(source).or_default();
        if *count >= self.most {
            return None;
        }
        *count += 1;
        Some(UnderWay {
            handshakes: self,
            source,
        })
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        let mut by_source = self.handshakes.by_source.lock();
        if let Entry::Occupied(mut count) = by_source.entry(self.source) {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_source_has_its_own_share() {
        let handshakes = Handshakes::new(2);
        let begin = |source: &str| handshakes.begin(source.parse().unwrap());
        let first = begin("192.0.2.1").unwrap();
        let _second = begin("192.0.2.1").unwrap();
        assert!(begin("192.0.2.1").is_none());
        assert!(begin("192.0.2.2").is_some());
        drop(first);
        assert!(begin("192.0.2.1").is_some());
        // Of one network and of another.
        let _six = [begin("2001:db8::1").unwrap(), begin("2001:db8::2").unwrap()];
        assert!(begin("2001:db8::3").is_none());
        assert!(begin("2001:db8:0:1::1").is_some());
    }

    #[test]
    fn what_is_over_is_forgotten() {
        let handshakes = Handshakes::new(2);
        drop(handshakes.begin("192.0.2.1".parse().unwrap()));
        assert!(handshakes.by_source.lock().is_empty());
    }
}
