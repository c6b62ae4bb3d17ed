//! WebSockets through the edge. Bytes are copied as they arrive. Only the lengths of frames are
//! read, so that a drain can end a conversation between two frames, with a Close frame to each side.

mod frames;

use std::future::{pending, poll_fn};
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf as _, Bytes};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _, ReadBuf};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use transport::memory::Source;
use transport::{BidirectionalCopy, Stream};

use self::frames::{FrameTracker, close_of_client, close_of_server};
use crate::edge::access_record::AccessRecord;
use crate::random::random_bytes;

/// Reason for a reset, in the record of the visit.
const IN_A_FRAME: &str = "the engine stopped in the middle of a WebSocket frame";

/// The end that a drain gives to a WebSocket.
pub(in crate::edge) struct DrainEnd {
    to_service: FrameTracker,
    to_visitor: FrameTracker,
    closing: CancellationToken,
    /// The same of another engine, if the agent is connected to that one.
    peer_closing: Option<CancellationToken>,
    /// Time for the end of a frame that is being sent and for the Close frames, and again for the
    /// disconnects.
    limit: Duration,
}

impl DrainEnd {
    /// WebSockets are closed when `closing` or `peer_closing` is cancelled, and each step of that
    /// takes at most `limit`. `to_service` and `to_visitor` are the bytes that were sent after the
    /// upgrade.
    pub(in crate::edge) fn new(
        (closing, peer_closing): (CancellationToken, Option<CancellationToken>),
        limit: Duration,
        to_service: &[u8],
        to_visitor: &[u8],
    ) -> Self {
        Self {
            to_service: FrameTracker::after(to_service),
            to_visitor: FrameTracker::after(to_visitor),
            closing,
            peer_closing,
            limit,
        }
    }
}

/// Copies in both directions until both have ended or the drain ends them. Each poll updates the byte
/// counts of `record`. `already_sent`: the bytes sent before, to the service and to the visitor.
pub(in crate::edge) async fn pump<A: Stream, B: Stream>(
    source: Source,
    visitor: &mut A,
    service: &mut B,
    record: &mut AccessRecord,
    already_sent: (u64, u64),
    end: DrainEnd,
) -> io::Result<()> {
    let mut conversation = Conversation {
        copy: BidirectionalCopy::new(source),
        visitor: FrameWriter::new(visitor, end.to_visitor),
        service: FrameWriter::new(service, end.to_service),
        already_sent,
    };
    let copied = tokio::select! {
        biased;
        copied = poll_fn(|cx| conversation.poll(cx, record)) => Some(copied),
        () = end.closing.cancelled() => None,
        () = cancelled(end.peer_closing.as_ref()) => None,
    };
    match copied {
        Some(copied) => copied,
        // The future is boxed, because few conversations last until then.
        None => Box::pin(conversation.close(record, end.limit)).await,
    }
}

/// Ready when the token is cancelled; never without one.
async fn cancelled(token: Option<&CancellationToken>) {
    match token {
        Some(token) => token.cancelled().await,
        None => pending().await,
    }
}

/// A visitor and a service, both directions.
struct Conversation<'a, A, B> {
    copy: BidirectionalCopy,
    visitor: FrameWriter<'a, A>,
    service: FrameWriter<'a, B>,
    already_sent: (u64, u64),
}

