//! Joins two byte streams until both directions have ended.
//!
//! Both directions run in one task, each to its own end, so that a half-closed stream continues in
//! the other direction. A direction has a buffer only while it contains bytes. The buffer grows to
//! 256 KiB if the stream keeps filling it, and shrinks again if it does not. While a destination
//! does not read, the bytes that wait for it count against the limit of the process
//! ([`memory`](crate::memory)): at most one buffer and the bytes that the destination has buffered.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::ReadBuf;

use crate::memory::{self, Backlog, Source};
use crate::{Scratch, Stream};

/// Number of bytes in each direction, and the result.
#[derive(Debug)]
pub struct CopyResult {
    /// Bytes from the first stream to the second.
    pub a_to_b: u64,
    /// Bytes from the second stream to the first.
    pub b_to_a: u64,
    /// The first error of either direction; `Ok` if both ended regularly.
    pub result: io::Result<()>,
}

/// Copies both ways until both directions have ended or one breaks, for a visitor from `source`.
///
/// Cancel safe: a dropped pump only loses the bytes in flight. A caller that needs the counts of a
/// cancelled one polls [`BidirectionalCopy`] itself.
pub async fn pump<A: Stream, B: Stream>(source: Source, a: &mut A, b: &mut B) -> CopyResult {
    let mut both = BidirectionalCopy::new(source);
    let result = poll_fn(|cx| both.poll(cx, a, b)).await;
    CopyResult {
        a_to_b: both.a_to_b(),
        b_to_a: both.b_to_a(),
        result,
    }
}

/// Both directions of a pump.
///
/// A stream that fails ends both directions. A stream that only stops reading may still send: a
/// service that refuses a large request responds, closes, and resets the connection when more
/// arrives. So its direction runs to its end before the failure is returned.
#[derive(Debug)]
pub struct BidirectionalCopy {
    forward: Direction,
    backward: Direction,
    write_error: Option<io::Error>,
    /// The first stream could not be read.
    first_failed: bool,
}

impl BidirectionalCopy {
    /// For a visitor from `source`.
    pub fn new(source: Source) -> Self {
        Self {
            forward: Direction::new(source),
            backward: Direction::new(source),
            write_error: None,
            first_failed: false,
        }
    }

    /// Returns true if the first stream broke, and not the second one.
    pub fn is_broken_by_first(&self) -> bool {
        self.first_failed || self.backward.end == EofState::Refused
    }

    /// Bytes that the second stream has accepted.
    pub fn a_to_b(&self) -> u64 {
        self.forward.total()
    }

    /// Bytes that the first stream has accepted.
    pub fn b_to_a(&self) -> u64 {
        self.backward.total()
    }

    /// Copies as much as possible; ready when both directions are over.
    ///
    /// # Errors
    /// The first error of either stream.
    pub fn poll<A: Stream, B: Stream>(
        &mut self,
        cx: &mut Context<'_>,
        a: &mut A,
        b: &mut B,
    ) -> Poll<io::Result<()>> {
        // The second stream is a service, which may have closed an idle connection. It is read first,
        // so that no further request is sent into a closed connection.
        let back = poll_direction(&mut self.backward, &mut self.write_error, cx, b, a)?;
        let forth = poll_direction(&mut self.forward, &mut self.write_error, cx, a, b);
        self.first_failed |= forth.is_err() && self.forward.end != EofState::Refused;
        let forth = forth?;
        ready!(forth);
        ready!(back);
        Poll::Ready(self.write_error.take().map_or(Ok(()), Err))
    }
}

/// Polls one direction. It also ends when its destination stops reading.
fn poll_direction<R: Stream, W: Stream>(
    half: &mut Direction,
    refused: &mut Option<io::Error>,
    cx: &mut Context<'_>,
    from: &mut R,
    to: &mut W,
) -> io::Result<Poll<()>> {
    if half.end == EofState::Refused {
        return Ok(Poll::Ready(()));
    }
    match half.poll(cx, from, to) {
        Poll::Pending => Ok(Poll::Pending),
        Poll::Ready(Ok(())) => Ok(Poll::Ready(())),
        Poll::Ready(Err(error)) if half.end == EofState::Refused && refused.is_none() => {
            *refused = Some(error);
            Ok(Poll::Ready(()))
        }
        Poll::Ready(Err(error)) => Err(refused.take().unwrap_or(error)),
    }
}

/// One direction of a pump.
#[derive(Debug)]
struct Direction {
    buffer: Option<CopyBuffer>,
    size: usize,
    total: u64,
    unflushed: bool,
    /// Bytes that the destination accepted and has possibly not sent yet.
    accepted: usize,
    backlog: Backlog,
    end: EofState,
    /// An error that occurred before all bytes were sent. A socket returns it only once.
    read_error: Option<io::Error>,
}

#[derive(Debug)]
struct CopyBuffer {
    bytes: Scratch,
    start: usize,
    end: usize,
}

