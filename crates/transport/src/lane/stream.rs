//! One stream of a lane, while it is on the lane.

use std::io;
use std::task::{Context, Poll, Waker};

use tokio::io::ReadBuf;
use wire::lane::{FrameStep, FrameType, encode_data, encode_empty};

use super::{Budget, Entry, Lane, State, WRITE_BUFFER_LIMIT, wake};

/// One stream of a lane. Dropping it aborts it, if it has not ended.
#[derive(Debug)]
pub struct LaneStream {
    lane: Lane,
    number: u32,
    budget: Budget,
    /// It may not leave the lane any more.
    stays: bool,
}

/// Result of a read.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ReadOutcome {
    /// Bytes, or none at the end of the stream.
    Bytes,
    /// All bytes on the lane have been read; the stream continues on another connection.
    Moved,
}

/// Result of a write.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum WriteOutcome {
    /// Number of bytes that were accepted.
    Bytes(usize),
    /// Its budget is used up, or too many bytes are unread.
    Full,
}

impl LaneStream {
    pub(super) fn new(lane: Lane, number: u32) -> Self {
        Self {
            lane,
            number,
            budget: Budget::bytes(),
            stays: false,
        }
    }

    /// The reason why the peer aborted the stream, if the peer sent one.
    pub fn refusal(&self) -> Option<wire::Error> {
        let state = self.lane.0.lock();
        state.streams.get(&self.number)?.refusal.clone()
    }

    /// Completes our direction. After this is dropped, the peer completes its own.
    pub fn finish(&mut self) {
        let driver = self.with_state(|state, number| {
            let entry = state.streams.get_mut(&number)?;
            let ends = entry.state.on_send(FrameStep::End).is_ok();
            entry.finished = ends || entry.state.is_over();
            if ends {
                encode_empty(FrameType::End, number, &mut state.out);
            }
            state.driver_waker.take()
        });
        wake(driver.flatten());
    }

    /// After an abort by the peer, [`finish`](Self::finish) sends END, and a drop without it RESET.
    /// Otherwise END is sent immediately.
    pub fn judge_exchanges(&mut self) {
        self.with_state(|state, number| {
            if let Some(entry) = state.streams.get_mut(&number) {
                entry.judges_exchanges = true;
            }
        });
    }

    /// Waits for the end of the peer's direction, after we have aborted the stream. Returns true if
    /// the peer completed it, and false if it aborted the stream or cannot complete it any more.
    pub fn poll_peer_end(&mut self, cx: &mut Context<'_>) -> Poll<bool> {
        let mut state = self.lane.0.lock();
        let broken = state.broken.is_some();
        let Some(entry) = state.streams.get_mut(&self.number) else {
            return Poll::Ready(false);
        };
        if entry.state.is_receiving() && !broken {
            store_waker(&mut entry.read_waker, cx);
            return Poll::Pending;
        }
        Poll::Ready(entry.state.is_ended())
    }

    /// Ready when the peer has aborted the stream, also after its end, or when it cannot do so any
    /// more.
    pub fn poll_reset(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let mut state = self.lane.0.lock();
        let broken = state.broken.is_some();
        let Some(entry) = state.streams.get_mut(&self.number) else {
            return Poll::Ready(());
        };
        let aborted = entry.state.is_aborted_by_peer() || entry.refusal.is_some();
        if broken || aborted || entry.state.is_aborted() {
            return Poll::Ready(());
        }
        store_waker(&mut entry.read_waker, cx);
        Poll::Pending
    }

    /// Returns true if the peer has aborted the stream.
    #[cfg(test)]
    pub(super) fn is_aborted_by_peer(&self) -> bool {
        let state = self.lane.0.lock();
        let entry = state.streams.get(&self.number);
        entry.is_some_and(|entry| entry.state.is_aborted_by_peer())
    }

    /// Its lane.
    #[cfg(test)]
    pub(super) fn lane(&self) -> &Lane {
        &self.lane
    }

    /// Sets the budget for bytes on the lane from now on.
    pub(super) fn set_budget(&mut self, budget: Budget) {
        self.budget = budget;
    }

    /// Aborts both directions, with a reason.
    pub fn reset(&mut self, reason: Option<&wire::Error>) {
        let driver = self.with_state(|state, number| state.reset(number, reason));
        wake(driver.flatten());
    }

