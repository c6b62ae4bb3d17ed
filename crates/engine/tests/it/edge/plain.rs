//! The plain listener.

use testing::{RawVisitor, ReceivedResponse, TestEngine};
use tokio::net::TcpStream;

const PLAIN: &str = "http: {enabled: true, listen_addr: '127.0.0.1:0'}\n";

/// The listener's answer to one request, after which it closes.
async fn response(engine: &TestEngine, request: &str) -> ReceivedResponse {
    let addr = engine.running().http_addr().unwrap();
    let mut visitor = RawVisitor::new(TcpStream::connect(addr).await.unwrap());
    visitor.send(request).await;
    let mut answer = visitor.head().await;
    if !request.starts_with("HEAD") {
        answer = visitor.body(answer).await;
    }
    assert_eq!(visitor.read_to_end().await, b"", "it closes: {request:?}");
    answer
}

#[tokio::test]
async fn a_browser_is_redirected_to_https() {
    let engine = TestEngine::start_with(PLAIN).await;
    let port = engine.addr().port();
    for (request, location) in [
        ("GET / HTTP/1.1\r\nHost: Web.example\r\n\r\n", "/"),
        (
            "GET /a%2Fb?c=%zz&d HTTP/1.1\r\nHost: web.example:80\r\n\r\n",
            "/a%2Fb?c=%zz&d",
        ),
        ("HEAD //x HTTP/1.0\r\nHost: web.example\r\n\r\n", "//x"),
        (
            "GET http://web.example/y HTTP/1.1\r\nHost: web.example\r\n\r\n",
            "/y",
        ),
    ] {
        let answer = response(&engine, request).await;
        let expected = format!("https://web.example:{port}{location}");
        assert_eq!(
            (answer.status, answer.header("location")),
            (308, Some(&*expected)),
            "{request:?}"
        );
    }
}

#[tokio::test]
async fn silent_clients_do_not_delay_a_drain() {
    let engine = TestEngine::start_with(PLAIN).await;
    let addr = engine.running().http_addr().unwrap();
    let mut silent = RawVisitor::new(TcpStream::connect(addr).await.unwrap());
    // The other connection was accepted before this one, possibly by another worker.
    response(&engine, "GET / HTTP/1.1\r\nHost: a\r\n\r\n").await;
    let started_at = std::time::Instant::now();
    engine.stop().await;
    assert!(started_at.elapsed() < std::time::Duration::from_secs(8));
    assert_eq!(silent.read_to_end().await, b"");
}

/// ED-1e: a token that arrived unencrypted is not sent a second time.
#[tokio::test]
async fn ed_1e_a_token_in_the_address_is_refused_without_a_location() {
    let engine = TestEngine::start_with(PLAIN).await;
    for query in [
        "svc.token=a.b.c",
        "a=1&svc.token",
        "%73vc%2etoken=",
        "svc.token=a.b.c&svc.token=a.b.c",
        "rstream.token=a.b.c",
    ] {
        for method in ["GET", "POST"] {
            let request = format!("{method} /?{query} HTTP/1.1\r\nHost: web.example\r\n\r\n");
            let answer = response(&engine, &request).await;
            assert_eq!(
                (answer.status, answer.header("location")),
                (400, None),
                "{request:?}"
            );
            assert_eq!(answer.json()["code"], "invalid_request");
            assert!(!answer.text().contains("a.b.c"));
        }
    }
}

#[tokio::test]
async fn a_request_that_is_not_a_navigation_needs_https() {
    let engine = TestEngine::start_with(PLAIN).await;
    for request in [
        "POST / HTTP/1.1\r\nHost: web.example\r\nContent-Length: 3\r\n\r\nabc",
        "OPTIONS * HTTP/1.1\r\nHost: web.example\r\n\r\n",
        "CONNECT web.example:443 HTTP/1.1\r\nHost: web.example:443\r\n\r\n",
    ] {
        let answer = response(&engine, request).await;
        assert_eq!(answer.status, 403, "{request:?}");
        assert_eq!(answer.json()["code"], "https_required");
        assert_eq!(answer.header("location"), None);
    }
}

#[tokio::test]
async fn an_ambiguous_head_is_not_redirected() {
    let engine = TestEngine::start_with(PLAIN).await;
    for (request, status) in [
        ("GET / HTTP/1.1\nHost: a\n\n", 400),
        ("GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\n\r\n", 400),
        ("GET http://a/ HTTP/1.1\r\nHost: b\r\n\r\n", 400),
        ("GET /#?svc.token=a.b.c HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("nonsense\r\n\r\n", 400),
        (&format!("GET /{} HTTP/1.1\r\n", "a".repeat(9_000)), 414),
        (&format!("GET / HTTP/1.1\r\nA: {}", "a".repeat(40_000)), 431),
    ] {
        let answer = response(&engine, request).await;
        assert_eq!(
            (answer.status, answer.header("location")),
            (status, None),
            "{request:?}"
        );
        assert_eq!(
            answer.header("content-type"),
            Some("application/problem+json")
        );
    }
}
