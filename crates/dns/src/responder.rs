//! The sockets of the responder.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use socket2::{Domain, Protocol, Socket, Type};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{debug, warn};

use crate::answer::{Response, Transport};
use crate::rate::{Admission, SourceRates, network};
use crate::zone::Zones;

/// Counts queries by `result`.
pub const QUERIES_METRIC: &str = "svc_dns_queries_total";

/// An address cannot be bound.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {address}; {}", next_step(source))]
pub struct BindError {
    address: SocketAddr,
    source: io::Error,
}

fn next_step(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::PermissionDenied => {
            "ports below 1024 need the capability CAP_NET_BIND_SERVICE: add it to the unit"
        }
        io::ErrorKind::AddrInUse => {
            "another name server has the port. If it is the stub of systemd-resolved, use the \
             address of this host instead of 0.0.0.0, or set DNSStubListener=no in resolved.conf"
        }
        io::ErrorKind::AddrNotAvailable => "this host does not have the address; correct it",
        _ => "correct the address",
    }
}

/// A responder whose addresses are bound.
pub struct Responder {
    udp: Vec<std::net::UdpSocket>,
    tcp: Vec<std::net::TcpListener>,
    zones: Zones,
}

impl Responder {
    /// Binds all addresses, each for UDP and TCP. With port 0 the two have different ports.
    ///
    /// # Errors
    /// An address cannot be bound.
    pub fn bind(addresses: &[SocketAddr], zones: Zones) -> Result<Self, BindError> {
        let mut responder = Self {
            udp: Vec::new(),
            tcp: Vec::new(),
            zones,
        };
        for address in addresses.iter().copied() {
            let failed = |source| BindError { address, source };
            // `[::]` includes IPv4, unless that has an address of its own.
            let has_ipv4 = addresses
                .iter()
                .any(|other| other.is_ipv4() && other.port() == address.port());
            let udp = socket(address, Type::DGRAM, has_ipv4).map_err(failed)?;
            let tcp = socket(address, Type::STREAM, has_ipv4).map_err(failed)?;
            tcp.listen(BACKLOG).map_err(failed)?;
            responder.udp.push(udp.into());
            responder.tcp.push(tcp.into());
        }
        Ok(responder)
    }

    /// The bound addresses of UDP, and those of TCP.
    #[cfg(test)]
    fn local_addresses(&self) -> io::Result<(Vec<SocketAddr>, Vec<SocketAddr>)> {
        let udp = self.udp.iter().map(std::net::UdpSocket::local_addr);
        let tcp = self.tcp.iter().map(std::net::TcpListener::local_addr);
        Ok((
            udp.collect::<io::Result<_>>()?,
            tcp.collect::<io::Result<_>>()?,
        ))
    }

    /// Responds until `stop`, and then ends all its tasks.
    ///
    /// # Errors
    /// The runtime does not take a socket.
    pub async fn serve(self, stop: CancellationToken) -> io::Result<()> {
        let udp = self.udp.into_iter().map(UdpSocket::from_std);
        let udp = udp.collect::<io::Result<Vec<_>>>()?;
        let tcp = self.tcp.into_iter().map(TcpListener::from_std);
        let tcp = tcp.collect::<io::Result<Vec<_>>>()?;
        let server = Arc::new(Server {
            zones: self.zones,
            rates: Mutex::new(SourceRates::new()),
            started: Instant::now(),
            connections: Arc::default(),
            tasks: TaskTracker::new(),
            stop,
        });
        for socket in udp {
            server.tasks.spawn(serve_udp(socket, Arc::clone(&server)));
        }
        for listener in tcp {
            server.tasks.spawn(serve_tcp(listener, Arc::clone(&server)));
        }
        server.stop.cancelled().await;
        server.tasks.close();
        server.tasks.wait().await;
        Ok(())
    }
}

impl std::fmt::Debug for Responder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Responder")
            .field("zones", &self.zones)
            .finish_non_exhaustive()
    }
}

fn socket(address: SocketAddr, kind: Type, has_ipv4: bool) -> io::Result<Socket> {
    let protocol = if kind == Type::STREAM {
        Protocol::TCP
    } else {
        Protocol::UDP
    };
    let socket = Socket::new(Domain::for_address(address), kind, Some(protocol))?;
    if address.is_ipv6() {
        socket.set_only_v6(has_ipv4 || !address.ip().is_unspecified())?;
    }
    if kind == Type::STREAM {
        // Connections of an earlier process may still be closing.
        socket.set_reuse_address(true)?;
    }
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    Ok(socket)
}

struct Server {
    zones: Zones,
    rates: Mutex<SourceRates>,
    started: Instant,
    connections: Arc<Connections>,
    tasks: TaskTracker,
    stop: CancellationToken,
}

impl Server {
    /// The response to a datagram, within the rate of its source.
    fn respond_udp(&self, request: &[u8], source: IpAddr) -> Option<Response> {
        let now = self.started.elapsed();
        let admission = self.rates.lock().admit(source, now);
        match admission {
            Admission::Full => self.zones.respond(request, Transport::Udp),
            Admission::Truncated => {
                count("limited");
                self.zones.respond_truncated(request)
            }
            Admission::Refused => {
                count("limited");
                None
            }
        }
    }
}

