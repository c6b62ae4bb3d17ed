//! Idle connections of HTTP/2 visitors.

use testing::{Step, within};

use super::Site;
use crate::edge::attacks::frames::{
    ACK, Connection, DATA, END_STREAM, GOAWAY, NO_ERROR, Outcome, PING, frame,
};
use crate::edge::attacks::http2::request;
use crate::edge::interim::GatedService;

/// A client that answers pings and sends no requests is disconnected, and so is one that never
/// starts.
#[tokio::test]
async fn a_connection_without_requests_is_closed() {
    // Long enough for the first request of each connection.
    let site = Site::with("timeouts: {http_idle_seconds: 10}").await;
    let host = site.host();
    let mut connection = Connection::open(&site.engine, host).await;
    let head = request(host, 1, END_STREAM);
    assert_eq!(connection.outcome(&[head]).await, Outcome::Answer(200));
    let told = loop {
        let next = connection.reader.next().await.expect("a GOAWAY frame");
        match next.kind {
            PING if next.flags & ACK == 0 => {
                let pong = frame(PING, ACK, 0, next.payload);
                connection.writer.send(&pong.to_bytes()).await;
            }
            GOAWAY => break next,
            _ => {}
        }
    };
    assert_eq!(told.payload[4..8], NO_ERROR.to_be_bytes());
    // A request in flight keeps its connection open.
    let mut waiting = Connection::open(&site.engine, host).await;
    waiting.writer.send(&request(host, 1, 0).to_bytes()).await;
    while let Some(next) = connection.reader.next().await {
        if next.kind == PING && next.flags & ACK == 0 {
            let pong = frame(PING, ACK, 0, next.payload);
            connection.writer.try_send(&pong.to_bytes()).await;
        }
    }
    let end = frame(DATA, END_STREAM, 1, []);
    assert_eq!(waiting.outcome(&[end]).await, Outcome::Answer(200));
}

/// A drain waits for requests, but not for a client that has not started HTTP/2.
#[tokio::test]
async fn a_client_that_never_starts_does_not_delay_a_drain() {
    let service = GatedService::start(|gate| {
        vec![
            Step::ReadHead,
            Step::Wait(gate.clone()),
            Step::write("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"),
        ]
    })
    .await;
    let GatedService {
        engine,
        tunnel,
        gate,
        upstream,
    } = service;
    let host = tunnel.hostname();
    let mut silent = Connection::silent(&engine, host).await;
    let mut visitor = engine.visitor().http1(host).await;
    visitor.request("GET", "/", host, "").await;
    upstream.head().await;
    let stopping = tokio::spawn(engine.stop());
    while silent.reader.next().await.is_some() {}
    // The deadline of the drain would have ended this request as well.
    gate.open();
    assert_eq!(visitor.answer().await.status, 200);
    within("end of the engine", stopping).await.unwrap();
}
