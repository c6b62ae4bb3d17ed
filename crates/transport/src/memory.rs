//! The bytes that streams hold for readers that do not take them, counted over the process, and
//! their limit.
//!
//! A stream whose reader takes everything holds nothing between two turns of its task. One whose
//! reader does not holds what was read from the other side: in a buffer of the [pump](crate::pump()),
//! in its TLS session, or unread on a lane. Visitors decide how many of those there are, so their
//! bytes have a limit:
//!
//! - From a half of the limit on no buffer grows: every stream has the smallest size.
//! - At the limit the stream whose reader has taken nothing for the longest time is given up, and
//!   the next one, until what is held is within the limit. Readers that are slow and read are never
//!   the first.
//! - A lane may hold as much as is left (`free`), so that lanes that hold much give streams up before
//!   those that hold little.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Waker};

use parking_lot::Mutex;

/// What a process holds at most where nothing else is configured.
pub const DEFAULT_LIMIT: usize = 256 * 1024 * 1024;

/// What a stream costs whose reader stalls, beside the bytes that wait: its TLS session, its two
/// sockets, and its task (measured: some 20 KiB of a standing connection, the rest of the service's).
const FLOOR: usize = 32 * 1024;

static LIMIT: AtomicUsize = AtomicUsize::new(DEFAULT_LIMIT);
static HELD: AtomicUsize = AtomicUsize::new(0);
static GIVEN_UP: AtomicU64 = AtomicU64::new(0);
static STALLED: Mutex<Registry> = Mutex::new(Registry::new());

/// Sets the limit of this process, in bytes.
pub fn set_limit(bytes: usize) {
    LIMIT.store(bytes, Ordering::Relaxed);
}

/// The limit of this process, in bytes.
pub fn limit() -> usize {
    LIMIT.load(Ordering::Relaxed)
}

/// Bytes that are held now.
pub fn held() -> usize {
    HELD.load(Ordering::Relaxed)
}

/// Streams that were given up because the limit was reached.
pub fn given_up() -> u64 {
    GIVEN_UP.load(Ordering::Relaxed)
}

/// Bytes that are left of the limit.
pub(crate) fn free() -> usize {
    limit().saturating_sub(held())
}

/// Whether so much is held that no buffer may grow.
pub fn is_scarce() -> bool {
    held() > limit() / 2
}

/// Notes that a stream was given up for what it holds.
pub(crate) fn note_given_up() {
    GIVEN_UP.fetch_add(1, Ordering::Relaxed);
}

/// Bytes that are counted as held until this is dropped.
#[derive(Debug, Default)]
pub(crate) struct Holding(usize);

impl Holding {
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
            HELD.fetch_add(bytes - self.0, Ordering::Relaxed);
        } else {
            HELD.fetch_sub(self.0 - bytes, Ordering::Relaxed);
        }
        self.0 = bytes;
    }
}

impl Drop for Holding {
    fn drop(&mut self) {
        self.set(0);
    }
}

/// What waits for the reader of one direction of a stream.
#[derive(Debug, Default)]
pub struct Backlog(Option<Box<Stall>>);

impl Backlog {
    /// Notes that the reader takes nothing while so many bytes wait for it. With `progress` it has
    /// taken some since it was asked last.
    ///
    /// # Errors
    /// The limit is reached and this stream is to be given up.
    pub fn wait(&mut self, cx: &Context<'_>, bytes: usize, progress: bool) -> io::Result<()> {
        let bytes = bytes + FLOOR;
        match &mut self.0 {
            Some(stall) if !progress => stall.renew(cx.waker(), bytes),
            stall => *stall = Some(Box::new(Stall::begin(cx.waker(), bytes))),
        }
        match &self.0 {
            Some(stall) if stall.entry.chosen.load(Ordering::Acquire) => {
                self.0 = None;
                Err(io::Error::new(
                    io::ErrorKind::QuotaExceeded,
                    "its reader does not take what waits for it, and memory for that is used up",
                ))
            }
            _ => Ok(()),
        }
    }

    /// Notes that nothing waits.
    pub fn clear(&mut self) {
        self.0 = None;
    }
}

/// A stream whose reader stalls.
#[derive(Debug)]
struct Stall {
    number: u64,
    entry: Arc<Entry>,
    holding: Holding,
}

