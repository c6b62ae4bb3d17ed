//! Peers that are silent or do not read their responses. The deadlines are those of the real clock.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::select_all;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use serde_json::json;
use testing::{TestEngine, within};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use wire::Kind;
use wire::message::{ClientDetails, OpenTunnelReq, ProxyReq};

use super::Site;
use crate::agent::raw_messages;
use crate::agent::raw_messages::{PlainAgent, Wire};
use crate::edge::attacks::frames::{
    Connection, END_HEADERS, END_STREAM, HEADERS, PING, SETTINGS, WINDOW_UPDATE, block, frame, get,
};

/// Tunnels for a list of 7 MB, more than the socket buffers of both ends take for an application
/// that does not read.
const TUNNELS: usize = 120;

async fn inhabit(engine: &TestEngine) -> PlainAgent {
    let mut agent = PlainAgent::connect(engine).await;
    let labels = (0..14).map(|number| (format!("k{number}"), "v".repeat(4096)));
    for number in 0..TUNNELS {
        let properties = wire::message::TunnelProperties {
            labels: labels.clone().collect(),
            ..raw_messages::http(&format!("web{number}"))
        };
        agent.open(properties).await.unwrap();
    }
    agent
}

/// A connection with small socket buffers.
async fn narrow(engine: &TestEngine, host: &str, alpn: &str) -> TlsStream<TcpStream> {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(16 * 1024).unwrap();
    let stream = socket.connect(engine.addr()).await.unwrap();
    let config: Arc<ClientConfig> = engine.ca().client(&[alpn]);
    let name = ServerName::try_from(host.to_owned()).unwrap();
    let connecting = TlsConnector::from(config).connect(name, stream);
    within("TLS session", connecting).await.unwrap()
}

fn request(engine: &TestEngine, path: &str) -> String {
    let (host, token) = (engine.host(), engine.token(json!({})));
    format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {token}\r\n\r\n")
}

/// Requests a large answer, and reads only its head.
async fn stuck(engine: &TestEngine, path: &str) -> TlsStream<TcpStream> {
    let mut stream = narrow(engine, engine.host(), "http/1.1").await;
    let request = request(engine, path);
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut status = [0; 12];
    let reading = stream.read_exact(&mut status);
    within("status", reading).await.unwrap();
    assert_eq!(&status, b"HTTP/1.1 200");
    stream
}

