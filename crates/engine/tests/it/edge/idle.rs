//! Services that close connections, and requests that are on their way at that moment.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use client::{Agent, Connection, ForwardOptions, HostPort, Properties, Target};
use http::Request;
use testing::{H2Visitor, ScriptedUpstream, Step, TestEngine, TestTunnel, Upstream, within};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Mutex, mpsc, watch};
use tokio_util::task::AbortOnDropHandle;

/// Time that each byte between agent and engine takes.
const DELAY: Duration = Duration::from_millis(50);

/// Stands between an agent and an engine, and delivers every byte [`DELAY`] later.
async fn distant(engine: SocketAddr) -> (SocketAddr, AbortOnDropHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let accepting = tokio::spawn(async move {
        while let Ok((near, _)) = listener.accept().await {
            tokio::spawn(async move {
                let far = TcpStream::connect(engine).await.unwrap();
                let (near_reader, near_writer) = near.into_split();
                let (far_reader, far_writer) = far.into_split();
                tokio::join!(
                    deliver_late(near_reader, far_writer),
                    deliver_late(far_reader, near_writer)
                );
            });
        }
    });
    (address, AbortOnDropHandle::new(accepting))
}

async fn deliver_late(mut from: impl AsyncRead + Unpin, mut to: impl AsyncWrite + Unpin) {
    let (sender, mut pieces) = mpsc::unbounded_channel();
    let reading = async move {
        loop {
            let mut piece = Vec::with_capacity(64 * 1024);
            let read = from.read_buf(&mut piece).await.unwrap_or(0);
            let due = tokio::time::Instant::now() + DELAY;
            if sender.send((due, piece)).is_err() || read == 0 {
                return;
            }
        }
    };
    let writing = async move {
        while let Some((due, piece)) = pieces.recv().await {
            tokio::time::sleep_until(due).await;
            if piece.is_empty() || to.write_all(&piece).await.is_err() {
                break;
            }
        }
        to.shutdown().await.ok();
    };
    tokio::join!(reading, writing);
}

/// A service that closes its idle connections when the test says so, and reports the ids of the
/// requests that it receives.
struct ClosingService {
    upstream: Upstream,
    close: watch::Sender<()>,
    closed: mpsc::UnboundedReceiver<()>,
    ids: Arc<Mutex<Vec<String>>>,
}

impl ClosingService {
    async fn start() -> Self {
        let (close, closing) = watch::channel(());
        let (report, closed) = mpsc::unbounded_channel();
        let ids = Arc::<Mutex<Vec<String>>>::default();
        let received = Arc::clone(&ids);
        let upstream = Upstream::start(move |mut stream, _| {
            let (mut closing, report) = (closing.clone(), report.clone());
            closing.mark_unchanged();
            let received = Arc::clone(&received);
            async move {
                let mut buffer = Vec::new();
                loop {
                    let request = tokio::select! {
                        request = read_request(&mut stream, &mut buffer) => request,
                        _asked = closing.changed() => {
                            drop(stream);
                            report.send(()).ok();
                            return;
                        }
                    };
                    let Some(id) = request else { return };
                    received.lock().await.push(id);
                    let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
                    stream.write_all(answer).await.ok();
                }
            }
        })
        .await;
        Self {
            upstream,
            close,
            closed,
            ids,
        }
    }

    async fn close_idle(&mut self) {
        self.close.send(()).unwrap();
        within("close of a connection", self.closed.recv()).await;
    }
}

/// Reads a request with a length, and returns its id.
async fn read_request(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> Option<String> {
    loop {
        if let Some(at) = buffer.windows(4).position(|end| end == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&buffer[..at]).to_lowercase();
            let field = |name: &str| {
                let value = head.lines().find_map(|line| line.strip_prefix(name));
                value.unwrap_or_default().to_owned()
            };
            let length: usize = field("content-length: ").parse().unwrap_or(0);
            if buffer.len() >= at + 4 + length {
                buffer.drain(..at + 4 + length);
                return Some(field("x-id: "));
            }
        }
        if stream.read_buf(buffer).await.unwrap_or(0) == 0 {
            return None;
        }
    }
}

