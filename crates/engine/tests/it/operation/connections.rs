//! Limits on the number of connections, in total and per source, and on their idle time.

use std::net::{Ipv4Addr, SocketAddr};

use bytes::Bytes;
use client::Properties;
use h2::client::{ResponseFuture, SendRequest};
use rustls::pki_types::ServerName;
use testing::{ScriptedUpstream, TestEngine, Upstream, within};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio_rustls::TlsConnector;
use tokio_util::task::AbortOnDropHandle;

use crate::world::{A, World};

/// A trusted proxy names the source. The limit of one source does not affect other sources.
#[tokio::test]
async fn connections_of_one_source_have_a_limit() {
    const MOST: usize = 8;
    let world = World::with("limits: {max_connections_per_source: 8}").await;
    let service = Upstream::http1().await;
    let tunnel = world.publish(Properties::http(), &service).await;
    let host = tunnel.hostname();
    let mut held = Vec::new();
    for _ in 0..MOST {
        let mut visitor = world.visitor_from("203.0.113.1", host).await;
        assert_eq!(visitor.get("/", host).await.status, 200);
        held.push(visitor);
    }
    assert!(world.is_closed_unread("203.0.113.1").await);
    let mut other = world.visitor_from("203.0.113.2", host).await;
    assert_eq!(other.get("/", host).await.status, 200);
    assert_eq!(held[0].get("/", host).await.status, 200);
}

/// The last connections are reserved for agents and the Engine API.
#[tokio::test]
async fn visitors_leave_connections_for_agents_and_the_engine_api() {
    let limits = "limits: {max_connections: 32, max_connections_per_source: 32}";
    let world = World::with(limits).await;
    let service = Upstream::http1().await;
    let tunnel = world.publish(Properties::http(), &service).await;
    let host = tunnel.hostname();
    let mut held = Vec::new();
    // The agent's connection counts as one.
    for _ in 0..29 {
        let mut visitor = world.visitor_from("203.0.113.1", host).await;
        assert_eq!(visitor.get("/", host).await.status, 200);
        held.push(visitor);
    }
    let config = world.engine.ca().client(&["http/1.1"]);
    let visitor = world.engine.visitor();
    assert!(visitor.try_connect(host, &config).await.is_none());
    let own = format!("{A}.engine.localhost");
    let bearer = format!("Authorization: Bearer {}\r\n", world.token);
    let mut caller = visitor.http1(&own).await;
    caller.request("GET", "/api/tunnels", &own, &bearer).await;
    assert_eq!(caller.answer().await.status, 200);
}

/// The plain listener shares its limits with the TLS listener.
#[tokio::test]
async fn connections_to_the_plain_listener_count() {
    const MOST: usize = 8;
    let sections = "http: {enabled: true, listen_addr: '127.0.0.1:0'}\n\
                    limits: {max_connections_per_source: 8}";
    let engine = TestEngine::start_with(sections).await;
    let http = engine.running().http_addr().unwrap();
    let mut held = Vec::new();
    for _ in 0..MOST {
        held.push(engine.visitor().h2(engine.host()).await);
    }
    let answer = async |source: [u8; 4]| {
        let mut visitor = from(source.into(), http).await;
        let request = "GET / HTTP/1.1\r\nHost: engine.localhost\r\n\r\n";
        visitor.write_all(request.as_bytes()).await.ok();
        let mut answer = Vec::new();
        // A connection that is closed unread may be reset.
        within("end", visitor.read_to_end(&mut answer)).await.ok();
        String::from_utf8(answer).unwrap()
    };
    assert_eq!(answer([127, 0, 0, 1]).await, "");
    let other = answer([127, 0, 0, 2]).await;
    assert!(other.starts_with("HTTP/1.1 308"), "{other}");
    drop(held);
}

async fn from(source: Ipv4Addr, to: SocketAddr) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind((source, 0).into()).unwrap();
    socket.connect(to).await.unwrap()
}

/// Visitors over HTTP/2 from one address.
struct Visitors {
    sender: SendRequest<Bytes>,
    _connection: AbortOnDropHandle<Result<(), h2::Error>>,
}

impl Visitors {
    async fn connect(engine: &TestEngine, source: [u8; 4], host: &str) -> Self {
        let connector = TlsConnector::from(engine.ca().client(&["h2"]));
        let name = ServerName::try_from(host.to_owned()).unwrap();
        let socket = from(source.into(), engine.addr()).await;
        let connecting = connector.connect(name, socket);
        let stream = within("TLS session", connecting).await.unwrap();
        let (sender, connection) = h2::client::handshake(stream).await.unwrap();
        Self {
            sender,
            _connection: AbortOnDropHandle::new(tokio::spawn(connection)),
        }
    }

