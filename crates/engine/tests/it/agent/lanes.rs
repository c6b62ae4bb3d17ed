//! Small exchanges share a connection (extension `lane/2`), without any visible difference.

use std::future::poll_fn;
use std::net::SocketAddr;
use std::sync::Arc;

use client::{Agent, Properties, Target};
use hyper::Request;
use rustls::ClientConfig;
use serde_json::json;
use testing::{H2Visitor, ScriptedUpstream, Step, TestEngine, TestTunnel, Upstream, within};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, oneshot};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use transport::lane::{Budget, ConnectFuture, Lane, MigratingStream, MigrationTarget};
use transport::standing::{AcceptedStream, FramedStream, StandingConnection};
use wire::Kind;
use wire::lane::{DOWN_LIMIT, FrameType, MAX_DATA, UP_LIMIT, encode_data, encode_empty};
use wire::message::{ClientDetails, OpenTunnelReq, ProxyReq, TunnelOutcome};
use wire::pool::{Side, StreamOpen};

use crate::agent::raw_messages::{Wire, details, http};

type Io = TlsStream<TcpStream>;

/// Both extensions that a lane needs.
const LANES: [&str; 2] = ["pool/1", "lane/2"];

/// An agent whose messages the test sends itself.
struct ManualAgent {
    host: String,
    /// Uses of the standing connections by the engine, in order.
    standing: mpsc::UnboundedReceiver<AcceptedStream<Io>>,
}

impl ManualAgent {
    async fn connect(engine: &TestEngine, label: &str, extensions: &[&str]) -> Self {
        let mut channel = Wire::connect(engine).await;
        let mut details = details(engine, json!({"userId": label}));
        details.extensions = extensions.iter().map(|&name| name.to_owned()).collect();
        let ok = channel.hello(Some(details), None).await.unwrap();
        assert_eq!(ok.server_details.unwrap().extensions, extensions);
        let request = OpenTunnelReq {
            request_id: "1".to_owned(),
            tunnel_properties: Some(http(label)),
        };
        channel.send(Kind::OpenTunnelReq(request)).await;
        let (events, standing) = mpsc::unbounded_channel();
        let (told, host) = oneshot::channel();
        let dialler = Dialler {
            addr: engine.addr(),
            tls: engine.ca().client(&["svc/1"]),
            host: engine.host(),
            events,
        };
        tokio::spawn(dialler.serve(channel, told));
        let host = within("tunnel", host).await.unwrap();
        Self { host, standing }
    }

    /// The engine's next use of a standing connection.
    async fn next(&mut self) -> AcceptedStream<Io> {
        let next = within("use of a standing connection", self.standing.recv());
        next.await.expect("a standing connection")
    }

    /// The lane that the engine opens.
    async fn lane(&mut self) -> Io {
        match self.next().await {
            AcceptedStream::Lane(io) => io,
            AcceptedStream::Stream(open, _) => panic!("not a lane: {open:?}"),
        }
    }

    async fn stream(&mut self) -> (StreamOpen, FramedStream<Io>) {
        match self.next().await {
            AcceptedStream::Stream(open, framed) => (*open, framed),
            AcceptedStream::Lane(_) => panic!("a lane"),
        }
    }
}

/// Opens standing connections on request.
#[derive(Clone)]
struct Dialler {
    addr: SocketAddr,
    tls: Arc<ClientConfig>,
    host: &'static str,
    events: mpsc::UnboundedSender<AcceptedStream<Io>>,
}

impl Dialler {
    async fn serve(self, mut channel: Wire, told: oneshot::Sender<String>) {
        let mut told = Some(told);
        while let Some(kind) = channel.next().await {
            match kind {
                Kind::OpenTunnelRsp(answer) => {
                    let Some(TunnelOutcome::TunnelProperties(tunnel)) = answer.outcome else {
                        panic!("no tunnel: {answer:?}");
                    };
                    let told = told.take().expect("one tunnel");
                    told.send(tunnel.hostname.unwrap().value).unwrap();
                }
                Kind::PoolReq(request) => {
                    for _ in 0..request.count {
                        tokio::spawn(self.clone().stand(request.secret.clone()));
                    }
                }
                other => panic!("unexpected: {other:?}"),
            }
        }
    }

