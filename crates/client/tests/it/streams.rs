//! Visitors on connections of their own, and on standing connections.

use std::{net::Ipv4Addr, time::Duration};

use svc_client::{
    Agent, Connection, Destination, ForwardOptions, Properties, ProxyProtocol, Status, Target,
    Tunnel,
};
use testing::ClosedPort;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::UnixListener,
    sync::mpsc,
    time::timeout,
};
use tokio_rustls::TlsStream;
use transport::standing::{FramedStream, StandingConnection};
use wire::{
    ErrorCode, Kind,
    message::{PoolReq, ProxyConnReq, ProxyConnRsp, ProxyReq},
    pool::{Side, StreamOpen},
};

use super::{
    echo_service,
    fake::{FakeEngine, Peer, SOON},
    until,
};

const STREAM: &str = "0123456789abcdef01234567";

/// An agent whose one tunnel leads to a port of this machine, and the events of its streams.
async fn forwarding(
    engine: &FakeEngine,
    port: u16,
) -> (Agent, Peer, mpsc::UnboundedReceiver<Connection>) {
    forwarding_to(engine, target(port)).await
}

fn target(port: u16) -> Target {
    port.to_string().parse().unwrap()
}

async fn forwarding_to(
    engine: &FakeEngine,
    to: impl Into<Destination>,
) -> (Agent, Peer, mpsc::UnboundedReceiver<Connection>) {
    let to = to.into();
    let agent = engine.agent();
    let mut tunnel = agent.open(Properties::tcp());
    let channel = engine.control_with_tunnel().await;
    until(&tunnel, |status| matches!(status, Status::Online(_))).await;
    let (told, streams) = mpsc::unbounded_channel();
    let forwarding = ForwardOptions::to(to).with_observer(move |connection| {
        // Some tests drop the receiver.
        drop(told.send(connection));
    });
    tokio::spawn(async move { tunnel.forward(forwarding).await });
    (agent, channel, streams)
}

async fn accepting(engine: &FakeEngine) -> (Agent, Peer, Tunnel) {
    let agent = engine.agent();
    let tunnel = agent.open(Properties::tcp());
    let channel = engine.control_with_tunnel().await;
    until(&tunnel, |status| matches!(status, Status::Online(_))).await;
    (agent, channel, tunnel)
}

fn visitor() -> Kind {
    Kind::ProxyConnReq(ProxyConnReq {
        tunnel_id: "t-1".to_owned(),
        stream_id: STREAM.to_owned(),
        secret: Some("one-time".into()),
        source_ip: Some(std::net::IpAddr::from(Ipv4Addr::new(192, 0, 2, 1)).into()),
        proxy_endpoint: None,
    })
}

async fn data_hello(peer: &mut Peer) -> ProxyReq {
    match peer.next().await {
        Kind::ProxyReq(hello) => hello,
        other => panic!("not a data connection: {other:?}"),
    }
}

async fn answer(channel: &mut Peer) -> ProxyConnRsp {
    match channel.next().await {
        Kind::ProxyConnRsp(answer) => answer,
        other => panic!("not an answer: {other:?}"),
    }
}

async fn standing(
    engine: &FakeEngine,
    channel: &mut Peer,
) -> StandingConnection<TlsStream<tokio::net::TcpStream>> {
    let request = PoolReq {
        secret: "pool".to_owned(),
        count: 1,
        idle_timeout_ms: 60_000,
    };
    channel.send(Kind::PoolReq(request)).await;
    let mut peer = engine.accept().await;
    let hello = data_hello(&mut peer).await;
    assert_eq!(hello.stream_id, "");
    assert_eq!(hello.client_details.unwrap().token.unwrap().value, "pool");
    StandingConnection::new(peer.io, Side::Engine)
}

fn open(stream_id: &str) -> StreamOpen {
    StreamOpen {
        tunnel_id: "t-1".to_owned(),
        stream_id: stream_id.to_owned(),
        source_ip: Some(std::net::IpAddr::from(Ipv4Addr::new(192, 0, 2, 1)).into()),
        moved: false,
        exchanges: false,
        forward: Vec::new(),
    }
}

/// Sends a whole request and reads the whole answer.
async fn exchange(stream: &mut (impl transport::Stream + ?Sized), request: &[u8]) -> Vec<u8> {
    stream.write_all(request).await.unwrap();
    stream.shutdown().await.unwrap();
    let mut answer = Vec::new();
    timeout(SOON, stream.read_to_end(&mut answer))
        .await
        .unwrap()
        .unwrap();
    answer
}

