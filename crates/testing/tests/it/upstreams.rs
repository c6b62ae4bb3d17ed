use std::net::SocketAddr;

use futures_util::{SinkExt, StreamExt, stream};
use testing::grpc::{Client, Number};
use testing::{
    EventSource, Gate, H2Visitor, RawVisitor, Report, ScriptedUpstream, TestCa, Upstream, Visitor,
};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tokio_tungstenite::tungstenite::Message;
use tonic::Code;
use tonic::metadata::MetadataMap;

async fn plain(addr: SocketAddr) -> RawVisitor {
    RawVisitor::new(TcpStream::connect(addr).await.unwrap())
}

#[tokio::test]
async fn the_http_server_returns_the_received_request() {
    let upstream = Upstream::http1().await;
    let mut visitor = plain(upstream.addr()).await;
    visitor.get("/first", "a").await;
    visitor
        .request(
            "POST",
            "/second?x",
            "a",
            "X-Y: z\r\nTransfer-Encoding: chunked\r\n",
        )
        .await;
    visitor.send("2\r\nhi\r\n0\r\n\r\n").await;
    let seen = visitor.answer().await.json();
    assert_eq!(
        (&seen["connection"], &seen["request"]),
        (&1.into(), &2.into())
    );
    assert_eq!(
        (&seen["target"], &seen["body"]),
        (&"/second?x".into(), &"hi".into())
    );
    assert!(
        seen["headers"]
            .as_array()
            .unwrap()
            .contains(&serde_json::json!(["x-y", "z"]))
    );
    for path in ["/bytes/12345", "/chunked/12345"] {
        let answer = visitor.get(path, "a").await;
        assert!(
            answer.is_complete && answer.body == Upstream::payload(12345),
            "{path}"
        );
    }
    assert_eq!(visitor.get("/status/418", "a").await.status, 418);
    assert_eq!(upstream.accepted(), 1);
    plain(upstream.addr()).await;
    upstream.wait_accepted(2).await;
}

#[tokio::test]
async fn a_mirror_answers_while_the_request_continues() {
    let upstream = Upstream::http1().await;
    let mut visitor = plain(upstream.addr()).await;
    visitor
        .request("POST", "/mirror", "a", "Transfer-Encoding: chunked\r\n")
        .await;
    visitor.send("1\r\na\r\n").await;
    visitor.head().await;
    assert_eq!(visitor.chunk().await.unwrap(), b"a");
    visitor.send("1\r\nb\r\n").await;
    assert_eq!(visitor.chunk().await.unwrap(), b"b");
    visitor.send("0\r\n\r\n").await;
    assert_eq!(visitor.chunk().await.unwrap(), b"");
}

#[tokio::test]
async fn alpn_chooses_the_version_over_tls() {
    let ca = TestCa::new();
    let upstream = Upstream::tls(&ca, &["h2", "http/1.1"]).await;
    let visitor = Visitor::new(upstream.addr(), &ca);
    let over_http1 = visitor
        .http1("localhost")
        .await
        .get("/", "localhost")
        .await
        .json();
    assert_eq!(over_http1["version"], "HTTP/1.1");
    let mut h2 = visitor.h2("localhost").await;
    let answer = h2.get("/", "localhost").await;
    assert_eq!(answer.json()["version"], "HTTP/2.0");
    assert_eq!(
        answer.trailers,
        [("x-trailer".to_owned(), "end".to_owned())]
    );
    let request = http::Request::post("https://localhost/mirror");
    let response = h2
        .send(request.body(H2Visitor::full("body")).unwrap())
        .await
        .unwrap();
    assert_eq!(H2Visitor::collect(response).await.body, b"body");
}

#[tokio::test]
async fn events_arrive_when_they_are_sent() {
    let source = EventSource::start().await;
    let mut visitor = plain(source.upstream.addr()).await;
    visitor.request("GET", "/", "a", "").await;
    assert_eq!(
        visitor.head().await.header("content-type"),
        Some("text/event-stream")
    );
    for data in ["one", "two"] {
        let event = source.send(data);
        assert_eq!(visitor.chunk().await.unwrap(), event.as_bytes());
    }
    source.end();
    assert_eq!(visitor.chunk().await.unwrap(), b"");
}

