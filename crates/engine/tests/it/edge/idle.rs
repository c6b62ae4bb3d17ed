//! Services that close connections, and requests that are on their way at that moment.

use std::net::SocketAddr;
use std::sync::Arc;

use client::{Agent, Connection, ForwardOptions, HostPort, Properties, Target};
use http::Request;
use testing::{H2Visitor, ScriptedUpstream, Step, TestEngine, TestTunnel, Upstream, within};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Mutex, mpsc, watch};
use tokio_rustls::TlsAcceptor;
use tokio_util::task::AbortOnDropHandle;

/// The way between an agent and an engine. The test can hold the agent's bytes.
pub(super) struct Line {
    address: SocketAddr,
    held: watch::Sender<bool>,
    /// Bytes that the agent has received.
    received: watch::Receiver<usize>,
    _accepting: AbortOnDropHandle<()>,
}

impl Line {
    async fn start(engine: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (held, holding) = watch::channel(false);
        let (count, received) = watch::channel(0);
        let accepting = tokio::spawn(async move {
            while let Ok((near, _)) = listener.accept().await {
                let (holding, count) = (holding.clone(), count.clone());
                tokio::spawn(async move {
                    let far = TcpStream::connect(engine).await.unwrap();
                    let (near_reader, near_writer) = near.into_split();
                    let (far_reader, far_writer) = far.into_split();
                    tokio::join!(
                        pass_unless_held(near_reader, far_writer, holding),
                        pass_and_count(far_reader, near_writer, count)
                    );
                });
            }
        });
        Self {
            address,
            held,
            received,
            _accepting: AbortOnDropHandle::new(accepting),
        }
    }

    /// Holds the bytes of the agent from now on. Returns the number of bytes that it has received.
    pub(super) fn hold(&self) -> usize {
        self.held.send_replace(true);
        *self.received.borrow()
    }

    /// Lets the bytes of the agent pass once it has received so many bytes.
    pub(super) async fn release_at(&self, count: usize) {
        let mut received = self.received.clone();
        let arrived = received.wait_for(|received| *received >= count);
        within("request at the agent", arrived).await.unwrap();
        self.held.send_replace(false);
    }
}

async fn pass_unless_held(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    mut held: watch::Receiver<bool>,
) {
    let mut piece = Vec::with_capacity(64 * 1024);
    while from.read_buf(&mut piece).await.unwrap_or(0) > 0 {
        let is_over = held.wait_for(|held| !held).await.is_err();
        if is_over || to.write_all(&piece).await.is_err() {
            break;
        }
        piece.clear();
    }
    to.shutdown().await.ok();
}

async fn pass_and_count(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    count: watch::Sender<usize>,
) {
    let mut piece = Vec::with_capacity(64 * 1024);
    while from.read_buf(&mut piece).await.unwrap_or(0) > 0 {
        if to.write_all(&piece).await.is_err() {
            break;
        }
        count.send_modify(|count| *count += piece.len());
        piece.clear();
    }
    to.shutdown().await.ok();
}

