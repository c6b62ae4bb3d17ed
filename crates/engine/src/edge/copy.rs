//! Moves one HTTP/1.1 body from one side to the other, unbuffered and with its framing judged.
//!
//! A chunk goes on as soon as it comes, together with the head in front of it when both are
//! there. What the sink cannot take is not read (back-pressure). The copy ends exactly where the
//! body ends; bytes behind it stay with the source.

use std::io;
use std::num::NonZeroUsize;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use http1::{BodyReader, BodyState, LAST_CHUNK, Slots, parse_trailers};
use tokio::io::{AsyncWrite, ReadBuf};
use transport::memory::{self, Backlog, Source};
use transport::{Scratch, Stream};

use super::buffered::Buffered;

/// One body under way, with the head that precedes it.
#[derive(Debug)]
pub(crate) struct BodyCopy {
    reader: BodyReader,
    framing: Framing,
    /// The head, and whatever else is written from memory of its own.
    front: Vec<u8>,
    front_sent: usize,
    held: Option<CopyBuffer>,
    /// What ends the body, behind everything else.
    tail: Vec<u8>,
    tail_sent: usize,
    size: usize,
    /// The source's unread bytes are not enough to go on.
    starved: bool,
    unflushed: bool,
    /// Bytes that the sink accepted and may not have sent yet.
    accepted: usize,
    backlog: Backlog,
    finished: bool,
    written: u64,
    /// Everything that was to be written so far is still in `front`.
    whole: bool,
    failed: Option<CopyError>,
    /// An error of the source behind bytes that are still to be judged: they may be the rest of
    /// the body. A socket tells an error only once.
    broken: Option<io::Error>,
}

/// How the body is written, given how it is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Framing {
    /// As it is read: the same length, or the same chunks (each judged, trailers filtered).
    Same,
    /// Payload alone: for a reader that ends with the connection.
    Bare,
    /// In chunks: a body that was to end with the connection gets an end that can be trusted.
    Chunks,
}

/// Which side a body broke on.
#[derive(Debug)]
pub(crate) enum CopyError {
    /// The side that sends the body broke off, or framed it badly.
    Source(io::Error),
    /// The side that takes the body takes no more.
    Sink,
}

#[derive(Debug)]
struct CopyBuffer {
    bytes: Scratch,
    start: usize,
    end: usize,
}

/// Room in front of a chunk for its head, and behind it for its end.
const CHUNK_HEAD: usize = 16;
const CHUNK_TAIL: usize = 2;

impl BodyCopy {
    /// Begins with `head`, for a `visitor` from there, to which as much of the body is joined as the source has read already,
    /// so that a small message is one write.
    pub(crate) fn new<R: Stream>(
        visitor: Source,
        head: Vec<u8>,
        reader: BodyReader,
        framing: Framing,
        source: &mut Buffered<R>,
    ) -> Self {
        let mut copy = Self {
            finished: reader.is_done(),
            reader,
            framing,
            front: head,
            front_sent: 0,
            held: None,
            tail: Vec::new(),
            tail_sent: 0,
            size: Scratch::SMALL,
            starved: false,
            unflushed: false,
            accepted: 0,
            backlog: Backlog::new(visitor),
            written: 0,
            whole: true,
            failed: None,
            broken: None,
        };
        while !copy.finished && !copy.starved && !source.unread().is_empty() {
            if copy.front.len() >= Scratch::SMALL {
                break;
            }
            if let Err(error) = copy.join_unread(source) {
                copy.failed = Some(CopyError::Source(error));
                break;
            }
        }
        copy
    }

    /// Bytes that the sink has accepted, the head included.
    pub(crate) fn written(&self) -> u64 {
        self.written
    }

    /// Whether bytes wait for the sink; else it is the source that is waited for.
    pub(crate) fn waits_for_sink(&self) -> bool {
        self.front_sent < self.front.len()
            || self.held.is_some()
            || self.tail_sent < self.tail.len()
            || self.accepted >= Scratch::SMALL
    }

