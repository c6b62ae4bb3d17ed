//! Relayed TCP: listeners on relayed addresses, connections from them to peers, and the copying
//! between a peer's connection and its client's.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use socket2::{Domain, Protocol, SockRef, Socket, Type};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _, ReadBuf};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::time::{Instant, Sleep, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use transport::memory::Source;
use transport::{Stream, pump};

use crate::core::tcp::{ConnectionNumber, JoinedConnections, Unreachable};
use crate::core::{AllocationId, Meter, Rates};
use crate::worker::{Server, Worker};

/// A connection with a peer. It ends with its relayed address.
#[derive(Debug)]
pub(crate) struct PeerStream {
    stream: TcpStream,
    ended: CancellationToken,
}

/// Local address of connections to peers.
#[derive(Clone, Debug)]
pub(crate) struct Origin {
    pub(crate) address: SocketAddr,
    pub(crate) ended: CancellationToken,
}

/// Time limit of a dial. RFC 6062 section 5.2: at least 30 seconds.
const DIAL_TIMEOUT: Duration = Duration::from_secs(30);
/// Peers that may wait to be accepted.
const BACKLOG: i32 = 64;
/// Maximum time for which sent data may stay unacknowledged.
const ACK_TIMEOUT: Duration = Duration::from_secs(30);
/// Pause after an error that does not belong to one connection: no descriptors are left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Creates a listener that can also make connections: RFC 6062 requires that they come from the
/// relayed address.
///
/// # Errors
/// Another program uses the port, or no descriptors are left.
pub(crate) fn listen(ip: IpAddr, port: u16) -> io::Result<std::net::TcpListener> {
    let address = SocketAddr::new(ip, port);
    // Programs of one user can share a port if all of them request it. A first socket without
    // sharing detects such a program. It is closed before it can receive anything.
    let probe = open(address)?;
    probe.bind(&address.into())?;
    drop(probe);
    let socket = open(address)?;
    socket.set_reuse_port(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

fn open(address: SocketAddr) -> io::Result<Socket> {
    let kind = Type::STREAM.nonblocking();
    let socket = Socket::new(Domain::for_address(address), kind, Some(Protocol::TCP))?;
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    // Connections of an earlier allocation may still be closing.
    socket.set_reuse_address(true)?;
    Ok(socket)
}

/// Accepts connections of peers, until the relayed address is released.
pub(crate) async fn accept_peers(
    worker: Arc<Worker>,
    id: AllocationId,
    listener: TcpListener,
    ended: CancellationToken,
) {
    loop {
        let accepted = tokio::select! {
            () = ended.cancelled() => return,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, peer)) => {
                if tune(&stream).is_ok() {
                    let ended = ended.clone();
                    worker.on_peer_connected(id, peer, PeerStream { stream, ended });
                }
            }
            Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
        }
    }
}

/// Connects to a peer, and passes the result to the worker.
pub(crate) async fn dial(
    worker: Arc<Worker>,
    number: ConnectionNumber,
    origin: Origin,
    peer: SocketAddr,
) {
    let Origin { address, ended } = origin;
    let dialled = tokio::select! {
        // The allocation has ended, so the result is not needed.
        () = ended.cancelled() => return,
        dialled = reach(address, peer) => dialled,
    };
    let stream = dialled.map(|stream| PeerStream { stream, ended });
    worker.dialled(number, stream);
}

async fn reach(from: SocketAddr, peer: SocketAddr) -> Result<TcpStream, Unreachable> {
    match timeout(DIAL_TIMEOUT, connect(from, peer)).await {
        Ok(Ok(stream)) => Ok(stream),
        Ok(Err(error)) => {
            tracing::debug!(%error, "a peer cannot be reached");
            Err(Unreachable)
        }
        Err(_) => Err(Unreachable),
    }
}

async fn connect(from: SocketAddr, peer: SocketAddr) -> io::Result<TcpStream> {
    // If both addresses are equal, the system connects a socket to itself.
    if from.port() == peer.port() && (from.ip() == peer.ip() || from.ip().is_unspecified()) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let socket = open(from)?;
    socket.set_reuse_port(true)?;
    socket.bind(&from.into())?;
    let stream = TcpSocket::from_std_stream(socket.into())
        .connect(peer)
        .await?;
    tune(&stream)?;
    Ok(stream)
}

/// Sends small packets immediately, and closes the connection of a peer that acknowledges nothing.
pub(crate) fn tune(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    #[cfg(target_os = "linux")]
    SockRef::from(stream).set_tcp_user_timeout(Some(ACK_TIMEOUT))?;
    Ok(())
}

