//! The bytes that streams buffer for slow readers, counted over the process, and their limit.
//!
//! A stream whose reader is fast buffers nothing between two turns of its task. For a slow reader
//! it buffers the bytes of the other end: in a buffer of the [pump](crate::pump()), in its TLS
//! session, or unread on a lane. Visitors determine how many such streams there are, so their bytes
//! have a limit:
//!
//! - Above half of the limit no buffer grows: every stream has the smallest size.
//! - At 7/8 of the limit, streams are aborted until the buffered bytes are within the limit. Each
//!   time it is a stream of the [source](Source) that buffers the most: the one whose reader has
//!   read nothing for the longest time. So a source that reads nothing, or that opens many streams
//!   together, loses its own streams and not those of other sources.
//! - A lane may buffer as many bytes as the process has left. So lanes with many buffered bytes
//!   abort streams before lanes with few, and some capacity is left for a new lane.

use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Waker};

use parking_lot::Mutex;

/// Default limit of a process.
pub const DEFAULT_LIMIT: usize = 256 * 1024 * 1024;

/// Cost of a stream with a stalled reader, in addition to its waiting bytes: its TLS session, its
/// two sockets, and its task (measured: about 20 KiB for a standing connection, the rest for the
/// service's).
const FLOOR: usize = 32 * 1024;

static LIMIT: AtomicUsize = AtomicUsize::new(DEFAULT_LIMIT);
static BUFFERED: AtomicUsize = AtomicUsize::new(0);
static ABORTED_STREAMS: AtomicU64 = AtomicU64::new(0);
/// Bytes of streams that were chosen to be aborted and whose tasks have not run yet. They are a
/// part of `HELD`.
static ABORTING: AtomicUsize = AtomicUsize::new(0);
static STALLED: Mutex<Registry> = Mutex::new(Registry::new());

/// The limit divided by this is reserved for lanes.
const RESERVE: usize = 8;

/// The network of a visitor: an IPv4 address, or the first 64 bits of an IPv6 address. Streams
/// without an address share one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Source(u64);

impl From<IpAddr> for Source {
    fn from(address: IpAddr) -> Self {
        Self(match address.to_canonical() {
            IpAddr::V4(v4) => u64::from(v4.to_bits()),
            IpAddr::V6(v6) => (v6.to_bits() >> 64) as u64,
        })
    }
}

impl From<Option<IpAddr>> for Source {
    fn from(address: Option<IpAddr>) -> Self {
        address.map_or_else(Self::default, Self::from)
    }
}

/// Sets the limit of this process, in bytes.
pub fn set_limit(bytes: usize) {
    LIMIT.store(bytes, Ordering::Relaxed);
}

/// The limit of this process, in bytes.
pub fn limit() -> usize {
    LIMIT.load(Ordering::Relaxed)
}

/// Bytes that are buffered now.
pub fn buffered() -> usize {
    BUFFERED.load(Ordering::Relaxed)
}

/// Streams that were aborted because the limit was reached.
pub fn aborted_streams() -> u64 {
    ABORTED_STREAMS.load(Ordering::Relaxed)
}

/// Remaining bytes of the limit.
pub(crate) fn available() -> usize {
    limit().saturating_sub(buffered_without_aborting())
}

/// Bytes that are buffered, without those of streams that will be aborted.
fn buffered_without_aborting() -> usize {
    buffered().saturating_sub(ABORTING.load(Ordering::Relaxed))
}

/// Bytes of stalled streams above their limit.
fn excess() -> usize {
    let limit = limit();
    buffered_without_aborting().saturating_sub(limit - limit / RESERVE)
}

/// Returns true if no buffer may grow.
pub fn is_scarce() -> bool {
    buffered() > limit() / 2
}

/// Counts a stream that was aborted because of its buffered bytes.
pub(crate) fn count_aborted_stream() {
    ABORTED_STREAMS.fetch_add(1, Ordering::Relaxed);
}

/// Bytes that count as buffered until this is dropped.
#[derive(Debug, Default)]
pub(crate) struct MemoryReservation(usize);

impl MemoryReservation {
    pub(crate) fn new(bytes: usize) -> Self {
        let mut holding = Self(0);
        holding.set(bytes);
        holding
    }

    pub(crate) fn bytes(&self) -> usize {
        self.0
    }

    pub(crate) fn set(&mut self, bytes: usize) {
        if bytes == self.0 {
            return;
        }
        if bytes > self.0 {
            BUFFERED.fetch_add(bytes - self.0, Ordering::Relaxed);
        } else {
            BUFFERED.fetch_sub(self.0 - bytes, Ordering::Relaxed);
        }
        self.0 = bytes;
    }
}