#[tokio::test]
async fn truncated_bodies_are_not_complete() {
    let gate = Gate::new();
    gate.open();
    for upstream in [
        ScriptedUpstream::cuts_a_length().await,
        ScriptedUpstream::cuts_chunks().await,
        ScriptedUpstream::resets_in_the_body(&gate).await,
    ] {
        let answer = plain(upstream.addr()).await.get("/", "a").await;
        assert!(!answer.is_complete);
        assert_eq!(answer.body, b"first");
        assert!(upstream.head().await.starts_with("GET / HTTP/1.1\r\n"));
    }
    let upstream = ScriptedUpstream::slow_body(&gate).await;
    gate.open();
    let answer = plain(upstream.addr()).await.get("/", "a").await;
    assert!(answer.is_complete && answer.body == b"firstlater");
}

#[tokio::test]
async fn a_connection_is_closed_when_it_is_used_again() {
    let upstream = ScriptedUpstream::closes_when_reused().await;
    let mut visitor = plain(upstream.addr()).await;
    assert_eq!(visitor.get("/", "a").await.body, b"1");
    visitor.request("GET", "/again", "a", "").await;
    assert_eq!(visitor.read_to_end().await, b"");
    assert_eq!(plain(upstream.addr()).await.get("/", "a").await.body, b"2");
    assert_eq!(upstream.accepted(), 2);
}

#[tokio::test]
async fn a_visitor_that_disconnects_is_reported() {
    let upstream = ScriptedUpstream::never_answers().await;
    let mut visitor = plain(upstream.addr()).await;
    visitor.request("GET", "/", "a", "").await;
    upstream.head().await;
    drop(visitor);
    assert_eq!(upstream.report().await, Report::Bytes(Vec::new()));
    assert_eq!(upstream.report().await, Report::Closed);
}

#[tokio::test]
async fn websocket_messages_are_echoed() {
    let upstream = Upstream::websocket().await;
    let stream = TcpStream::connect(upstream.addr()).await.unwrap();
    let (mut socket, _) = tokio_tungstenite::client_async("ws://a/", stream)
        .await
        .unwrap();
    socket.send(Message::text("hello")).await.unwrap();
    assert_eq!(
        socket.next().await.unwrap().unwrap(),
        Message::text("hello")
    );
}

#[tokio::test]
async fn grpc_calls_of_all_kinds_are_answered() {
    let upstream = Upstream::grpc().await;
    let mut client = Client::connect_plain(upstream.addr()).await;
    let mut metadata = MetadataMap::new();
    metadata.insert("x-given", "1".parse().unwrap());
    let (value, metadata) = client.double(21, metadata).await.unwrap();
    assert_eq!(value, 42);
    assert_eq!(metadata.get("x-returned").unwrap(), "1");
    let refused = client.double(-1, MetadataMap::new()).await.unwrap_err();
    assert_eq!(
        (refused.code(), refused.message()),
        (Code::OutOfRange, "below 0")
    );
    let counted: Vec<_> = client
        .count(3)
        .await
        .unwrap()
        .map(Result::unwrap)
        .collect()
        .await;
    assert_eq!(counted, [1, 2, 3].map(|value| Number { value }));
    assert_eq!(client.sum(stream::iter(1..=4)).await.unwrap(), 10);
    let (sender, receiver) = mpsc::unbounded_channel();
    let mut echoed = client
        .echo(UnboundedReceiverStream::new(receiver))
        .await
        .unwrap();
    for value in [5, 6] {
        sender.send(value).unwrap();
        assert_eq!(echoed.message().await.unwrap(), Some(Number { value }));
    }
    drop(sender);
    assert_eq!(echoed.message().await.unwrap(), None);
}