    /// The whole message, head and body, where it was small enough to be still in memory: then it
    /// can be sent again.
    pub(crate) fn into_whole(mut self) -> Option<Vec<u8>> {
        self.front.append(&mut self.tail);
        (self.whole && self.finished).then_some(self.front)
    }

    /// Moves what can be moved; ready when the whole body is written and flushed.
    pub(crate) fn poll<R: Stream, W: AsyncWrite + Unpin>(
        &mut self,
        cx: &mut Context<'_>,
        source: &mut Buffered<R>,
        sink: &mut W,
    ) -> Poll<Result<(), CopyError>> {
        loop {
            let before = self.written;
            if self.poll_sink(cx, sink)?.is_pending() {
                // What it does not take counts against what the process may hold.
                let buffer = self.held.as_ref().map_or(0, |held| held.bytes.len());
                let waits = buffer + self.front.len() + self.accepted;
                let progress = self.written != before;
                let waiting = self.backlog.wait(cx, waits, progress);
                waiting.map_err(|_| CopyError::Sink)?;
                return Poll::Pending;
            }
            self.backlog.clear();
            if let Some(error) = self.failed.take() {
                return Poll::Ready(Err(error));
            }
            if self.finished {
                if self.unflushed {
                    ready!(Pin::new(&mut *sink).poll_flush(cx)).map_err(|_| CopyError::Sink)?;
                    self.unflushed = false;
                }
                return Poll::Ready(Ok(()));
            }
            if self
                .poll_source(cx, source)
                .map_err(CopyError::Source)?
                .is_pending()
            {
                // What a TLS session accepted is not sent yet: an event must not wait for the
                // next one.
                if self.unflushed {
                    ready!(Pin::new(&mut *sink).poll_flush(cx)).map_err(|_| CopyError::Sink)?;
                    self.unflushed = false;
                }
                return Poll::Pending;
            }
        }
    }

    /// Writes what there is. A sink that still has to send a buffer of what it accepted gets no more
    /// than that: a TLS session would take as much again.
    fn poll_sink<W: AsyncWrite + Unpin>(
        &mut self,
        cx: &mut Context<'_>,
        sink: &mut W,
    ) -> Result<Poll<()>, CopyError> {
        let before = self.written;
        let written = self.poll_write(cx, sink);
        self.accepted += usize::try_from(self.written - before).unwrap_or(usize::MAX);
        if written.map_err(|_| CopyError::Sink)?.is_pending() {
            return Ok(Poll::Pending);
        }
        if self.accepted < Scratch::SMALL {
            return Ok(Poll::Ready(()));
        }
        let flushed = Pin::new(&mut *sink).poll_flush(cx);
        if flushed.map_err(|_| CopyError::Sink)?.is_pending() {
            return Ok(Poll::Pending);
        }
        self.accepted = 0;
        self.unflushed = false;
        Ok(Poll::Ready(()))
    }

    fn poll_write<W: AsyncWrite + Unpin>(
        &mut self,
        cx: &mut Context<'_>,
        sink: &mut W,
    ) -> Poll<io::Result<()>> {
        while self.front_sent < self.front.len() {
            let rest = self.front.get(self.front_sent..).unwrap_or_default();
            let taken = ready!(poll_some(cx, sink, rest))?;
            self.front_sent += taken;
            self.unflushed = true;
            self.written += taken as u64;
        }
        if let Some(held) = &mut self.held {
            while held.start < held.end {
                let rest = held.bytes.get(held.start..held.end).unwrap_or_default();
                let taken = ready!(poll_some(cx, sink, rest))?;
                held.start += taken;
                self.unflushed = true;
                self.written += taken as u64;
            }
            self.held = None;
        }
        while self.tail_sent < self.tail.len() {
            let rest = self.tail.get(self.tail_sent..).unwrap_or_default();
            let taken = ready!(poll_some(cx, sink, rest))?;
            self.tail_sent += taken;
            self.unflushed = true;
            self.written += taken as u64;
        }
        Poll::Ready(Ok(()))
    }

