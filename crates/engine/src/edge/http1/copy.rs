//! Copies one HTTP/1.1 body without buffering it, and validates its framing.
//!
//! A chunk is forwarded as soon as it arrives, together with the head before it if both are
//! available. Bytes that the sink cannot take are not read (back-pressure). The copy stops exactly
//! at the end of the body; later bytes stay in the source.

use std::io;
use std::num::NonZeroUsize;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use http1::{BodyReader, BodyState, Field, LAST_CHUNK, Slots, parse_trailers};
use tokio::io::{AsyncWrite, ReadBuf};
use transport::memory::{self, Backlog, Source};
use transport::{Scratch, Stream};

use crate::edge::headers::identity::ReservedNames;
use crate::edge::http1::buffered::BufferedStream;
use crate::edge::replay::ReplayBuffer;

/// The copy of one body, with the head that precedes it.
#[derive(Debug)]
pub(crate) struct BodyCopy {
    reader: BodyReader,
    framing: Framing,
    /// Bytes that are written first: the head, and body bytes that the source had already read.
    front: Vec<u8>,
    front_sent: usize,
    buffer: Option<CopyBuffer>,
    /// The end of the body, written last.
    tail: Vec<u8>,
    tail_sent: usize,
    size: usize,
    /// The source's unread bytes are too few to continue.
    needs_more_input: bool,
    unflushed: bool,
    /// Bytes that the sink accepted but may not have sent yet.
    accepted: usize,
    backlog: Backlog,
    finished: bool,
    written: u64,
    head_len: usize,
    /// The bytes before those in memory, if the message can be sent again.
    replay: Option<ReplayBuffer>,
    failed: Option<CopyError>,
    /// Names that the source may not send as trailers, besides those that no source may.
    reserved: ReservedNames,
    /// An error that the source reported after bytes that may complete the body. It
    /// is stored because a socket reports an error only once.
    source_error: Option<io::Error>,
}

/// Framing of the body for the sink, relative to the framing from the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Framing {
    /// As it was read: the same length, or the same chunks (each validated, trailers filtered).
    Same,
    /// Only the payload. The end of the connection ends the body.
    Bare,
    /// In chunks. A body that would end with the connection gets an explicit end.
    Chunks,
}

/// The peer at which the copy failed.
#[derive(Debug)]
pub(crate) enum CopyError {
    /// The sender of the body disconnected early, or its framing is invalid.
    Source(io::Error),
    /// The receiver of the body accepts no more bytes.
    Sink,
}

#[derive(Debug)]
struct CopyBuffer {
    bytes: Scratch,
    start: usize,
    end: usize,
}

/// Space before a chunk for its head, and after it for its end.
const CHUNK_HEAD: usize = 16;
const CHUNK_TAIL: usize = 2;

impl BodyCopy {
    /// Starts a copy with `head`, on behalf of `visitor`. Body bytes that the source has already
    /// read are appended to the head, so that a small message is one write.
    pub(crate) fn new<R: Stream>(
        visitor: Source,
        head: Vec<u8>,
        reader: BodyReader,
        framing: Framing,
        source: &mut BufferedStream<R>,
    ) -> Self {
        Self::with_reserved(
            visitor,
            head,
            reader,
            framing,
            source,
            ReservedNames::default(),
        )
    }

    /// As [`Self::new`], for a request of a visitor, who may not send the names in `reserved`.
    pub(crate) fn with_reserved<R: Stream>(
        visitor: Source,
        head: Vec<u8>,
        reader: BodyReader,
        framing: Framing,
        source: &mut BufferedStream<R>,
        reserved: ReservedNames,
    ) -> Self {
        let mut copy = Self {
            finished: reader.is_done(),
            head_len: head.len(),
            reader,
            framing,
            front: head,
            front_sent: 0,
            buffer: None,
            tail: Vec::new(),
            tail_sent: 0,
            size: Scratch::SMALL,
            needs_more_input: false,
            unflushed: false,
            accepted: 0,
            backlog: Backlog::new(visitor),
            written: 0,
            replay: Some(ReplayBuffer::disabled()),
            failed: None,
            reserved,
            source_error: None,
        };
        while !copy.finished && !copy.needs_more_input && !source.unread().is_empty() {
            if copy.front.len() >= Scratch::SMALL {
                break;
            }
            if let Err(error) = copy.take_unread(source) {
                copy.failed = Some(CopyError::Source(error));
                break;
            }
        }
        copy
    }

    /// Bytes that the sink has accepted, including the head.
    pub(crate) fn written(&self) -> u64 {
        self.written
    }

    /// True if bytes wait for the sink. Otherwise the copy waits for the source.
    pub(crate) fn waits_for_sink(&self) -> bool {
        self.front_sent < self.front.len()
            || self.buffer.is_some()
            || self.tail_sent < self.tail.len()
            || self.accepted >= Scratch::SMALL
    }

    /// Keeps what is sent, within limits, so that the message can be sent again.
    #[must_use]
    pub(crate) fn with_replay(mut self) -> Self {
        self.replay = Some(ReplayBuffer::new());
        self
    }