async fn distant_tunnel(
    engine: &TestEngine,
    service: SocketAddr,
) -> (TestTunnel, AbortOnDropHandle<()>) {
    let (address, proxy) = distant(engine.addr()).await;
    let mut config = engine.agent_config();
    config.engine = HostPort::new(engine.host(), address.port()).unwrap();
    let agent = within("control channel", Agent::connect(config));
    let agent = agent.await.unwrap();
    let target: Target = service.to_string().parse().unwrap();
    let tunnel = TestTunnel::open(agent, Properties::http(), target).await;
    (tunnel, proxy)
}

const METHODS: [(&str, usize); 8] = [
    ("POST", 0),
    ("POST", 10),
    ("PATCH", 10_000),
    ("PUT", 1_048_576),
    ("POST", 100_000),
    ("PATCH", 10),
    ("PUT", 1_048_576),
    ("DELETE", 10),
];

/// The agent is 50 ms away, and the service closes each connection just before the next request
/// arrives. Each request reaches the service once.
#[tokio::test]
async fn no_request_is_lost_when_the_service_closes_an_idle_connection() {
    let engine = TestEngine::start().await;
    let mut service = ClosingService::start().await;
    let (tunnel, _proxy) = distant_tunnel(&engine, service.upstream.addr()).await;
    let host = tunnel.hostname();
    let mut visitor = engine.visitor().http1(host).await;
    visitor.request("GET", "/", host, "X-Id: first\r\n").await;
    assert_eq!(visitor.answer().await.status, 200);
    for (number, (method, length)) in METHODS.into_iter().enumerate() {
        service.close_idle().await;
        let mut request = format!(
            "{method} / HTTP/1.1\r\nHost: {host}\r\nX-Id: {number}\r\nContent-Length: {length}\r\n\r\n"
        )
        .into_bytes();
        request.resize(request.len() + length, b'x');
        let answer = within("answer", visitor.exchange(&request)).await;
        assert_eq!(answer.status, 200, "{method} {length}: {answer:?}");
    }
    let ids = service.ids.lock().await;
    assert_eq!(ids.join(" "), "first 0 1 2 3 4 5 6 7");
}

/// The same for visitors with HTTP/2.
#[tokio::test]
async fn no_request_of_http_2_is_lost_when_the_service_closes_an_idle_connection() {
    let engine = TestEngine::start().await;
    let mut service = ClosingService::start().await;
    let (tunnel, _proxy) = distant_tunnel(&engine, service.upstream.addr()).await;
    let host = tunnel.hostname();
    let mut visitor = engine.visitor().h2(host).await;
    assert_eq!(visitor.get("/", host).await.status, 200);
    for (number, (method, length)) in METHODS.into_iter().enumerate() {
        service.close_idle().await;
        let request = Request::builder()
            .method(method)
            .uri(format!("https://{host}/"))
            .header("x-id", number)
            .header("content-length", length)
            .body(H2Visitor::full(vec![b'x'; length]))
            .unwrap();
        let answer = H2Visitor::collect(visitor.send(request).await.unwrap()).await;
        assert_eq!(answer.status, 200, "{method} {length}: {answer:?}");
    }
    let ids = service.ids.lock().await;
    assert_eq!(ids.join(" "), " 0 1 2 3 4 5 6 7");
}

/// A service that receives a request and closes without a response may have executed it.
#[tokio::test]
async fn a_request_that_reached_the_service_is_not_sent_again() {
    let engine = TestEngine::start().await;
    let service = ScriptedUpstream::closes_when_reused().await;
    let tunnel = engine.publish(service.addr()).await;
    let host = tunnel.hostname();
    let mut visitor = engine.visitor().http1(host).await;
    assert_eq!(visitor.get("/", host).await.status, 200);
    visitor
        .request("POST", "/", host, "Content-Length: 1\r\n")
        .await;
    visitor.send("x").await;
    let answer = within("answer", visitor.answer()).await;
    assert_eq!(answer.status, 502);
    assert_eq!(answer.json()["code"], "upstream_unreachable");
    assert_eq!(service.accepted(), 1);
}

/// Publishes a service, and reports the streams that its agent has served.
async fn observed(
    engine: &TestEngine,
    service: SocketAddr,
    properties: Properties,
) -> (String, mpsc::UnboundedReceiver<Connection>, Agent) {
    let agent = engine.agent().await;
    let mut tunnel = agent.open(properties);
    let online = within("tunnel", tunnel.online()).await.unwrap();
    let (sender, streams) = mpsc::unbounded_channel();
    let target: Target = service.to_string().parse().unwrap();
    let options = ForwardOptions::to(target).with_observer(move |stream| {
        sender.send(stream).ok();
    });
    tokio::spawn(async move { tunnel.forward(options).await });
    let host = online.properties.hostname.clone().unwrap();
    (host, streams, agent)
}