#[tokio::test]
async fn the_agent_opens_a_connection_for_a_visitor_and_joins_it_to_the_service() {
    let engine = FakeEngine::start().await;
    let (_agent, mut channel, mut streams) = forwarding(&engine, echo_service().await).await;
    channel.send(visitor()).await;
    let mut data = engine.accept().await;
    let hello = data_hello(&mut data).await;
    assert_eq!(hello.stream_id, STREAM);
    assert!(hello.zero_rtt.unwrap().value);
    assert_eq!(
        hello.client_details.unwrap().token.unwrap().value,
        "one-time"
    );
    assert_eq!(
        answer(&mut channel).await,
        ProxyConnRsp {
            stream_id: STREAM.into(),
            error: None
        }
    );
    // Half-closed: the answer arrives after the end of the request.
    assert_eq!(exchange(&mut data.io, b"hello").await, b"hello");
    for active in [true, false] {
        let seen = timeout(SOON, streams.recv()).await.unwrap().unwrap();
        assert_eq!(
            (seen.stream_id.as_str(), seen.active, seen.error),
            (STREAM, active, None)
        );
        assert_eq!(seen.source_ip, Some(Ipv4Addr::new(192, 0, 2, 1).into()));
    }
}

#[tokio::test]
async fn a_unix_socket_can_be_a_service() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("service.sock");
    let service = UnixListener::bind(&path).unwrap();
    tokio::spawn(async move {
        let (mut stream, _) = service.accept().await.unwrap();
        let mut request = Vec::new();
        stream.read_to_end(&mut request).await.unwrap();
        stream.write_all(&request).await.unwrap();
    });
    let engine = FakeEngine::start().await;
    let (_agent, mut channel, mut tunnel) = accepting(&engine).await;
    let target: Target = format!("unix:{}", path.display()).parse().unwrap();
    tokio::spawn(async move { tunnel.forward(target).await });
    channel.send(visitor()).await;
    let mut data = engine.accept().await;
    data_hello(&mut data).await;
    assert_eq!(exchange(&mut data.io, b"hello").await, b"hello");
}

#[tokio::test]
async fn a_visitor_is_refused_when_the_service_is_down() {
    let engine = FakeEngine::start().await;
    let unused_port = ClosedPort::new();
    let (_agent, mut channel, _) = forwarding(&engine, unused_port.addr().port()).await;
    channel.send(visitor()).await;
    let answer = answer(&mut channel).await;
    assert_eq!(answer.error.unwrap().kind(), ErrorCode::ServiceUnavailable);
}

#[tokio::test]
async fn a_visitor_of_an_unknown_tunnel_is_refused() {
    let engine = FakeEngine::start().await;
    let unused_port = ClosedPort::new();
    let (_agent, mut channel, _) = forwarding(&engine, unused_port.addr().port()).await;
    let Kind::ProxyConnReq(mut request) = visitor() else {
        unreachable!()
    };
    request.tunnel_id = "t-2".to_owned();
    channel.send(Kind::ProxyConnReq(request)).await;
    let answer = answer(&mut channel).await;
    assert_eq!(answer.error.unwrap().kind(), ErrorCode::TunnelNotFound);
}

#[tokio::test]
async fn visitors_that_are_not_accepted_wait_in_a_bounded_queue() {
    let engine = FakeEngine::start().await;
    let (_agent, mut channel, mut tunnel) = accepting(&engine).await;
    let visit = |number: usize| {
        let Kind::ProxyConnReq(mut request) = visitor() else {
            unreachable!()
        };
        request.stream_id = format!("{number:024x}");
        Kind::ProxyConnReq(request)
    };
    let mut waiting = Vec::new();
    for number in 0..128 {
        channel.send(visit(number)).await;
        let mut data = engine.accept().await;
        data_hello(&mut data).await;
        waiting.push(data);
    }
    channel.send(visit(128)).await;
    let refused = loop {
        if let Some(error) = answer(&mut channel).await.error {
            break error;
        }
    };
    assert_eq!(refused.kind(), ErrorCode::CapacityExhausted);
    let first = timeout(SOON, tunnel.accept()).await.unwrap().unwrap();
    assert_eq!(first.stream_id(), format!("{:024x}", 0));
}

