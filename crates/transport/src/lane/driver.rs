//! The task that owns a lane's connection.

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use tokio::io::ReadBuf;
use wire::lane::{Decoder, Event, FrameEffect, FrameStep, MAX_STREAMS, Side, StreamOpen};

use super::{Entry, Lane, LaneStream, State};
use crate::{Scratch, Stream};

/// Serves a lane: it reads, delivers to the streams, and writes the frames that they have queued.
/// Dropping it breaks the streams.
#[derive(Debug)]
pub struct Driver<T> {
    io: T,
    lane: Lane,
    decoder: Decoder,
    /// Frames that are being written, from `sent` on.
    writing: Vec<u8>,
    sent: usize,
    unflushed: bool,
    /// Streams that the engine has opened and that were not accepted yet (agent's side). The limit
    /// of streams of the lane applies.
    accepted: VecDeque<(StreamOpen, LaneStream)>,
    /// Tasks that the bytes of one read wake, after the lock is released.
    woken: Vec<Waker>,
}

impl<T: Stream> Driver<T> {
    pub(super) fn new(io: T, lane: Lane) -> Self {
        Self {
            io,
            lane,
            decoder: Decoder::new(),
            writing: Vec::new(),
            sent: 0,
            unflushed: false,
            accepted: VecDeque::new(),
            woken: Vec::new(),
        }
    }

    /// Serves the lane until the next stream starts (agent's side); `None` at its regular end. The
    /// engine's side calls it as well, and only gets the end. Cancel safe.
    ///
    /// # Errors
    /// If the connection fails or the peer breaks the rules; the streams are broken then.
    pub fn poll_accept(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<Option<(StreamOpen, LaneStream)>>> {
        let served = self.poll_serve(cx);
        if let Poll::Ready(Err(error)) = &served {
            self.lane.break_off(error.kind());
            return Poll::Ready(Err(io::Error::new(error.kind(), error.to_string())));
        }
        if let Some(accepted) = self.accepted.pop_front() {
            return Poll::Ready(Ok(Some(accepted)));
        }
        served.map_ok(|()| None)
    }

    /// Reads and writes as much as possible; ready at the end of the lane. While there are streams
    /// in `accepted` it has not registered all wake-ups, so these are returned first.
    fn poll_serve(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // Input first, because it makes streams write; then their output.
        let open = self.poll_incoming(cx)?;
        if self.poll_outgoing(cx)?.is_ready() && self.is_over() {
            return Pin::new(&mut self.io).poll_shutdown(cx);
        }
        match open {
            Poll::Pending => Poll::Pending,
            // The peer has closed; nothing has to be sent to it.
            Poll::Ready(false) => Poll::Ready(Ok(())),
            // More bytes may be available, but other tasks run first.
            Poll::Ready(true) => {
                cx.waker().wake_by_ref();
                Poll::Pending
            }
        }
    }

    /// Reads until nothing is available. Ready with `false` at a regular end of the connection.
    fn poll_incoming(&mut self, cx: &mut Context<'_>) -> io::Result<Poll<bool>> {
        let mut bytes = Scratch::take(Scratch::SMALL);
        let mut buf = ReadBuf::new(&mut bytes);
        let mut reads = 0;
        self.lane.0.lock().turn += 1;
        while reads < READS {
            buf.clear();
            match Pin::new(&mut self.io).poll_read(cx, &mut buf)? {
                Poll::Pending => return Ok(Poll::Pending),
                Poll::Ready(()) if buf.filled().is_empty() => {
                    let clean = self.decoder.is_between_frames();
                    return if clean && self.lane.streams() == 0 {
                        self.lane.retire();
                        Ok(Poll::Ready(false))
                    } else {
                        Err(io::ErrorKind::UnexpectedEof.into())
                    };
                }
                Poll::Ready(()) => {
                    reads += 1;
                    let taken = self.dispatch(buf.filled());
                    self.woken.drain(..).for_each(Waker::wake);
                    taken?;
                }
            }
        }
        Ok(Poll::Ready(true))
    }

    /// Delivers received bytes to the streams.
    fn dispatch(&mut self, mut input: &[u8]) -> io::Result<()> {
        let mut state = self.lane.0.lock();
        while let Some(event) = self.decoder.next(&mut input).map_err(violation)? {
            match event {
                Event::Open { stream, open } => {
                    if state.begin(stream, &open)? {
                        let taken = LaneStream::new(self.lane.clone(), stream);
                        self.accepted.push_back((open, taken));
                    }
                }
                Event::Step {
                    stream,
                    step,
                    bytes,
                    error,
                } => {
                    state.on_frame(stream, step, bytes, error, &mut self.woken)?;
                }
            }
        }
        state.count_unread();
        Ok(())
    }

    /// Writes the queued frames; ready when all are written.
    fn poll_outgoing(&mut self, cx: &mut Context<'_>) -> io::Result<Poll<()>> {
        loop {
            while self.sent < self.writing.len() {
                let rest = self.writing.get(self.sent..).unwrap_or_default();
                match Pin::new(&mut self.io).poll_write(cx, rest)? {
                    Poll::Pending => return Ok(Poll::Pending),
                    Poll::Ready(0) => return Err(io::ErrorKind::WriteZero.into()),
                    Poll::Ready(sent) => {
                        self.sent += sent;
                        self.unflushed = true;
                    }
                }
            }
            self.writing.clear();
            self.sent = 0;
            if self.writing.capacity() > Scratch::MEDIUM {
                // Frees the buffer after a burst.
                self.writing = Vec::new();
            }
            let mut state = self.lane.0.lock();
            if state.out.is_empty() {
                store_waker(&mut state.driver_waker, cx);
                break;
            }
            std::mem::swap(&mut state.out, &mut self.writing);
            if std::mem::take(&mut state.is_full) {
                let writers = state.streams.values_mut();
                self.woken
                    .extend(writers.filter_map(|entry| entry.write_waker.take()));
            }
            drop(state);
            self.woken.drain(..).for_each(Waker::wake);
        }
        if self.unflushed {
            if Pin::new(&mut self.io).poll_flush(cx)?.is_pending() {
                return Ok(Poll::Pending);
            }
            self.unflushed = false;
        }
        Ok(Poll::Ready(()))
    }

    /// Returns true if the lane is retiring and its last stream has ended.
    fn is_over(&self) -> bool {
        let state = self.lane.0.lock();
        state.retiring && state.streams.is_empty() && state.out.is_empty()
    }
}

impl<T> Drop for Driver<T> {
    fn drop(&mut self) {
        self.lane.break_off(io::ErrorKind::ConnectionAborted);
    }
}

/// Consecutive reads before queued frames are written: a peer that sends continuously must not
/// delay the responses.
const READS: usize = 8;

impl Lane {
    /// Breaks every stream, because the connection is gone.
    fn break_off(&self, why: io::ErrorKind) {
        let mut state = self.0.lock();
        state.broken.get_or_insert(why);
        state.out = Vec::new();
        let waiting = state.streams.values_mut().flat_map(Entry::waiting);
        let woken: Vec<Waker> = waiting.collect();
        drop(state);
        woken.into_iter().for_each(Waker::wake);
    }
}

impl State {
    /// The engine opens a stream. Returns `false` if it is aborted immediately.
    fn begin(&mut self, number: u32, open: &StreamOpen) -> io::Result<bool> {
        if self.side != Side::Agent || number <= self.last_number {
            return Err(violation("an opening that is not allowed"));
        }
        self.last_number = number;
        let mut entry = Entry::new(Side::Agent, open);
        // The engine does not count streams that are over, even if this end still reads them.
        let is_full = self.streams.len() >= MAX_STREAMS && {
            let is_open = |entry: &&Entry| !entry.state.is_over();
            if self.streams.values().filter(is_open).count() >= MAX_STREAMS {
                return Err(violation("more streams than a lane allows"));
            }
            self.streams.len() >= MAX_STREAM_ENTRIES
        };
        if is_full {
            let full = wire::Error::capacity_exhausted("too many streams have unread data");
            entry.state.on_send(FrameStep::Reset).map_err(violation)?;
            wire::lane::encode_reset(number, Some(&full), &mut self.out);
            entry.dropped = true;
        }
        self.streams.insert(number, entry);
        Ok(!is_full)
    }

