//! A TCP socket that reads ahead, can replay what it read, and can change its runtime.

use std::any::Any;
use std::io::{self, IoSlice, Read as _};
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use crate::Scratch;
use crate::memory::{self, MemoryReservation};

/// The socket beneath a TLS session (or beneath nothing, on the plain listener).
///
/// - **Reads ahead.** A TLS library reads a few kilobytes at a time; one system call fetches up to
///   64 KiB, and further reads are served from memory. The buffer is only allocated while bytes are
///   in it.
/// - **Remembers.** Between [`Socket::remember`] and [`Socket::recall`] all read bytes are kept, so
///   that a ClientHello that was parsed can be replayed to its real destination.
/// - **Moves.** [`Socket::detach`] removes it from its runtime, and the next use on another runtime
///   registers it there. So a data connection that the kernel assigned to one worker can move to
///   the worker that needs it.
/// - **Breaks visibly.** Between [`Socket::begin_message`] and [`Socket::end_message`] a close is a
///   reset, for any reason, including a task that is dropped.
#[derive(Debug)]
pub struct Socket {
    io: Io,
    peer: SocketAddr,
    read_ahead: Option<ReadBuffer>,
    replay: Option<ReplayBuffer>,
    /// The bytes sent to the peer so far are incomplete.
    unfinished: bool,
    /// A permit of the connection, released with it.
    slot: Option<Box<dyn Any + Send + Sync>>,
}

#[derive(Debug)]
struct ReplayBuffer {
    bytes: Vec<u8>,
    limit: usize,
}

#[derive(Debug)]
enum Io {
    Attached(TcpStream),
    Detached(std::net::TcpStream),
    /// Registration with a runtime failed; every use returns an error.
    Unregistered,
}

#[derive(Debug)]
struct ReadBuffer {
    bytes: Scratch,
    start: usize,
    end: usize,
    _holding: MemoryReservation,
}

impl Socket {
    /// Wraps a connected stream; `peer` is the address to report (behind a trusted proxy it is not
    /// the socket's own).
    pub fn new(io: TcpStream, peer: SocketAddr) -> Self {
        Self {
            io: Io::Attached(io),
            peer,
            read_ahead: None,
            replay: None,
            unfinished: false,
            slot: None,
        }
    }

    /// Keeps a value while the connection is open: a permit of a limit.
    pub fn set_slot(&mut self, value: impl Any + Send + Sync) {
        self.slot = Some(Box::new(value));
    }

    /// The value of [`Self::set_slot`].
    pub fn slot(&self) -> Option<&(dyn Any + Send + Sync)> {
        self.slot.as_deref()
    }

    /// Drops the value before the connection ends.
    pub fn release_slot(&mut self) {
        self.slot = None;
    }

    /// The address of the peer.
    pub fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// Replaces the peer's address with the one from a trusted proxy.
    pub fn set_peer(&mut self, peer: SocketAddr) {
        self.peer = peer;
    }

    /// Starts to keep a copy of the bytes that are read. Reading more than `limit` bytes fails.
    pub fn remember(&mut self, limit: usize) {
        self.replay = Some(ReplayBuffer {
            bytes: Vec::new(),
            limit,
        });
    }

    /// Stops keeping bytes and returns those that were read since [`Socket::remember`]. They have
    /// been returned by reads already; [`Socket::unread`] makes the next reads return them again.
    pub fn recall(&mut self) -> Vec<u8> {
        self.replay
            .take()
            .map(|memory| memory.bytes)
            .unwrap_or_default()
    }

    /// Puts bytes in front of the unread ones. At most [`Scratch::LARGE`], including the bytes that
    /// were read ahead; more is an error.
    ///
    /// # Errors
    /// If the bytes do not fit.
    pub fn unread(&mut self, bytes: &[u8]) -> io::Result<()> {
        let rest = self.read_ahead.take();
        let rest = rest.as_ref().map_or(&[][..], ReadBuffer::rest);
        let end = bytes.len() + rest.len();
        let mut joined = Scratch::take(end);
        let Some(place) = joined.get_mut(..end) else {
            return Err(io::Error::other("too many bytes to put back"));
        };
        let (front, back) = place.split_at_mut(bytes.len());
        front.copy_from_slice(bytes);
        back.copy_from_slice(rest);
        self.read_ahead = (end > 0).then_some(ReadBuffer {
            _holding: MemoryReservation::new(joined.len()),
            bytes: joined,
            start: 0,
            end,
        });
        Ok(())
    }

