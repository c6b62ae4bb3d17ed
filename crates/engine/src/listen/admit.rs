//! Who a connection is from: the peer, or whom a trusted proxy names (`edge.trusted_proxies`).

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use daemon::connections::ConnectionLimitError;
use ipnet::IpNet;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tracing::debug;
use transport::Socket;
use transport::proxy_protocol::{MAX_HEADER, ParsedHeader, parse};

use super::connections::SocketPermit;
use crate::core::Core;
use crate::metrics::ProxyHeader;

/// How long a proxy may take for its header, which it sends before anything else: one packet, and
/// time to send it once more (section 2: at least 3 s).
const HEADER_DEADLINE: Duration = Duration::from_secs(5);

/// As [`admit`], for a port that visitors alone come to.
pub(super) async fn admit_visitor(
    stream: TcpStream,
    peer: SocketAddr,
    core: &Core,
) -> Option<Socket> {
    let mut socket = admit(stream, peer, core).await?;
    is_visitor(&mut socket, core).then_some(socket)
}

/// Whether a connection that turned out to be a visitor's may stay: what is left at the end is for
/// others.
pub(super) fn is_visitor(socket: &mut Socket, core: &Core) -> bool {
    let refused = SocketPermit::is_in_reserve(socket);
    if refused {
        core.metrics.connection_refused(ConnectionLimitError::Total);
    }
    !refused
}

/// Makes the socket of a connection that was accepted from `peer`. From a trusted proxy it may
/// begin with a PROXY header, which is taken off and says who the peer is; nobody else's bytes
/// are looked at. `None`: the connection ended, or began with a header that is none.
pub(super) async fn admit(stream: TcpStream, peer: SocketAddr, core: &Core) -> Option<Socket> {
    let socket = told(Socket::new(stream, peer), peer, core).await?;
    count(socket, core)
}

/// Counts a connection by its source.
fn count(mut socket: Socket, core: &Core) -> Option<Socket> {
    match core.connections.begin(socket.peer().ip()) {
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

/// Takes the header of a trusted proxy off.
async fn told(mut socket: Socket, peer: SocketAddr, core: &Core) -> Option<Socket> {
    if !is_trusted(&core.config.trusted_proxies, peer.ip()) {
        return Some(socket);
    }
    let mut said = Vec::new();
    match read_in_time(&mut socket, &mut said).await {
        ParsedHeader::Header { source, len } => {
            core.metrics.proxy_header(ProxyHeader::Accepted);
            socket.unread(said.get(len..).unwrap_or_default()).ok()?;
            if let Some(source) = source {
                socket.set_peer(source);
            }
            Some(socket)
        }
        ParsedHeader::Absent => {
            core.metrics.proxy_header(ProxyHeader::Absent);
            socket.unread(&said).ok()?;
            Some(socket)
        }
        ParsedHeader::Malformed => {
            core.metrics.proxy_header(ProxyHeader::Malformed);
            debug!(%peer, "a PROXY header that is none");
            None
        }
        // Ended before it said what it is.
        ParsedHeader::Partial => None,
    }
}

/// As [`read_header`], within [`HEADER_DEADLINE`].
async fn read_in_time(socket: &mut Socket, said: &mut Vec<u8>) -> ParsedHeader {
    match timeout(HEADER_DEADLINE, read_header(socket, said)).await {
        Ok(parsed) => parsed,
        // A proxy that says nothing is itself the peer, of a service that speaks first.
        Err(_) if said.is_empty() => ParsedHeader::Absent,
        Err(_) => ParsedHeader::Malformed,
    }
}

/// Reads until `said` begins with a whole header or cannot. What was read behind a header stays
/// in `said`. [`ParsedHeader::Partial`]: the connection ended before.
async fn read_header(socket: &mut Socket, said: &mut Vec<u8>) -> ParsedHeader {
    let mut bytes = [0; MAX_HEADER];
    loop {
        let room = bytes.get_mut(said.len()..).unwrap_or_default();
        match socket.read(room).await {
            Ok(0) | Err(_) if said.is_empty() => return ParsedHeader::Partial,
            Ok(0) | Err(_) => return ParsedHeader::Malformed,
            Ok(count) => said.extend_from_slice(room.get(..count).unwrap_or_default()),
        }
        // Never partial for as many bytes as there is room for.
        match parse(said) {
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

    /// What a proxy's connection comes to that says `first` and then nothing, and how long that
    /// takes.
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
        let begun = Instant::now();
        let parsed = read_in_time(&mut socket, &mut Vec::new()).await;
        tokio::time::resume();
        (parsed, begun.elapsed())
    }

    #[tokio::test]
    async fn a_proxy_that_says_nothing_is_the_peer() {
        let (parsed, after) = silent_after(b"").await;
        assert_eq!(parsed, ParsedHeader::Absent);
        assert!(after >= HEADER_DEADLINE, "{after:?}");
    }

    #[tokio::test]
    async fn half_a_header_is_none_when_its_time_is_over() {
        let (parsed, after) = silent_after(b"PROXY TCP4 203").await;
        assert_eq!(parsed, ParsedHeader::Malformed);
        assert!(after >= HEADER_DEADLINE, "{after:?}");
    }

    #[test]
    fn networks_are_trusted_and_nobody_beside_them() {
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
