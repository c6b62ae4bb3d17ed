//! Free ports of relayed addresses: one set for all workers.

use std::ops::{Range, RangeInclusive};
use std::sync::Arc;

use parking_lot::Mutex;

/// The free ports of one address family. Clones share one set.
#[derive(Clone, Debug)]
pub(crate) struct Ports {
    free: Arc<Mutex<Box<[u64; WORDS]>>>,
    /// The words that contain ports of the range.
    words: Range<usize>,
    #[cfg(test)]
    range: RangeInclusive<u16>,
}

/// A port in use. Dropping it releases the port.
#[derive(Debug)]
pub(crate) struct Port {
    number: u16,
    free: Arc<Mutex<Box<[u64; WORDS]>>>,
}

/// Number of words, with 64 ports each.
const WORDS: usize = 1024;
/// Bits of even ports.
const EVEN: u64 = 0x5555_5555_5555_5555;

impl Ports {
    pub(crate) fn new(range: RangeInclusive<u16>) -> Self {
        let word = |port: u16| usize::from(port / 64);
        let words = word(*range.start())..word(*range.end()) + 1;
        let mut free = Box::new([0; WORDS]);
        for port in range.clone() {
            set(&mut free, port, true);
        }
        Self {
            #[cfg(test)]
            range,
            free: Arc::new(Mutex::new(free)),
            words,
        }
    }

    /// A free port. `random` is the start of the search, so that packets for a released port seldom
    /// reach the next user of a port.
    pub(crate) fn take(&self, random: u64) -> Option<Port> {
        let [port] = self.find(random, |word| word, |port| [port])?;
        Some(port)
    }

    /// A free even port.
    pub(crate) fn take_even(&self, random: u64) -> Option<Port> {
        let [port] = self.find(random, |word| word & EVEN, |port| [port])?;
        Some(port)
    }

    /// A free even port, and the port after it.
    pub(crate) fn take_pair(&self, random: u64) -> Option<[Port; 2]> {
        // An even port and its successor are always in one word.
        self.find(
            random,
            |word| word & (word >> 1) & EVEN,
            |port| [port, port | 1],
        )
    }

    /// True if a port of the range is in use.
    #[cfg(test)]
    fn is_taken(&self, port: u16) -> bool {
        let word = usize::from(port / 64);
        let free = self.free.lock().get(word).copied().unwrap_or(0);
        self.range.contains(&port) && free & (1 << (port % 64)) == 0
    }

    /// Takes the ports that `ports_of` derives from the first candidate.
    fn find<const N: usize>(
        &self,
        random: u64,
        candidates_in: impl Fn(u64) -> u64,
        ports_of: impl Fn(u16) -> [u16; N],
    ) -> Option<[Port; N]> {
        let mut free = self.free.lock();
        let [bit, high, low, ..] = random.to_le_bytes();
        let turn = u32::from(bit) % u64::BITS;
        let place = usize::from(u16::from_be_bytes([high, low]));
        let Range { start, end } = self.words;
        let first = start + place % self.words.len().max(1);
        for index in (first..end).chain(start..first) {
            let candidates = candidates_in(free.get(index).copied().unwrap_or(0));
            if candidates == 0 {
                continue;
            }
            // The search also starts at a random bit in the word.
            let offset = candidates.rotate_right(turn).trailing_zeros();
            let offset = (offset + turn) % u64::BITS;
            let port = u16::try_from(index * 64).ok()? | u16::try_from(offset).ok()?;
            let ports = ports_of(port);
            for port in ports {
                set(&mut free, port, false);
            }
            return Some(ports.map(|number| Port {
                number,
                free: Arc::clone(&self.free),
            }));
        }
        None
    }
}

impl Port {
    pub(crate) fn number(&self) -> u16 {
        self.number
    }
}

impl Drop for Port {
    fn drop(&mut self) {
        set(&mut self.free.lock(), self.number, true);
    }
}

fn set(free: &mut [u64; WORDS], port: u16, is_free: bool) {
    if let Some(word) = free.get_mut(usize::from(port / 64)) {
        let bit = 1 << (port % 64);
        *word = if is_free { *word | bit } else { *word & !bit };
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_port_of_the_range_is_taken_once_and_released() {
        let ports = Ports::new(49_000..=49_199);
        let mut taken = Vec::new();
        for random in 0..200_u64 {
            taken.push(
                ports
                    .take(random.wrapping_mul(0x9e37_79b9_7f4a_7c15))
                    .unwrap(),
            );
        }
        let numbers: HashSet<u16> = taken.iter().map(Port::number).collect();
        assert_eq!(numbers, (49_000..=49_199).collect());
        assert!(ports.take(7).is_none());
        assert!(ports.is_taken(49_000) && ports.is_taken(49_199));
        assert!(!ports.is_taken(48_999) && !ports.is_taken(49_200));
        let given_back = taken.pop().map(|port| port.number()).unwrap();
        assert!(!ports.is_taken(given_back));
        assert!(ports.take(7).is_some());
    }

    /// The search starts at random ports, so ports that other programs use are rarely tried.
    #[test]
    fn ports_are_spread_over_the_range() {
        let ports = Ports::new(40_000..=60_900);
        let numbers: HashSet<u16> = (0..1000_u64)
            .filter_map(|index| {
                let random = index.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(17);
                ports.take(random).map(|port| port.number() / 64)
            })
            .collect();
        assert!(numbers.len() > 250, "{} of 327 words", numbers.len());
    }

    #[test]
    fn pairs_start_even_and_are_in_the_range() {
        let ports = Ports::new(49_001..=49_008);
        let mut pairs = Vec::new();
        for random in [0, u64::MAX, 3] {
            pairs.push(ports.take_pair(random).unwrap());
        }
        assert!(ports.take_pair(0).is_none());
        for [first, second] in &pairs {
            assert_eq!(first.number() % 2, 0);
            assert_eq!(second.number(), first.number() + 1);
        }
        assert_eq!(ports.take_even(9).unwrap().number(), 49_008);
        let mut rest = [ports.take(0).unwrap(), ports.take(0).unwrap()];
        rest.sort_by_key(Port::number);
        assert_eq!(rest.each_ref().map(Port::number), [49_001, 49_008]);
        assert!(ports.take(0).is_none());
        drop((pairs, rest));
        let again: Vec<_> = (0..9).filter_map(|_| ports.take(5)).collect();
        assert_eq!(again.len(), 8, "all were released");
    }

    #[test]
    fn the_last_port_is_usable() {
        let ports = Ports::new(65_535..=65_535);
        assert!(ports.take_even(0).is_none() && ports.take_pair(0).is_none());
        assert_eq!(ports.take(0).unwrap().number(), 65_535);
    }
}