    /// Handles a frame about a stream; returns the tasks to wake.
    fn on_frame(
        &mut self,
        number: u32,
        step: FrameStep,
        bytes: &[u8],
        error: Option<wire::Error>,
        woken: &mut Vec<Waker>,
    ) -> io::Result<()> {
        if step == FrameStep::Data {
            self.make_room(bytes.len(), woken);
        }
        let turn = self.turn;
        let Some(entry) = self.streams.get_mut(&number) else {
            // It crossed our last frame of that stream.
            if matches!(step, FrameStep::Reset | FrameStep::Taken) && number <= self.last_number {
                return Ok(());
            }
            return Err(violation("a frame of an unknown stream"));
        };
        let received = entry.state.on_receive(step).map_err(violation)?;
        match received {
            FrameEffect::Data if entry.dropped => {
                // The peer had to complete its direction.
                if entry.state.on_send(FrameStep::Reset).is_ok() {
                    wire::lane::encode_reset(number, None, &mut self.out);
                }
            }
            FrameEffect::Data => {
                entry.reading.on_data(bytes.len()).map_err(violation)?;
                self.unread += bytes.len();
                woken.extend(entry.deliver(bytes, turn));
            }
            FrameEffect::Taken => {
                entry.sending.on_taken().map_err(violation)?;
                woken.extend(entry.write_waker.take());
            }
            FrameEffect::Reset => {
                entry.refusal = error;
                // Our direction ends as well; the peer would not read further data.
                if !entry.judges_exchanges && entry.state.on_send(FrameStep::End).is_ok() {
                    let end = wire::lane::FrameType::End;
                    wire::lane::encode_empty(end, number, &mut self.out);
                }
                woken.extend(entry.waiting());
            }
            FrameEffect::Ignored if entry.state.continues_elsewhere() => {
                if entry.refusal.is_none() {
                    entry.refusal = error;
                }
                entry.abandoned |= !entry.arrived;
                woken.extend(entry.waiting());
            }
            FrameEffect::End | FrameEffect::Move => woken.extend(entry.read_waker.take()),
            FrameEffect::Discard | FrameEffect::Ignored => {}
        }
        self.forget_if_over(number);
        Ok(())
    }
}

/// Limit of streams with state, including those that are over: the maximum number of open ones, and
/// as many again whose received bytes are still being read.
const MAX_STREAM_ENTRIES: usize = 2 * MAX_STREAMS;

fn store_waker(slot: &mut Option<Waker>, cx: &Context<'_>) {
    match slot {
        Some(waker) => waker.clone_from(cx.waker()),
        None => *slot = Some(cx.waker().clone()),
    }
}

fn violation(what: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}