    async fn stand(self, secret: String) {
        let socket = TcpStream::connect(self.addr).await.unwrap();
        let connector = TlsConnector::from(self.tls);
        let name = self.host.try_into().unwrap();
        let mut io = connector.connect(name, socket).await.unwrap();
        let hello = Kind::ProxyReq(ProxyReq {
            client_details: Some(ClientDetails {
                token: Some(secret.as_str().into()),
                ..ClientDetails::default()
            }),
            stream_id: String::new(),
            zero_rtt: Some(true.into()),
        });
        let mut frame = Vec::new();
        wire::encode(&hello.into(), &mut frame).unwrap();
        io.write_all(&frame).await.unwrap();
        if let Ok(Some(next)) = StandingConnection::new(io, Side::Agent).accept().await {
            self.events.send(next).ok();
        }
    }
}

/// A connector for streams that never leave their lane.
struct UnusedConnector;

impl MigrationTarget for UnusedConnector {
    type Connection = tokio::io::DuplexStream;

    const PROVIDES_CONNECTION: bool = false;

    fn connect(&self) -> ConnectFuture<Self::Connection> {
        panic!("a small stream left its lane");
    }
}

/// Answers every request on a lane with `ok`, and reports each aborted stream.
async fn answer_on(io: Io, broken: mpsc::UnboundedSender<()>) {
    let (_lane, mut driver) = Lane::agent(io);
    while let Ok(Some((_, stream))) = poll_fn(|cx| driver.poll_accept(cx)).await {
        let broken = broken.clone();
        tokio::spawn(async move {
            let mut stream = MigratingStream::new(stream, UnusedConnector, Budget::bytes());
            let mut head = Vec::new();
            loop {
                match stream.read_u8().await {
                    Ok(byte) => head.push(byte),
                    Err(_) => return broken.send(()).unwrap_or_default(),
                }
                if head.ends_with(b"\r\n\r\n") {
                    let held = head.starts_with(b"GET /held");
                    head.clear();
                    if !held {
                        let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
                        stream.write_all(answer).await.ok();
                    }
                }
            }
        });
    }
}

#[tokio::test]
async fn exchanges_use_a_lane_if_both_peers_support_it_and_else_a_connection_each() {
    let engine = TestEngine::start().await;
    let mut agent = ManualAgent::connect(&engine, "one", &LANES).await;
    let mut visitor = engine.visitor().http1(&agent.host).await;
    visitor.request("GET", "/", &agent.host, "").await;
    let (broken, _ends) = mpsc::unbounded_channel();
    tokio::spawn(answer_on(agent.lane().await, broken));
    assert_eq!(visitor.answer().await.text(), "ok");
    assert_eq!(visitor.get("/", &agent.host).await.text(), "ok");

    let mut agent = ManualAgent::connect(&engine, "two", &["pool/1"]).await;
    let mut visitor = engine.visitor().http1(&agent.host).await;
    visitor.request("GET", "/", &agent.host, "").await;
    let (open, _framed) = agent.stream().await;
    assert!(!open.moved);
}

#[tokio::test]
async fn an_upgrade_can_start_on_a_lane() {
    let engine = TestEngine::start().await;
    let mut agent = ManualAgent::connect(&engine, "up", &LANES).await;
    let mut visitor = engine.visitor().http1(&agent.host).await;
    let fields = "Connection: upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
                  Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
    visitor.request("GET", "/", &agent.host, fields).await;
    let (_lane, mut driver) = Lane::agent(agent.lane().await);
    let accepting = poll_fn(|cx| driver.poll_accept(cx));
    let (open, _stream) = within("stream", accepting).await.unwrap().unwrap();
    assert!(!open.moved);
}