impl<A: Stream, B: Stream> Conversation<'_, A, B> {
    /// Copies as much as possible. Ready when both directions have ended.
    fn poll(&mut self, cx: &mut Context<'_>, record: &mut AccessRecord) -> Poll<io::Result<()>> {
        let polled = self.copy.poll(cx, &mut self.visitor, &mut self.service);
        let (to_service, to_visitor) = self.already_sent;
        record.set_bytes(
            (to_service + self.copy.a_to_b()).saturating_sub(self.service.discarded),
            (to_visitor + self.copy.b_to_a()).saturating_sub(self.visitor.discarded),
        );
        polled
    }

    /// Sends a Close frame to each side, waits for theirs, and disconnects. A side that is in the
    /// middle of a frame for longer than `limit` gets none.
    ///
    /// # Errors
    /// The data for the visitor is incomplete.
    async fn close(mut self, record: &mut AccessRecord, limit: Duration) -> io::Result<()> {
        self.visitor.close_with(close_of_server());
        self.service.close_with(close_of_client(random_bytes()));
        let closing = poll_fn(|cx| self.poll_close(cx, record));
        let closed = timeout(limit, closing).await;
        if self.service.has_ended() {
            // A service that is gone needs no end.
            timeout(limit, self.service.shutdown()).await.ok();
        }
        if !self.visitor.has_ended() {
            return Err(match closed {
                Ok(Err(error)) => error,
                Ok(Ok(())) | Err(_) => io::Error::other(IN_A_FRAME),
            });
        }
        let disconnecting = async {
            self.visitor.shutdown().await?;
            // Unread bytes would reset the connection, and could discard the Close frame.
            tokio::io::copy(&mut self.visitor, &mut tokio::io::sink()).await
        };
        // A visitor that stays is disconnected.
        timeout(limit, disconnecting).await.ok();
        Ok(())
    }

    /// Ready when both sides have got and sent a Close frame, or both directions have ended.
    fn poll_close(
        &mut self,
        cx: &mut Context<'_>,
        record: &mut AccessRecord,
    ) -> Poll<io::Result<()>> {
        let copied = self.poll(cx, record);
        if copied.is_ready() {
            return copied;
        }
        let to_visitor = self.visitor.poll_close(cx)?;
        let to_service = self.service.poll_close(cx)?;
        ready!(to_visitor);
        ready!(to_service);
        if self.visitor.frames.has_closed() && self.service.frames.has_closed() {
            Poll::Ready(Ok(()))
        } else {
            Poll::Pending
        }
    }
}

/// A stream that follows the frames written to it. Reads pass unchanged.
struct FrameWriter<'a, S> {
    io: &'a mut S,
    /// The position in the frames of the other side.
    frames: FrameTracker,
    state: WriterState,
    /// Bytes that were accepted after the Close frame, and not sent.
    discarded: u64,
}

/// The end of what is written.
enum WriterState {
    /// All frames pass.
    Open,
    /// These bytes of a Close frame follow the current frame.
    Closing(Bytes),
    /// A Close frame was sent. Later frames are discarded.
    Closed,
    /// The stream was shut down.
    Shutdown,
}

impl<'a, S: Stream> FrameWriter<'a, S> {
    fn new(io: &'a mut S, frames: FrameTracker) -> Self {
        Self {
            io,
            frames,
            state: WriterState::Open,
            discarded: 0,
        }
    }

    /// Lets `frame` follow the current frame, if the stream is not shut down.
    fn close_with(&mut self, frame: Bytes) {
        if matches!(self.state, WriterState::Open) {
            self.state = WriterState::Closing(frame);
        }
    }

    /// True if nothing follows any more.
    fn has_ended(&self) -> bool {
        matches!(self.state, WriterState::Closed | WriterState::Shutdown)
    }

    /// Sends the Close frame at the end of the current frame. Ready when nothing follows any more.
    /// In the middle of a frame the next write wakes the task.
    fn poll_close(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let rest = match &mut self.state {
            WriterState::Closing(rest) => rest,
            WriterState::Open => return Poll::Pending,
            WriterState::Closed | WriterState::Shutdown => return Poll::Ready(Ok(())),
        };
        if !self.frames.is_at_boundary() {
            return Poll::Pending;
        }
        if self.frames.has_closed() {
            // The other side has sent its own one.
            rest.clear();
        }
        while !rest.is_empty() {
            let written = ready!(Pin::new(&mut *self.io).poll_write(cx, rest))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            rest.advance(written);
        }
        ready!(Pin::new(&mut *self.io).poll_flush(cx))?;
        self.state = WriterState::Closed;
        Poll::Ready(Ok(()))
    }
}

impl<S: Stream> AsyncRead for FrameWriter<'_, S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.get_mut().io).poll_read(cx, buf)
    }
}