impl Drop for MemoryReservation {
    fn drop(&mut self) {
        self.set(0);
    }
}

/// The bytes that wait for the reader of one direction of a stream.
#[derive(Debug)]
pub struct Backlog {
    source: Source,
    stall: Option<Box<Stall>>,
}

impl Backlog {
    /// For a stream of a visitor from `source`; no bytes wait.
    pub fn new(source: Source) -> Self {
        Self {
            source,
            stall: None,
        }
    }

    /// Records that the reader does not read while so many bytes wait for it. With `progress` it
    /// has read some since the last call.
    ///
    /// # Errors
    /// The limit is reached and this stream must be aborted.
    pub fn wait(&mut self, cx: &Context<'_>, bytes: usize, progress: bool) -> io::Result<()> {
        let bytes = bytes + FLOOR;
        match &mut self.stall {
            Some(stall) if !progress => stall.renew(cx.waker(), bytes),
            stall => *stall = Some(Box::new(Stall::begin(self.source, cx.waker(), bytes))),
        }
        match &self.stall {
            Some(stall) if stall.entry.chosen.load(Ordering::Acquire) => {
                self.stall = None;
                Err(io::Error::new(
                    io::ErrorKind::QuotaExceeded,
                    "the reader does not read its buffered data, and the buffer memory is used up",
                ))
            }
            _ => Ok(()),
        }
    }

    /// Records that no bytes wait.
    pub fn clear(&mut self) {
        self.stall = None;
    }
}

/// A stream whose reader is stalled.
#[derive(Debug)]
struct Stall {
    source: Source,
    number: u64,
    entry: Arc<Entry>,
    holding: MemoryReservation,
}

#[derive(Debug)]
struct Entry {
    /// It was chosen to be aborted.
    chosen: AtomicBool,
    waker: Mutex<Waker>,
}

impl Stall {
    fn begin(source: Source, waker: &Waker, bytes: usize) -> Self {
        let entry = Arc::new(Entry {
            chosen: AtomicBool::new(false),
            waker: Mutex::new(waker.clone()),
        });
        let holding = MemoryReservation::new(bytes);
        let mut registry = STALLED.lock();
        let number = registry.add(source, Arc::clone(&entry), bytes);
        let chosen = registry.choose(excess());
        drop(registry);
        abort_streams(chosen);
        Self {
            source,
            number,
            entry,
            holding,
        }
    }

    fn renew(&mut self, waker: &Waker, bytes: usize) {
        self.entry.waker.lock().clone_from(waker);
        if bytes != self.holding.bytes() {
            self.holding.set(bytes);
            let mut registry = STALLED.lock();
            registry.resize(self.source, self.number, bytes);
            let chosen = registry.choose(excess());
            drop(registry);
            abort_streams(chosen);
        }
    }
}

impl Drop for Stall {
    fn drop(&mut self) {
        STALLED.lock().remove(self.source, self.number);
    }
}

/// Wakes the chosen streams, outside of the lock.
fn abort_streams(chosen: Vec<Arc<Entry>>) {
    for entry in chosen {
        count_aborted_stream();
        entry.chosen.store(true, Ordering::Release);
        let waker = entry.waker.lock().clone();
        waker.wake();
    }
}

/// The streams whose readers are stalled.
#[derive(Debug)]
struct Registry {
    next: u64,
    sources: BTreeMap<Source, Stalls>,
    /// Chosen streams that still exist, with their bytes.
    aborting: BTreeMap<u64, usize>,
}

/// The stalled streams of one source, in the order in which they stalled.
#[derive(Debug, Default)]
struct Stalls {
    bytes: usize,
    waiting: BTreeMap<u64, (Arc<Entry>, usize)>,
}

impl Registry {
    const fn new() -> Self {
        Self {
            next: 0,
            sources: BTreeMap::new(),
            aborting: BTreeMap::new(),
        }
    }

    fn add(&mut self, source: Source, entry: Arc<Entry>, bytes: usize) -> u64 {
        let number = self.next;
        self.next += 1;
        let stalls = self.sources.entry(source).or_default();
        stalls.bytes += bytes;
        stalls.waiting.insert(number, (entry, bytes));
        number
    }

    fn resize(&mut self, source: Source, number: u64, bytes: usize) {
        if let Some(stalls) = self.sources.get_mut(&source)
            && let Some((_, before)) = stalls.waiting.get_mut(&number)
        {
            stalls.bytes = stalls.bytes - *before + bytes;
            *before = bytes;
        }
    }