#[tokio::test]
async fn a_visitor_that_disconnects_ends_the_exchange_at_the_agent() {
    let engine = TestEngine::start().await;
    let mut agent = ManualAgent::connect(&engine, "leave", &LANES).await;
    let mut visitor = engine.visitor().http1(&agent.host).await;
    visitor.request("GET", "/", &agent.host, "").await;
    let (broken, mut ends) = mpsc::unbounded_channel();
    tokio::spawn(answer_on(agent.lane().await, broken));
    assert_eq!(visitor.answer().await.text(), "ok");
    visitor.request("GET", "/held", &agent.host, "").await;
    drop(visitor);
    within("end of the exchange", ends.recv()).await.unwrap();
}

/// A stream moves to its own connection when the answer grows. Data that arrives on the connection
/// before the mark on the lane is read after the mark.
#[tokio::test]
async fn data_of_a_moved_stream_is_read_after_the_data_on_the_lane() {
    let engine = TestEngine::start().await;
    let mut agent = ManualAgent::connect(&engine, "move", &LANES).await;
    let mut visitor = engine.visitor().http1(&agent.host).await;
    visitor.request("GET", "/", &agent.host, "").await;
    let mut io = agent.lane().await;
    let mut frames = b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n".to_vec();
    frames.extend_from_slice(b"one");
    let mut bytes = Vec::new();
    encode_data(1, &frames, &mut bytes);
    encode_empty(FrameType::Move, 1, &mut bytes);
    io.write_all(&bytes).await.unwrap();
    let (open, mut framed) = agent.stream().await;
    assert!(open.moved);
    framed.write_all(b"twotri").await.unwrap();
    framed.flush().await.unwrap();
    let answer = visitor.answer().await;
    assert_eq!((answer.status, answer.text()), (200, "onetwotri"));
    // Its next request uses the connection to which the stream moved.
    visitor.request("GET", "/next", &agent.host, "").await;
    let mut head = vec![0; 9];
    let reading = async {
        while !head.windows(9).any(|window| window == b"GET /next") {
            head.push(framed.read_u8().await.unwrap());
        }
    };
    within("request", reading).await;
}

/// Frames that no conforming agent sends.
fn hostile() -> Vec<(&'static str, Vec<u8>)> {
    let mut after_the_end = Vec::new();
    encode_empty(FrameType::End, 1, &mut after_the_end);
    encode_data(1, b"x", &mut after_the_end);
    let mut flood = b"".to_vec();
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", 1 << 30);
    encode_data(1, head.as_bytes(), &mut flood);
    // More than the sockets of a visitor buffer.
    for _ in 0..4000 {
        encode_data(1, &[0; MAX_DATA], &mut flood);
    }
    let mut unknown = Vec::new();
    encode_data(77, b"x", &mut unknown);
    let mut taken = Vec::new();
    encode_empty(FrameType::Taken, 1, &mut taken);
    vec![
        ("a type that is none", vec![0x77, 0, 0, 0, 0, 0, 0, 1]),
        ("a frame too long", vec![2, 0xff, 0xff, 0xff, 0, 0, 0, 1]),
        ("an opening", vec![1, 0, 0, 2, 0, 0, 0, 2, 0x0a, 0]),
        (
            "a reset that is no message",
            vec![4, 0, 0, 1, 0, 0, 0, 1, 0xff],
        ),
        ("more taken than was sent", taken),
        ("bytes behind the end", after_the_end),
        ("a stream that is not there", unknown),
        ("garbage", b"HTTP/1.1 200 OK\r\n\r\n".to_vec()),
        (
            "more than a lane carries, to a visitor that does not read",
            flood,
        ),
    ]
}

