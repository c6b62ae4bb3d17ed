//! Connections of clients.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use acme::Acceptor;
use daemon::connections::ConnectionLimitError;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;
use tokio_rustls::server::TlsStream;

use crate::core::Client;
use crate::core::frame::{Frame, frame};
use crate::outbound::Outbound;
use crate::worker::streams;
use crate::worker::{InputOutcome, JoinedPeer, Worker};

/// Accepts connections until the relay stops.
pub(crate) async fn serve(listener: TcpListener, worker: Arc<Worker>, tls: Option<Acceptor>) {
    let stop = worker.server.stop.clone();
    loop {
        let accepted = tokio::select! {
            () = stop.cancelled() => return,
            accepted = listener.accept() => accepted,
        };
        let (stream, address) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                // Without free descriptors, retrying only helps after other connections have ended.
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let metrics = &worker.server.metrics;
        let permit = match worker.server.connections.acquire(Some(address.ip())) {
            Ok(permit) => permit,
            Err(ConnectionLimitError::Total) => {
                metrics.refused_full.increment(1);
                continue;
            }
            Err(ConnectionLimitError::Source) => {
                metrics.refused_source.increment(1);
                continue;
            }
        };
        let at = Arc::clone(&worker);
        let (tls, stop) = (tls.clone(), stop.clone());
        worker.server.tasks.spawn(async move {
            tokio::select! {
                () = stop.cancelled() => {}
                () = connection(at, stream, address, tls) => {}
            }
            drop(permit);
        });
    }
}

async fn connection(
    worker: Arc<Worker>,
    stream: TcpStream,
    address: SocketAddr,
    tls: Option<Acceptor>,
) {
    if let Err(error) = streams::tune(&stream) {
        tracing::debug!(%error, "a connection was already closed");
        return;
    }
    let client = Client {
        address: SocketAddr::new(address.ip().to_canonical(), address.port()),
        listener: u16::MAX,
        connection: worker.server.next_connection(),
    };
    let metrics = &worker.server.metrics;
    let gauge = match &tls {
        Some(_) => &metrics.connections_tls,
        None => &metrics.connections_tcp,
    };
    gauge.increment(1.0);
    let outbound = Arc::new(Outbound::default());
    worker.register_stream(client, Arc::clone(&outbound));
    let _ended = ConnectionCleanup {
        worker: Arc::clone(&worker),
        client,
        gauge,
    };
    let Some(acceptor) = tls else {
        exchange(&worker, client, stream, &outbound, false)
            .await
            .ok();
        return;
    };
    match handshake(&acceptor, stream).await {
        Ok(Some(stream)) => {
            exchange(&worker, client, stream, &outbound, true)
                .await
                .ok();
        }
        Ok(None) => tracing::debug!("an authority validated the name of the relay"),
        Err(error) => {
            tracing::debug!(%error, "a handshake failed");
            metrics.refused_handshake.increment(1);
        }
    }
}

async fn handshake<S: AsyncRead + AsyncWrite + Unpin>(
    acceptor: &Acceptor,
    stream: S,
) -> io::Result<Option<TlsStream<S>>> {
    timeout(HANDSHAKE_TIMEOUT, acceptor.accept(stream)).await?
}

/// Cleanup at the end of a connection, whatever its cause.
struct ConnectionCleanup<'a> {
    worker: Arc<Worker>,
    client: Client,
    gauge: &'a metrics::Gauge,
}

impl Drop for ConnectionCleanup<'_> {
    fn drop(&mut self) {
        self.gauge.decrement(1.0);
        self.worker.unregister_stream(self.client);
    }
}

/// Reads frames and writes queued ones, until either side has ended, or the connection is joined
/// with a peer's (RFC 6062).
async fn exchange<S: AsyncRead + AsyncWrite + Unpin + Send>(
    worker: &Arc<Worker>,
    client: Client,
    stream: S,
    outbound: &Outbound,
    is_tls: bool,
) -> io::Result<()> {
    let (mut read, mut write) = tokio::io::split(stream);
    let over = tokio::select! {
        read = read_frames(worker, client, &mut read, outbound) => read?,
        written = write_frames(&mut write, outbound, is_tls) => return written,
        () = idle(|| worker.has_allocation(client)) => return Ok(()),
    };
    let Some((joined, rest)) = over else {
        return Ok(());
    };
    let JoinedPeer { join, guard: held } = *joined;
    let mut stream = read.unsplit(write);
    outbound.push_response(&join.answer);
    let (mut buffer, mut lengths) = (Vec::new(), Vec::new());
    if outbound.take(&mut buffer, &mut lengths).await {
        stream.write_all(&buffer).await?;
        stream.flush().await?;
    }
    let relayed = streams::relay(&worker.server, client.address.ip(), stream, join, &rest).await;
    drop(held);
    relayed
}