    /// Gets the next bytes of the body: unread ones first, then from the stream.
    fn poll_source<R: Stream>(
        &mut self,
        cx: &mut Context<'_>,
        source: &mut Buffered<R>,
    ) -> io::Result<Poll<()>> {
        self.whole = false;
        if !self.front.is_empty() {
            self.front = Vec::new();
            self.front_sent = 0;
        }
        if !self.starved && !source.unread().is_empty() {
            self.join_unread(source)?;
            return Ok(Poll::Ready(()));
        }
        if let Some(error) = self.broken.take() {
            return Err(error);
        }
        if self.starved {
            // A piece of framing that came in parts: small, so it is collected with the source.
            return match source.poll_more(cx)? {
                Poll::Ready(true) => {
                    self.starved = false;
                    Ok(Poll::Ready(()))
                }
                Poll::Ready(false) => self.end_of_source().map(Poll::Ready),
                Poll::Pending => Ok(Poll::Pending),
            };
        }
        self.poll_fill(cx, source)
    }

    /// Takes what it can from the source's unread bytes into `front`.
    fn join_unread<R: Stream>(&mut self, source: &mut Buffered<R>) -> io::Result<()> {
        let unread = source.unread();
        let consumed = if self.framing == Framing::Same {
            let step = self.reader.advance_verbatim(unread).map_err(invalid)?;
            self.front
                .extend_from_slice(unread.get(..step.pass).unwrap_or_default());
            self.note(&step.state, unread)?;
            step.consumed
        } else {
            let step = self.reader.advance(unread).map_err(invalid)?;
            let data = unread.get(step.data).unwrap_or_default();
            let chunk = NonZeroUsize::new(data.len()).filter(|_| self.framing == Framing::Chunks);
            if let Some(len) = chunk {
                http1::write_chunk_head(&mut self.front, len);
                self.front.extend_from_slice(data);
                self.front.extend_from_slice(http1::CHUNK_END);
            } else {
                self.front.extend_from_slice(data);
            }
            self.note(&step.state, unread)?;
            step.consumed
        };
        self.starved = consumed == 0 && !self.finished;
        source.consume(consumed);
        Ok(())
    }

