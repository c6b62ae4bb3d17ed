//! PROXY headers of trusted proxies, and the uses of the address in them.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use client::{Destination, Properties, ProxyProtocol};
use rustls::pki_types::ServerName;
use serde_json::Value;
use testing::{RawVisitor, TestEngine, TestTunnel, Upstream, within};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio_rustls::TlsConnector;
use types::proxy_protocol::write_v2;

/// Source address of the trusted proxy. All other clients here use 127.0.0.1.
const PROXY: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);
const ANYBODY: Ipv4Addr = Ipv4Addr::LOCALHOST;
const TRUST: &str = "edge: {trusted_proxies: [127.0.0.2]}\n";
const V1: &[u8] = b"PROXY TCP4 203.0.113.7 198.51.100.1 40000 443\r\n";
const V1_UNKNOWN: &[u8] = b"PROXY UNKNOWN\r\n";

fn v2() -> Vec<u8> {
    let mut header = Vec::new();
    let source = "[2001:db8::7]:40000".parse().unwrap();
    write_v2(
        Some(source),
        "[2001:db8::1]:443".parse().unwrap(),
        &mut header,
    );
    header
}

/// Connects from an address of this machine and sends the first bytes.
async fn say(from: Ipv4Addr, to: SocketAddr, first: &[u8]) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(SocketAddr::from((from, 0))).unwrap();
    let mut stream = socket.connect(to).await.unwrap();
    stream.set_nodelay(true).unwrap();
    stream.write_all(first).await.unwrap();
    stream
}

/// An HTTP visitor that sends a PROXY header, or `None` if the edge does not start TLS.
async fn visit(
    engine: &TestEngine,
    host: &str,
    from: Ipv4Addr,
    header: &[u8],
) -> Option<RawVisitor> {
    let stream = say(from, engine.addr(), header).await;
    let name = ServerName::try_from(host.to_owned()).unwrap();
    let connector = TlsConnector::from(engine.ca().client(&["http/1.1"]));
    let connecting = connector.connect(name, stream);
    let stream = within("TLS session, or its end", connecting).await.ok()?;
    Some(RawVisitor::new(stream))
}

/// Reads to the end of a connection. Returns nothing if it was reset.
async fn rest(mut stream: TcpStream) -> Vec<u8> {
    let mut rest = Vec::new();
    match within("end of the connection", stream.read_to_end(&mut rest)).await {
        Ok(_) => rest,
        Err(error) => {
            assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
            Vec::new()
        }
    }
}

/// The `X-Forwarded-For` that a service received.
fn forwarded_for(seen: &Value) -> Vec<&str> {
    let headers = seen["headers"].as_array().unwrap();
    headers
        .iter()
        .filter(|field| field[0] == "x-forwarded-for")
        .map(|field| field[1].as_str().unwrap())
        .collect()
}

#[tokio::test]
async fn a_visitor_behind_a_trusted_proxy_has_its_own_address_everywhere() {
    let directory = tempfile::tempdir().unwrap();
    let log = directory.path().join("access.log");
    let engine = TestEngine::start_with(&format!("{TRUST}access_log: {{path: {log:?}}}\n")).await;
    let service = Upstream::http1().await;
    let tunnel = engine.publish(service.addr()).await;
    let host = tunnel.hostname();
    let v2 = v2();
    let mut expected = Vec::new();
    for (path, from, header, source) in [
        ("/v1", PROXY, V1, "203.0.113.7"),
        ("/v2", PROXY, &v2, "2001:db8::7"),
        ("/unknown", PROXY, V1_UNKNOWN, "127.0.0.2"),
        // A health check of the proxy, and a visitor without a header.
        ("/check", PROXY, b"", "127.0.0.2"),
        ("/none", ANYBODY, b"", "127.0.0.1"),
    ] {
        let mut visitor = visit(&engine, host, from, header).await.unwrap();
        let answer = visitor.get(path, host).await;
        assert_eq!(forwarded_for(&answer.json()), [source]);
        expected.push([path, source].map(str::to_owned));
    }
    let tunnel_id = tunnel.online().tunnel_id.clone();
    engine.stop().await;
    let log = std::fs::read_to_string(log).unwrap();
    let logged = log
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap());
    let mut logged: Vec<_> = logged
        .filter(|line| line["tunnel_id"] == tunnel_id)
        .map(|line| ["path", "source_ip"].map(|name| line[name].as_str().unwrap().to_owned()))
        .collect();
    // Each connection ends on its own, so the order is not defined.
    logged.sort_unstable();
    expected.sort_unstable();
    assert_eq!(logged, expected);
}

#[tokio::test]
async fn trusted_ips_are_about_the_visitor_and_not_the_proxy() {
    let engine = TestEngine::start_with(TRUST).await;
    let service = Upstream::http1().await;
    let properties = Properties::http().trusted_ips(vec!["203.0.113.0/24".to_owned()]);
    let tunnel = engine.publish_as(properties, service.addr()).await;
    let host = tunnel.hostname();
    for (header, status) in [(V1, 200), (&v2(), 403), (b"", 403)] {
        let mut visitor = visit(&engine, host, PROXY, header).await.unwrap();
        assert_eq!(visitor.get("/", host).await.status, status);
    }
}

