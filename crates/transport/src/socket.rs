//! A TCP socket that reads ahead, remembers what it read, and can change its runtime.

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
/// - **Reads ahead.** A TLS library asks for a few kilobytes at a time; one system call fetches
///   up to 64 KiB, and the rest is served from memory. The buffer is held only while bytes are
///   in it.
/// - **Remembers.** Between [`Socket::remember`] and [`Socket::recall`] everything that is read
///   is kept, so that a ClientHello that was looked at can be replayed to its real destination.
/// - **Moves.** [`Socket::detach`] takes it off its runtime, the next use on another runtime
///   registers it there; this is how a data connection that the kernel handed to one worker
///   comes to the worker that needs it.
/// - **Breaks visibly.** Between [`Socket::begin_message`] and [`Socket::end_message`] a close is
///   a reset, whatever the reason: also that of a task that is dropped.
#[derive(Debug)]
pub struct Socket {
    io: Io,
    peer: SocketAddr,
    ahead: Option<ReadBuffer>,
    memory: Option<ReplayBuffer>,
    /// What the peer got so far is not the whole.
    unfinished: bool,
    /// A place that the connection takes, given back with it.
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
    /// Registration with a runtime failed; every use says so.
    Lost,
}

#[derive(Debug)]
struct ReadBuffer {
    bytes: Scratch,
    start: usize,
    end: usize,
    _holding: MemoryReservation,
}

impl Socket {
    /// Wraps a connected stream; `peer` is the address to report (behind a trusted proxy not
    /// the socket's own).
    pub fn new(io: TcpStream, peer: SocketAddr) -> Self {
        Self {
            io: Io::Attached(io),
            peer,
            ahead: None,
            memory: None,
            unfinished: false,
            slot: None,
        }
    }

    /// Keeps a value for as long as the connection is open: a place among those that there are.
    pub fn set_slot(&mut self, value: impl Any + Send + Sync) {
        self.slot = Some(Box::new(value));
    }

    /// The value that was kept.
    pub fn slot(&self) -> Option<&(dyn Any + Send + Sync)> {
        self.slot.as_deref()
    }

    /// Lets go of the value before the connection ends.
    pub fn release_slot(&mut self) {
        self.slot = None;
    }

    /// The other end's address.
    pub fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// Replaces the other end's address by what a trusted proxy told.
    pub fn set_peer(&mut self, peer: SocketAddr) {
        self.peer = peer;
    }

    /// Begins to keep a copy of what is read from here on. Reading more than `limit` bytes fails.
    pub fn remember(&mut self, limit: usize) {
        self.memory = Some(ReplayBuffer {
            bytes: Vec::new(),
            limit,
        });
    }

    /// Stops keeping and returns what was read since [`Socket::remember`]. Those bytes have been
    /// handed out already; [`Socket::unread`] makes the next reads return them again.
    pub fn recall(&mut self) -> Vec<u8> {
        self.memory
            .take()
            .map(|memory| memory.bytes)
            .unwrap_or_default()
    }

    /// Puts bytes in front of what is still to be read. At most [`Scratch::LARGE`] together with
    /// what is read ahead; more is an error.
    ///
    /// # Errors
    /// When the bytes do not fit.
    pub fn unread(&mut self, bytes: &[u8]) -> io::Result<()> {
        let rest = self.ahead.take();
        let rest = rest.as_ref().map_or(&[][..], ReadBuffer::rest);
        let end = bytes.len() + rest.len();
        let mut joined = Scratch::take(end);
        let Some(place) = joined.get_mut(..end) else {
            return Err(io::Error::other("too many bytes to put back"));
        };
        let (front, back) = place.split_at_mut(bytes.len());
        front.copy_from_slice(bytes);
        back.copy_from_slice(rest);
        self.ahead = (end > 0).then_some(ReadBuffer {
            _holding: MemoryReservation::new(joined.len()),
            bytes: joined,
            start: 0,
            end,
        });
        Ok(())
    }

    /// Takes the socket off the runtime that polls it. The next read or write registers it with
    /// the runtime on which that happens.
    ///
    /// # Errors
    /// When the system refuses; the socket is lost then.
    pub fn detach(&mut self) -> io::Result<()> {
        if let Io::Attached(stream) = std::mem::replace(&mut self.io, Io::Lost) {
            self.io = Io::Detached(stream.into_std()?);
        }
        Ok(())
    }

