//! Lanes: extension `lane/2` of the agent protocol.
//!
//! A lane is one TLS connection that carries many small streams. One task, the [`Driver`], owns
//! the connection: it hands what arrives to the streams, and writes what all of them have queued
//! meanwhile at once, so that small exchanges share system calls and TLS records. The bytes of a
//! frame are `wire::lane`'s; this module moves them.
//!
//! ```text
//! engine: StandingConnection::into_lane ─▶ Lane::open ──▶ LaneStream ─▶ MigratingStream ─▶ (its own connection)
//! agent:  Lane::agent ─────▶ Driver::poll_accept ──▶ LaneStream ─▶ MigratingStream ─▶ (the same)
//! ```
//!
//! What a stream may have on the lane is limited, so nobody waits behind a large or a slow one:
//! [`MigratingStream`] takes it to a standing connection when it comes to its [`Budget`], or when its peer
//! does not read.

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

/// What waits to be written to a lane before its streams have to wait: two answers of the largest
/// kind. More would only wait longer, in front of those that come later.
const OUT: usize = 2 * wire::lane::DOWN_LIMIT;

/// What all streams of a lane together may leave unread, where the [process](memory) has room for
/// it. Streams are served elsewhere long before (see [`Lane::has_room`]). Where more comes, streams
/// whose readers leave it are given up, those of the source with the most first: the others do not notice.
const UNREAD: usize = 32 * 1024 * 1024;

/// How exactly what is unread on a lane is counted in the process.
const COUNTED: usize = 16 * 1024;

/// Turns of the driver after which a stream that has read nothing of what waits for it is slow. Its
/// reader was woken in the first one, and has run before the next.
const SLOW: u64 = 2;

/// A lane, for those who open streams on it. Clones are handles of the same lane.
#[derive(Clone, Debug)]
pub struct Lane(Arc<Mutex<State>>);

/// What the driver and the streams of a lane share.
#[derive(Debug)]
struct State {
    side: Side,
    /// By their numbers, which this end or its authenticated peer counts up: no visitor chooses them, so
    /// the hash needs no key. A request looks its stream up some ten times.
    streams: FxHashMap<u32, Entry>,
    /// The number of the last stream that was opened; 0 before the first.
    last: u32,
    /// Frames to be written.
    out: Vec<u8>,
    /// Bytes that have arrived and that no stream has read.
    unread: usize,
    /// The same, as the process counts it.
    holding: MemoryReservation,
    /// Turns of the driver.
    turn: u64,
    /// Streams wait for room in `out`, each with its `writer`.
    is_full: bool,
    driver: Option<Waker>,
    /// No further streams; the lane ends with the last one.
    retiring: bool,
    /// Nobody brings connections any more: streams stay, and wait for room.
    stays: bool,
    /// Why there is no lane any more.
    broken: Option<io::ErrorKind>,
}

/// One stream.
#[derive(Debug)]
struct Entry {
    source: Source,
    state: StreamState,
    /// What has arrived and has not been read: from `start` on.
    inbox: Vec<u8>,
    start: usize,
    /// Turn of the driver in which what is unread began to wait, or some of it was read last.
    turn: u64,
    reader: Option<Waker>,
    /// Waits for room: in `out`, or of its own where the stream stays on the lane.
    writer: Option<Waker>,
    /// Waits for the connection that the stream moves to.
    mover: Option<Waker>,
    /// The peer has gone, of a stream that is over on the lane and has not arrived elsewhere.
    abandoned: bool,
    /// The connection is there, so that the rest is said on it.
    arrived: bool,
    /// Why the peer gave it up.
    refusal: Option<wire::Error>,
    sending: SendWindow,
    reading: ReceiveWindow,
    /// Nobody holds it any more; what still comes is thrown away.
    dropped: bool,
}