#[tokio::test]
async fn an_agent_that_violates_the_protocol_loses_only_its_lane() {
    let engine = TestEngine::start().await;
    let service = Upstream::http1().await;
    let other = engine.publish(service.addr()).await;
    let mut neighbour = engine.visitor().http1(other.hostname()).await;
    assert_eq!(neighbour.get("/", other.hostname()).await.status, 200);
    for (number, (what, bytes)) in hostile().into_iter().enumerate() {
        let mut agent = ManualAgent::connect(&engine, &format!("bad{number}"), &LANES).await;
        let mut visitor = engine.visitor().http1(&agent.host).await;
        // A method that the edge must not repeat.
        visitor
            .request("POST", "/", &agent.host, "Content-Length: 0\r\n")
            .await;
        let mut io = agent.lane().await;
        let writing = tokio::spawn(async move {
            // The engine may have closed it before all bytes were written.
            io.write_all(&bytes).await.ok();
            let mut rest = Vec::new();
            within("end of the lane", io.read_to_end(&mut rest))
                .await
                .ok();
        });
        within("end of the lane", writing).await.expect(what);
        if number + 1 < hostile().len() {
            assert_eq!(visitor.answer().await.status, 502, "{what}");
        }
        // The agent is still served for conforming requests.
        let mut visitor = engine.visitor().http1(&agent.host).await;
        visitor.request("GET", "/", &agent.host, "").await;
        let (broken, _ends) = mpsc::unbounded_channel();
        let io = agent.lane().await;
        tokio::spawn(answer_on(io, broken));
        assert_eq!(visitor.answer().await.text(), "ok", "{what}");
        assert_eq!(
            neighbour.get("/", other.hostname()).await.status,
            200,
            "{what}"
        );
    }
}

/// Sizes around every limit of an exchange on a lane.
fn sizes() -> Vec<usize> {
    let around = |size: usize| [size - 1, size, size + 1];
    let mut sizes = vec![0, 1, 100_000, 1_000_000, 3_000_000];
    for edge in [MAX_DATA, UP_LIMIT, DOWN_LIMIT] {
        sizes.extend(around(edge));
        // The head counts as well.
        sizes.extend((edge - 600..edge).step_by(97));
    }
    sizes
}

#[tokio::test]
async fn answers_of_every_size_are_complete() {
    let engine = TestEngine::start().await;
    let service = Upstream::http1().await;
    let tunnel = engine.publish(service.addr()).await;
    let host = tunnel.hostname();
    let mut http1 = engine.visitor().http1(host).await;
    let mut h2 = engine.visitor().h2(host).await;
    for size in sizes() {
        let expected = Upstream::payload(size);
        for kind in ["bytes", "chunked"] {
            let target = format!("/{kind}/{size}");
            let answer = http1.get(&target, host).await;
            assert!(answer.is_complete && answer.body == expected, "{target}");
            let answer = h2.get(&target, host).await;
            assert!(answer.body == expected, "{target} over HTTP/2");
        }
    }
}

#[tokio::test]
async fn requests_of_every_size_are_complete() {
    let engine = TestEngine::start().await;
    let service = Upstream::http1().await;
    let tunnel = engine.publish(service.addr()).await;
    let host = tunnel.hostname();
    let mut http1 = engine.visitor().http1(host).await;
    let mut h2 = engine.visitor().h2(host).await;
    for size in sizes() {
        let body = Upstream::payload(size);
        let mut request =
            format!("POST /mirror HTTP/1.1\r\nHost: {host}\r\nContent-Length: {size}\r\n\r\n")
                .into_bytes();
        request.extend_from_slice(&body);
        let answer = http1.exchange(&request).await;
        assert!(answer.body == body, "{size}");
        let request = Request::post(format!("https://{host}/mirror"));
        let request = request.body(H2Visitor::full(body.clone())).unwrap();
        let response = h2.send(request).await.unwrap();
        assert!(
            H2Visitor::collect(response).await.body == body,
            "{size} over HTTP/2"
        );
    }
}

/// Through a TLS service, and to an HTTP/2 service behind it.
#[tokio::test]
async fn encrypted_services_are_reached_on_lanes() {
    let engine = TestEngine::start().await;
    for alpns in [&["http/1.1"][..], &["h2"]] {
        let service = Upstream::tls(engine.ca(), alpns).await;
        let tunnel = engine.publish_tls(service.addr()).await;
        let host = tunnel.hostname();
        let mut visitor = engine.visitor().http1(host).await;
        for size in [10, DOWN_LIMIT, 2_000_000, 10] {
            let answer = visitor.get(&format!("/bytes/{size}"), host).await;
            assert!(answer.body == Upstream::payload(size), "{size}");
        }
    }
}

