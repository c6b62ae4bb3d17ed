//! Slow peers. The deadlines here are seconds of the real clock, so one test runs all of them in
//! parallel. The configured one is as long as the others, so that peers that are not silent do not
//! reach it. Every other test of slow peers configures a deadline of a second.

use std::time::{Duration, Instant};

use client::Properties;
use testing::{
    H2Visitor, RawVisitor, Report, ScriptedUpstream, Step, TestEngine, TestTunnel, within,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::Site;
use crate::agent::raw_messages;
use crate::agent::raw_messages::PlainAgent;
use crate::edge::attacks::frames::{
    ACK, CANCEL, Connection, END_HEADERS, END_STREAM, HEADERS, Outcome, PING, SETTINGS, block,
    frame, get,
};

/// Reads until the edge ends the connection.
async fn is_closed(stream: &mut TcpStream) {
    let mut rest = Vec::new();
    // A reset counts as an end.
    within("end of a silent connection", stream.read_to_end(&mut rest))
        .await
        .ok();
}

/// A connection to the TLS port that sends `first` and then nothing.
async fn hello(engine: &TestEngine, first: &[u8]) {
    let mut stream = TcpStream::connect(engine.addr()).await.unwrap();
    stream.write_all(first).await.unwrap();
    is_closed(&mut stream).await;
}

/// A visitor that sends `first` and then nothing.
async fn head(engine: &TestEngine, host: &str, first: &[u8]) {
    let mut visitor = engine.visitor().http1(host).await;
    visitor.send(first).await;
    assert_eq!(visitor.read_to_end().await, b"");
}

#[tokio::test]
async fn silent_peers_are_disconnected() {
    let sections = "timeouts: {http_idle_seconds: 10}\n\
        http: {enabled: true, listen_addr: '127.0.0.1:0'}";
    let site = Site::with(sections).await;
    let (engine, host) = (&site.engine, site.host());
    let plain = engine.running().http_addr().unwrap();
    let half_a_head = format!("GET / HTTP/1.1\r\nHost: {host}\r\nX: ");
    tokio::join!(
        // No hello, half of a hello, and the length of a hello.
        hello(engine, b""),
        hello(engine, b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"),
        hello(engine, b"\x16\x03\x01"),
        // No head, and half of a head.
        head(engine, host, b""),
        head(engine, host, half_a_head.as_bytes()),
        head(engine, host, b"G"),
        // HTTP/2 without a preface, at a tunnel and at the engine itself.
        async {
            let mut silent = Connection::silent(engine, host).await;
            while silent.reader.next().await.is_some() {}
        },
        async {
            let mut silent = Connection::silent(engine, engine.host()).await;
            while silent.reader.next().await.is_some() {}
        },
        // The plain port.
        async {
            let mut stream = TcpStream::connect(plain).await.unwrap();
            stream.write_all(b"GET / HTTP/1.1\r\n").await.unwrap();
            is_closed(&mut stream).await;
        },
        // An agent that opens no stream, and a service that never completes a handshake.
        async {
            let mut idle = PlainAgent::connect(engine).await;
            idle.open(raw_messages::http("idle")).await.unwrap();
            assert_times_out(engine, "idle.t.engine.localhost").await;
        },
        async {
            let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let tunnel = engine.publish_tls(silent.local_addr().unwrap()).await;
            assert_times_out(engine, tunnel.hostname()).await;
        },
        // The other tunnel is served in the meantime.
        site.check_other_tunnel(),
    );
    site.check_untouched().await;
}

/// A visitor gets a 504 long before the response timeout of the service.
async fn assert_times_out(engine: &TestEngine, host: &str) {
    let started_at = Instant::now();
    let mut visitor = engine.visitor().http1(host).await;
    visitor.request("GET", "/", host, "").await;
    assert_eq!(visitor.answer().await.status, 504, "{host}");
    let waited = started_at.elapsed();
    assert!(waited < Duration::from_secs(25), "{host}: {waited:?}");
}

/// A site, and a tunnel to its attacked service with a time limit of a second. The limit does not
/// apply to the tunnels that must work.
async fn site_with_time_limit(sections: &str) -> (Site, TestTunnel) {
    let site = Site::with(sections).await;
    let properties = Properties::http().time_to_first_byte_seconds(1);
    let attacked = site.engine.publish_as(properties, site.service.addr());
    let attacked = attacked.await;
    (site, attacked)
}

/// A stalled request body is aborted. The service sees that the request is incomplete.
#[tokio::test]
async fn a_stalled_body_is_a_504() {
    let (site, attacked) = site_with_time_limit("").await;
    let (engine, host) = (&site.engine, attacked.hostname());
    for framing in ["Content-Length: 10\r\n", "Transfer-Encoding: chunked\r\n"] {
        let mut visitor = engine.visitor().http1(host).await;
        visitor.request("POST", "/", host, framing).await;
        visitor.send("5\r\n").await;
        let answer = visitor.answer().await;
        assert_eq!(answer.status, 504, "{framing}");
        assert_eq!(visitor.read_to_end().await, b"");
    }
    let (frames, body) = tokio::sync::mpsc::channel(1);
    frames
        .send(Ok(hyper::body::Frame::data(bytes::Bytes::from_static(
            b"a",
        ))))
        .await
        .unwrap();
    let body = tokio_stream::wrappers::ReceiverStream::new(body);
    let body = http_body_util::BodyExt::boxed_unsync(http_body_util::StreamBody::new(body));
    let request = hyper::Request::post(format!("https://{host}/")).body(body);
    let mut visitor = engine.visitor().h2(host).await;
    let response = visitor.send(request.unwrap()).await.unwrap();
    assert_eq!(response.status(), 504);
    site.check_both_tunnels().await;
}

/// Hundreds of visitors that wait for one service leave capacity for the visitors of another.
#[tokio::test]
async fn many_slow_visitors_do_not_stop_others() {
    let site = Site::start().await;
    let engine = &site.engine;
    let hanging = ScriptedUpstream::never_answers().await;
    let tunnel = engine.publish(hanging.addr()).await;
    let host = tunnel.hostname();
    let mut held: Vec<RawVisitor> = Vec::new();
    for _ in 0..100 {
        let mut visitor = engine.visitor().http1(host).await;
        visitor.request("GET", "/", host, "").await;
        held.push(visitor);
    }
    let visitor = engine.visitor().h2(host).await;
    let mut asking = tokio::task::JoinSet::new();
    for _ in 0..200 {
        let mut visitor = visitor.clone();
        let request = hyper::Request::get(format!("https://{host}/")).body(H2Visitor::empty());
        asking.spawn(async move { visitor.send(request.unwrap()).await.map(drop) });
    }
    for _ in 0..300 {
        hanging.next_head().await;
    }
    site.check_both_tunnels().await;
    drop((held, asking));
}

/// A trickling body makes progress each time before the stall timeout. Its total time is limited by
/// the number of bytes received.
#[tokio::test]
async fn a_trickling_body_is_a_504() {
    let (site, attacked) = site_with_time_limit("limits: {min_body_rate: 1000}").await;
    let (engine, host) = (&site.engine, attacked.hostname());
    let http1 = async {
        let visitor = engine.visitor().http1(host).await;
        let (mut answers, mut bytes) = tokio::io::split(visitor.into_stream());
        let fields = format!("POST / HTTP/1.1\r\nHost: {host}\r\nContent-Length: 1000000\r\n\r\n");
        bytes.write_all(fields.as_bytes()).await.unwrap();
        let mut answer_text = Vec::new();
        let answer = within("answer", answers.read_to_end(&mut answer_text));
        tokio::select! {
            _ = answer => {}
            () = trickle(async || bytes.write_all(b"x").await.is_ok()) => {}
        }
        let answer_text = String::from_utf8_lossy(&answer_text);
        assert!(answer_text.starts_with("HTTP/1.1 504 "), "{answer_text}");
    };
    let http2 = async {
        let (frames, body) = tokio::sync::mpsc::channel(1);
        let body = tokio_stream::wrappers::ReceiverStream::new(body);
        let body = http_body_util::BodyExt::boxed_unsync(http_body_util::StreamBody::new(body));
        let request = hyper::Request::post(format!("https://{host}/")).body(body);
        let mut visitor = engine.visitor().h2(host).await;
        let byte = || hyper::body::Frame::data(bytes::Bytes::from_static(b"x"));
        let answer = within("answer", visitor.send(request.unwrap()));
        let status = tokio::select! {
            answer = answer => answer.unwrap().status(),
            () = trickle(async || frames.send(Ok(byte())).await.is_ok()) => panic!("no answer"),
        };
        assert_eq!(status, 504);
    };
    tokio::join!(http1, http2);
    site.check_both_tunnels().await;
}

/// Sends a byte now and then, ten times as often as needed, until the peer accepts no more.
async fn trickle(mut byte: impl AsyncFnMut() -> bool) {
    let mut pace = tokio::time::interval(Duration::from_millis(100));
    loop {
        pace.tick().await;
        if !byte().await {
            return;
        }
    }
}

/// A service that writes without end, and reports when its connection is closed.
async fn endless(head: &'static str) -> ScriptedUpstream {
    ScriptedUpstream::start(move |_| {
        vec![
            Step::ReadHead,
            Step::write(head),
            Step::WriteForever(vec![b'x'; 64 * 1024]),
            Step::ReadToEnd,
        ]
    })
    .await
}

/// Waits until the service has closed the connection of its only request.
async fn is_let_go(service: &ScriptedUpstream) {
    service.head().await;
    while service.report().await != Report::Closed {}
}

/// A client that does not read its response occupies a service only for a limited time, whatever
/// else it does on its connection. A WebSocket may pause.
#[tokio::test]
async fn a_visitor_that_does_not_read_its_response_is_disconnected() {
    const LENGTH: &str = "HTTP/1.1 200 OK\r\nContent-Length: 1000000000000\r\n\r\n";
    const UPGRADE: &str = "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\
        Sec-WebSocket-Accept: ICX+Yqv66kxgM0FcWaLWlFLwTAI=\r\n\r\n";
    let site = Site::with("timeouts: {visitor_stall_seconds: 1}").await;
    let engine = &site.engine;
    let pausing = endless(UPGRADE).await;
    let tunnel = engine.publish(pausing.addr()).await;
    let mut websocket = engine.visitor().http1(tunnel.hostname()).await;
    let fields = "Connection: upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
        Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n";
    websocket
        .request("GET", "/", tunnel.hostname(), fields)
        .await;
    assert_eq!(websocket.head().await.status, 101);

    let http1 = async {
        let service = endless(LENGTH).await;
        let tunnel = engine.publish(service.addr()).await;
        let mut visitor = engine.visitor().http1(tunnel.hostname()).await;
        visitor.request("GET", "/", tunnel.hostname(), "").await;
        assert_eq!(visitor.head().await.status, 200);
        is_let_go(&service).await;
        drop(visitor);
    };
    // The stream is stalled while its connection works, because the test controls the windows.
    let http2 = async |service: &ScriptedUpstream, tunnel: TestTunnel| {
        let host = tunnel.hostname();
        let mut connection = Connection::open(engine, host).await;
        let window = frame(SETTINGS, 0, 0, [0, 4, 0, 0, 0, 0]);
        let request = frame(HEADERS, END_HEADERS | END_STREAM, 1, block(&get(host, "/")));
        let fate = connection.outcome(&[window, request]).await;
        assert_eq!(fate, Outcome::Reset(CANCEL));
        is_let_go(service).await;
        let ping = frame(PING, 0, 0, [7; 8]);
        connection.writer.send(&ping.to_bytes()).await;
        let pong = frame(PING, ACK, 0, [7; 8]);
        while connection
            .reader
            .next()
            .await
            .expect("the connection works")
            != pong
        {}
    };
    let to_http1 = async {
        let service = endless(LENGTH).await;
        let tunnel = engine.publish(service.addr()).await;
        http2(&service, tunnel).await;
    };
    tokio::join!(http1, to_http1, site.check_other_tunnel());

    // More than all buffers in between can store.
    for _ in 0..64 {
        let more = websocket.read_exact(1024 * 1024).await;
        assert!(more.is_some(), "the WebSocket was closed");
    }
    site.check_both_tunnels().await;
}
