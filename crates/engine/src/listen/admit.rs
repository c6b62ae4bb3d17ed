//! Who a connection is from: the peer, or whom a trusted proxy names (`edge.trusted_proxies`).

use std::net::SocketAddr;
use std::time::Duration;

use ipnet::IpNet;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tracing::debug;
use transport::Socket;
use transport::proxy_protocol::{MAX_HEADER, Parsed, parse};

use crate::core::Core;
use crate::metrics::ProxyHeader;

/// How long a proxy may take for its header, which it sends before anything else: one packet, and
/// time to send it once more (section 2: at least 3 s).
const HEADER_DEADLINE: Duration = Duration::from_secs(5);

/// Makes the socket of a connection that was accepted from `peer`. From a trusted proxy it may
/// begin with a PROXY header, which is taken off and says who the peer is; nobody else's bytes
/// are looked at. `None`: the connection ended, or began with a header that is none.
pub(super) async fn admit(stream: TcpStream, peer: SocketAddr, core: &Core) -> Option<Socket> {
    let mut socket = Socket::new(stream, peer);
    if !is_trusted(&core.config.trusted_proxies, peer) {
        return Some(socket);
    }
    let mut said = Vec::new();
    let header = match timeout(HEADER_DEADLINE, read_header(&mut socket, &mut said)).await {
        Ok(parsed) => parsed,
        // A proxy that says nothing is itself the peer, of a service that speaks first.
        Err(_) if said.is_empty() => Parsed::Absent,
        Err(_) => Parsed::Malformed,
    };
    match header {
        Parsed::Header { source, len } => {
            core.metrics.proxy_header(ProxyHeader::Accepted);
            socket.unread(said.get(len..).unwrap_or_default()).ok()?;
            if let Some(source) = source {
                socket.set_peer(source);
            }
            Some(socket)
        }
        Parsed::Absent => {
            core.metrics.proxy_header(ProxyHeader::Absent);
            socket.unread(&said).ok()?;
            Some(socket)
        }
        Parsed::Malformed => {
            core.metrics.proxy_header(ProxyHeader::Malformed);
            debug!(%peer, "a PROXY header that is none");
            None
        }
        // Ended before it said what it is.
        Parsed::Partial => None,
    }
}

/// Reads until `said` begins with a whole header or cannot. What was read behind a header stays
/// in `said`. [`Parsed::Partial`]: the connection ended before.
async fn read_header(socket: &mut Socket, said: &mut Vec<u8>) -> Parsed {
    let mut bytes = [0; MAX_HEADER];
    loop {
        let room = bytes.get_mut(said.len()..).unwrap_or_default();
        match socket.read(room).await {
            Ok(0) | Err(_) if said.is_empty() => return Parsed::Partial,
            Ok(0) | Err(_) => return Parsed::Malformed,
            Ok(count) => said.extend_from_slice(room.get(..count).unwrap_or_default()),
        }
        // Never partial for as many bytes as there is room for.
        match parse(said) {
            Parsed::Partial => {}
            parsed => return parsed,
        }
    }
}

fn is_trusted(proxies: &[IpNet], peer: SocketAddr) -> bool {
    proxies.iter().any(|network| network.contains(&peer.ip()))
}