    /// Removes the socket from the runtime that polls it. The next read or write registers it with
    /// the current runtime.
    ///
    /// # Errors
    /// If the system refuses; the socket cannot be used any more then.
    pub fn detach(&mut self) -> io::Result<()> {
        if let Io::Attached(stream) = std::mem::replace(&mut self.io, Io::Unregistered) {
            self.io = Io::Detached(stream.into_std()?);
        }
        Ok(())
    }

    /// Separates the connection from the bytes that the next reads would return first, and from the
    /// address of the peer: for another process.
    ///
    /// # Errors
    /// If the system refuses; the connection is closed then.
    pub fn into_parts(mut self) -> io::Result<(std::net::TcpStream, Vec<u8>, SocketAddr)> {
        self.detach()?;
        let Io::Detached(stream) = std::mem::replace(&mut self.io, Io::Unregistered) else {
            return Err(io::ErrorKind::NotConnected.into());
        };
        let rest = self.read_ahead.take();
        let rest = rest.as_ref().map_or(&[][..], ReadBuffer::rest).to_vec();
        Ok((stream, rest, self.peer))
    }

    /// Lets the connection fail if the peer accepts none of the data in flight for `limit`, even if
    /// it still acknowledges probes (Linux; no effect elsewhere). `None`: no limit.
    pub fn limit_stall(&self, limit: Option<Duration>) {
        #[cfg(target_os = "linux")]
        {
            let socket = match &self.io {
                Io::Attached(stream) => socket2::SockRef::from(stream),
                Io::Detached(stream) => socket2::SockRef::from(stream),
                Io::Unregistered => return,
            };
            // Failures are harmless: without the limit, a peer only keeps the data waiting for it.
            socket.set_tcp_user_timeout(limit).ok();
        }
        #[cfg(not(target_os = "linux"))]
        let _ = limit;
    }

    /// Marks the data for the peer as incomplete: from here on, a close is a reset (RST).
    pub fn begin_message(&mut self) {
        self.unfinished = true;
    }

    /// The data for the peer is complete: a close is a normal close.
    pub fn end_message(&mut self) {
        self.unfinished = false;
    }

    /// Turns the close that follows into a reset (RST), for a peer that must not take the data that
    /// it received for complete.
    pub fn abort_on_close(&self) {
        let linger = Some(Duration::ZERO);
        let socket = match &self.io {
            Io::Attached(stream) => socket2::SockRef::from(stream),
            Io::Detached(stream) => socket2::SockRef::from(stream),
            Io::Unregistered => return,
        };
        // A socket that refuses is closed already, which is sufficient.
        socket.set_linger(linger).ok();
    }

    fn attached(&mut self) -> io::Result<Pin<&mut TcpStream>> {
        if let Io::Detached(_) = self.io
            && let Io::Detached(stream) = std::mem::replace(&mut self.io, Io::Unregistered)
        {
            self.io = Io::Attached(TcpStream::from_std(stream)?);
        }
        match &mut self.io {
            Io::Attached(stream) => Ok(Pin::new(stream)),
            Io::Detached(_) | Io::Unregistered => Err(io::ErrorKind::NotConnected.into()),
        }
    }

    fn poll_fill(&mut self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if let Some(ahead) = &mut self.read_ahead {
            if ahead.serve(buf) {
                self.read_ahead = None;
            }
            return Poll::Ready(Ok(()));
        }
        if buf.remaining() >= Scratch::SMALL {
            return self.poll_system(cx, buf);
        }
        // The rest stays in memory for a long time if its reader is slow.
        let size = if memory::is_scarce() {
            Scratch::SMALL
        } else {
            Scratch::MEDIUM
        };
        let mut bytes = Scratch::take(size);
        let mut fill = ReadBuf::new(&mut bytes);
        ready!(self.poll_system(cx, &mut fill))?;
        let end = fill.filled().len();
        let first = end.min(buf.remaining());
        buf.put_slice(bytes.get(..first).unwrap_or_default());
        if first < end {
            self.read_ahead = Some(ReadBuffer {
                _holding: MemoryReservation::new(bytes.len()),
                bytes,
                start: first,
                end,
            });
        }
        Poll::Ready(Ok(()))
    }