impl Lane {
    /// The engine's end of a connection that becomes a lane behind `front`, and the task that
    /// serves it.
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
            last: 0,
            out: front.to_vec(),
            unread: 0,
            holding: MemoryReservation::default(),
            turn: 0,
            is_full: false,
            driver: None,
            retiring: false,
            stays: false,
            broken: None,
        })));
        (lane.clone(), Driver::new(io, lane))
    }

    /// Begins a stream (engine's side). `None` when the lane is over or has no room; the stream is
    /// better off at a standing connection then. The opening travels with what is written before
    /// the caller's task gives way; it does not wait for more, since the service may speak first.
    pub fn open(&self, open: &StreamOpen) -> Option<LaneStream> {
        let mut state = self.0.lock();
        if state.side != Side::Engine || !state.has_room() {
            return None;
        }
        let number = state.last.checked_add(1)?;
        wire::lane::encode_open(number, open, &mut state.out).ok()?;
        state.last = number;
        let entry = Entry::new(Side::Engine, open);
        state.streams.insert(number, entry);
        let driver = state.driver.take();
        drop(state);
        wake(driver);
        Some(LaneStream::new(self.clone(), number))
    }

    /// Begins a stream on a lane however much is unread there.
    #[cfg(test)]
    fn open_beyond_half(&self, open: &StreamOpen) -> Option<LaneStream> {
        let held = std::mem::take(&mut self.0.lock().unread);
        let opened = self.open(open);
        self.0.lock().unread += held;
        opened
    }

    /// Whether a stream can be begun.
    pub fn has_room(&self) -> bool {
        self.0.lock().has_room()
    }

    /// Streams on it.
    pub fn streams(&self) -> usize {
        self.0.lock().streams.len()
    }

    /// Streams on it that somebody holds: the peer has yet to finish the others.
    pub fn held(&self) -> usize {
        let state = self.0.lock();
        state
            .streams
            .values()
            .filter(|entry| !entry.dropped)
            .count()
    }

    /// Whether it is over, or ends with its last stream.
    pub fn is_over(&self) -> bool {
        let state = self.0.lock();
        state.retiring || state.broken.is_some()
    }

    /// Lets no stream leave from now on: the control channel ends, and with it go the connections
    /// that they would move to. What is large waits for room then, behind nobody but itself.
    pub fn stay(&self) {
        self.0.lock().stays = true;
    }

    /// Begins no further stream, and lets none leave; the lane is closed when the last one has ended.
    pub fn retire(&self) {
        let mut state = self.0.lock();
        state.retiring = true;
        state.stays = true;
        let driver = state.driver.take();
        drop(state);
        wake(driver);
    }
}

impl State {
    fn has_room(&self) -> bool {
        !self.retiring
            && self.broken.is_none()
            && self.streams.len() < MAX_STREAMS
            && self.out.len() < OUT
            && self.unread < most_unread() / 2
    }

    /// Tells the process what is unread, where that has changed by much.
    fn count_unread(&mut self) {
        if self.unread.abs_diff(self.holding.bytes()) >= COUNTED || self.unread == 0 {
            self.holding.set(self.unread);
        }
    }

    /// Makes room for so many bytes: gives up streams of the source that has the most unread. Of those
    /// first the slow ones, with the most unread first.
    fn make_room(&mut self, bytes: usize, woken: &mut Vec<Waker>) {
        while self.unread + bytes > most_unread() {
            let Some(source) = self.greediest_source() else {
                return;
            };
            let turn = self.turn;
            let unread = |entry: &Entry| (entry.turn + SLOW <= turn, entry.unread());
            let of_source = self.streams.iter_mut();
            let of_source =
                of_source.filter(|(_, entry)| entry.source == source && entry.unread() > 0);
            let Some((number, entry)) = of_source.max_by_key(|(_, entry)| unread(entry)) else {
                return;
            };
            woken.extend(entry.waiting());
            if entry.state.on_send(FrameStep::Reset).is_ok() {
                let full = wire::Error::capacity_exhausted("too much of it waits to be read");
                wire::lane::encode_reset(*number, Some(&full), &mut self.out);
            }
            self.unread -= entry.clear();
            self.count_unread();
            memory::note_given_up();
        }
    }

    /// The source whose streams have the most unread together, if any has.
    fn greediest_source(&self) -> Option<Source> {
        let mut unread: HashMap<Source, usize> = HashMap::new();
        for entry in self.streams.values().filter(|entry| entry.unread() > 0) {
            *unread.entry(entry.source).or_default() += entry.unread();
        }
        let most = unread.into_iter().max_by_key(|(_, bytes)| *bytes);
        most.map(|(source, _)| source)
    }

    /// Forgets a stream that is over and that nobody holds.
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
            reader: None,
            writer: None,
            mover: None,
            abandoned: false,
            arrived: false,
            refusal: None,
            sending: SendWindow::new(side),
            reading: ReceiveWindow::new(side),
            dropped: false,
        }
    }

    fn unread(&self) -> usize {
        self.inbox.len() - self.start
    }

    /// Everybody who waits for something of it.
    fn waiting(&mut self) -> impl Iterator<Item = Waker> {
        let all = [self.reader.take(), self.writer.take(), self.mover.take()];
        all.into_iter().flatten()
    }

    /// Throws away what is unread; how much that was.
    fn clear(&mut self) -> usize {
        let unread = self.unread();
        self.inbox = Vec::new();
        self.start = 0;
        unread
    }
}

/// What a lane may have unread: as much as the process has left, so that lanes with little unread have
/// room where others have much.
fn most_unread() -> usize {
    UNREAD.min(memory::free())
}

/// Wakes a task, never under the lock: what runs then may be the end of another stream.
fn wake(waker: Option<Waker>) {
    if let Some(waker) = waker {
        waker.wake();
    }
}