/// Copies bytes between a client at `address` and a peer, until both or the allocation end.
/// `rest` is data that the client has already sent. If one side does not take data, the other
/// side is not read: at most one buffer in each direction is kept.
pub(crate) async fn relay<C: Stream>(
    server: &Arc<Server>,
    address: IpAddr,
    client: C,
    join: JoinedConnections<PeerStream>,
    rest: &[u8],
) -> io::Result<()> {
    let JoinedConnections {
        stream: PeerStream { stream, ended },
        meter,
        rates,
        ..
    } = join;
    // Another worker may have opened the stream.
    let peer = TcpStream::from_std(stream.into_std()?)?;
    let tally = Tally {
        server: Arc::clone(server),
        meter,
        rates,
    };
    let moving = async {
        let mut peer = MeteredStream::new(peer, tally.clone());
        if !rest.is_empty() {
            tally.count(rest.len());
            peer.write_all(rest).await?;
        }
        let mut client = MeteredStream::new(client, tally);
        pump(Source::from(address), &mut client, &mut peer)
            .await
            .result
    };
    tokio::select! {
        () = ended.cancelled() => Ok(()),
        moved = moving => moved,
    }
}

/// Counters and rate limits of relayed bytes.
#[derive(Clone)]
struct Tally {
    server: Arc<Server>,
    meter: Arc<Meter>,
    rates: Rates,
}

impl Tally {
    fn count(&self, bytes: usize) {
        self.meter.relay(bytes);
        self.server.metrics.relayed.increment(bytes as u64);
        self.rates.charge(self.server.now().monotonic, bytes);
    }

    fn wait(&self) -> Option<Duration> {
        let wait = self.rates.wait(self.server.now().monotonic)?;
        Some(Duration::from_millis(wait.0))
    }
}

/// A stream that counts read bytes. When a rate limit is reached, reading pauses, which slows the
/// sender down.
struct MeteredStream<S> {
    stream: S,
    tally: Tally,
    pause: Option<Pin<Box<Sleep>>>,
}

/// Maximum size of a read with a rate limit, so that streams with the same limit do not wait long
/// for each other.
const MAX_READ: usize = 16 * 1024;

impl<S> MeteredStream<S> {
    fn new(stream: S, tally: Tally) -> Self {
        Self {
            stream,
            tally,
            pause: None,
        }
    }

    fn poll_pause(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            if let Some(pause) = &mut self.pause {
                ready!(pause.as_mut().poll(cx));
                self.pause = None;
            }
            match self.tally.wait() {
                Some(wait) => {
                    let end = Instant::now() + wait;
                    self.pause = Some(Box::pin(sleep_until(end)));
                }
                None => return Poll::Ready(()),
            }
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for MeteredStream<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let read = if this.tally.rates.is_limited() {
            ready!(this.poll_pause(cx));
            let most = buffer.remaining().min(MAX_READ);
            let mut piece = ReadBuf::new(buffer.initialize_unfilled_to(most));
            ready!(Pin::new(&mut this.stream).poll_read(cx, &mut piece))?;
            let read = piece.filled().len();
            buffer.advance(read);
            read
        } else {
            let before = buffer.filled().len();
            ready!(Pin::new(&mut this.stream).poll_read(cx, buffer))?;
            buffer.filled().len() - before
        };
        if read > 0 {
            this.tally.count(read);
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for MeteredStream<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write(cx, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The peer's host does not answer.
    #[tokio::test(start_paused = true)]
    async fn a_dial_has_a_time_limit() {
        let listener = open("127.0.0.1:0".parse().unwrap()).unwrap();
        listener
            .bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into())
            .unwrap();
        listener.listen(0).unwrap();
        let peer = listener.local_addr().unwrap().as_socket().unwrap();
        // This connection fills the backlog: the system drops later ones.
        let _waiting = std::net::TcpStream::connect(peer).unwrap();
        let from = "127.0.0.1:0".parse().unwrap();
        let started = Instant::now();
        let reached = timeout(Duration::from_mins(5), reach(from, peer)).await;
        assert!(reached.expect("it is aborted").is_err());
        assert_eq!(started.elapsed().as_secs(), 30);
    }

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn unacknowledged_data_ends_a_connection_after_30_seconds() {
        let listener = listen("127.0.0.1".parse().unwrap(), 0).unwrap();
        let peer = listener.local_addr().unwrap();
        let stream = reach("127.0.0.1:0".parse().unwrap(), peer).await.unwrap();
        let waits = SockRef::from(&stream).tcp_user_timeout().unwrap();
        assert_eq!(waits, Some(Duration::from_secs(30)));
    }
}
