//! Leases of TCP ports, for programs that need a port number before they bind it.
//!
//! A test that looks for a free port, releases it and passes its number on can lose it to another
//! process in between. Here a port belongs to one test process from the lease to the end of that
//! process. The ports are divided into blocks, and a block belongs to the process that holds the
//! lock on its file. All of them are below the ports that the kernel assigns to programs that bind
//! port 0 or connect, so neither takes a leased port.
//!
//! Prefer port 0 and a program that reports its bound port. Leases are for ranges, for addresses
//! that a program uses again after its restart, for addresses at which nothing listens, and for
//! programs that cannot report their port.

#![expect(clippy::panic, reason = "a test without ports fails")]

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

/// Ports in a block: more than any test leases as one range.
const BLOCK: u16 = 32;

/// The first leased port, above the ports of common system services.
const FIRST: u16 = 10_000;

/// The first port that Linux assigns automatically, unless an administrator changed it.
const EPHEMERAL: u16 = 32_768;

/// The blocks of this process.
static LEASES: Mutex<Leases> = Mutex::new(Leases {
    locks: Vec::new(),
    free: None,
    next_block: 0,
});

struct Leases {
    /// Locked until the process ends.
    locks: Vec<File>,
    /// The unused ports of the last block.
    free: Option<RangeInclusive<u16>>,
    /// The block to try next.
    next_block: u16,
}

/// One port.
///
/// # Panics
/// As [`lease_range`].
pub fn lease() -> u16 {
    *lease_range(1).start()
}

/// The address of one port on 127.0.0.1, `host:port`.
///
/// # Panics
/// As [`lease_range`].
pub fn lease_address() -> String {
    format!("127.0.0.1:{}", lease())
}

/// Ports in a row that belong to this process until it ends. Each call returns other ports.
///
/// # Panics
/// `count` is 0 or larger than a block, all blocks are taken, or the directory of the locks cannot be
/// written.
pub fn lease_range(count: u16) -> RangeInclusive<u16> {
    assert!(
        (1..=BLOCK).contains(&count),
        "a lease has 1 to {BLOCK} ports, not {count}"
    );
    let mut leases = LEASES.lock().unwrap_or_else(PoisonError::into_inner);
    loop {
        let left = leases.free.take();
        let left = left.unwrap_or_else(|| leases.lock_block());
        let (first, end) = (*left.start(), *left.end());
        // The rest of a block that is too short is dropped.
        if end - first < count - 1 {
            continue;
        }
        let last = first + (count - 1);
        if last < end {
            leases.free = Some(last + 1..=end);
        }
        // A program outside of the tests may already use such a port.
        if (first..=last).all(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok()) {
            return first..=last;
        }
    }
}

impl Leases {
    /// Locks a block that no other process has locked.
    fn lock_block(&mut self) -> RangeInclusive<u16> {
        let directory = directory();
        let blocks = (first_ephemeral().min(EPHEMERAL) - FIRST) / BLOCK;
        while self.next_block < blocks {
            let block = self.next_block;
            self.next_block += 1;
            let path = directory.join(format!("block-{block}"));
            let file = OpenOptions::new()
                .create(true)
                .truncate(false)
                .write(true)
                .open(&path)
                .unwrap_or_else(|error| panic!("cannot open {}: {error}", path.display()));
            match file.try_lock() {
                Ok(()) => {
                    self.locks.push(file);
                    let first = FIRST + block * BLOCK;
                    return first..=first + (BLOCK - 1);
                }
                Err(TryLockError::WouldBlock) => {}
                Err(TryLockError::Error(error)) => {
                    panic!("cannot lock {}: {error}", path.display())
                }
            }
        }
        panic!("all {blocks} blocks of ports are leased by running tests")
    }
}

/// The directory of the locks, the same for all test processes of a user.
fn directory() -> PathBuf {
    let directory = std::env::temp_dir().join("svc-test-ports");
    fs::create_dir_all(&directory)
        .unwrap_or_else(|error| panic!("cannot create {}: {error}", directory.display()));
    directory
}

/// The first port that the kernel assigns automatically.
fn first_ephemeral() -> u16 {
    let range: io::Result<String> = fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range");
    let first = range
        .ok()
        .and_then(|text| text.split_whitespace().next()?.parse().ok());
    let first = first.unwrap_or(EPHEMERAL);
    assert!(
        first > FIRST + 100 * BLOCK,
        "the kernel gives out ports from {first} on, which leaves too few for leases"
    );
    first
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_lease_has_ports_of_its_own() {
        let mut all: Vec<u16> = (0..40).flat_map(|_| lease_range(3)).collect();
        all.extend((0..10).map(|_| lease()));
        let count = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), count);
        assert!(all.iter().all(|port| *port < first_ephemeral()));
    }

    /// The lock keeps other processes away.
    #[test]
    fn the_block_of_a_lease_is_locked() {
        let block = (lease() - FIRST) / BLOCK;
        let path = directory().join(format!("block-{block}"));
        let again = File::open(path).unwrap().try_lock();
        assert!(matches!(again, Err(TryLockError::WouldBlock)), "{again:?}");
    }
}