    async fn ask(&self, host: &str) -> ResponseFuture {
        let request = http::Request::get(format!("https://{host}/")).body(());
        let mut sender = self.sender.clone().ready().await.unwrap();
        sender.send_request(request.unwrap(), true).unwrap().0
    }

    async fn status(&self, host: &str) -> u16 {
        let answer = within("answer", self.ask(host).await).await.unwrap();
        answer.status().as_u16()
    }
}

/// One source cannot use up the limit of a project, with any number of connections. A proxy that
/// reports no addresses does not count as a source.
#[tokio::test]
async fn requests_of_one_source_over_http2_have_a_limit() {
    const MOST: usize = 4;
    let sections = "edge: {trusted_proxies: [127.0.0.2]}\nlimits: {max_streams_per_source: 4}";
    let engine = TestEngine::start_with(sections).await;
    let hanging = ScriptedUpstream::never_answers().await;
    let tunnel = engine.publish(hanging.addr()).await;
    let host = tunnel.hostname();
    let (first, second) = (
        Visitors::connect(&engine, [127, 0, 0, 1], host).await,
        Visitors::connect(&engine, [127, 0, 0, 1], host).await,
    );
    let mut waiting = Vec::new();
    for number in 0..MOST {
        let visitors = if number % 2 == 0 { &first } else { &second };
        waiting.push(visitors.ask(host).await);
        hanging.next_head().await;
    }
    assert_eq!(first.status(host).await, 503);
    assert_eq!(second.status(host).await, 503);
    let other = Visitors::connect(&engine, [127, 0, 0, 3], host).await;
    waiting.push(other.ask(host).await);
    hanging.next_head().await;
    let proxy = Visitors::connect(&engine, [127, 0, 0, 2], host).await;
    for _ in 0..=MOST {
        waiting.push(proxy.ask(host).await);
        hanging.next_head().await;
    }
}

/// The visits of all projects and sources together have a limit.
#[tokio::test]
async fn visits_have_a_limit() {
    const MOST: usize = 4;
    let engine = TestEngine::start_with("limits: {max_streams: 4}").await;
    let hanging = ScriptedUpstream::never_answers().await;
    let tunnel = engine.publish(hanging.addr()).await;
    let host = tunnel.hostname();
    let mut waiting = Vec::new();
    for _ in 0..MOST {
        let mut visitor = engine.visitor().http1(host).await;
        visitor.request("GET", "/", host, "").await;
        hanging.next_head().await;
        waiting.push(visitor);
    }
    let refused = engine.visitor().http1(host).await.get("/", host).await;
    assert_eq!(refused.status, 503, "{}", refused.text());
    assert_eq!(refused.header("retry-after"), Some("1"));
}

/// An Engine API connection without an active request is closed. A connection with an open event
/// stream is not.
#[tokio::test]
async fn an_idle_api_connection_over_http2_ends() {
    // Long enough for the first request of each connection.
    let engine = TestEngine::start_with("timeouts: {http_idle_seconds: 10}").await;
    let bearer = format!("Bearer {}", engine.token(serde_json::json!({})));
    let connect = async || {
        let config = engine.ca().client(&["h2"]);
        let stream = engine.visitor().connect(engine.host(), &config).await;
        h2::client::handshake(stream).await.unwrap()
    };
    let ask = async |sender: &h2::client::SendRequest<bytes::Bytes>, path: &str| {
        let request = http::Request::get(format!("https://{}{path}", engine.host()))
            .header("authorization", &bearer)
            .body(())
            .unwrap();
        let mut sender = sender.clone().ready().await.unwrap();
        let (answer, _) = sender.send_request(request, true).unwrap();
        within("answer", answer).await.unwrap()
    };
    let (watcher, connection) = connect().await;
    let watching = AbortOnDropHandle::new(tokio::spawn(connection));
    let stream = ask(&watcher, "/api/sse").await;
    assert_eq!(stream.status(), 200);
    let (idle, connection) = connect().await;
    let ending = tokio::spawn(connection);
    assert!(ask(&idle, "/api/auth").await.status().is_success());
    within("end of the idle connection", ending)
        .await
        .unwrap()
        .ok();
    assert!(!watching.is_finished());
    assert!(ask(&watcher, "/api/auth").await.status().is_success());
}