/// A service that closes its idle connections when the test requests it, and reports the ids of the
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
async fn read_request(
    stream: &mut (impl AsyncRead + Unpin),
    buffer: &mut Vec<u8>,
) -> Option<String> {
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

pub(super) async fn distant_tunnel(
    engine: &TestEngine,
    service: SocketAddr,
    properties: Properties,
) -> (TestTunnel, Line) {
    let line = Line::start(engine.addr()).await;
    let mut config = engine.agent_config();
    config.engine = HostPort::new(engine.host(), line.address.port()).unwrap();
    let agent = within("control channel", Agent::connect(config));
    let agent = agent.await.unwrap();
    let target: Target = service.to_string().parse().unwrap();
    let tunnel = TestTunnel::open(agent, properties, target).await;
    (tunnel, line)
}

pub(super) const METHODS: [(&str, usize); 8] = [
    ("POST", 0),
    ("POST", 10),
    ("PATCH", 10_000),
    ("PUT", 1_048_576),
    ("POST", 100_000),
    ("PATCH", 10),
    ("PUT", 1_048_576),
    ("DELETE", 10),
];

/// Size of a field of each request. The agent has received the start of a request when it has
/// received so many bytes. Other messages are smaller.
const PAD: usize = 2000;

/// The service closes each connection before the next request arrives at the agent, and the engine
/// notices that after it has sent the request. Each request reaches the service once.
#[tokio::test]
async fn no_request_is_lost_when_the_service_closes_an_idle_connection() {
    let engine = TestEngine::start().await;
    let mut service = ClosingService::start().await;
    let address = service.upstream.addr();
    let (tunnel, line) = distant_tunnel(&engine, address, Properties::http()).await;
    let host = tunnel.hostname();
    let mut visitor = engine.visitor().http1(host).await;
    visitor.request("GET", "/", host, "X-Id: first\r\n").await;
    assert_eq!(visitor.answer().await.status, 200);
    for (number, (method, length)) in METHODS.into_iter().enumerate() {
        let arrived = line.hold() + PAD;
        service.close_idle().await;
        let pad = "x".repeat(PAD);
        let mut request = format!(
            "{method} / HTTP/1.1\r\nHost: {host}\r\nX-Id: {number}\r\nX-Pad: {pad}\r\n\
             Content-Length: {length}\r\n\r\n"
        )
        .into_bytes();
        request.resize(request.len() + length, b'x');
        let (answer, ()) = tokio::join!(visitor.exchange(&request), line.release_at(arrived));
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
    let address = service.upstream.addr();
    let (tunnel, line) = distant_tunnel(&engine, address, Properties::http()).await;
    let host = tunnel.hostname();
    let mut visitor = engine.visitor().h2(host).await;
    assert_eq!(visitor.get("/", host).await.status, 200);
    for (number, (method, length)) in METHODS.into_iter().enumerate() {
        let arrived = line.hold() + PAD;
        service.close_idle().await;
        let request = Request::builder()
            .method(method)
            .uri(format!("https://{host}/"))
            .header("x-id", number)
            .header("x-pad", "x".repeat(PAD))
            .header("content-length", length)
            .body(H2Visitor::full(vec![b'x'; length]))
            .unwrap();
        let (answer, ()) = tokio::join!(visitor.send(request), line.release_at(arrived));
        let answer = H2Visitor::collect(answer.unwrap()).await;
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
pub(super) async fn observed(
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

pub(super) async fn end_of_stream(
    streams: &mut mpsc::UnboundedReceiver<Connection>,
) -> Option<String> {
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
    let error = end_of_stream(&mut streams).await;
    assert_no_response(error, "no response");
    for response in [
        "HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\npart",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\npart\r\n",
    ] {
        let service = ScriptedUpstream::answering(response).await;
        let (host, mut streams, _agent) =
            observed(&engine, service.addr(), Properties::http()).await;
        let answer = engine.visitor().http1(&host).await.get("/", &host).await;
        assert!(!answer.is_complete, "{response:?}: {answer:?}");
        assert_no_response(end_of_stream(&mut streams).await, response);
        // A reset may overtake the head.
        let answer = engine.visitor().h2(&host).await.try_get("/", &host).await;
        assert!(
            !answer.is_ok_and(|answer| answer.is_complete),
            "{response:?}"
        );
        assert_no_response(end_of_stream(&mut streams).await, response);
    }
}

/// A service that responds to some requests of each connection, and closes it after the next one,
/// with the `close_notify` of TLS.
async fn closing_tls_service(engine: &TestEngine, responses: usize) -> Upstream {
    let config = engine.ca().server(&["localhost"], &["http/1.1"]);
    Upstream::start(move |stream, _| {
        let acceptor = TlsAcceptor::from(Arc::clone(&config));
        async move {
            let Ok(mut session) = acceptor.accept(stream).await else {
                return;
            };
            let mut buffer = Vec::new();
            for _ in 0..responses {
                if read_request(&mut session, &mut buffer).await.is_none() {
                    return;
                }
                let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
                session.write_all(answer).await.ok();
                session.flush().await.ok();
            }
            read_request(&mut session, &mut buffer).await;
            session.shutdown().await.ok();
            session.read_to_end(&mut buffer).await.ok();
        }
    })
    .await
}

/// Inside TLS, the agent cannot tell a response from the records that end a session. The engine
/// asks it, and the agent reports the failure to its owner when it answers.
#[tokio::test]
async fn requests_without_a_response_inside_tls_are_reported_as_failed() {
    let engine = TestEngine::start().await;
    for (responses, method, length) in [
        (0, "POST", 0),
        (1, "POST", 10),
        // Too large for a lane.
        (1, "POST", 200_000),
        (0, "POST", 200_000),
        (0, "GET", 0),
    ] {
        let service = closing_tls_service(&engine, responses).await;
        let properties = Properties::http().upstream_tls(true);
        let (host, mut streams, _agent) = observed(&engine, service.addr(), properties).await;
        let mut http1 = engine.visitor().http1(&host).await;
        let mut h2 = engine.visitor().h2(&host).await;
        for _ in 0..responses {
            assert_eq!(http1.get("/", &host).await.status, 200);
        }
        let mut request =
            format!("{method} / HTTP/1.1\r\nHost: {host}\r\nContent-Length: {length}\r\n\r\n")
                .into_bytes();
        request.resize(request.len() + length, b'x');
        let over_http1 = http1.exchange(&request).await;
        let error = end_of_stream(&mut streams).await;
        assert_no_response(error, &format!("HTTP/1.1 {method} {responses} {length}"));
        for _ in 0..responses {
            assert_eq!(h2.get("/", &host).await.status, 200);
        }
        let request = Request::builder()
            .method(method)
            .uri(format!("https://{host}/"))
            .body(H2Visitor::full(vec![b'x'; length]))
            .unwrap();
        let over_h2 = H2Visitor::collect(h2.send(request).await.unwrap()).await;
        let error = end_of_stream(&mut streams).await;
        assert_no_response(error, &format!("HTTP/2 {method} {responses} {length}"));
        for answer in [over_http1, over_h2] {
            assert_eq!(answer.status, 502);
            assert_eq!(answer.json()["code"], "upstream_unreachable");
        }
    }
}

fn assert_no_response(error: Option<String>, request: &str) {
    let error = error.unwrap_or_default();
    assert!(
        error.contains("without a complete response"),
        "{request}: {error}"
    );
}

/// The service responds before it has the whole request, and closes after it. The agent has sent
/// bytes to the service after the last ones from it.
#[tokio::test]
async fn an_early_response_is_not_reported_as_failed() {
    let engine = TestEngine::start().await;
    let service = ScriptedUpstream::start(|_| {
        vec![
            Step::ReadHead,
            Step::write("HTTP/1.1 413 Too Large\r\nConnection: close\r\n\r\nearly"),
            Step::ReadBytes(4),
        ]
    })
    .await;
    let (host, mut streams, _agent) = observed(&engine, service.addr(), Properties::http()).await;
    let mut visitor = engine.visitor().http1(&host).await;
    let length = "Content-Length: 4\r\n";
    visitor.request("POST", "/", &host, length).await;
    let head = visitor.head().await;
    visitor.send("body").await;
    let answer = visitor.body(head).await;
    assert_eq!((answer.status, answer.text()), (413, "early"));
    assert!(answer.is_complete);
    assert_eq!(end_of_stream(&mut streams).await, None);
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
            let error = end_of_stream(&mut streams).await;
            assert_eq!(error.as_deref(), Some(detail));
        }
    }
}