async fn serve_udp(socket: UdpSocket, server: Arc<Server>) {
    let mut buffer = vec![0; MAX_REQUEST_BYTES];
    loop {
        let received = tokio::select! {
            () = server.stop.cancelled() => return,
            received = socket.recv_from(&mut buffer) => received,
        };
        let (length, source) = match received {
            Ok(received) => received,
            Err(error) => {
                warn!(%error, "a query could not be received");
                tokio::time::sleep(ERROR_PAUSE).await;
                continue;
            }
        };
        let request = buffer.get(..length).unwrap_or_default();
        let Some(response) = server.respond_udp(request, source.ip()) else {
            continue;
        };
        count(response.result.label());
        // A client asks again after a loss, so nothing waits for a full buffer.
        if let Err(error) = socket.try_send_to(&response.bytes, source) {
            debug!(%error, "a response was not sent");
        }
    }
}

async fn serve_tcp(listener: TcpListener, server: Arc<Server>) {
    loop {
        let accepted = tokio::select! {
            () = server.stop.cancelled() => return,
            accepted = listener.accept() => accepted,
        };
        let (stream, source) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                warn!(%error, "a connection could not be accepted");
                // Without free descriptors, retrying only helps after other connections have ended.
                tokio::time::sleep(ERROR_PAUSE).await;
                continue;
            }
        };
        let Some(permit) = Connections::admit(&server.connections, source.ip()) else {
            count("limited");
            continue;
        };
        let at = Arc::clone(&server);
        server.tasks.spawn(async move {
            tokio::select! {
                () = at.stop.cancelled() => {}
                ended = timeout(CONNECTION_TIME, serve_connection(stream, &at)) => {
                    if let Ok(Err(error)) = ended {
                        debug!(%error, "a connection has ended");
                    }
                }
            }
            drop(permit);
        });
    }
}

/// Responds to the queries of a connection (RFC 7766), one after the other.
async fn serve_connection(mut stream: TcpStream, server: &Server) -> io::Result<()> {
    let mut buffer = vec![0; MAX_REQUEST_BYTES];
    for _ in 0..MAX_QUERIES {
        let length = timeout(IDLE_TIME, stream.read_u16()).await??;
        // No query is longer, and a client that sends one is none of DNS.
        let Some(request) = buffer.get_mut(..usize::from(length)) else {
            count("malformed");
            return Ok(());
        };
        timeout(IDLE_TIME, stream.read_exact(request)).await??;
        let Some(response) = server.zones.respond(request, Transport::Tcp) else {
            return Ok(());
        };
        count(response.result.label());
        let length = u16::try_from(response.bytes.len()).map_err(io::Error::other)?;
        let message = [&length.to_be_bytes()[..], &response.bytes].concat();
        timeout(IDLE_TIME, stream.write_all(&message)).await??;
    }
    Ok(())
}

fn count(result: &'static str) {
    metrics::counter!(QUERIES_METRIC, "result" => result).increment(1);
}

/// The open connections by network.
#[derive(Default)]
struct Connections(Mutex<HashMap<u128, usize>>);

/// The right to be connected, until it is dropped.
struct ConnectionPermit {
    connections: Arc<Connections>,
    network: u128,
}

impl Connections {
    fn admit(connections: &Arc<Self>, source: IpAddr) -> Option<ConnectionPermit> {
        let network = network(source);
        let mut open = connections.0.lock();
        let total: usize = open.values().sum();
        let of_network = open.get(&network).copied().unwrap_or_default();
        if total >= MAX_CONNECTIONS || of_network >= MAX_CONNECTIONS_PER_NETWORK {
            return None;
        }
        open.insert(network, of_network + 1);
        drop(open);
        Some(ConnectionPermit {
            connections: Arc::clone(connections),
            network,
        })
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        let mut open = self.connections.0.lock();
        if let Entry::Occupied(mut count) = open.entry(self.network) {
            *count.get_mut() = count.get().saturating_sub(1);
            if *count.get() == 0 {
                count.remove();
            }
        }
    }
}

/// A header, a name of 255 bytes, and options of EDNS, which have some ten bytes.
const MAX_REQUEST_BYTES: usize = 1024;

/// TCP is the second way to ask, so few clients use it at once.
const MAX_CONNECTIONS: usize = 64;
const MAX_CONNECTIONS_PER_NETWORK: usize = 8;

/// Queries on a connection. An authority asks for one name at a time.
const MAX_QUERIES: usize = 32;

/// Time without progress, as RFC 7766 section 6.2.3 recommends: a few seconds.
const IDLE_TIME: Duration = Duration::from_secs(5);

/// A client that sends a byte at a time cannot keep its place for longer.
const CONNECTION_TIME: Duration = Duration::from_secs(30);

/// Pause after an error of the system.
const ERROR_PAUSE: Duration = Duration::from_millis(50);

/// Connections that wait to be accepted.
const BACKLOG: i32 = 64;

#[cfg(test)]
mod tests;