#[tokio::test]
async fn a_header_of_an_untrusted_client_is_ignored() {
    let engine = TestEngine::start_with(TRUST).await;
    let service = Upstream::http1().await;
    let tunnel = engine.publish(service.addr()).await;
    // The header is not a ClientHello, and has no other meaning.
    let visitor = visit(&engine, tunnel.hostname(), ANYBODY, V1).await;
    assert!(visitor.is_none());
    assert_eq!(service.accepted(), 0);
}

#[tokio::test]
async fn an_invalid_header_ends_the_connection() {
    let engine = TestEngine::start_with(&format!(
        "{TRUST}http: {{enabled: true, listen_addr: '127.0.0.1:0'}}\n"
    ))
    .await;
    let plain = engine.running().http_addr().unwrap();
    for to in [engine.addr(), plain] {
        for malformed in [
            &b"PROXY TCP4 203.0.113.7\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n"[..],
            &[b'P', b'R', b'O', b'X', b'Y', b' '].repeat(40),
            b"\r\n\r\n\0\r\nQUIT\n\x21\x11\xFF\xFF",
        ] {
            let stream = say(PROXY, to, malformed).await;
            assert_eq!(rest(stream).await, b"");
        }
        // Half a header is invalid.
        let mut stream = say(PROXY, to, b"PROXY TCP4 203").await;
        stream.shutdown().await.unwrap();
        assert_eq!(rest(stream).await, b"");
    }
}

#[tokio::test]
async fn the_plain_listener_removes_a_header() {
    let engine = TestEngine::start_with(&format!(
        "{TRUST}http: {{enabled: true, listen_addr: '127.0.0.1:0'}}\n"
    ))
    .await;
    let plain = engine.running().http_addr().unwrap();
    for (from, header, status) in [(PROXY, V1, 308), (PROXY, b"", 308), (ANYBODY, b"", 308)] {
        let stream = say(from, plain, header).await;
        let answer = RawVisitor::new(stream).get("/x", engine.host()).await;
        assert_eq!(answer.status, status);
    }
    let stream = say(ANYBODY, plain, V1).await;
    assert_eq!(RawVisitor::new(stream).get("/x", "a").await.status, 400);
}

/// A TCP tunnel whose service echoes its input, and receives the visitor's address in a PROXY
/// header.
async fn tcp_tunnel() -> (TestEngine, TestTunnel, Upstream, SocketAddr) {
    let port = ports::lease();
    let engine =
        TestEngine::start_with(&format!("{TRUST}tcp: {{port_range: {port}-{port}}}\n")).await;
    let service = Upstream::tcp().await;
    let target: client::Target = service.addr().to_string().parse().unwrap();
    let to = Destination::new(target).with_proxy_protocol(ProxyProtocol::V1);
    let tunnel = TestTunnel::open(engine.agent().await, Properties::tcp(), to).await;
    (engine, tunnel, service, SocketAddr::from((ANYBODY, port)))
}

/// Sends bytes one by one or together. Returns the address that the service received and the rest
/// of its input.
async fn echoed(mut stream: TcpStream) -> (IpAddr, String) {
    stream.shutdown().await.unwrap();
    let echoed = String::from_utf8(rest(stream).await).unwrap();
    let (header, data) = echoed.split_once("\r\n").unwrap();
    let words: Vec<_> = header.split(' ').collect();
    assert_eq!(words.len(), 6, "{header}");
    (words[2].parse().unwrap(), data.to_owned())
}

#[tokio::test]
async fn a_tcp_service_receives_the_address_behind_the_proxy() {
    let (_engine, _tunnel, _service, addr) = tcp_tunnel().await;
    let expected = |ip: &str, data: &str| (ip.parse::<IpAddr>().unwrap(), data.to_owned());
    let with = |header: &[u8], data: &[u8]| [header, data].concat();

    let stream = say(PROXY, addr, &with(V1, b"hello")).await;
    assert_eq!(echoed(stream).await, expected("203.0.113.7", "hello"));
    let stream = say(PROXY, addr, &with(&v2(), b"hello")).await;
    assert_eq!(echoed(stream).await, expected("2001:db8::7", "hello"));
    // The header may arrive in pieces.
    let mut stream = say(PROXY, addr, b"").await;
    for byte in with(V1, b"hello") {
        stream.write_all(&[byte]).await.unwrap();
    }
    assert_eq!(echoed(stream).await, expected("203.0.113.7", "hello"));
    // Bytes that only start like a header belong to the visitor.
    let stream = say(PROXY, addr, b"PROPFIND").await;
    assert_eq!(echoed(stream).await, expected("127.0.0.2", "PROPFIND"));
    let large = "x".repeat(200_000);
    let mut stream = say(PROXY, addr, V1).await;
    stream.write_all(large.as_bytes()).await.unwrap();
    assert_eq!(echoed(stream).await, expected("203.0.113.7", &large));
}

#[tokio::test]
async fn a_header_of_an_untrusted_client_is_forwarded_as_bytes() {
    let (_engine, _tunnel, service, addr) = tcp_tunnel().await;
    let stream = say(ANYBODY, addr, V1).await;
    let (source, data) = echoed(stream).await;
    assert_eq!(source, IpAddr::from(ANYBODY));
    assert_eq!(data.as_bytes(), V1);
    // A malformed header of the proxy itself is refused earlier.
    let stream = say(PROXY, addr, b"PROXY TCP4 what\r\n").await;
    assert_eq!(rest(stream).await, b"");
    assert_eq!(service.accepted(), 1);
}