    fn remove(&mut self, source: Source, number: u64) {
        if let Some(bytes) = self.aborting.remove(&number) {
            ABORTING.fetch_sub(bytes, Ordering::Relaxed);
        } else if let Some(stalls) = self.sources.get_mut(&source)
            && let Some((_, bytes)) = stalls.waiting.remove(&number)
        {
            stalls.bytes -= bytes;
            if stalls.waiting.is_empty() {
                self.sources.remove(&source);
            }
        }
    }

    /// Removes and returns streams with at least `excess` bytes together, or all. Each time it is
    /// the stream that has been stalled for the longest time, of the source that has the most
    /// bytes.
    fn choose(&mut self, mut excess: usize) -> Vec<Arc<Entry>> {
        let mut chosen = Vec::new();
        while excess > 0 {
            let most = self.sources.iter().max_by_key(|(_, stalls)| stalls.bytes);
            let Some(source) = most.map(|(source, _)| *source) else {
                break;
            };
            let stalls = self.sources.entry(source).or_default();
            if let Some((number, (entry, bytes))) = stalls.waiting.pop_first() {
                stalls.bytes -= bytes;
                self.aborting.insert(number, bytes);
                ABORTING.fetch_add(bytes, Ordering::Relaxed);
                excess = excess.saturating_sub(bytes);
                chosen.push(entry);
            }
            if stalls.waiting.is_empty() {
                self.sources.remove(&source);
            }
        }
        chosen
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Streams of some sources, each with 100 bytes, in the order in which they stalled.
    struct Streams {
        registry: Registry,
        streams: Vec<(Source, u64, Arc<Entry>)>,
    }

    impl Streams {
        fn new(sources: &[u64]) -> Self {
            let mut new = Self {
                registry: Registry::new(),
                streams: Vec::new(),
            };
            for source in sources {
                new.add(Source(*source));
            }
            new
        }

        fn add(&mut self, source: Source) {
            let entry = Arc::new(Entry {
                chosen: AtomicBool::new(false),
                waker: Mutex::new(Waker::noop().clone()),
            });
            let number = self.registry.add(source, Arc::clone(&entry), 100);
            self.streams.push((source, number, entry));
        }

        /// Its streams by their indices.
        fn choose(&mut self, excess: usize) -> Vec<usize> {
            let chosen = self.registry.choose(excess);
            let index = |chosen: &Arc<Entry>| {
                let mut streams = self.streams.iter();
                streams.position(|(_, _, entry)| Arc::ptr_eq(entry, chosen))
            };
            chosen.iter().filter_map(index).collect()
        }

        fn remove(&mut self, index: usize) {
            let (source, number, _) = self.streams[index];
            self.registry.remove(source, number);
        }
    }

    #[test]
    fn the_longest_stalled_streams_are_aborted_until_the_rest_fits() {
        let mut streams = Streams::new(&[1; 4]);
        assert!(streams.choose(0).is_empty());
        assert_eq!(streams.choose(150), [0, 1]);
        // Chosen streams are not chosen again, even if they still exist.
        streams.remove(0);
        assert_eq!(streams.choose(1), [2]);
        assert_eq!(streams.choose(1000), [3]);
        assert!(streams.choose(1000).is_empty());
        for index in 1..4 {
            streams.remove(index);
        }
        assert!(streams.registry.sources.is_empty() && streams.registry.aborting.is_empty());
    }

    #[test]
    fn a_stream_that_was_read_becomes_the_newest() {
        let mut streams = Streams::new(&[1; 2]);
        streams.remove(0);
        streams.add(Source(1));
        assert_eq!(streams.choose(150), [1, 2]);
    }

    /// A source with few bytes keeps its streams, however early they stalled and however many
    /// streams another source opens.
    #[test]
    fn a_source_with_fewer_bytes_keeps_its_streams() {
        let mut streams = Streams::new(&[2, 1, 1, 1, 2, 3, 1]);
        assert_eq!(streams.choose(200), [1, 2]);
        // Now two sources have two streams each, and the one with the larger buffer has the most
        // bytes.
        let (source, number, _) = streams.streams[4];
        streams.registry.resize(source, number, 150);
        assert_eq!(streams.choose(1), [0]);
        assert_eq!(streams.choose(51), [3]);
        assert_eq!(streams.choose(1), [4]);
    }

    #[test]
    fn a_source_is_the_network_of_one_visitor() {
        let source = |address: &str| Source::from(address.parse::<IpAddr>().unwrap());
        assert_eq!(source("192.0.2.1"), source("::ffff:192.0.2.1"));
        assert_ne!(source("192.0.2.1"), source("192.0.2.2"));
        assert_eq!(source("2001:db8::1"), source("2001:db8::ffff:2"));
        assert_ne!(source("2001:db8::1"), source("2001:db8:0:1::1"));
        assert_eq!(Source::from(None), Source::default());
    }
}
