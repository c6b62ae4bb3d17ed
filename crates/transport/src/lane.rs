//! Lanes: extension `lane/2` of the agent protocol.
//!
//! A lane is one TLS connection that carries many small streams. One task, the [`Driver`], owns the
//! connection. It delivers received bytes to the streams, and writes the queued frames of all of
//! them together, so that small exchanges share system calls and TLS records. `wire::lane` defines
//! the bytes of a frame; this module transfers them.
//!
//! ```text
//! engine: StandingConnection::into_lane ─▶ Lane::open ─▶ LaneStream ─▶ MigratingStream
//! agent:  Lane::agent ─▶ Driver::poll_accept ─▶ LaneStream ─▶ MigratingStream
//! ```
//!
//! The bytes of a stream on the lane are limited, so no stream waits behind a large or a slow one:
//! [`MigratingStream`] moves it to a standing connection when it reaches its [`Budget`], or when
//! its peer does not read.

mod budget;
mod driver;
mod migrating_stream;
mod stream;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::task::Waker;

use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use wire::lane::{
    FrameStep, MAX_STREAMS, ReceiveWindow, SendWindow, Side, StreamOpen, StreamState,
};
use wire::message::IpAddress;

pub use self::budget::Budget;
pub use self::driver::Driver;
pub use self::migrating_stream::{ConnectFuture, MigratingStream, MigrationTarget};
pub use self::stream::LaneStream;
use crate::Stream;
use crate::memory::{self, MemoryReservation, Source};

/// Bytes that may wait to be written to a lane before its streams have to wait: two responses of
/// maximum size. A larger buffer would only delay the frames behind it.
const WRITE_BUFFER_LIMIT: usize = 2 * wire::lane::DOWN_LIMIT;

/// Limit of the unread bytes of all streams of a lane, if the [process](memory) has capacity for
/// them. New streams use other connections long before (see [`Lane::has_room`]). Above the limit,
/// streams of slow readers are aborted, those of the source with the most bytes first; other
/// streams are not affected.
const MAX_UNREAD: usize = 32 * 1024 * 1024;

/// Granularity with which a lane's unread bytes are counted in the process.
const ACCOUNTING_UNIT: usize = 16 * 1024;

/// Turns of the driver after which a stream that has read none of its waiting bytes is slow. Its
/// reader was woken in the first turn, and could run before the next one.
const SLOW_TURNS: u64 = 2;

/// A lane, for opening streams on it. Clones are handles of the same lane.
#[derive(Clone, Debug)]
pub struct Lane(Arc<Mutex<State>>);

/// State that the driver and the streams of a lane share.
#[derive(Debug)]
struct State {
    side: Side,
    /// By their numbers, which this end or its authenticated peer assigns in sequence. Visitors do
    /// not choose them, so the hash needs no key. A request looks up its stream about ten times.
    streams: FxHashMap<u32, Entry>,
    /// The number of the last stream that was opened; 0 before the first.
    last_number: u32,
    /// Frames to be written.
    out: Vec<u8>,
    /// Bytes that have arrived and that no stream has read.
    unread: usize,
    /// The same, as counted in the process.
    holding: MemoryReservation,
    /// Number of turns of the driver.
    turn: u64,
    /// True while streams wait for space in `out`, each with its `writer`.
    is_full: bool,
    driver_waker: Option<Waker>,
    /// No further streams are opened; the lane ends with the last one.
    retiring: bool,
    /// No more connections are available: streams stay, and wait for space.
    stays: bool,
    /// The reason why the lane is broken.
    broken: Option<io::ErrorKind>,
}

