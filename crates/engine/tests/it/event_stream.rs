//! `/api/sse` over real connections to the TLS listener. The listener serves the first request of a
//! connection itself, and the HTTP library serves all later ones.

use std::sync::Arc;

use engine::clock::{Clock as _, ManualClock};
use jiff::Timestamp;
use serde_json::{Value, json};
use testing::{RawVisitor, ReceivedResponse, TestEngine, Upstream};

fn bearer(token: &str) -> String {
    format!("Authorization: Bearer {token}\r\n")
}

/// Reads the next event.
async fn event(watcher: &mut RawVisitor) -> Value {
    let chunk = watcher.chunk().await.unwrap();
    let line = chunk.strip_prefix(b"data: ").unwrap();
    serde_json::from_slice(line).unwrap()
}

fn assert_stream_head(head: &ReceivedResponse) {
    assert_eq!(head.status, 200);
    assert_eq!(head.header("content-type"), Some("text/event-stream"));
    assert_eq!(head.header("transfer-encoding"), Some("chunked"));
    assert_eq!(head.header("content-length"), None);
    assert_eq!(head.header("x-accel-buffering"), Some("no"));
    let date = head.header("date").unwrap();
    assert!(date.ends_with(" GMT") && date.len() == 29, "{date}");
}

/// EN-3: the stream works for a request that arrives in one piece or in many.
#[tokio::test]
async fn en_3_an_event_stream_reports_changes() {
    let engine = TestEngine::start().await;
    let fields = bearer(&engine.token(json!({})));
    let mut whole = engine.visitor().http1(engine.host()).await;
    whole
        .request("GET", "/api/sse", engine.host(), &fields)
        .await;
    let mut pieces = engine.visitor().http1(engine.host()).await;
    let params = "%7B%22clients%22%3A%7B%22os%22%3A%22none%22%7D%7D";
    let request = format!(
        "GET /api/sse?params={params} HTTP/1.1\r\nHost: {}\r\n{fields}\r\n",
        engine.host()
    );
    for byte in request.as_bytes() {
        pieces.send([*byte]).await;
    }
    let mut watchers = [whole, pieces];
    for watcher in &mut watchers {
        assert_stream_head(&watcher.head().await);
        assert_eq!(event(watcher).await["type"], "state.initial");
    }
    let upstream = Upstream::http1().await;
    let tunnel = engine.publish(upstream.addr()).await;
    let [whole, pieces] = &mut watchers;
    assert_eq!(event(whole).await["type"], "client.created");
    // The client does not pass their filter.
    for watcher in [whole, pieces] {
        assert_eq!(event(watcher).await["type"], "tunnel.created");
    }
    tunnel.close().await;
    for watcher in &mut watchers {
        assert_eq!(event(watcher).await["type"], "tunnel.deleted");
    }
}

#[tokio::test]
async fn a_connection_remains_usable_after_a_refusal_and_after_the_end_of_the_stream() {
    let clock = Arc::new(ManualClock::at(Timestamp::now()));
    let time = Arc::<ManualClock>::clone(&clock);
    let engine = TestEngine::start_at("", &[], time).await;
    let host = engine.host();
    let valid = bearer(&engine.token(json!({})));
    let mut watcher = engine.visitor().http1(host).await;
    watcher.request("GET", "/api/sse", host, "").await;
    let refused = watcher.answer().await;
    assert_eq!(refused.status, 401);
    assert_eq!(refused.json()["code"], "unauthenticated");
    assert!(refused.header("www-authenticate").is_some());
    watcher.request("GET", "/api/tunnels", host, &valid).await;
    assert_eq!(watcher.answer().await.status, 200);
    // The library serves a later request for the stream.
    watcher.request("GET", "/api/sse", host, &valid).await;
    assert_stream_head(&watcher.head().await);
    assert_eq!(event(&mut watcher).await["type"], "state.initial");

    let now = clock.now().as_second();
    let short = bearer(&engine.token(json!({"exp": now + 2})));
    let mut watcher = engine.visitor().http1(host).await;
    // Both requests are sent together. The second waits for its turn.
    watcher
        .send(format!(
            "GET /api/sse HTTP/1.1\r\nHost: {host}\r\n{short}\r\n\
             GET /api/tunnels HTTP/1.1\r\nHost: {host}\r\n{valid}\r\n"
        ))
        .await;
    assert_stream_head(&watcher.head().await);
    assert_eq!(event(&mut watcher).await["type"], "state.initial");
    clock.advance(2);
    let last = watcher.chunk().await.unwrap();
    assert_eq!(last, b": closed: the token has expired\n\n");
    assert_eq!(watcher.chunk().await.unwrap(), b"");
    assert_eq!(watcher.answer().await.status, 200);
}