    /// Frees what was kept. The message cannot be sent again.
    pub(crate) fn end_replay(&mut self) {
        self.replay = None;
    }

    /// Frees what was kept after the time for it.
    pub(crate) fn poll_replay_expiry(&mut self, cx: &mut Context<'_>) {
        let replay = self.replay.as_mut();
        if replay.is_some_and(|replay| replay.poll_expired(cx).is_ready()) {
            self.end_replay();
        }
    }

    /// True if all bytes so far can be sent again.
    pub(crate) fn is_replayable(&self) -> bool {
        self.replay.is_some() && self.failed.is_none()
    }

    /// The same copy to another sink, from the start of the message. `None` if it cannot be sent
    /// again.
    pub(crate) fn rewind(mut self) -> Option<Self> {
        if !self.is_replayable() {
            return None;
        }
        let mut front = self.replay.as_mut()?.take();
        front.append(&mut self.front);
        self.front = front;
        self.front_sent = 0;
        self.buffer = None;
        self.tail_sent = 0;
        self.unflushed = false;
        self.accepted = 0;
        self.backlog.clear();
        self.written = 0;
        Some(self)
    }

    /// True if the whole body has been read from the source.
    pub(crate) fn is_read(&self) -> bool {
        self.finished
    }

    /// The head of a message without a body.
    pub(crate) fn into_bodiless_head(self) -> Option<Vec<u8>> {
        let is_bodiless = self.finished && self.front.len() == self.head_len;
        (is_bodiless && self.is_replayable()).then_some(self.front)
    }

    fn record(&mut self, start: usize, end: usize, bytes: &[u8]) {
        let sent = bytes.get(start..end).unwrap_or_default();
        if self
            .replay
            .as_mut()
            .is_some_and(|replay| !replay.record(sent))
        {
            self.replay = None;
        }
    }

    /// Copies as much as possible. Ready when the whole body is written and flushed.
    pub(crate) fn poll<R: Stream, W: AsyncWrite + Unpin>(
        &mut self,
        cx: &mut Context<'_>,
        source: &mut BufferedStream<R>,
        sink: &mut W,
    ) -> Poll<Result<(), CopyError>> {
        loop {
            let before = self.written;
            if self.poll_sink(cx, sink)?.is_pending() {
                // Bytes that wait for the sink count against the memory limit of the process.
                let buffer = self.buffer.as_ref().map_or(0, |buffer| buffer.bytes.len());
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
                // A TLS session may not have sent the accepted bytes yet. A server-sent event must
                // not wait for the next one.
                if self.unflushed {
                    ready!(Pin::new(&mut *sink).poll_flush(cx)).map_err(|_| CopyError::Sink)?;
                    self.unflushed = false;
                }
                return Poll::Pending;
            }
        }
    }

    /// Writes the bytes in memory, and reads no more. Ready when they are written, or when the sink
    /// accepts no more.
    pub(crate) fn poll_rest<W: AsyncWrite + Unpin>(
        &mut self,
        cx: &mut Context<'_>,
        sink: &mut W,
    ) -> Poll<()> {
        self.poll_sink(cx, sink).unwrap_or(Poll::Ready(()))
    }

