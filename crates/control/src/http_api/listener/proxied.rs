//! Connections through a proxy that names the source of each one in a header of the PROXY protocol,
//! such as an engine that shares its port (`tls.routes` of the engine).

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use ipnet::IpNet;
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::time::timeout;
use types::proxy_protocol::{MAX_HEADER, ParsedHeader, next_part, parse};

/// Peers whose headers are trusted: this machine and the configured proxies. Others could claim any
/// source, so their connections are closed.
#[derive(Debug)]
pub(crate) struct ProxyPeers(Vec<IpNet>);

impl ProxyPeers {
    pub(crate) fn new(trusted_proxies: &[IpNet]) -> Self {
        Self(trusted_proxies.to_vec())
    }

    pub(super) fn contains(&self, peer: IpAddr) -> bool {
        let peer = peer.to_canonical();
        peer.is_loopback() || self.0.iter().any(|network| network.contains(&peer))
    }
}

/// Reads the header, and no byte after it. `None` if it names no source.
///
/// # Errors
/// The header is missing, malformed, or not complete in time.
pub(super) async fn read_header(
    stream: &mut (impl AsyncRead + Unpin),
) -> io::Result<Option<SocketAddr>> {
    match timeout(HEADER_DEADLINE, read(stream)).await {
        Ok(read) => read,
        Err(_elapsed) => Err(io::ErrorKind::TimedOut.into()),
    }
}

async fn read(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<Option<SocketAddr>> {
    let mut header = [0; MAX_HEADER];
    let mut len = 0;
    loop {
        let received = header.get(..len).unwrap_or_default();
        match parse(received) {
            ParsedHeader::Partial => {}
            ParsedHeader::Header { source, .. } => return Ok(source),
            ParsedHeader::Absent => return Err(invalid("the connection has no PROXY header")),
            ParsedHeader::Malformed => return Err(invalid("the PROXY header is malformed")),
        }
        let end = len + next_part(received);
        // A longer header is malformed.
        let room = header
            .get_mut(len..end)
            .ok_or_else(|| invalid("the PROXY header is too long"))?;
        stream.read_exact(room).await?;
        len = end;
    }
}

fn invalid(message: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, message)
}

/// Time limit of a header, which precedes all other data. It allows for one packet and its
/// retransmission (PROXY protocol, section 2: at least 3 s).
const HEADER_DEADLINE: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncWriteExt as _, duplex};
    use tokio::time::Instant;
    use types::proxy_protocol::{write_v1, write_v2};

    use super::*;

    const SOURCE: &str = "203.0.113.7:40000";

    fn header(write: fn(Option<SocketAddr>, SocketAddr, &mut Vec<u8>)) -> Vec<u8> {
        let mut header = Vec::new();
        let to = "198.51.100.1:443".parse().unwrap();
        write(Some(SOURCE.parse().unwrap()), to, &mut header);
        header
    }

    #[tokio::test]
    async fn bytes_after_the_header_stay_in_the_connection() {
        for write in [write_v1, write_v2] {
            let (mut proxy, mut server) = duplex(1024);
            let sent = [header(write), b"hello".to_vec()].concat();
            proxy.write_all(&sent).await.unwrap();
            drop(proxy);
            let source = read_header(&mut server).await.unwrap();
            assert_eq!(source, Some(SOURCE.parse().unwrap()));
            let mut rest = Vec::new();
            server.read_to_end(&mut rest).await.unwrap();
            assert_eq!(rest, b"hello");
        }
    }

    #[tokio::test]
    async fn a_connection_without_a_valid_header_is_refused() {
        let long = [&header(write_v2)[..14], &[0xFF, 0xFF]].concat();
        for sent in [
            &b""[..],
            b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03abcdef",
            b"PROXY TCP4 nonsense\r\n",
            b"PROXY TCP4 203.0.113.7",
            &long,
        ] {
            let (mut proxy, mut server) = duplex(1024);
            proxy.write_all(sent).await.unwrap();
            drop(proxy);
            assert!(read_header(&mut server).await.is_err(), "{sent:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_header_has_a_time_limit() {
        for sent in [&b""[..], b"PROXY TCP4 203"] {
            let (mut proxy, mut server) = duplex(1024);
            proxy.write_all(sent).await.unwrap();
            let began = Instant::now();
            let error = read_header(&mut server).await.unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::TimedOut);
            assert!(began.elapsed() <= 2 * HEADER_DEADLINE);
        }
    }

    #[test]
    fn only_this_machine_and_the_configured_proxies_may_connect() {
        let peers = ProxyPeers::new(&["10.0.0.0/8".parse().unwrap()]);
        for (peer, is_trusted) in [
            ("127.0.0.1", true),
            ("::1", true),
            ("::ffff:127.0.0.1", true),
            ("::ffff:10.1.2.3", true),
            ("192.0.2.1", false),
            ("2001:db8::1", false),
        ] {
            assert_eq!(peers.contains(peer.parse().unwrap()), is_trusted, "{peer}");
        }
    }
}