#[tokio::test]
async fn a_program_accepts_visitors_itself() {
    let engine = FakeEngine::start().await;
    let (_agent, mut channel, mut tunnel) = accepting(&engine).await;
    channel.send(visitor()).await;
    let mut data = engine.accept().await;
    data_hello(&mut data).await;
    let mut stream = timeout(SOON, tunnel.accept()).await.unwrap().unwrap();
    assert_eq!(stream.stream_id(), STREAM);
    assert_eq!(stream.source_ip(), Some(Ipv4Addr::new(192, 0, 2, 1).into()));
    data.io.write_all(b"ping").await.unwrap();
    let mut ping = [0; 4];
    stream.read_exact(&mut ping).await.unwrap();
    stream.write_all(b"pong").await.unwrap();
    stream.shutdown().await.unwrap();
    let mut pong = Vec::new();
    data.io.read_to_end(&mut pong).await.unwrap();
    assert_eq!((&ping, pong.as_slice()), (b"ping", &b"pong"[..]));
}

#[tokio::test]
async fn an_accepted_stream_outlives_the_control_channel() {
    let engine = FakeEngine::start().await;
    let (_agent, mut channel, mut streams) = forwarding(&engine, echo_service().await).await;
    channel.send(visitor()).await;
    let mut data = engine.accept().await;
    data_hello(&mut data).await;
    data.io.write_all(b"before, ").await.unwrap();
    assert!(timeout(SOON, streams.recv()).await.unwrap().unwrap().active);
    drop(channel);
    let _channel = engine.control_with_tunnel().await;
    assert_eq!(exchange(&mut data.io, b"after").await, b"before, after");
}