#[derive(Debug, PartialEq)]
enum EofState {
    Open,
    /// The source has ended; the buffered bytes must be sent, then the end itself.
    Seen,
    /// The end was passed to the destination.
    Passed,
    /// The destination does not read any more.
    Refused,
}

impl Direction {
    fn new(source: Source) -> Self {
        Self {
            buffer: None,
            size: Scratch::SMALL,
            total: 0,
            // The destination may open only with the first bytes or the first flush, and the source
            // may wait for the destination to send first. So a new stream is flushed.
            unflushed: true,
            accepted: 0,
            backlog: Backlog::new(source),
            end: EofState::Open,
            read_error: None,
        }
    }

    /// Bytes that the destination has accepted.
    fn total(&self) -> u64 {
        self.total
    }

    /// Copies as much as possible; ready when the source's end has been passed on.
    ///
    /// # Errors
    /// Errors of either stream; a destination that accepts nothing is `WriteZero`.
    fn poll<R: Stream, W: Stream>(
        &mut self,
        cx: &mut Context<'_>,
        from: &mut R,
        to: &mut W,
    ) -> Poll<io::Result<()>> {
        loop {
            let before = self.total;
            match self.poll_write(cx, to) {
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(error)) => return Poll::Ready(self.refuse(error)),
                Poll::Pending => return self.stall(cx, self.total != before),
            }
            // A destination that still has to send accepted bytes gets no more: a TLS session would
            // buffer as many again.
            if self.accepted > 0 {
                match Pin::new(&mut *to).poll_flush(cx) {
                    Poll::Ready(Ok(())) => {
                        self.accepted = 0;
                        self.unflushed = false;
                    }
                    Poll::Ready(Err(error)) => return Poll::Ready(self.refuse(error)),
                    Poll::Pending => return self.stall(cx, self.total != before),
                }
            }
            self.backlog.clear();
            if let Some(error) = self.read_error.take() {
                return Poll::Ready(Err(error));
            }
            match self.end {
                EofState::Passed => return Poll::Ready(Ok(())),
                EofState::Refused => return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())),
                EofState::Seen => match ready!(Pin::new(&mut *to).poll_shutdown(cx)) {
                    Ok(()) => self.end = EofState::Passed,
                    Err(error) => return Poll::Ready(self.refuse(error)),
                },
                EofState::Open => {
                    if self.poll_fill(cx, from)?.is_pending() {
                        // Bytes that a TLS session accepted are not sent yet: they must not wait
                        // while the source is silent.
                        if self.unflushed {
                            if let Err(error) = ready!(Pin::new(&mut *to).poll_flush(cx)) {
                                return Poll::Ready(self.refuse(error));
                            }
                            self.unflushed = false;
                        }
                        return Poll::Pending;
                    }
                }
            }
        }
    }

    /// Waits for the destination.
    fn stall(&mut self, cx: &Context<'_>, progress: bool) -> Poll<io::Result<()>> {
        let buffer = self.buffer.as_ref().map_or(0, |held| held.bytes.len());
        match self.backlog.wait(cx, buffer + self.accepted, progress) {
            Ok(()) => Poll::Pending,
            Err(error) => {
                self.buffer = None;
                Poll::Ready(Err(error))
            }
        }
    }

    fn refuse(&mut self, error: io::Error) -> io::Result<()> {
        self.backlog.clear();
        self.end = EofState::Refused;
        self.buffer = None;
        Err(error)
    }

    /// Writes the buffered bytes.
    fn poll_write<W: Stream>(&mut self, cx: &mut Context<'_>, to: &mut W) -> Poll<io::Result<()>> {
        let Some(held) = &mut self.buffer else {
            return Poll::Ready(Ok(()));
        };
        while held.start < held.end {
            let rest = held.bytes.get(held.start..held.end).unwrap_or_default();
            let taken = ready!(Pin::new(&mut *to).poll_write(cx, rest))?;
            if taken == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            held.start += taken;
            self.total += taken as u64;
            self.accepted += taken;
            self.unflushed = true;
        }
        self.buffer = None;
        Poll::Ready(Ok(()))
    }

    /// Reads the available bytes, up to the buffer's size.
    fn poll_fill<R: Stream>(&mut self, cx: &mut Context<'_>, from: &mut R) -> io::Result<Poll<()>> {
        if memory::is_scarce() {
            self.size = Scratch::SMALL;
        }
        let mut bytes = Scratch::take(self.size);
        let mut fill = ReadBuf::new(&mut bytes);
        while fill.remaining() > 0 {
            let before = fill.filled().len();
            match Pin::new(&mut *from).poll_read(cx, &mut fill) {
                Poll::Ready(Ok(())) if fill.filled().len() == before => {
                    self.end = EofState::Seen;
                    break;
                }
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(error)) if before > 0 => {
                    self.read_error = Some(error);
                    break;
                }
                Poll::Ready(Err(error)) => return Err(error),
                Poll::Pending if before == 0 => return Ok(Poll::Pending),
                Poll::Pending => break,
            }
        }
        let end = fill.filled().len();
        if end == bytes.len() {
            self.size = Scratch::grown(end);
        } else if end < self.size / 4 {
            self.size = Scratch::SMALL;
        }
        self.buffer = Some(CopyBuffer {
            bytes,
            start: 0,
            end,
        });
        Ok(Poll::Ready(()))
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    use super::*;

    #[tokio::test]
    async fn each_direction_runs_to_its_own_end() {
        let (mut visitor, mut near) = duplex(64);
        let (mut far, mut service) = duplex(64);
        let pumped =
            tokio::spawn(async move { pump(Source::default(), &mut near, &mut far).await });
        visitor.write_all(b"question").await.unwrap();
        visitor.shutdown().await.unwrap();
        let mut question = Vec::new();
        service.read_to_end(&mut question).await.unwrap();
        assert_eq!(question, b"question");
        service.write_all(b"the longer answer").await.unwrap();
        drop(service);
        let mut answer = Vec::new();
        visitor.read_to_end(&mut answer).await.unwrap();
        assert_eq!(answer, b"the longer answer");
        let pumped = pumped.await.unwrap();
        assert_eq!((pumped.a_to_b, pumped.b_to_a), (8, 17));
        pumped.result.unwrap();
    }

    #[tokio::test]
    async fn a_destination_is_flushed_before_the_source_sends() {
        let (near, mut service) = duplex(64);
        let mut near = tokio::io::BufWriter::new(near);
        near.write_all(b"opening").await.unwrap();
        let (_silent_visitor, mut from) = duplex(64);
        let pumping =
            tokio::spawn(async move { pump(Source::default(), &mut from, &mut near).await });
        let mut opening = [0; 7];
        service.read_exact(&mut opening).await.unwrap();
        assert_eq!(&opening, b"opening");
        pumping.abort();
    }

    #[tokio::test]
    async fn a_large_body_arrives_complete_through_small_pipes() {
        let (mut visitor, mut near) = duplex(1000);
        let (mut far, mut service) = duplex(777);
        let body: Vec<u8> = (0..1_000_003_u32).map(|n| (n % 251) as u8).collect();
        let pumped =
            tokio::spawn(async move { pump(Source::default(), &mut near, &mut far).await });
        let sent = body.clone();
        let sender = tokio::spawn(async move {
            visitor.write_all(&sent).await.unwrap();
            visitor.shutdown().await.unwrap();
            visitor
        });
        let mut got = Vec::new();
        service.read_to_end(&mut got).await.unwrap();
        assert!(got == body);
        drop(service);
        drop(sender.await.unwrap());
        assert_eq!(pumped.await.unwrap().a_to_b, 1_000_003);
    }

    #[tokio::test]
    async fn an_error_ends_the_pump_after_all_earlier_bytes() {
        let (mut far, mut service) = duplex(64);
        let mut near = resetting();
        let pumped = pump(Source::default(), &mut near, &mut far).await;
        assert_eq!(
            pumped.result.unwrap_err().kind(),
            io::ErrorKind::ConnectionReset
        );
        drop(far);
        let mut got = Vec::new();
        service.read_to_end(&mut got).await.unwrap();
        assert_eq!(got, b"before");
    }

    #[tokio::test]
    async fn a_stream_that_stops_reading_is_still_read() {
        let (mut visitor, mut near) = duplex(64);
        visitor.write_all(b"a large request").await.unwrap();
        let (mut service, mut far) = duplex(64);
        service.write_all(b"too large").await.unwrap();
        // Writing to it fails; its sent bytes can still be read, and then its end.
        drop(service);
        let pumped = pump(Source::default(), &mut near, &mut far).await;
        assert_eq!(pumped.result.unwrap_err().kind(), io::ErrorKind::BrokenPipe);
        assert_eq!((pumped.a_to_b, pumped.b_to_a), (0, 9));
        drop(near);
        let mut heard = Vec::new();
        visitor.read_to_end(&mut heard).await.unwrap();
        assert_eq!(heard, b"too large");
    }

    /// A stream that yields a few bytes and then a reset.
    fn resetting() -> impl Stream {
        Resets { sent: false }
    }

    struct Resets {
        sent: bool,
    }

    impl tokio::io::AsyncRead for Resets {
        fn poll_read(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            buf: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            if self.sent {
                return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
            }
            self.sent = true;
            buf.put_slice(b"before");
            Poll::Ready(Ok(()))
        }
    }

    impl tokio::io::AsyncWrite for Resets {
        fn poll_write(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
            _: &[u8],
        ) -> Poll<io::Result<usize>> {
            Poll::Pending
        }
        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }
}