    pub(super) fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<ReadOutcome>> {
        let mut locked = self.lane.0.lock();
        let state = &mut *locked;
        let Some(entry) = state.streams.get_mut(&self.number) else {
            return Poll::Ready(Err(io::ErrorKind::NotConnected.into()));
        };
        let unread = entry.inbox.get(entry.start..).unwrap_or_default();
        if !unread.is_empty() {
            let taken = unread.get(..buf.remaining()).unwrap_or(unread);
            buf.put_slice(taken);
            let taken = taken.len();
            entry.start += taken;
            entry.turn = state.turn;
            state.unread -= taken;
            if entry.unread() == 0 {
                // A waiting stream keeps no buffer.
                entry.clear();
            }
            self.budget.on_receive(taken);
            let frames = entry.reading.on_read(taken);
            let acknowledges = frames > 0 && entry.state.on_send(FrameStep::Taken).is_ok();
            state.count_unread();
            if acknowledges {
                for _ in 0..frames {
                    encode_empty(FrameType::Taken, self.number, &mut state.out);
                }
                let driver = state.driver_waker.take();
                drop(locked);
                wake(driver);
            }
            return Poll::Ready(Ok(ReadOutcome::Bytes));
        }
        if entry.state.is_reset() || entry.state.is_aborted() {
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        }
        if entry.state.is_ended() {
            return Poll::Ready(Ok(ReadOutcome::Bytes));
        }
        if entry.state.is_moved() {
            return Poll::Ready(Ok(ReadOutcome::Moved));
        }
        if let Some(broken) = state.broken {
            return Poll::Ready(Err(broken.into()));
        }
        store_waker(&mut entry.read_waker, cx);
        Poll::Pending
    }

