//! A stream with the bytes that were read from it and are not consumed yet.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::time::timeout;
use transport::{Scratch, Stream};

/// A stream with a read buffer for heads. An empty buffer owns no memory, so an idle connection
/// costs only its socket and TLS session.
#[derive(Debug)]
pub(crate) struct BufferedStream<T> {
    /// The stream itself, for writing.
    pub(crate) io: T,
    bytes: Vec<u8>,
    start: usize,
}

impl<T: Stream> BufferedStream<T> {
    pub(crate) fn new(io: T) -> Self {
        Self {
            io,
            bytes: Vec::new(),
            start: 0,
        }
    }

    /// Bytes that were read and not consumed.
    pub(crate) fn unread(&self) -> &[u8] {
        self.bytes.get(self.start..).unwrap_or_default()
    }

    /// Drops the first `count` unread bytes, or all of them if there are fewer.
    pub(crate) fn consume(&mut self, count: usize) {
        self.start = self.bytes.len().min(self.start + count);
        if self.start == self.bytes.len() {
            self.bytes = Vec::new();
            self.start = 0;
        }
    }

    /// Replaces the first `count` unread bytes.
    pub(crate) fn replace(&mut self, count: usize, bytes: Vec<u8>) {
        let rest = self.unread().get(count..).unwrap_or_default().to_vec();
        self.bytes = bytes;
        self.bytes.extend_from_slice(&rest);
        self.start = 0;
    }

    /// Appends bytes that a reader took beyond the end of its message to the unread bytes.
    pub(crate) fn append(&mut self, bytes: &[u8]) {
        if self.start > 0 {
            self.bytes.drain(..self.start);
            self.start = 0;
        }
        self.bytes.extend_from_slice(bytes);
    }

    /// Reads once and appends to the unread bytes. Returns `false` at the end of the stream. The
    /// caller must stop reading at its limits.
    pub(crate) fn poll_more(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<bool>> {
        let mut scratch = Scratch::take(Scratch::SMALL);
        let mut buf = ReadBuf::new(&mut scratch);
        ready!(Pin::new(&mut self.io).poll_read(cx, &mut buf))?;
        self.append(buf.filled());
        Poll::Ready(Ok(!buf.filled().is_empty()))
    }

    /// Ready when the peer has closed. Bytes that it sends are kept as unread, from one read only.
    /// After that, a close is detected by the next write.
    pub(crate) fn poll_hang_up(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if !self.unread().is_empty() {
            return Poll::Pending;
        }
        match ready!(self.poll_more(cx)) {
            Ok(true) => Poll::Pending,
            Ok(false) | Err(_) => Poll::Ready(()),
        }
    }

    /// Shuts the stream down, then reads for a while, so that the peer can read the last
    /// response.
    pub(crate) async fn close(mut self) {
        let lingering = async {
            self.io.shutdown().await?;
            let mut scratch = Scratch::take(Scratch::SMALL);
            let mut read = self.unread().len();
            while read < LINGER_BYTES {
                match self.io.read(&mut scratch).await? {
                    0 => break,
                    count => read += count,
                }
            }
            Ok::<(), io::Error>(())
        };
        // On a time-out the connection is closed in any case.
        timeout(LINGER, lingering).await.ok();
    }

    /// True if the peer has neither closed the stream nor sent anything, so that an idle connection
    /// can be used again.
    pub(crate) fn is_quiet(&mut self) -> bool {
        if !self.unread().is_empty() {
            return false;
        }
        // Without `unconstrained`, a task that has used up its budget would see every socket as
        // pending.
        let reading = tokio::task::unconstrained(poll_fn(|cx| self.poll_more(cx)));
        let mut cx = Context::from_waker(Waker::noop());
        std::pin::pin!(reading).poll(&mut cx).is_pending()
    }
}

/// Reads the unread bytes first, then the stream.
impl<T: Stream> AsyncRead for BufferedStream<T> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let unread = this.unread();
        if unread.is_empty() {
            return Pin::new(&mut this.io).poll_read(cx, buf);
        }
        let count = unread.len().min(buf.remaining());
        buf.put_slice(unread.get(..count).unwrap_or_default());
        this.consume(count);
        Poll::Ready(Ok(()))
    }
}

impl<T: Stream> AsyncWrite for BufferedStream<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write_vectored(cx, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

/// Limits of reading after the last response, in time and bytes. Closing with unread bytes would
/// reset the connection and could discard the response at the client (RFC 9112, 9.6).
const LINGER: Duration = Duration::from_secs(2);
const LINGER_BYTES: usize = 256 * 1024;

#[cfg(test)]
mod tests {
    use tokio::io::duplex;
    use tokio::task::coop;

    use super::*;

    #[tokio::test]
    async fn bytes_are_kept_in_order_and_memory_is_released() {
        let (near, mut far) = duplex(64);
        let mut near = BufferedStream::new(near);
        assert!(near.is_quiet());
        far.write_all(b"abc").await.unwrap();
        assert!(poll_fn(|cx| near.poll_more(cx)).await.unwrap());
        near.consume(1);
        near.append(b"de");
        assert_eq!(near.unread(), b"bcde");
        assert!(!near.is_quiet());
        near.consume(4);
        assert_eq!(near.bytes.capacity(), 0);
        drop(far);
        assert!(!poll_fn(|cx| near.poll_more(cx)).await.unwrap());
    }

    #[tokio::test]
    async fn unread_bytes_are_read_first() {
        let (near, mut far) = duplex(64);
        let mut near = BufferedStream::new(near);
        near.append(b"abcd");
        far.write_all(b"ef").await.unwrap();
        drop(far);
        let mut piece = [0; 3];
        near.read_exact(&mut piece).await.unwrap();
        assert_eq!((&piece, near.unread()), (b"abc", &b"d"[..]));
        let mut rest = String::new();
        near.read_to_string(&mut rest).await.unwrap();
        assert_eq!(rest, "def");
    }

    #[tokio::test]
    async fn closing_waits_for_the_peer() {
        let (near, mut far) = duplex(64);
        far.write_all(b"not asked for").await.unwrap();
        let closing = tokio::spawn(BufferedStream::new(near).close());
        assert_eq!(far.read(&mut [0; 1]).await.unwrap(), 0);
        assert!(!closing.is_finished(), "closing waits for the peer");
        far.shutdown().await.unwrap();
        closing.await.unwrap();
    }

    #[tokio::test]
    async fn bytes_are_detected_by_a_task_without_budget() {
        let (near, mut far) = duplex(64);
        let mut near = BufferedStream::new(near);
        far.write_all(b"unasked").await.unwrap();
        poll_fn(|cx| {
            while coop::has_budget_remaining() {
                if let Poll::Ready(turn) = coop::poll_proceed(cx) {
                    turn.made_progress();
                }
            }
            assert!(!near.is_quiet());
            Poll::Ready(())
        })
        .await;
    }
}
