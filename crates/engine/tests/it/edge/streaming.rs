//! Every chunk is forwarded as soon as it arrives, in both directions.

use bytes::Bytes;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use testing::{EventSource, Gate, H2Visitor, ScriptedUpstream, TestEngine, Upstream};
use tokio::sync::mpsc;
use tokio_stream::wrappers::UnboundedReceiverStream;

#[tokio::test]
async fn a_chunk_is_echoed_before_the_next_is_sent() {
    let engine = TestEngine::start().await;
    let upstream = Upstream::http1().await;
    let tunnel = engine.publish(upstream.addr()).await;
    let host = tunnel.hostname();
    let mut visitor = engine.visitor().http1(host).await;
    visitor
        .request("POST", "/mirror", host, "Transfer-Encoding: chunked\r\n")
        .await;
    visitor.send("1\r\na\r\n").await;
    assert_eq!(visitor.head().await.status, 200);
    assert_eq!(visitor.chunk().await.unwrap(), b"a");
    for _ in 0..20 {
        visitor.send("2\r\nbc\r\n").await;
        assert_eq!(visitor.chunk().await.unwrap(), b"bc");
    }
    visitor.send("0\r\n\r\n").await;
    assert_eq!(visitor.chunk().await.unwrap(), b"");
    assert_eq!(visitor.get("/", host).await.status, 200);
}

#[tokio::test]
async fn a_frame_of_an_h2_body_is_echoed_before_the_next_is_sent() {
    let engine = TestEngine::start().await;
    let http1 = Upstream::http1().await;
    let h2c = Upstream::h2c().await;
    for tunnel in [
        engine.publish(http1.addr()).await,
        engine.publish_h2c(h2c.addr()).await,
    ] {
        let host = tunnel.hostname();
        let (frames, body) = mpsc::unbounded_channel();
        let body = StreamBody::new(UnboundedReceiverStream::new(body)).boxed_unsync();
        let mut visitor = engine.visitor().h2(host).await;
        let request = hyper::Request::post(format!("https://{host}/mirror"))
            .body(body)
            .unwrap();
        frames.send(Ok(Frame::data(Bytes::from("0")))).unwrap();
        let response = visitor.send(request).await.unwrap();
        let mut answer = response.into_body();
        for round in 0..20 {
            let frame = answer.frame().await.unwrap().unwrap().into_data().unwrap();
            assert_eq!(frame, format!("{round}"));
            frames
                .send(Ok(Frame::data(Bytes::from(format!("{}", round + 1)))))
                .unwrap();
        }
        drop(frames);
        assert_eq!(
            answer.frame().await.unwrap().unwrap().into_data().unwrap(),
            "20"
        );
        let rest = answer.collect().await.unwrap();
        assert_eq!(rest.to_bytes(), "");
    }
}

#[tokio::test]
async fn every_event_is_flushed() {
    let engine = TestEngine::start().await;
    let source = EventSource::start().await;
    let tunnel = engine.publish(source.upstream.addr()).await;
    let host = tunnel.hostname();
    let mut visitor = engine.visitor().http1(host).await;
    visitor
        .request("GET", "/", host, "Accept: text/event-stream\r\n")
        .await;
    assert_eq!(
        visitor.head().await.header("content-type"),
        Some("text/event-stream")
    );
    let request = hyper::Request::get(format!("https://{host}/")).body(H2Visitor::empty());
    let mut h2 = engine.visitor().h2(host).await;
    let mut events = h2.send(request.unwrap()).await.unwrap().into_body();
    for number in 0..20 {
        let event = source.send(&format!("event {number}"));
        assert_eq!(visitor.chunk().await.unwrap(), event.as_bytes());
        let frame = events.frame().await.unwrap().unwrap().into_data().unwrap();
        assert_eq!(frame, event.as_bytes());
    }
    source.end();
    assert_eq!(visitor.chunk().await.unwrap(), b"");
    assert_eq!(events.collect().await.unwrap().to_bytes(), "");
}

#[tokio::test]
async fn the_first_part_of_a_slow_body_is_not_delayed() {
    let engine = TestEngine::start().await;
    let gate = Gate::new();
    let upstream = ScriptedUpstream::slow_body(&gate).await;
    let tunnel = engine.publish(upstream.addr()).await;
    let host = tunnel.hostname();
    let mut visitor = engine.visitor().http1(host).await;
    visitor.request("GET", "/", host, "").await;
    assert_eq!(visitor.head().await.header("content-length"), Some("10"));
    assert_eq!(visitor.read_exact(5).await.unwrap(), b"first");
    gate.open();
    assert_eq!(visitor.read_exact(5).await.unwrap(), b"later");
}