#[tokio::test]
async fn concurrent_streams_keep_their_bytes_apart() {
    let engine = TestEngine::start().await;
    let service = Upstream::http1().await;
    let tunnel = engine.publish(service.addr()).await;
    let mut visitors = tokio::task::JoinSet::new();
    for number in 0..60_usize {
        let host = tunnel.hostname().to_owned();
        let mut visitor = engine.visitor().http1(&host).await;
        visitors.spawn(async move {
            for round in 0..10 {
                // Most are small. Some leave the lane in transit.
                let size = match (number + round) % 10 {
                    0 => 400_000 + number,
                    odd if odd % 2 == 1 => number * 100 + round,
                    _ => number * 4_000 + round,
                };
                let answer = visitor.get(&format!("/bytes/{size}"), &host).await;
                assert!(answer.body == Upstream::payload(size), "{size}");
            }
        });
    }
    while let Some(visited) = within("visitors", visitors.join_next()).await {
        visited.unwrap();
    }
}

/// Fast and slow readers share a lane.
#[tokio::test]
async fn slow_readers_on_a_lane_delay_no_other_visitor() {
    let engine = TestEngine::start().await;
    let service = Upstream::http1().await;
    let tunnel = engine.publish(service.addr()).await;
    let host = tunnel.hostname();
    let mut stalled = Vec::new();
    for size in [DOWN_LIMIT - 1000, 30_000_000] {
        for _ in 0..10 {
            let mut visitor = engine.visitor().http1(host).await;
            visitor
                .request("GET", &format!("/bytes/{size}"), host, "")
                .await;
            assert_eq!(visitor.head().await.status, 200);
            stalled.push(visitor);
        }
    }
    let mut visitor = engine.visitor().http1(host).await;
    for _ in 0..50 {
        assert_eq!(visitor.get("/bytes/1000", host).await.body.len(), 1000);
    }
}

#[tokio::test]
async fn an_agent_without_lanes_is_served_as_before() {
    let engine = TestEngine::start().await;
    let service = Upstream::http1().await;
    let mut config = engine.agent_config();
    config.lanes = false;
    let agent = within("control channel", Agent::connect(config))
        .await
        .unwrap();
    let target: Target = service.addr().to_string().parse().unwrap();
    let tunnel = TestTunnel::open(agent, Properties::http(), target).await;
    let host = tunnel.hostname();
    let mut visitor = engine.visitor().http1(host).await;
    for size in [10, DOWN_LIMIT + 1] {
        let answer = visitor.get(&format!("/bytes/{size}"), host).await;
        assert!(answer.body == Upstream::payload(size), "{size}");
    }
}

/// After its tunnel is closed the lane carries no further request, and the one in flight ends
/// normally.
#[tokio::test]
async fn a_closed_tunnel_finishes_the_exchange_on_its_lane() {
    let engine = TestEngine::start().await;
    let gate = testing::Gate::new();
    let gated = gate.clone();
    let service = ScriptedUpstream::start(move |_| {
        vec![
            Step::ReadHead,
            Step::write("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nha"),
            Step::Wait(gated.clone()),
            Step::write("lf"),
            Step::KeepOpen,
        ]
    })
    .await;
    let tunnel = engine.publish(service.addr()).await;
    let host = tunnel.hostname().to_owned();
    let mut visitor = engine.visitor().http1(&host).await;
    visitor.request("GET", "/", &host, "").await;
    let head = visitor.head().await;
    let agent = tunnel.agent().clone();
    tunnel.close().await;
    gate.open();
    let answer = visitor.body(head).await;
    assert_eq!(answer.text(), "half");
    let gone = engine.visitor().http1(&host).await.get("/", &host).await;
    assert_eq!(gone.status, 503);
    drop(agent);
}