    fn poll_system(&mut self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        // A runtime has no information if a newly registered socket is readable until its first
        // event, and would report that nothing has arrived. So the socket itself is read first, to
        // notice data or an end.
        if let Io::Detached(stream) = &self.io {
            match (&mut &*stream).read(buf.initialize_unfilled()) {
                Ok(read) => {
                    buf.advance(read);
                    return Poll::Ready(Ok(()));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
        self.attached()?.poll_read(cx, buf)
    }
}

impl ReadBuffer {
    fn rest(&self) -> &[u8] {
        self.bytes.get(self.start..self.end).unwrap_or_default()
    }

    /// Copies as much as fits into `buf`; returns true if nothing is left.
    fn serve(&mut self, buf: &mut ReadBuf<'_>) -> bool {
        let take = buf.remaining().min(self.end - self.start);
        buf.put_slice(self.rest().get(..take).unwrap_or_default());
        self.start += take;
        self.start == self.end
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        if self.unfinished {
            self.abort_on_close();
        }
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        ready!(self.poll_fill(cx, buf))?;
        if let Some(memory) = &mut self.replay {
            let fresh = buf.filled().get(before..).unwrap_or_default();
            if memory.bytes.len() + fresh.len() > memory.limit {
                let error = io::Error::new(io::ErrorKind::InvalidData, "a hello that is too long");
                return Poll::Ready(Err(error));
            }
            memory.bytes.extend_from_slice(fresh);
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Socket {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.attached()?.poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.attached()?.poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.attached()?.poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.attached()?.poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;
    use crate::Workers;

    async fn pair() -> (Socket, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let far = TcpStream::connect(listener.local_addr().unwrap())
            .await
            .unwrap();
        let (near, peer) = listener.accept().await.unwrap();
        (Socket::new(near, peer), far)
    }

    #[tokio::test]
    async fn small_reads_are_served_from_one_system_read() {
        let (mut near, mut far) = pair().await;
        far.write_all(b"abcdef").await.unwrap();
        let mut two = [0; 2];
        near.read_exact(&mut two).await.unwrap();
        assert_eq!(&two, b"ab");
        assert_eq!(near.read_ahead.as_ref().unwrap().rest(), b"cdef");
        let mut four = [0; 4];
        near.read_exact(&mut four).await.unwrap();
        assert_eq!(&four, b"cdef");
        assert!(near.read_ahead.is_none(), "an empty socket has no buffer");
    }

    #[tokio::test]
    async fn remembered_bytes_can_be_read_again_before_the_rest() {
        let (mut near, mut far) = pair().await;
        far.write_all(b"hello world").await.unwrap();
        near.remember(64);
        let mut hello = [0; 5];
        near.read_exact(&mut hello).await.unwrap();
        let seen = near.recall();
        assert_eq!(seen, b"hello");
        near.unread(&seen).unwrap();
        let mut all = [0; 11];
        near.read_exact(&mut all).await.unwrap();
        assert_eq!(&all, b"hello world");
    }

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn a_connection_whose_peer_reads_nothing_fails() {
        // Also if no runtime polls it yet.
        for detached in [false, true] {
            let (mut near, far) = pair().await;
            if detached {
                near.detach().unwrap();
            }
            near.limit_stall(Some(Duration::from_millis(100)));
            let piece = vec![0; Scratch::LARGE];
            let error = loop {
                let writing = tokio::time::timeout(Duration::from_secs(20), near.write_all(&piece));
                if let Err(error) = writing.await.expect("the write fails in time") {
                    break error;
                }
            };
            assert_eq!(error.kind(), io::ErrorKind::TimedOut);
            drop(far);
        }
    }

    #[tokio::test]
    async fn the_parts_of_a_socket_have_all_unread_bytes() {
        let (mut near, mut far) = pair().await;
        far.write_all(b"abcdef").await.unwrap();
        let mut two = [0; 2];
        near.read_exact(&mut two).await.unwrap();
        near.unread(&two).unwrap();
        let peer = near.peer();
        let (stream, rest, at) = near.into_parts().unwrap();
        assert_eq!((rest.as_slice(), at), (&b"abcdef"[..], peer));
        far.write_all(b"g").await.unwrap();
        let mut next = Socket::new(TcpStream::from_std(stream).unwrap(), at);
        next.unread(&rest).unwrap();
        let mut all = [0; 7];
        next.read_exact(&mut all).await.unwrap();
        assert_eq!(&all, b"abcdefg");
    }

    #[tokio::test]
    async fn a_detached_socket_continues_on_another_runtime() {
        let (mut near, mut far) = pair().await;
        near.detach().unwrap();
        let workers = Workers::start("move", 1).unwrap();
        let echo = workers.handles()[0].spawn(async move {
            let mut byte = [0; 1];
            near.read_exact(&mut byte).await.unwrap();
            near.write_all(&byte).await.unwrap();
        });
        far.write_all(b"x").await.unwrap();
        let mut byte = [0; 1];
        far.read_exact(&mut byte).await.unwrap();
        echo.await.unwrap();
        assert_eq!(&byte, b"x");
        tokio::task::spawn_blocking(move || drop(workers))
            .await
            .unwrap();
    }
}