async fn end_of_stream(streams: &mut mpsc::UnboundedReceiver<Connection>) -> Option<String> {
    loop {
        let stream = within("stream", streams.recv()).await.unwrap();
        if !stream.active {
            return stream.error;
        }
    }
}

/// The service may close the connection after a complete response, and the engine may close an idle
/// one.
#[tokio::test]
async fn complete_responses_are_not_reported_as_failed() {
    let directory = tempfile::tempdir().unwrap();
    let log = directory.path().join("access.log");
    let section = format!("access_log: {{path: '{}'}}", log.display());
    let engine = TestEngine::start_with(&section).await;
    let responses = [
        "HTTP/1.0 200 OK\r\n\r\ncomplete",
        "HTTP/1.0 200 OK\r\nContent-Length: 8\r\n\r\ncomplete",
        "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 8\r\n\r\ncomplete",
        "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\ncomplete",
        "HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\ncomplete",
    ];
    for response in responses {
        let service = ScriptedUpstream::answering(response).await;
        let (host, mut streams, _agent) =
            observed(&engine, service.addr(), Properties::http()).await;
        let mut http1 = engine.visitor().http1(&host).await;
        let answer = http1.get("/", &host).await;
        assert_eq!((answer.text(), answer.is_complete), ("complete", true));
        assert_eq!(end_of_stream(&mut streams).await, None, "{response:?}");
        let answer = engine.visitor().h2(&host).await.get("/", &host).await;
        assert_eq!((answer.text(), answer.is_complete), ("complete", true));
        assert_eq!(end_of_stream(&mut streams).await, None, "{response:?}");
    }
    engine.stop().await;
    let log = std::fs::read_to_string(log).unwrap();
    let outcomes = log.lines().map(|line| {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        line["outcome"].as_str().unwrap().to_owned()
    });
    assert_eq!(outcomes.collect::<Vec<_>>(), ["served"; 10]);
}

#[tokio::test]
async fn truncated_responses_are_reported_as_failed() {
    let engine = TestEngine::start().await;
    let service = ScriptedUpstream::closes_unanswered().await;
    let (host, mut streams, _agent) = observed(&engine, service.addr(), Properties::http()).await;
    let answer = engine.visitor().http1(&host).await.get("/", &host).await;
    assert_eq!(answer.status, 502);
    let error = end_of_stream(&mut streams).await.unwrap();
    assert!(error.contains("without a response"), "{error}");
}

#[tokio::test]
async fn invalid_responses_are_reported_with_their_reason() {
    let engine = TestEngine::start().await;
    let (http, tls) = (Properties::http(), Properties::http().upstream_tls(true));
    for (steps, properties, code, reason) in [
        (
            vec![
                Step::ReadHead,
                Step::write("HTTP/1.1 200 OK\nContent-Length: 2\n\nok"),
            ],
            &http,
            "upstream_invalid_response",
            "header lines end in a bare line feed",
        ),
        (
            vec![
                Step::ReadHead,
                Step::Write(b"\x15\x03\x01\x00\x02\x02\x46".to_vec()),
            ],
            &http,
            "upstream_invalid_response",
            "https://",
        ),
        (
            vec![
                Step::ReadBytes(5),
                Step::write("HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n"),
            ],
            &tls,
            "upstream_unreachable",
            "http://",
        ),
    ] {
        let service = ScriptedUpstream::start(move |_| steps.clone()).await;
        let (host, mut streams, _agent) =
            observed(&engine, service.addr(), properties.clone()).await;
        let over_http1 = engine.visitor().http1(&host).await.get("/", &host).await;
        let over_h2 = engine.visitor().h2(&host).await.get("/", &host).await;
        for answer in [over_http1, over_h2] {
            assert_eq!(answer.status, 502);
            let problem = answer.json();
            assert_eq!(problem["code"], code);
            let detail = problem["detail"].as_str().unwrap();
            assert!(detail.contains("sent an invalid response"), "{detail}");
            assert!(detail.contains(reason), "{detail}");
            let error = end_of_stream(&mut streams).await.unwrap();
            assert_eq!(error, detail);
        }
    }
}
