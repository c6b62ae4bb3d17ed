//! Determines the source of a connection: the peer, or the address that a trusted proxy
//! (`edge.trusted_proxies`) reports for it.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use daemon::connections::ConnectionLimitError;
use ipnet::IpNet;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tracing::debug;
use transport::Socket;
use types::proxy_protocol::{MAX_HEADER, ParsedHeader, parse};

use super::connections::SocketPermit;
use crate::core::Core;
use crate::metrics::ProxyHeader;

/// Time limit of a proxy's header, which precedes all other data. It allows for one packet and its
/// retransmission (PROXY protocol, section 2: at least 3 s).
const HEADER_DEADLINE: Duration = Duration::from_secs(5);

/// Like [`admit`], for a port that only visitors use.
pub(super) async fn admit_visitor(
    stream: TcpStream,
    peer: SocketAddr,
    core: &Core,
) -> Option<Socket> {
    let mut socket = admit(stream, peer, core).await?;
    admits_visitor(&mut socket, core).then_some(socket)
}

/// True if a connection of a visitor may continue. The last free connections are reserved for
/// agents and the Engine API.
pub(super) fn admits_visitor(socket: &mut Socket, core: &Core) -> bool {
    let refused = SocketPermit::is_in_reserve(socket);
    if refused {
        core.metrics.connection_refused(ConnectionLimitError::Total);
    }
    !refused
}

/// Creates the socket of a connection that was accepted from `peer`. On a connection from a trusted
/// proxy, a PROXY header is removed, and it determines the peer. On other connections no bytes are
/// read. `None` if the connection closed, or if it started with a malformed header.
pub(super) async fn admit(stream: TcpStream, peer: SocketAddr, core: &Core) -> Option<Socket> {
    let socket = apply_proxy_header(Socket::new(stream, peer), peer, core).await?;
    count(socket, core)
}

/// Counts a connection for its source.
pub(super) fn count(mut socket: Socket, core: &Core) -> Option<Socket> {
    match core.connections.acquire(socket.peer().ip()) {
        Ok(counted) => {
            socket.set_slot(counted);
            Some(socket)
        }
        Err(refused) => {
            core.metrics.connection_refused(refused);
            None
        }
    }
}

/// Removes the header of a trusted proxy and applies it.
async fn apply_proxy_header(mut socket: Socket, peer: SocketAddr, core: &Core) -> Option<Socket> {
    if !is_trusted(&core.config.trusted_proxies, peer.ip()) {
        return Some(socket);
    }
    let mut received = Vec::new();
    match read_in_time(&mut socket, &mut received).await {
        ParsedHeader::Header { source, len } => {
            core.metrics.proxy_header(ProxyHeader::Accepted);
            socket
                .unread(received.get(len..).unwrap_or_default())
                .ok()?;
            if let Some(source) = source {
                socket.set_peer(source);
            }
            Some(socket)
        }
        ParsedHeader::Absent => {
            core.metrics.proxy_header(ProxyHeader::Absent);
            socket.unread(&received).ok()?;
            Some(socket)
        }
        ParsedHeader::Malformed => {
            core.metrics.proxy_header(ProxyHeader::Malformed);
            debug!(%peer, "a PROXY header is malformed");
            None
        }
        // The connection closed without data.
        ParsedHeader::Partial => None,
    }
}

/// Like [`read_header`], within [`HEADER_DEADLINE`].
async fn read_in_time(socket: &mut Socket, received: &mut Vec<u8>) -> ParsedHeader {
    match timeout(HEADER_DEADLINE, read_header(socket, received)).await {
        Ok(parsed) => parsed,
        // A proxy that sends nothing counts as the peer, for protocols in which the server sends
        // first.
        Err(_) if received.is_empty() => ParsedHeader::Absent,
        Err(_) => ParsedHeader::Malformed,
    }
}

/// Reads until `received` starts with a whole header, or cannot be a header. Bytes after the header
/// stay in `received`. [`ParsedHeader::Partial`] means that the connection closed without data.
async fn read_header(socket: &mut Socket, received: &mut Vec<u8>) -> ParsedHeader {
    let mut bytes = [0; MAX_HEADER];
    loop {
        let room = bytes.get_mut(received.len()..).unwrap_or_default();
        match socket.read(room).await {
            Ok(0) | Err(_) if received.is_empty() => return ParsedHeader::Partial,
            Ok(0) | Err(_) => return ParsedHeader::Malformed,
            Ok(count) => received.extend_from_slice(room.get(..count).unwrap_or_default()),
        }
        // A full buffer never yields a partial header.
        match parse(received) {
            ParsedHeader::Partial => {}
            parsed => return parsed,
        }
    }
}

pub(crate) fn is_trusted(proxies: &[IpNet], peer: IpAddr) -> bool {
    proxies.iter().any(|network| network.contains(&peer))
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt;
    use tokio::net::TcpListener;
    use tokio::time::Instant;

    use super::*;

    /// Returns the result for a proxy that sends `first` and then nothing, and the time that it
    /// took.
    async fn silent_after(first: &[u8]) -> (ParsedHeader, Duration) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let mut proxy = TcpStream::connect(addr).await.unwrap();
        let (stream, peer) = listener.accept().await.unwrap();
        proxy.write_all(first).await.unwrap();
        if !first.is_empty() {
            stream.readable().await.unwrap();
        }
        let mut socket = Socket::new(stream, peer);
        tokio::time::pause();
        let started = Instant::now();
        let parsed = read_in_time(&mut socket, &mut Vec::new()).await;
        tokio::time::resume();
        (parsed, started.elapsed())
    }

    #[tokio::test]
    async fn a_silent_proxy_counts_as_the_peer() {
        let (parsed, after) = silent_after(b"").await;
        assert_eq!(parsed, ParsedHeader::Absent);
        assert!(after >= HEADER_DEADLINE, "{after:?}");
    }

    #[tokio::test]
    async fn an_incomplete_header_is_malformed_after_the_deadline() {
        let (parsed, after) = silent_after(b"PROXY TCP4 203").await;
        assert_eq!(parsed, ParsedHeader::Malformed);
        assert!(after >= HEADER_DEADLINE, "{after:?}");
    }

    #[test]
    fn only_the_configured_networks_are_trusted() {
        let proxies = ["10.0.0.0/8", "2001:db8::/32"].map(|network| network.parse().unwrap());
        for (peer, trusted) in [
            ("10.255.0.1:1", true),
            ("11.0.0.1:1", false),
            ("[2001:db8::1]:1", true),
            ("[2001:db9::1]:1", false),
        ] {
            assert_eq!(
                is_trusted(&proxies, peer.parse::<SocketAddr>().unwrap().ip()),
                trusted,
                "{peer}"
            );
        }
        assert!(!is_trusted(&[], "127.0.0.1".parse().unwrap()));
    }
}
