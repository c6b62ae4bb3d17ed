//! Answers that arrive before the request is complete.

use bytes::Bytes;
use client::Properties;
use client::properties::HttpVersion;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use testing::{H2Body, H2Visitor, ScriptedUpstream, Step, TestEngine, Upstream, within};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::mpsc;
use tokio_stream::wrappers::UnboundedReceiverStream;

use super::idle::{end_of_stream, observed};

/// The service answers and resets its connection with most of the request unread. The agent's next
/// write fails, and the data that it has read must be delivered all the same.
#[tokio::test]
async fn an_answer_before_a_reset_is_delivered() {
    const ANSWER: &str = "HTTP/1.1 413 Content Too Large\r\ncontent-length: 8\r\n\r\ntoo much";
    let engine = TestEngine::start().await;
    let upstream = ScriptedUpstream::start(|_| {
        // More than the system buffers for a socket that is not read.
        vec![
            Step::ReadHead,
            Step::ReadBytes(1_000_000),
            Step::write(ANSWER),
            Step::Reset,
        ]
    })
    .await;
    let tunnel = engine.publish(upstream.addr()).await;
    let host = tunnel.hostname();
    for _ in 0..20 {
        let mut visitor = engine.visitor().http1(host).await;
        let length = "Content-Length: 1000000000\r\n";
        visitor.request("POST", "/", host, length).await;
        let (mut reader, mut writer) = tokio::io::split(visitor.into_stream());
        let uploading = tokio::spawn(async move {
            let piece = vec![0; 64 * 1024];
            while writer.write_all(&piece).await.is_ok() {}
        });
        let mut answer = vec![0; ANSWER.len()];
        let read = within("answer", reader.read_exact(&mut answer)).await;
        let answer = String::from_utf8_lossy(&answer).into_owned();
        assert!(read.is_ok(), "{read:?} {answer}");
        assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");
        drop(reader);
        within("end of the upload", uploading).await.unwrap();
    }
}

/// A body that has started, and does not end before the sender is dropped.
fn started_body() -> (mpsc::UnboundedSender<FrameResult>, H2Body) {
    let (frames, body) = mpsc::unbounded_channel::<FrameResult>();
    frames.send(Ok(Frame::data(Bytes::from("part")))).unwrap();
    let body = StreamBody::new(UnboundedReceiverStream::new(body));
    (frames, body.boxed_unsync())
}

type FrameResult = Result<Frame<Bytes>, Box<dyn std::error::Error + Send + Sync>>;

/// The response is complete, so neither the visit nor the stream of the agent has failed. A service
/// with HTTP/2 resets only the stream, without an error (RFC 9113, 8.1).
#[tokio::test]
async fn an_answer_before_a_reset_of_its_request_is_not_reported_as_failed() {
    let directory = tempfile::tempdir().unwrap();
    let log = directory.path().join("access.log");
    let section = format!("access_log: {{path: '{}'}}", log.display());
    let engine = TestEngine::start_with(&section).await;
    let http1 = ScriptedUpstream::start(|_| {
        vec![
            Step::ReadHead,
            Step::ReadBytes(4),
            Step::write("HTTP/1.1 413 Content Too Large\r\ncontent-length: 8\r\n\r\ntoo much"),
            Step::Reset,
        ]
    })
    .await;
    let h2c = Upstream::start(|stream, _| async move {
        let mut connection = h2::server::handshake(stream).await.unwrap();
        while let Some(Ok((_request, mut answer))) = connection.accept().await {
            let mut response = Response::new(());
            *response.status_mut() = StatusCode::PAYLOAD_TOO_LARGE;
            let mut body = answer.send_response(response, false).unwrap();
            // The rest of the request is not read: the library resets the stream after the response.
            body.send_data(Bytes::from("too much"), true).unwrap();
            connection.graceful_shutdown();
        }
    })
    .await;
    let prior_knowledge = Properties::http().http_version(HttpVersion::H2c);
    for (service, properties) in [
        (http1.addr(), Properties::http()),
        (h2c.addr(), prior_knowledge),
    ] {
        let (host, mut streams, _agent) = observed(&engine, service, properties).await;
        let mut visitor = engine.visitor().http1(&host).await;
        let length = "Content-Length: 1000000\r\n";
        visitor.request("POST", "/", &host, length).await;
        visitor.send("part").await;
        let answer = visitor.answer().await;
        assert_eq!((answer.status, answer.text()), (413, "too much"));
        assert_eq!(end_of_stream(&mut streams).await, None, "HTTP/1.1");
        let (_frames, body) = started_body();
        let request = Request::post(format!("https://{host}/"));
        let request = request.body(body).unwrap();
        let mut visitor = engine.visitor().h2(&host).await;
        let answer = H2Visitor::collect(visitor.send(request).await.unwrap()).await;
        assert_eq!((answer.status, answer.text()), (413, "too much"));
        assert!(answer.is_complete);
        assert_eq!(end_of_stream(&mut streams).await, None, "HTTP/2");
    }
    engine.stop().await;
    let log = std::fs::read_to_string(log).unwrap();
    let outcomes = log.lines().map(|line| {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        line["outcome"].as_str().unwrap().to_owned()
    });
    assert_eq!(outcomes.collect::<Vec<_>>(), ["served"; 4]);
}