    /// Reads from the stream into a buffer that grows with the body.
    fn poll_fill<R: Stream>(
        &mut self,
        cx: &mut Context<'_>,
        source: &mut Buffered<R>,
    ) -> io::Result<Poll<()>> {
        if memory::is_scarce() {
            self.size = Scratch::SMALL;
        }
        let mut bytes = Scratch::take(self.size);
        let chunks = self.framing == Framing::Chunks;
        let start = if chunks { CHUNK_HEAD } else { 0 };
        let mut room = bytes.len() - if chunks { CHUNK_HEAD + CHUNK_TAIL } else { 0 };
        if let BodyReader::Length { left } = self.reader {
            // Nothing of the next message is read along.
            room = usize::try_from(left).map_or(room, |left| left.min(room));
        }
        let area = bytes.get_mut(start..start + room).unwrap_or_default();
        let mut fill = ReadBuf::new(area);
        let mut ended = false;
        while fill.remaining() > 0 {
            let before = fill.filled().len();
            match Pin::new(&mut source.io).poll_read(cx, &mut fill) {
                Poll::Ready(Ok(())) if fill.filled().len() == before => {
                    ended = true;
                    break;
                }
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(error)) if before > 0 => {
                    self.broken = Some(error);
                    break;
                }
                Poll::Ready(Err(error)) => return Err(error),
                Poll::Pending if before == 0 => return Ok(Poll::Pending),
                Poll::Pending => break,
            }
        }
        let read = fill.filled().len();
        if read == room && room + CHUNK_HEAD + CHUNK_TAIL >= bytes.len() {
            self.size = Scratch::grown(bytes.len());
        } else if read < self.size / 4 {
            self.size = Scratch::SMALL;
        }
        if read > 0 {
            self.take_in(bytes, start, read, source)?;
        }
        // Bytes that are still unread are looked at first; the end shows again behind them.
        if ended
            && !self.finished
            && source.unread().is_empty()
            && let Err(error) = self.end_of_source()
        {
            self.failed = Some(CopyError::Source(error));
        }
        Ok(Poll::Ready(()))
    }

    /// Judges `read` bytes at `start` and holds what is to be written of them.
    fn take_in<R: Stream>(
        &mut self,
        mut bytes: Scratch,
        start: usize,
        read: usize,
        source: &mut Buffered<R>,
    ) -> io::Result<()> {
        let fresh = bytes.get(start..start + read).unwrap_or_default();
        let (consumed, state, from, to) = if self.framing == Framing::Same {
            let step = self.reader.advance_verbatim(fresh).map_err(invalid)?;
            (step.consumed, step.state, 0, step.pass)
        } else {
            let step = self.reader.advance(fresh).map_err(invalid)?;
            (step.consumed, step.state, step.data.start, step.data.end)
        };
        self.note(&state, fresh)?;
        if consumed < read {
            source.append(fresh.get(consumed..).unwrap_or_default());
            self.starved = consumed == 0 && !self.finished;
        }
        let (mut start, mut end) = (start + from, start + to);
        let chunk = NonZeroUsize::new(end.saturating_sub(start));
        if let Some(len) = chunk.filter(|_| self.framing == Framing::Chunks) {
            let mut head = Vec::with_capacity(CHUNK_HEAD);
            http1::write_chunk_head(&mut head, len);
            if let Some(place) = bytes.get_mut(start - head.len()..start) {
                place.copy_from_slice(&head);
                start -= head.len();
            }
            if let Some(place) = bytes.get_mut(end..end + CHUNK_TAIL) {
                place.copy_from_slice(http1::CHUNK_END);
                end += CHUNK_TAIL;
            }
        }
        self.held = Some(CopyBuffer { bytes, start, end });
        Ok(())
    }

    /// Notes the end of the body; trailers go out filtered.
    fn note(&mut self, state: &BodyState, buf: &[u8]) -> io::Result<()> {
        match state {
            BodyState::More => return Ok(()),
            BodyState::Done => {}
            BodyState::Trailers(range) if self.framing == Framing::Same => {
                let section = buf.get(range.clone()).unwrap_or_default();
                let mut slots = Slots::new();
                let fields = parse_trailers(section, &mut slots).map_err(invalid)?;
                for field in fields.iter() {
                    http1::write_field(&mut self.tail, field.name, field.value);
                }
                self.tail.extend_from_slice(http1::HEAD_END);
            }
            BodyState::Trailers(_) => {}
        }
        self.finished = true;
        Ok(())
    }

    /// The source has ended: the body's end where the framing says so, else a break.
    fn end_of_source(&mut self) -> io::Result<()> {
        self.reader
            .finish()
            .map_err(|error| io::Error::new(io::ErrorKind::UnexpectedEof, error))?;
        if self.framing == Framing::Chunks {
            self.tail.extend_from_slice(LAST_CHUNK);
        }
        self.finished = true;
        Ok(())
    }
}

fn poll_some<W: AsyncWrite + Unpin>(
    cx: &mut Context<'_>,
    sink: &mut W,
    bytes: &[u8],
) -> Poll<io::Result<usize>> {
    match ready!(Pin::new(sink).poll_write(cx, bytes))? {
        0 => Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
        taken => Poll::Ready(Ok(taken)),
    }
}

fn invalid(error: http1::BadBody) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

#[cfg(test)]
mod tests;