#[tokio::test]
async fn a_client_that_requests_the_end_of_the_connection_gets_it() {
    let engine = TestEngine::start().await;
    let mut watcher = engine.visitor().http1(engine.host()).await;
    watcher
        .request("GET", "/api/sse", engine.host(), "Connection: close\r\n")
        .await;
    assert_eq!(watcher.answer().await.status, 401);
    assert_eq!(watcher.read_to_end().await, b"");
}

/// Every ambiguous request of a connection gets a problem document.
#[tokio::test]
async fn a_malformed_request_gets_a_problem_document() {
    let engine = TestEngine::start().await;
    let host = engine.host();
    let valid = bearer(&engine.token(json!({})));
    let over = "x".repeat(70_000);
    for (request, status, code) in [
        (
            format!("GET /api/clients HTTP/1.1\nHost: {host}\n{valid}\n\n"),
            400,
            "invalid_request",
        ),
        (
            format!("GET /api/clients HTTP/1.1\r\nHost: {host}\nX: y\r\n{valid}\r\n"),
            400,
            "invalid_request",
        ),
        (
            format!("GET /api/clients HTTP/1.1\r\nHost: {host}\r\nX: {over}\r\n{valid}\r\n"),
            431,
            "request_header_fields_too_large",
        ),
    ] {
        let mut visitor = engine.visitor().http1(host).await;
        // The connection has served a valid request before.
        visitor
            .send(format!(
                "GET /api/clients HTTP/1.1\r\nHost: {host}\r\n{valid}\r\n"
            ))
            .await;
        let first = visitor.answer().await;
        assert_eq!(first.status, 200);
        visitor.try_send(&request).await;
        let answer = visitor.answer().await;
        assert_eq!(answer.status, status, "{request}");
        let problem = answer.json();
        assert_eq!(problem["code"], code, "{request}");
        assert_eq!(problem["status"], status, "{request}");
    }
}

/// A request that only resembles one for the stream is answered like any other request.
#[tokio::test]
async fn the_library_serves_all_other_requests() {
    let engine = TestEngine::start().await;
    let host = engine.host();
    let valid = bearer(&engine.token(json!({})));
    let over = "x".repeat(70_000);
    for (request, status) in [
        (
            format!("POST /api/sse HTTP/1.1\r\nHost: {host}\r\n{valid}\r\n"),
            405,
        ),
        (
            format!("GET /api/sse/ HTTP/1.1\r\nHost: {host}\r\n{valid}\r\n"),
            404,
        ),
        (
            format!("GET /api/ssee HTTP/1.1\r\nHost: {host}\r\n{valid}\r\n"),
            404,
        ),
        (
            format!("GET /api/sse HTTP/1.1\r\nHost: other\r\n{valid}\r\n"),
            421,
        ),
        (format!("GET /api/sse HTTP/1.1\r\n{valid}\r\n"), 400),
        (
            format!("GET /api/sse HTTP/1.1\r\nHost: {host}\r\nHost: {host}\r\n\r\n"),
            400,
        ),
        (
            format!("GET /api/sse HTTP/1.1\r\nHost: {host}\r\nX-Y : z\r\n{valid}\r\n"),
            400,
        ),
        (
            format!("GET /api/sse HTTP/1.1\r\nHost: {host}\r\nX: {over}\r\n{valid}\r\n"),
            431,
        ),
        (
            format!("GET https://{host}/api/sse HTTP/1.1\r\nHost: {host}\r\n{valid}\r\n"),
            200,
        ),
        (
            format!("GET /api/sse HTTP/1.1\r\nHost: {host}\r\nContent-Length: 2\r\n{valid}\r\nab"),
            200,
        ),
        (
            format!("GET /api/sse HTTP/1.0\r\nHost: {host}\r\n{valid}\r\n"),
            200,
        ),
    ] {
        let mut visitor = engine.visitor().http1(host).await;
        visitor.try_send(&request).await;
        let head = visitor.head().await;
        assert_eq!(
            head.status,
            status,
            "{}",
            request.get(..80).unwrap_or(&request)
        );
    }
}

/// The slot of a disconnected client is free again, even if no event is sent.
#[tokio::test]
async fn a_disconnected_event_stream_client_is_noticed() {
    let engine = TestEngine::start_with("limits:\n  max_watchers: 1\n").await;
    let host = engine.host();
    let valid = bearer(&engine.token(json!({})));
    let mut first = engine.visitor().http1(host).await;
    first.request("GET", "/api/sse", host, &valid).await;
    assert_stream_head(&first.head().await);
    assert_eq!(event(&mut first).await["type"], "state.initial");
    let mut second = engine.visitor().http1(host).await;
    second.request("GET", "/api/sse", host, &valid).await;
    assert_eq!(second.answer().await.status, 503);
    drop(first);
    let until = std::time::Instant::now() + std::time::Duration::from_secs(30);
    loop {
        second.request("GET", "/api/sse", host, &valid).await;
        match second.head().await {
            head if head.status == 200 => break,
            head => drop(second.body(head).await),
        }
        assert!(std::time::Instant::now() < until, "the slot is not free");
    }
}