    /// Lets the connection fail when the peer takes nothing of what is under way to it for
    /// `limit`; that it still confirms to be there does not help it (Linux; elsewhere nothing).
    /// `None`: it may take its time.
    pub fn limit_stall(&self, limit: Option<Duration>) {
        #[cfg(target_os = "linux")]
        {
            let socket = match &self.io {
                Io::Attached(stream) => socket2::SockRef::from(stream),
                Io::Detached(stream) => socket2::SockRef::from(stream),
                Io::Lost => return,
            };
            // Without it a peer holds what waits for it, and nothing else.
            socket.set_tcp_user_timeout(limit).ok();
        }
        #[cfg(not(target_os = "linux"))]
        let _ = limit;
    }

    /// From here on the peer must not take what it gets for the whole: a close is a reset (RST).
    pub fn begin_message(&mut self) {
        self.unfinished = true;
    }

    /// What the peer got is the whole: a close is one.
    pub fn end_message(&mut self) {
        self.unfinished = false;
    }

    /// Makes the close that follows a reset (RST): for a peer that must not take what it got for
    /// the whole.
    pub fn abort_on_close(&self) {
        let linger = Some(Duration::ZERO);
        let socket = match &self.io {
            Io::Attached(stream) => socket2::SockRef::from(stream),
            Io::Detached(stream) => socket2::SockRef::from(stream),
            Io::Lost => return,
        };
        // A socket that refuses is closed already, which is all that is wanted.
        socket.set_linger(linger).ok();
    }

    fn attached(&mut self) -> io::Result<Pin<&mut TcpStream>> {
        if let Io::Detached(_) = self.io
            && let Io::Detached(stream) = std::mem::replace(&mut self.io, Io::Lost)
        {
            self.io = Io::Attached(TcpStream::from_std(stream)?);
        }
        match &mut self.io {
            Io::Attached(stream) => Ok(Pin::new(stream)),
            Io::Detached(_) | Io::Lost => Err(io::ErrorKind::NotConnected.into()),
        }
    }

    fn poll_fill(&mut self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if let Some(ahead) = &mut self.ahead {
            if ahead.serve(buf) {
                self.ahead = None;
            }
            return Poll::Ready(Ok(()));
        }
        if buf.remaining() >= Scratch::SMALL {
            return self.poll_system(cx, buf);
        }
        // Who reads slowly keeps the rest for long.
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
            self.ahead = Some(ReadBuffer {
                _holding: MemoryReservation::new(bytes.len()),
                bytes,
                start: first,
                end,
            });
        }
        Poll::Ready(Ok(()))
    }

    fn poll_system(&mut self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        // A runtime that has just been told of a socket knows nothing of it until its first event,
        // and says that nothing has come. So what has come, an end among it, is asked for first.
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

    /// Copies what fits into `buf`; true when nothing is left.
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
        if let Some(memory) = &mut self.memory {
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
        assert_eq!(near.ahead.as_ref().unwrap().rest(), b"cdef");
        let mut four = [0; 4];
        near.read_exact(&mut four).await.unwrap();
        assert_eq!(&four, b"cdef");
        assert!(near.ahead.is_none(), "an empty socket holds no buffer");
    }

    #[tokio::test]
    async fn what_was_remembered_can_be_read_again_in_front_of_the_rest() {
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
    async fn a_peer_that_takes_nothing_is_given_up() {
        // Also where no runtime polls it yet.
        for detached in [false, true] {
            let (mut near, far) = pair().await;
            if detached {
                near.detach().unwrap();
            }
            near.limit_stall(Some(Duration::from_millis(100)));
            let piece = vec![0; Scratch::LARGE];
            let error = loop {
                let writing = tokio::time::timeout(Duration::from_secs(20), near.write_all(&piece));
                if let Err(error) = writing.await.expect("it is given up") {
                    break error;
                }
            };
            assert_eq!(error.kind(), io::ErrorKind::TimedOut);
            drop(far);
        }
    }

    #[tokio::test]
    async fn a_detached_socket_goes_on_at_another_runtime() {
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