    pub(super) fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<WriteOutcome>> {
        let mut locked = self.lane.0.lock();
        let state = &mut *locked;
        let Some(entry) = state.streams.get_mut(&self.number) else {
            return Poll::Ready(Err(io::ErrorKind::NotConnected.into()));
        };
        if state.broken.is_some() || !entry.state.may_send() {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        if state.out.len() >= WRITE_BUFFER_LIMIT {
            state.is_full = true;
            store_waker(&mut entry.write_waker, cx);
            return Poll::Pending;
        }
        let stays = state.stays || self.stays;
        let room = match entry.sending.available() {
            room if stays => room,
            room => room.min(self.budget.remaining()),
        };
        let fits = buf.get(..room).unwrap_or(buf);
        if fits.is_empty() {
            if !stays {
                return Poll::Ready(Ok(WriteOutcome::Full));
            }
            // The peer sends `TAKEN` when it has read enough.
            store_waker(&mut entry.write_waker, cx);
            return Poll::Pending;
        }
        let taken = encode_data(self.number, fits, &mut state.out);
        entry.sending.on_send(taken);
        self.budget.on_send(taken);
        let driver = state.driver_waker.take();
        drop(locked);
        wake(driver);
        Poll::Ready(Ok(WriteOutcome::Bytes(taken)))
    }

    /// Completes our direction, if it is not finished.
    pub(super) fn send_end(&mut self) -> io::Result<()> {
        self.send_final(FrameStep::End, FrameType::End)
    }

    /// Marks that our direction continues on another connection, if it is not finished.
    pub(super) fn send_move(&mut self) -> io::Result<()> {
        self.send_final(FrameStep::Move, FrameType::Move)
    }

    /// Keeps it on the lane from now on, unless the peer leaves it.
    pub(super) fn keep_on_lane(&mut self) {
        self.stays = true;
    }

    /// Returns true if the stream can stay on the lane: neither end has left it.
    pub(super) fn may_stay(&self) -> bool {
        let state = self.lane.0.lock();
        let entry = state.streams.get(&self.number);
        let on_lane = |entry: &Entry| entry.state.may_send() && !entry.state.is_moved();
        state.broken.is_none() && entry.is_some_and(on_lane)
    }

    /// Ready when the connection that the stream moves to will not arrive.
    pub(super) fn poll_abandoned(&mut self, cx: &mut Context<'_>) -> Poll<io::Error> {
        let mut state = self.lane.0.lock();
        let broken = state.broken;
        let Some(entry) = state.streams.get_mut(&self.number) else {
            return Poll::Ready(io::ErrorKind::NotConnected.into());
        };
        if entry.abandoned || entry.state.is_aborted_by_peer() || entry.state.is_aborted() {
            return Poll::Ready(io::ErrorKind::ConnectionReset.into());
        }
        if let Some(broken) = broken {
            return Poll::Ready(broken.into());
        }
        store_waker(&mut entry.move_waker, cx);
        Poll::Pending
    }

    /// Records that the connection that the stream moves to has arrived.
    pub(super) fn arrive(&mut self) {
        self.with_state(|state, number| {
            if let Some(entry) = state.streams.get_mut(&number) {
                entry.arrived = true;
            }
        });
    }

    /// Leaves the lane: no more bytes of the stream are sent or read on it.
    pub(super) fn leave(&mut self) {
        let woken = self.with_state(|state, number| {
            let entry = state.streams.get_mut(&number);
            let waiting = entry.map(|entry| entry.waiting().collect::<Vec<_>>());
            (waiting.unwrap_or_default(), state.release(number))
        });
        let (waiting, driver) = woken.unwrap_or_default();
        // The other half continues on the new connection.
        waiting.into_iter().for_each(Waker::wake);
        wake(driver);
    }

    fn send_final(&mut self, step: FrameStep, frame: FrameType) -> io::Result<()> {
        let finished = self.with_state(|state, number| {
            if let Some(broken) = state.broken {
                return Err(io::Error::from(broken));
            }
            let entry = state.streams.get_mut(&number);
            let noted = entry.is_some_and(|entry| entry.state.on_send(step).is_ok());
            if noted {
                encode_empty(frame, number, &mut state.out);
            }
            Ok(state.driver_waker.take())
        });
        wake(finished.transpose()?.flatten());
        Ok(())
    }

    /// Applies a function to the lane's state, while it contains the stream.
    fn with_state<R>(&self, act: impl FnOnce(&mut State, u32) -> R) -> Option<R> {
        let mut state = self.lane.0.lock();
        let known = state.streams.contains_key(&self.number);
        known.then(|| act(&mut state, self.number))
    }
}

impl State {
    /// Aborts a stream, if it was not aborted; returns the driver to wake.
    fn reset(&mut self, number: u32, reason: Option<&wire::Error>) -> Option<Waker> {
        let entry = self.streams.get_mut(&number)?;
        let goes_on = entry.state.continues_elsewhere() && !entry.arrived;
        if entry.state.on_send(FrameStep::Reset).is_err() && !goes_on {
            return None;
        }
        // A peer that waits for the connection is notified once.
        entry.abandoned = true;
        entry.arrived = true;
        self.unread -= entry.clear();
        wire::lane::encode_reset(number, reason, &mut self.out);
        self.count_unread();
        self.driver_waker.take()
    }

    /// Releases a stream that is not used any more; returns the driver to wake.
    fn release(&mut self, number: u32) -> Option<Waker> {
        if let Some(entry) = self.streams.get_mut(&number) {
            entry.dropped = true;
            drop(entry.waiting());
            self.unread -= entry.clear();
            self.count_unread();
        }
        self.forget_if_over(number);
        // A retiring lane ends with its last stream.
        let last = self.retiring && self.streams.is_empty();
        last.then(|| self.driver_waker.take()).flatten()
    }
}

impl Drop for LaneStream {
    fn drop(&mut self) {
        let driver = self.with_state(|state, number| {
            let is_finished = state
                .streams
                .get(&number)
                .is_some_and(|entry| entry.finished);
            let driver = if is_finished {
                None
            } else {
                state.reset(number, None)
            };
            let last = state.release(number);
            driver.or(last)
        });
        wake(driver.flatten());
    }
}

/// Stores the waker of a task. Usually it is stored already.
fn store_waker(slot: &mut Option<Waker>, cx: &Context<'_>) {
    match slot {
        Some(waker) => waker.clone_from(cx.waker()),
        None => *slot = Some(cx.waker().clone()),
    }
}

impl Entry {
    /// Adds received bytes; returns the reader to wake.
    pub(super) fn deliver(&mut self, bytes: &[u8], turn: u64) -> Option<Waker> {
        if self.unread() == 0 {
            self.turn = turn;
        }
        self.inbox.extend_from_slice(bytes);
        self.read_waker.take()
    }
}
