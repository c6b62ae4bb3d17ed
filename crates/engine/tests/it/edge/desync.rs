//! No visitor gets bytes of another visitor's message: bytes that one peer counts to one message
//! and the other peer to the next.

use bytes::Bytes;
use futures_util::stream;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use testing::{H2Visitor, Report, ScriptedUpstream, Step, TestEngine, Upstream};
use tokio::sync::mpsc;
use tokio_stream::wrappers::UnboundedReceiverStream;

const GOOD: &str = "HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\ngood";
const POISON: &str = "HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\npoison";

/// A service whose first connection answers with `first`, followed by an unsolicited answer. Its
/// other connections work.
async fn poisoned(first: &'static str) -> ScriptedUpstream {
    ScriptedUpstream::start(move |number| {
        let answer = if number == 1 {
            format!("{first}{POISON}")
        } else {
            GOOD.to_owned()
        };
        vec![Step::ReadHead, Step::write(answer), Step::ReadToEnd]
    })
    .await
}

#[tokio::test]
async fn an_unsolicited_answer_reaches_no_visitor() {
    for (method, first) in [
        ("GET", GOOD),
        (
            "GET",
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\ngood\r\n0\r\n\r\n",
        ),
        ("GET", "HTTP/1.1 204 No Content\r\n\r\n"),
        (
            "GET",
            "HTTP/1.1 204 No Content\r\ncontent-length: 4\r\n\r\ngood",
        ),
        (
            "GET",
            "HTTP/1.1 304 Not Modified\r\ncontent-length: 4\r\n\r\n",
        ),
        ("HEAD", "HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\n"),
        ("HEAD", GOOD),
    ] {
        let engine = TestEngine::start().await;
        for h2 in [false, true] {
            let upstream = poisoned(first).await;
            let tunnel = engine.publish(upstream.addr()).await;
            let host = tunnel.hostname();
            if h2 {
                let mut visitor = engine.visitor().h2(host).await;
                let request = hyper::Request::builder()
                    .method(method)
                    .uri(format!("https://{host}/"))
                    .body(H2Visitor::empty())
                    .unwrap();
                visitor
                    .send(request)
                    .await
                    .unwrap()
                    .into_body()
                    .collect()
                    .await
                    .unwrap();
                assert_eq!(
                    visitor.get("/", host).await.text(),
                    "good",
                    "{method} {first:?}"
                );
            } else {
                let mut visitor = engine.visitor().http1(host).await;
                visitor.request(method, "/", host, "").await;
                let head = visitor.head().await;
                if method == "GET" {
                    visitor.body(head).await;
                }
                assert_eq!(
                    visitor.get("/", host).await.text(),
                    "good",
                    "{method} {first:?}"
                );
            }
        }
    }
}

#[tokio::test]
async fn the_rest_of_a_refused_body_is_not_a_request() {
    let engine = TestEngine::start().await;
    let upstream = ScriptedUpstream::answers_early().await;
    let tunnel = engine.publish(upstream.addr()).await;
    let host = tunnel.hostname();
    let smuggled = format!("GET /smuggled HTTP/1.1\r\nHost: {host}\r\n\r\n");
    let mut visitor = engine.visitor().http1(host).await;
    let length = format!("Content-Length: {}\r\n", smuggled.len() + 5);
    visitor.request("POST", "/", host, &length).await;
    visitor.send("first").await;
    let answer = visitor.answer().await;
    assert_eq!((answer.status, answer.is_complete), (413, true));
    // The edge may have closed the connection by now.
    visitor.try_send(&smuggled).await;
    assert_eq!(visitor.read_to_end().await, b"");
    assert!(upstream.head().await.starts_with("POST / "));
    // The next head that the service receives is from another visitor.
    engine.visitor().http1(host).await.get("/next", host).await;
    let next = upstream.next_head().await;
    assert!(next.starts_with("GET /next "), "{next}");
}

#[tokio::test]
async fn a_short_h2_body_does_not_include_the_next_request() {
    let engine = TestEngine::start().await;
    let upstream = ScriptedUpstream::start(|_| vec![Step::ReadHead, Step::ReadToEnd]).await;
    let tunnel = engine.publish(upstream.addr()).await;
    let host = tunnel.hostname();
    let (frames, body) = mpsc::unbounded_channel();
    frames.send(Ok(Frame::data(Bytes::from("first")))).unwrap();
    let body = StreamBody::new(UnboundedReceiverStream::new(body)).boxed_unsync();
    let request = hyper::Request::post(format!("https://{host}/"))
        .header("content-length", "10")
        .body(body)
        .unwrap();
    let mut visitor = engine.visitor().h2(host).await;
    let answer = tokio::spawn(async move { visitor.send(request).await });
    assert!(upstream.head().await.contains("10\r\n"));
    drop(frames);
    let Report::Bytes(bytes) = upstream.report().await else {
        panic!("bytes come first")
    };
    assert!(bytes.len() < 10, "{}", bytes.escape_ascii());
    // RFC 9113 section 8.1.1: such a request is malformed.
    if let Ok(response) = answer.await.unwrap() {
        assert!(response.status().as_u16() >= 400, "{response:?}");
    }
}

#[tokio::test]
async fn an_h2_body_longer_than_its_content_length_is_refused() {
    let engine = TestEngine::start().await;
    let upstream = Upstream::http1().await;
    let tunnel = engine.publish(upstream.addr()).await;
    let host = tunnel.hostname();
    // Sent as a stream, because the client library counts a body that it has in one piece.
    let bytes = Bytes::from("first GET /smuggled HTTP/1.1\r\n\r\n");
    let body = StreamBody::new(stream::iter([Ok(Frame::data(bytes))])).boxed_unsync();
    let request = hyper::Request::post(format!("https://{host}/"))
        .header("content-length", "5")
        .body(body)
        .unwrap();
    let mut visitor = engine.visitor().h2(host).await;
    if let Ok(response) = visitor.send(request).await {
        assert!(response.status().as_u16() >= 400, "{response:?}");
    }
    let seen = engine
        .visitor()
        .http1(host)
        .await
        .get("/next", host)
        .await
        .json();
    assert_eq!(seen["target"], "/next");
}

#[tokio::test]
async fn an_h2_request_that_names_two_hosts_is_refused() {
    let engine = TestEngine::start().await;
    let upstream = Upstream::http1().await;
    let tunnel = engine.publish(upstream.addr()).await;
    let host = tunnel.hostname();
    let request = hyper::Request::get(format!("https://{host}/"))
        .header("host", "other.example")
        .body(H2Visitor::empty())
        .unwrap();
    let response = engine.visitor().h2(host).await.send(request).await.unwrap();
    assert!(
        matches!(response.status().as_u16(), 400 | 421),
        "{}",
        response.status()
    );
    assert_eq!(upstream.accepted(), 0);
}