/// One stream.
#[derive(Debug)]
struct Entry {
    source: Source,
    state: StreamState,
    /// Bytes that have arrived and have not been read: from `start` on.
    inbox: Vec<u8>,
    start: usize,
    /// Turn of the driver in which the unread bytes began to wait, or some were last read.
    turn: u64,
    read_waker: Option<Waker>,
    /// Waits for space: in `out`, or in its own window if the stream stays on the lane.
    write_waker: Option<Waker>,
    /// Waits for the connection that the stream moves to.
    move_waker: Option<Waker>,
    /// The peer has gone; the stream is over on the lane and has not arrived elsewhere.
    abandoned: bool,
    /// The connection has arrived, so the rest is sent on it.
    arrived: bool,
    /// The reason why the peer aborted it.
    refusal: Option<wire::Error>,
    sending: SendWindow,
    reading: ReceiveWindow,
    /// The stream was dropped; further bytes are discarded.
    dropped: bool,
    /// Our direction is complete, and the peer completes its own after the stream is dropped.
    finished: bool,
    /// After an abort by the peer, our direction stays open until [`LaneStream::finish`] or the
    /// drop, which shows the peer if the last exchange is complete.
    judges_exchanges: bool,
}

impl Lane {
    /// The engine's end of a connection that becomes a lane after the bytes `front`, and the task
    /// that serves it.
    pub(crate) fn engine<T: Stream>(io: T, front: &[u8]) -> (Self, Driver<T>) {
        Self::new(io, Side::Engine, front)
    }

    /// The agent's end of a connection that has become a lane
    /// ([`AcceptedStream`](crate::standing::AcceptedStream)), and the task that serves it.
    pub fn agent<T: Stream>(io: T) -> (Self, Driver<T>) {
        Self::new(io, Side::Agent, &[])
    }

    fn new<T: Stream>(io: T, side: Side, front: &[u8]) -> (Self, Driver<T>) {
        let lane = Self(Arc::new(Mutex::new(State {
            side,
            streams: FxHashMap::default(),
            last_number: 0,
            out: front.to_vec(),
            unread: 0,
            holding: MemoryReservation::default(),
            turn: 0,
            is_full: false,
            driver_waker: None,
            retiring: false,
            stays: false,
            broken: None,
        })));
        (lane.clone(), Driver::new(io, lane))
    }

    /// Opens a stream (engine's side). `None` if the lane is over or has no capacity; the stream
    /// should use a standing connection then. The opening is sent together with the bytes that are
    /// written before the caller's task yields. It does not wait for more, because the service may
    /// send first.
    pub fn open(&self, open: &StreamOpen) -> Option<LaneStream> {
        let mut state = self.0.lock();
        if state.side != Side::Engine || !state.has_room() {
            return None;
        }
        let number = state.last_number.checked_add(1)?;
        wire::lane::encode_open(number, open, &mut state.out).ok()?;
        state.last_number = number;
        let entry = Entry::new(Side::Engine, open);
        state.streams.insert(number, entry);
        let driver = state.driver_waker.take();
        drop(state);
        wake(driver);
        Some(LaneStream::new(self.clone(), number))
    }

    /// Opens a stream on a lane, regardless of its unread bytes.
    #[cfg(test)]
    fn open_beyond_half(&self, open: &StreamOpen) -> Option<LaneStream> {
        let held = std::mem::take(&mut self.0.lock().unread);
        let opened = self.open(open);
        self.0.lock().unread += held;
        opened
    }

    /// Returns true if a stream can be opened.
    pub fn has_room(&self) -> bool {
        self.0.lock().has_room()
    }

    /// Number of its streams.
    pub fn streams(&self) -> usize {
        self.0.lock().streams.len()
    }

    /// Number of its streams that this end still uses. The peer has yet to finish the others.
    pub fn streams_in_use(&self) -> usize {
        let state = self.0.lock();
        state
            .streams
            .values()
            .filter(|entry| !entry.dropped)
            .count()
    }

    /// Returns true if it is over, or ends with its last stream.
    pub fn is_over(&self) -> bool {
        let state = self.0.lock();
        state.retiring || state.broken.is_some()
    }

    /// Keeps all streams on the lane from now on: the control channel ends, and with it the
    /// connections that they would move to. A large stream then waits for space, behind its own
    /// bytes only.
    pub fn stay(&self) {
        self.0.lock().stays = true;
    }

    /// Opens no further streams, and lets none leave; the lane is closed when the last one has
    /// ended.
    pub fn retire(&self) {
        let mut state = self.0.lock();
        state.retiring = true;
        state.stays = true;
        let driver = state.driver_waker.take();
        drop(state);
        wake(driver);
    }
}