/// A peer connection to join, and the bytes that followed the request for it.
type PeerHandover = Option<(Box<JoinedPeer>, Vec<u8>)>;

async fn read_frames(
    worker: &Arc<Worker>,
    client: Client,
    stream: &mut (impl AsyncRead + Unpin),
    outbound: &Outbound,
) -> io::Result<PeerHandover> {
    let mut buffer: Vec<u8> = Vec::new();
    loop {
        // The buffer only keeps an incomplete frame, so it never exceeds the size of a frame.
        buffer.reserve(READ_BYTES);
        if stream.read_buf(&mut buffer).await? == 0 {
            return Ok(None);
        }
        let now = worker.server.now();
        let mut start = 0;
        loop {
            let rest = buffer.get(start..).unwrap_or_default();
            match frame(rest) {
                Frame::Complete { bytes, padding } => {
                    let message = rest.get(..bytes).unwrap_or_default();
                    start += bytes + padding;
                    match worker.handle_frame(now, client, message) {
                        InputOutcome::NoResponse => {}
                        InputOutcome::Answer(answer) => outbound.push_response(&answer),
                        InputOutcome::Joined(joined) => {
                            return Ok(Some((joined, buffer.split_off(start))));
                        }
                    }
                }
                Frame::Partial => break,
                Frame::Invalid => return Err(io::ErrorKind::InvalidData.into()),
            }
        }
        buffer.drain(..start);
        if buffer.is_empty() {
            buffer.shrink_to(READ_BYTES);
        }
    }
}

/// Over TLS each frame is written as its own record. Some clients treat a record as a frame
/// (coturn's does), and coturn always sends records like this.
async fn write_frames(
    stream: &mut (impl AsyncWrite + Unpin),
    outbound: &Outbound,
    is_tls: bool,
) -> io::Result<()> {
    let (mut buffer, mut lengths) = (Vec::new(), Vec::new());
    while outbound.take(&mut buffer, &mut lengths).await {
        if is_tls {
            let mut rest = buffer.as_slice();
            for length in lengths.drain(..) {
                let (frame, others) = rest.split_at_checked(length).unwrap_or((rest, &[]));
                stream.write_all(frame).await?;
                rest = others;
            }
        } else {
            stream.write_all(&buffer).await?;
        }
        stream.flush().await?;
        lengths.clear();
        buffer.clear();
        buffer.shrink_to(READ_BYTES);
    }
    Ok(())
}

/// Ends when the client has had no allocation for a while.
async fn idle(has_allocation: impl Fn() -> bool) {
    let mut without = 0;
    while without < 2 {
        tokio::time::sleep(IDLE_CHECK).await;
        without = if has_allocation() { 0 } else { without + 1 };
    }
}

/// Time limit of a TLS handshake: a client that works has sent its first frame by then.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// Half of the time that a client may stay connected without an allocation.
const IDLE_CHECK: Duration = Duration::from_secs(30);
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
const READ_BYTES: usize = 4096;

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use tokio::time::Instant;
    use tokio_rustls::rustls::ServerConfig;
    use tokio_rustls::rustls::crypto::aws_lc_rs::default_provider;
    use tokio_rustls::rustls::server::ResolvesServerCertUsingSni;

    use super::*;

    /// The client connects, but does not start a handshake.
    #[tokio::test(start_paused = true)]
    async fn a_handshake_has_a_time_limit() {
        let config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_cert_resolver(Arc::new(ResolvesServerCertUsingSni::new()));
        let acceptor = Acceptor::new(Arc::new(config), None);
        let (_client, server) = tokio::io::duplex(64);
        let started = Instant::now();
        let shaken = timeout(Duration::from_mins(5), handshake(&acceptor, server)).await;
        assert!(shaken.expect("it is aborted").is_err());
        assert_eq!(started.elapsed().as_secs(), 10);
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_without_an_allocation_ends_within_90_seconds() {
        let started = Instant::now();
        let end = timeout(Duration::from_mins(5), idle(|| false)).await;
        assert!(end.is_ok() && started.elapsed().as_secs() == 60);

        // The allocation ends just after a check.
        let started = Instant::now();
        let looks = Cell::new(0);
        let has_allocation = || looks.replace(looks.get() + 1) < 4;
        let end = timeout(Duration::from_mins(5), idle(has_allocation)).await;
        assert!(end.is_ok() && started.elapsed().as_secs() == 4 * 30 + 60);

        let stays = timeout(Duration::from_hours(24), idle(|| true)).await;
        assert!(stays.is_err(), "a client with an allocation stays");
    }
}