/// Its slot is then free for another client.
#[tokio::test]
async fn an_sse_client_that_reads_nothing_is_disconnected() {
    let sections = "timeouts: {visitor_stall_seconds: 1}\nlimits: {max_watchers: 1}";
    let engine = TestEngine::start_with(sections).await;
    let _agent = inhabit(&engine).await;
    let _stuck = stuck(&engine, "/api/sse").await;
    let next = async {
        loop {
            let mut watcher = engine.visitor().http1(engine.host()).await;
            watcher.send(request(&engine, "/api/sse")).await;
            if watcher.head().await.status == 200 {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    within("place of a watcher", next).await;
}

/// Only this timeout ends the drain: a client that does not read has five seconds for the rest.
async fn clients_that_do_not_read_do_not_hold_up_a_drain() {
    let engine = TestEngine::start().await;
    let _agent = inhabit(&engine).await;
    let _watcher = stuck(&engine, "/api/sse").await;
    let _reader = stuck(&engine, "/api/tunnels").await;
    let config = engine.ca().client(&["h2"]);
    let stream = engine.visitor().connect(engine.host(), &config).await;
    let (mut sender, connection) = h2::client::handshake(stream).await.unwrap();
    let _connection = tokio_util::task::AbortOnDropHandle::new(tokio::spawn(connection));
    let asked = http::Request::get(format!("https://{}/api/tunnels", engine.host()))
        .header(
            "authorization",
            format!("Bearer {}", engine.token(json!({}))),
        )
        .body(())
        .unwrap();
    let (answer, _) = sender.send_request(asked, true).unwrap();
    let _unread = within("answer", answer).await.unwrap();
    let started_at = Instant::now();
    engine.stop().await;
    assert!(started_at.elapsed() >= Duration::from_secs(5));
}

/// A visitor that keeps sending requests and never reads the edge's own answers.
async fn a_visitor_that_does_not_read_the_edges_answers_is_let_go() {
    let site = Site::start().await;
    let host = site.host();
    let mut stream = narrow(&site.engine, host, "http/1.1").await;
    let requests = "GET / HTTP/1.1\r\nHost: nobody.invalid\r\n\r\n".repeat(1000);
    let started_at = Instant::now();
    let asking = async { while stream.write_all(requests.as_bytes()).await.is_ok() {} };
    within("end of the connection", asking).await;
    assert!(started_at.elapsed() >= Duration::from_secs(15));
    site.check_untouched().await;
}

/// Reads from a connection that has been silent since `started_at`. The engine sends a PING to check
/// the peer and then closes the connection.
async fn assert_pinged_and_closed(mut connection: Connection, started_at: Instant) {
    let asked = loop {
        let frame = connection.reader.next().await.expect("a PING first");
        if frame.kind == PING {
            break started_at.elapsed();
        }
    };
    assert!(asked >= Duration::from_secs(30), "{asked:?}");
    while connection.reader.next().await.is_some() {}
    let ended = started_at.elapsed();
    assert!(ended >= Duration::from_secs(45), "{ended:?}");
}

async fn a_silent_http2_connection_is_asked_and_let_go() {
    let site = Site::start().await;
    let engine = &site.engine;
    let started_at = Instant::now();
    let visitor = Connection::open(engine, site.host()).await;
    let mut client = Connection::open(engine, engine.host()).await;
    let bearer = format!("Bearer {}", engine.token(json!({})));
    let mut fields = get(engine.host(), "/api/auth");
    fields.push(("authorization", &bearer));
    let asked = frame(HEADERS, END_HEADERS | END_STREAM, 1, block(&fields));
    client.writer.send(&asked.to_bytes()).await;
    let (visitor, client) = (
        assert_pinged_and_closed(visitor, started_at),
        assert_pinged_and_closed(client, started_at),
    );
    tokio::join!(visitor, client);
    site.check_untouched().await;
}

#[tokio::test]
async fn a_visitor_may_send_one_mib_on_a_stream_and_four_on_a_connection() {
    let site = Site::start().await;
    let mut connection = Connection::open(&site.engine, site.host()).await;
    let (mut stream, mut whole) = (None, None);
    while stream.is_none() || whole.is_none() {
        let frame = connection.reader.next().await.unwrap();
        match frame.kind {
            SETTINGS => {
                let (settings, _) = frame.payload.as_chunks::<6>();
                let window = settings.iter().find(|setting| setting[..2] == [0, 4]);
                stream = stream.or(window.map(|setting| u32_of(&setting[2..])));
            }
            // The increase over the initial window of a connection.
            WINDOW_UPDATE => whole = Some(65_535 + u32_of(&frame.payload)),
            _ => {}
        }
    }
    assert_eq!((stream, whole), (Some(1024 * 1024), Some(4 * 1024 * 1024)));
}

fn u32_of(bytes: &[u8]) -> u32 {
    u32::from_be_bytes(bytes.try_into().unwrap())
}

/// The agent does not end a stream that its visitor has left. Its standing connection is kept for
/// five seconds at most.
async fn a_connection_whose_agent_does_not_end_an_abandoned_stream_is_closed() {
    let engine = TestEngine::start().await;
    let mut channel = Wire::connect(&engine).await;
    let mut details = raw_messages::details(&engine, json!({}));
    details.extensions = vec!["pool/1".to_owned()];
    channel.hello(Some(details), None).await.unwrap();
    let open = OpenTunnelReq {
        request_id: "1".to_owned(),
        tunnel_properties: Some(raw_messages::http("deaf")),
    };
    channel.send(Kind::OpenTunnelReq(open)).await;
    let (mut standing, mut is_open) = (Vec::new(), false);
    while standing.is_empty() || !is_open {
        match channel.next().await.expect("an open channel") {
            Kind::PoolReq(asked) => {
                for _ in 0..asked.count {
                    let mut connection = Wire::connect(&engine).await;
                    let hello = ProxyReq {
                        client_details: Some(ClientDetails {
                            token: Some(asked.secret.as_str().into()),
                            ..ClientDetails::default()
                        }),
                        stream_id: String::new(),
                        zero_rtt: Some(true.into()),
                    };
                    connection.send(Kind::ProxyReq(hello)).await;
                    standing.push(connection.into_stream());
                }
            }
            Kind::OpenTunnelRsp(_) => is_open = true,
            other => panic!("unexpected: {other:?}"),
        }
    }
    let host = "deaf.t.engine.localhost";
    let mut visitor = engine.visitor().http1(host).await;
    visitor.request("GET", "/", host, "").await;
    let reading = standing.iter_mut().map(|connection| {
        Box::pin(async move {
            connection.read_u8().await.unwrap();
            connection
        })
    });
    let (used, _, _) = within("stream", select_all(reading)).await;
    let started_at = Instant::now();
    drop(visitor);
    let mut rest = Vec::new();
    let ended = within("end of the connection", used.read_to_end(&mut rest)).await;
    ended.ok();
    assert!(started_at.elapsed() >= Duration::from_secs(5));
}

/// All cases run in parallel, since each takes its time.
#[tokio::test]
async fn peers_that_are_silent_or_do_not_read_are_disconnected() {
    tokio::join!(
        Box::pin(a_silent_http2_connection_is_asked_and_let_go()),
        Box::pin(a_visitor_that_does_not_read_the_edges_answers_is_let_go()),
        Box::pin(clients_that_do_not_read_do_not_hold_up_a_drain()),
        Box::pin(a_connection_whose_agent_does_not_end_an_abandoned_stream_is_closed()),
    );
}