impl State {
    fn has_room(&self) -> bool {
        !self.retiring
            && self.broken.is_none()
            && self.streams.len() < MAX_STREAMS
            && self.out.len() < WRITE_BUFFER_LIMIT
            && self.unread < unread_limit() / 2
    }

    /// Updates the count of the process, if the unread bytes have changed by much.
    fn count_unread(&mut self) {
        if self.unread.abs_diff(self.holding.bytes()) >= ACCOUNTING_UNIT || self.unread == 0 {
            self.holding.set(self.unread);
        }
    }

    /// Frees space for so many bytes: it aborts streams of the source with the most unread bytes,
    /// slow ones first, and among these the ones with the most unread bytes first.
    fn make_room(&mut self, bytes: usize, woken: &mut Vec<Waker>) {
        while self.unread + bytes > unread_limit() {
            let Some(source) = self.greediest_source() else {
                return;
            };
            let turn = self.turn;
            let unread = |entry: &Entry| (entry.turn + SLOW_TURNS <= turn, entry.unread());
            let of_source = self.streams.iter_mut();
            let of_source =
                of_source.filter(|(_, entry)| entry.source == source && entry.unread() > 0);
            let Some((number, entry)) = of_source.max_by_key(|(_, entry)| unread(entry)) else {
                return;
            };
            woken.extend(entry.waiting());
            if entry.state.on_send(FrameStep::Reset).is_ok() {
                let full = wire::Error::capacity_exhausted("too much unread data");
                wire::lane::encode_reset(*number, Some(&full), &mut self.out);
            }
            self.unread -= entry.clear();
            self.count_unread();
            memory::count_aborted_stream();
        }
    }

    /// The source whose streams together have the most unread bytes, if any has.
    fn greediest_source(&self) -> Option<Source> {
        let mut unread: HashMap<Source, usize> = HashMap::new();
        for entry in self.streams.values().filter(|entry| entry.unread() > 0) {
            *unread.entry(entry.source).or_default() += entry.unread();
        }
        let most = unread.into_iter().max_by_key(|(_, bytes)| *bytes);
        most.map(|(source, _)| source)
    }

    /// Drops the state of a stream that is over and not used any more.
    fn forget_if_over(&mut self, number: u32) {
        if let Some(entry) = self.streams.get(&number)
            && entry.dropped
            && entry.state.is_over()
        {
            self.streams.remove(&number);
        }
    }
}

impl Entry {
    fn new(side: Side, open: &StreamOpen) -> Self {
        let address = open.source_ip.as_ref().and_then(IpAddress::to_ip);
        Self {
            source: address.into(),
            state: StreamState::new(),
            inbox: Vec::new(),
            start: 0,
            turn: 0,
            read_waker: None,
            write_waker: None,
            move_waker: None,
            abandoned: false,
            arrived: false,
            refusal: None,
            sending: SendWindow::new(side),
            reading: ReceiveWindow::new(side),
            dropped: false,
            finished: false,
            judges_exchanges: false,
        }
    }

    fn unread(&self) -> usize {
        self.inbox.len() - self.start
    }

    /// All wakers of this stream.
    fn waiting(&mut self) -> impl Iterator<Item = Waker> {
        let all = [
            self.read_waker.take(),
            self.write_waker.take(),
            self.move_waker.take(),
        ];
        all.into_iter().flatten()
    }

    /// Discards the unread bytes, and returns their number.
    fn clear(&mut self) -> usize {
        let unread = self.unread();
        self.inbox = Vec::new();
        self.start = 0;
        unread
    }
}

/// Limit of a lane's unread bytes: as many as the process has left, so that lanes with few unread
/// bytes have capacity while others have many.
fn unread_limit() -> usize {
    MAX_UNREAD.min(memory::available())
}

/// Wakes a task, never under the lock, because the task may end another stream when it runs.
fn wake(waker: Option<Waker>) {
    if let Some(waker) = waker {
        waker.wake();
    }
}