impl<S: Stream> AsyncWrite for FrameWriter<'_, S> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let passed = match this.state {
            WriterState::Open => bytes,
            WriterState::Closing(_) if !this.frames.is_at_boundary() => {
                let mut ahead = this.frames;
                let end = ahead.advance_frame(bytes);
                bytes.get(..end).unwrap_or_default()
            }
            WriterState::Closing(_) | WriterState::Closed | WriterState::Shutdown => {
                ready!(this.poll_close(cx))?;
                this.frames.advance(bytes);
                this.discarded += bytes.len() as u64;
                return Poll::Ready(Ok(bytes.len()));
            }
        };
        let written = ready!(Pin::new(&mut *this.io).poll_write(cx, passed))?;
        this.frames
            .advance(passed.get(..written).unwrap_or_default());
        Poll::Ready(Ok(written))
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.get_mut().io).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        match this.state {
            WriterState::Closing(_) if this.frames.is_at_boundary() => {
                ready!(this.poll_close(cx))?;
            }
            // The other side ended because of its Close frame, so this side must see an error.
            WriterState::Closing(_) => return Poll::Ready(Err(io::Error::other(IN_A_FRAME))),
            WriterState::Shutdown => return Poll::Ready(Ok(())),
            WriterState::Open | WriterState::Closed => {}
        }
        ready!(Pin::new(&mut *this.io).poll_shutdown(cx))?;
        this.state = WriterState::Shutdown;
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, DuplexStream, duplex};

    use super::*;

    /// Everything that the other end of a stream receives after it was shut down.
    async fn received(
        mut writer: FrameWriter<'_, DuplexStream>,
        mut peer: DuplexStream,
    ) -> Vec<u8> {
        writer.shutdown().await.unwrap();
        let mut received = Vec::new();
        peer.read_to_end(&mut received).await.unwrap();
        received
    }

    #[tokio::test]
    async fn a_close_frame_follows_the_current_frame_and_is_the_last() {
        let (mut io, peer) = duplex(64);
        let mut writer = FrameWriter::new(&mut io, FrameTracker::default());
        writer.write_all(&[0x82, 3, 1]).await.unwrap();
        writer.close_with(close_of_server());
        let early = poll_fn(|cx| Poll::Ready(writer.poll_close(cx))).await;
        assert!(early.is_pending());
        writer.write_all(&[2, 3, 0x81, 1, b'x']).await.unwrap();
        assert!(writer.has_ended());
        assert_eq!(writer.discarded, 3);
        let received = received(writer, peer).await;
        assert_eq!(received, [0x82, 3, 1, 2, 3, 0x88, 2, 0x03, 0xe9]);
    }

    #[tokio::test]
    async fn a_silent_stream_is_closed_immediately() {
        let (mut io, peer) = duplex(64);
        let mut writer = FrameWriter::new(&mut io, FrameTracker::after(&[0x82, 1, 0]));
        writer.close_with(close_of_server());
        poll_fn(|cx| writer.poll_close(cx)).await.unwrap();
        assert_eq!(received(writer, peer).await, close_of_server());
    }

    #[tokio::test]
    async fn no_close_frame_follows_that_of_the_other_side() {
        let (mut io, peer) = duplex(64);
        let mut writer = FrameWriter::new(&mut io, FrameTracker::default());
        writer.write_all(&[0x88, 0]).await.unwrap();
        writer.close_with(close_of_server());
        poll_fn(|cx| writer.poll_close(cx)).await.unwrap();
        assert_eq!(received(writer, peer).await, [0x88, 0]);
    }

    #[tokio::test]
    async fn the_end_of_the_other_side_in_a_frame_is_an_error() {
        let (mut io, _peer) = duplex(64);
        let mut writer = FrameWriter::new(&mut io, FrameTracker::after(&[0x82, 3, 1]));
        writer.close_with(close_of_server());
        let error = writer.shutdown().await.unwrap_err();
        assert_eq!(error.to_string(), IN_A_FRAME);
        assert!(!writer.has_ended());
    }

    #[tokio::test]
    async fn the_end_of_the_other_side_closes_first() {
        let (mut io, peer) = duplex(64);
        let mut writer = FrameWriter::new(&mut io, FrameTracker::default());
        writer.close_with(close_of_server());
        assert_eq!(received(writer, peer).await, close_of_server());
    }
}