    /// Writes all pending bytes. It stops when the sink has buffered `Scratch::SMALL` accepted
    /// bytes, because a TLS session would buffer as much again.
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
            let sent = ready!(poll_some(cx, sink, rest))?;
            self.front_sent += sent;
            self.unflushed = true;
            self.written += sent as u64;
        }
        if let Some(buffer) = &mut self.buffer {
            while buffer.start < buffer.end {
                let rest = buffer
                    .bytes
                    .get(buffer.start..buffer.end)
                    .unwrap_or_default();
                let sent = ready!(poll_some(cx, sink, rest))?;
                buffer.start += sent;
                self.unflushed = true;
                self.written += sent as u64;
            }
            self.buffer = None;
        }
        while self.tail_sent < self.tail.len() {
            let rest = self.tail.get(self.tail_sent..).unwrap_or_default();
            let sent = ready!(poll_some(cx, sink, rest))?;
            self.tail_sent += sent;
            self.unflushed = true;
            self.written += sent as u64;
        }
        Poll::Ready(Ok(()))
    }

    /// Gets the next bytes of the body: from the unread bytes first, then from the stream.
    fn poll_source<R: Stream>(
        &mut self,
        cx: &mut Context<'_>,
        source: &mut BufferedStream<R>,
    ) -> io::Result<Poll<()>> {
        let front = std::mem::take(&mut self.front);
        self.front_sent = 0;
        self.record(0, front.len(), &front);
        if !self.needs_more_input && !source.unread().is_empty() {
            self.take_unread(source)?;
            return Ok(Poll::Ready(()));
        }
        if let Some(error) = self.source_error.take() {
            return Err(error);
        }
        if self.needs_more_input {
            // A chunk size or trailer section is incomplete. It is small, so the source buffers it.
            return match source.poll_more(cx)? {
                Poll::Ready(true) => {
                    self.needs_more_input = false;
                    Ok(Poll::Ready(()))
                }
                Poll::Ready(false) => self.end_of_source().map(Poll::Ready),
                Poll::Pending => Ok(Poll::Pending),
            };
        }
        self.poll_fill(cx, source)
    }

    /// Moves unread bytes of the source into `front`.
    fn take_unread<R: Stream>(&mut self, source: &mut BufferedStream<R>) -> io::Result<()> {
        let unread = source.unread();
        let consumed = if self.framing == Framing::Same {
            let step = self.reader.advance_verbatim(unread).map_err(invalid)?;
            self.front
                .extend_from_slice(unread.get(..step.pass).unwrap_or_default());
            self.on_state(&step.state, unread)?;
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
            self.on_state(&step.state, unread)?;
            step.consumed
        };
        self.needs_more_input = consumed == 0 && !self.finished;
        source.consume(consumed);
        Ok(())
    }

    /// Reads from the stream into a buffer that grows with the body.
    fn poll_fill<R: Stream>(
        &mut self,
        cx: &mut Context<'_>,
        source: &mut BufferedStream<R>,
    ) -> io::Result<Poll<()>> {
        if memory::is_scarce() {
            self.size = Scratch::SMALL;
        }
        let mut bytes = Scratch::take(self.size);
        let chunks = self.framing == Framing::Chunks;
        let start = if chunks { CHUNK_HEAD } else { 0 };
        let mut room = bytes.len() - if chunks { CHUNK_HEAD + CHUNK_TAIL } else { 0 };
        if let BodyReader::Length { left } = self.reader {
            // No bytes of the next message are read.
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
                    self.source_error = Some(error);
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
            self.process_read(bytes, start, read, source)?;
        }
        // Unread bytes are processed first. The next read then reports the end of the stream again.
        if ended
            && !self.finished
            && source.unread().is_empty()
            && let Err(error) = self.end_of_source()
        {
            self.failed = Some(CopyError::Source(error));
        }
        Ok(Poll::Ready(()))
    }

    /// Validates `read` new bytes at `start`, and stores those that have to be written.
    fn process_read<R: Stream>(
        &mut self,
        mut bytes: Scratch,
        start: usize,
        read: usize,
        source: &mut BufferedStream<R>,
    ) -> io::Result<()> {
        let new_bytes = bytes.get(start..start + read).unwrap_or_default();
        let (consumed, state, from, to) = if self.framing == Framing::Same {
            let step = self.reader.advance_verbatim(new_bytes).map_err(invalid)?;
            (step.consumed, step.state, 0, step.pass)
        } else {
            let step = self.reader.advance(new_bytes).map_err(invalid)?;
            (step.consumed, step.state, step.data.start, step.data.end)
        };
        self.on_state(&state, new_bytes)?;
        if consumed < read {
            source.append(new_bytes.get(consumed..).unwrap_or_default());
            self.needs_more_input = consumed == 0 && !self.finished;
        }
        let (mut start, mut end) = (start + from, start + to);
        let chunk = NonZeroUsize::new(end.saturating_sub(start));
        if let Some(len) = chunk.filter(|_| self.framing == Framing::Chunks) {
            let mut head = Vec::with_capacity(CHUNK_HEAD);
            http1::write_chunk_head(&mut head, len);
            if let Some(area) = bytes.get_mut(start - head.len()..start) {
                area.copy_from_slice(&head);
                start -= head.len();
            }
            if let Some(area) = bytes.get_mut(end..end + CHUNK_TAIL) {
                area.copy_from_slice(http1::CHUNK_END);
                end += CHUNK_TAIL;
            }
        }
        self.record(start, end, &bytes);
        self.buffer = Some(CopyBuffer { bytes, start, end });
        Ok(())
    }

    /// Records the end of the body. Trailers are filtered and written.
    fn on_state(&mut self, state: &BodyState, buf: &[u8]) -> io::Result<()> {
        match state {
            BodyState::More => return Ok(()),
            BodyState::Done => {}
            BodyState::Trailers(range) if self.framing == Framing::Same => {
                let section = buf.get(range.clone()).unwrap_or_default();
                let mut slots = Slots::new();
                let fields = parse_trailers(section, &mut slots).map_err(invalid)?;
                let passes = |field: &Field<'_>| !self.reserved.contains(field.name.as_bytes());
                for field in fields.iter().filter(passes) {
                    http1::write_field(&mut self.tail, field.name, field.value);
                }
                self.tail.extend_from_slice(http1::HEAD_END);
            }
            BodyState::Trailers(_) => {}
        }
        self.finished = true;
        Ok(())
    }

    /// Handles the end of the source. It is an error unless the framing ends the body there.
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
        sent => Poll::Ready(Ok(sent)),
    }
}

/// The reason why a body is malformed, if the source failed because of that.
pub(crate) fn malformed_reason(error: &io::Error) -> Option<&'static str> {
    match error.get_ref()?.downcast_ref::<http1::BodyError>()? {
        http1::BodyError::Malformed(reason) => Some(reason),
        http1::BodyError::BrokeOff => None,
    }
}

fn invalid(error: http1::BodyError) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

#[cfg(test)]
mod tests;