#[derive(Debug)]
struct Entry {
    /// It is to be given up.
    chosen: AtomicBool,
    waker: Mutex<Waker>,
}

impl Stall {
    fn begin(waker: &Waker, bytes: usize) -> Self {
        let entry = Arc::new(Entry {
            chosen: AtomicBool::new(false),
            waker: Mutex::new(waker.clone()),
        });
        let holding = Holding::new(bytes);
        let mut registry = STALLED.lock();
        let number = registry.add(Arc::clone(&entry), bytes);
        let chosen = registry.choose(held(), limit());
        drop(registry);
        give_up(chosen);
        Self {
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
            registry.resize(self.number, bytes);
            let chosen = registry.choose(held(), limit());
            drop(registry);
            give_up(chosen);
        }
    }
}

impl Drop for Stall {
    fn drop(&mut self) {
        STALLED.lock().remove(self.number);
    }
}

/// Wakes those that are to be given up, outside of the lock.
fn give_up(chosen: Vec<Arc<Entry>>) {
    for entry in chosen {
        note_given_up();
        entry.chosen.store(true, Ordering::Release);
        let waker = entry.waker.lock().clone();
        waker.wake();
    }
}

/// The streams whose readers stall, in the order in which that began.
#[derive(Debug)]
struct Registry {
    next: u64,
    waiting: BTreeMap<u64, (Arc<Entry>, usize)>,
    /// Chosen and still there, with their bytes.
    leaving: BTreeMap<u64, usize>,
    leaving_bytes: usize,
}

impl Registry {
    const fn new() -> Self {
        Self {
            next: 0,
            waiting: BTreeMap::new(),
            leaving: BTreeMap::new(),
            leaving_bytes: 0,
        }
    }

    fn add(&mut self, entry: Arc<Entry>, bytes: usize) -> u64 {
        let number = self.next;
        self.next += 1;
        self.waiting.insert(number, (entry, bytes));
        number
    }

    fn resize(&mut self, number: u64, bytes: usize) {
        if let Some((_, before)) = self.waiting.get_mut(&number) {
            *before = bytes;
        }
    }

    fn remove(&mut self, number: u64) {
        self.waiting.remove(&number);
        if let Some(bytes) = self.leaving.remove(&number) {
            self.leaving_bytes -= bytes;
        }
    }

    /// Takes out as many as have to go, those that have stalled for the longest first.
    fn choose(&mut self, held: usize, limit: usize) -> Vec<Arc<Entry>> {
        let mut chosen = Vec::new();
        while held.saturating_sub(self.leaving_bytes) > limit {
            let Some((number, (entry, bytes))) = self.waiting.pop_first() else {
                break;
            };
            self.leaving.insert(number, bytes);
            self.leaving_bytes += bytes;
            chosen.push(entry);
        }
        chosen
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry() -> Arc<Entry> {
        Arc::new(Entry {
            chosen: AtomicBool::new(false),
            waker: Mutex::new(Waker::noop().clone()),
        })
    }

    #[test]
    fn those_that_have_stalled_for_the_longest_are_given_up_until_the_rest_fits() {
        let mut registry = Registry::new();
        let entries: Vec<_> = (0..4).map(|_| entry()).collect();
        for entry in &entries {
            registry.add(Arc::clone(entry), 100);
        }
        assert!(registry.choose(400, 400).is_empty());
        let chosen = registry.choose(400, 250);
        assert_eq!(chosen.len(), 2);
        assert!(Arc::ptr_eq(&chosen[0], &entries[0]) && Arc::ptr_eq(&chosen[1], &entries[1]));
        // They are still counted until their tasks have run, and no other goes for them.
        assert!(registry.choose(400, 250).is_empty());
        registry.remove(0);
        assert!(registry.choose(300, 250).is_empty());
        registry.remove(1);
        assert!(registry.choose(200, 250).is_empty());
        assert_eq!(registry.choose(200, 150).len(), 1);
    }

    #[test]
    fn who_takes_something_is_the_newest_again() {
        let mut registry = Registry::new();
        let (slow, dead) = (entry(), entry());
        let first = registry.add(Arc::clone(&slow), 100);
        registry.add(Arc::clone(&dead), 100);
        registry.remove(first);
        registry.add(slow, 100);
        let chosen = registry.choose(200, 150);
        assert!(matches!(&*chosen, [one] if Arc::ptr_eq(one, &dead)));
    }
}