#[tokio::test]
async fn a_standing_connection_carries_one_stream_after_another() {
    let engine = FakeEngine::start().await;
    let (_agent, mut channel, _) = forwarding(&engine, echo_service().await).await;
    let mut standing = standing(&engine, &mut channel).await;
    for round in 0..3_u8 {
        let mut stream = standing.open(&open(STREAM)).unwrap();
        let request = vec![round; 300_000];
        assert!(exchange(&mut stream, &request).await == request);
        standing = timeout(SOON, stream.recycle()).await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn a_stream_is_reset_when_the_service_is_down_and_its_connection_is_kept() {
    let engine = FakeEngine::start().await;
    let unused_port = ClosedPort::new();
    let (_agent, mut channel, _) = forwarding(&engine, unused_port.addr().port()).await;
    let mut standing = standing(&engine, &mut channel).await;
    for _ in 0..2 {
        let mut stream = standing.open(&open(STREAM)).unwrap();
        stream.write_all(b"hello").await.unwrap();
        stream.flush().await.unwrap();
        let error = timeout(SOON, stream.read_to_end(&mut Vec::new()))
            .await
            .unwrap()
            .unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
        assert_eq!(
            stream.refusal().unwrap().kind(),
            ErrorCode::ServiceUnavailable
        );
        standing = timeout(SOON, stream.recycle()).await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn dropping_a_stream_returns_its_standing_connection() {
    let engine = FakeEngine::start().await;
    let (_agent, mut channel, mut tunnel) = accepting(&engine).await;
    let mut standing = standing(&engine, &mut channel).await;
    for _ in 0..2 {
        let mut visitor: FramedStream<_> = standing.open(&open(STREAM)).unwrap();
        visitor.write_all(b"ping").await.unwrap();
        visitor.flush().await.unwrap();
        let mut stream = timeout(SOON, tunnel.accept()).await.unwrap().unwrap();
        let mut ping = [0; 4];
        stream.read_exact(&mut ping).await.unwrap();
        // Dropped in the middle, so the visitor must not see a normal end.
        drop(stream);
        let error = timeout(SOON, visitor.read_to_end(&mut Vec::new()))
            .await
            .unwrap()
            .unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
        standing = timeout(SOON, visitor.recycle()).await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn idle_standing_connections_end_with_their_channel_and_busy_ones_after_their_stream() {
    let engine = FakeEngine::start().await;
    let (_agent, mut channel, mut streams) = forwarding(&engine, echo_service().await).await;
    let mut idle = standing(&engine, &mut channel).await;
    let busy = standing(&engine, &mut channel).await;
    let mut stream = busy.open(&open(STREAM)).unwrap();
    stream.write_all(b"before, ").await.unwrap();
    stream.flush().await.unwrap();
    assert!(timeout(SOON, streams.recv()).await.unwrap().unwrap().active);
    drop(channel);
    let mut rest = Vec::new();
    drop(
        timeout(SOON, idle.get_mut().read_to_end(&mut rest))
            .await
            .unwrap(),
    );
    assert_eq!(exchange(&mut stream, b"after").await, b"before, after");
}

#[tokio::test]
async fn a_close_waits_for_streams_and_aborts_them_at_the_deadline() {
    let engine = FakeEngine::start().await;
    let (agent, mut channel, mut streams) = forwarding(&engine, echo_service().await).await;
    channel.send(visitor()).await;
    let mut data = engine.accept().await;
    data_hello(&mut data).await;
    assert!(timeout(SOON, streams.recv()).await.unwrap().unwrap().active);
    drop(channel);
    assert!(!agent.close(Duration::from_millis(50)).await);
    data.closed().await;
}

#[tokio::test]
async fn a_close_waits_for_the_streams_of_the_program() {
    let engine = FakeEngine::start().await;
    let (agent, mut channel, mut tunnel) = accepting(&engine).await;
    channel.send(visitor()).await;
    let mut data = engine.accept().await;
    data_hello(&mut data).await;
    let mut stream = timeout(SOON, tunnel.accept()).await.unwrap().unwrap();
    drop(channel);
    assert!(!agent.close(Duration::from_millis(50)).await);
    // It was not aborted, because it belongs to the program.
    stream.write_all(b"still here").await.unwrap();
    stream.shutdown().await.unwrap();
    let mut got = Vec::new();
    data.io.read_to_end(&mut got).await.unwrap();
    assert_eq!(got, b"still here");
    drop(stream);
    assert!(timeout(SOON, agent.close(SOON)).await.unwrap());
}

/// An echo service, whose output starts with the received header.
fn introduced(port: u16, proxy_protocol: ProxyProtocol) -> Destination {
    Destination::new(target(port)).with_proxy_protocol(proxy_protocol)
}

#[tokio::test]
async fn a_service_receives_the_visitor_address_on_a_separate_connection() {
    let engine = FakeEngine::start().await;
    let port = echo_service().await;
    let to = introduced(port, ProxyProtocol::V1);
    let (_agent, mut channel, _streams) = forwarding_to(&engine, to).await;
    channel.send(visitor()).await;
    let mut data = engine.accept().await;
    data_hello(&mut data).await;
    assert_eq!(answer(&mut channel).await.error, None);
    let echoed = exchange(&mut data.io, b"hello").await;
    let header = "PROXY TCP4 192.0.2.1 127.0.0.1 0 ";
    let line = String::from_utf8(echoed).unwrap();
    let (port, said) = line
        .strip_prefix(header)
        .unwrap()
        .split_once("\r\n")
        .unwrap();
    assert_ne!(port.parse::<u16>().unwrap(), 0, "the port of our end");
    assert_eq!(said, "hello");
}

#[tokio::test]
async fn a_service_receives_the_visitor_address_on_a_standing_connection() {
    let engine = FakeEngine::start().await;
    let to = introduced(echo_service().await, ProxyProtocol::V2);
    let (_agent, mut channel, _streams) = forwarding_to(&engine, to).await;
    let mut standing = standing(&engine, &mut channel).await;
    // Each visitor has its own header, though they share a data connection.
    for source in [[192, 0, 2, 1], [198, 51, 100, 7]] {
        let source_ip = Some(std::net::IpAddr::from(source).into());
        let open = StreamOpen {
            source_ip,
            ..open(STREAM)
        };
        let mut framed = standing.open(&open).unwrap();
        let echoed = exchange(&mut framed, b"hello").await;
        let (header, said) = echoed.split_at(28);
        assert_eq!(&header[..16], b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0C");
        assert_eq!(header[16..20], source);
        assert_eq!(header[20..26], [127, 0, 0, 1, 0, 0]);
        assert_eq!(said, b"hello");
        standing = timeout(SOON, framed.recycle()).await.unwrap().unwrap();
    }
}

#[tokio::test]
async fn a_visitor_with_an_unknown_address_gets_an_unknown_source_header() {
    let engine = FakeEngine::start().await;
    let to = introduced(echo_service().await, ProxyProtocol::V1);
    let (_agent, mut channel, _streams) = forwarding_to(&engine, to).await;
    let standing = standing(&engine, &mut channel).await;
    let open = StreamOpen {
        source_ip: None,
        ..open(STREAM)
    };
    let mut framed = standing.open(&open).unwrap();
    let echoed = exchange(&mut framed, b"hello").await;
    assert_eq!(echoed, b"PROXY UNKNOWN\r\nhello");
}
