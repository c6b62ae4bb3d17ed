//! Idle connections to services.

use std::convert::Infallible;

use bytes::Bytes;
use client::{Properties, Target};
use futures_util::stream;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::Frame;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::Value;
use testing::{ScriptedUpstream, Step, TestEngine, TestTunnel, Upstream, within};
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

#[tokio::test]
async fn idle_connections_make_room_for_a_visitor() {
    let engine = TestEngine::start_with("limits: {max_streams_per_client: 1}").await;
    let service = Upstream::http1().await;
    let agent = engine.agent().await;
    let mut hosts = Vec::new();
    for _ in 0..2 {
        let target: Target = service.addr().to_string().parse().unwrap();
        hosts.push(TestTunnel::open(agent.clone(), Properties::http(), target).await);
    }
    for tunnel in hosts.iter().chain(&hosts) {
        let host = tunnel.hostname();
        let answer = engine.visitor().http1(host).await.get("/", host).await;
        assert_eq!(answer.status, 200, "{answer:?}");
    }
}

#[tokio::test]
async fn an_http_2_connection_that_does_not_answer_is_not_used_again() {
    // The limit also applies to the requests that are answered.
    let engine = TestEngine::start_with("timeouts: {stream_request_seconds: 10}").await;
    let service = Upstream::start(|stream, number| async move {
        let service = service_fn(move |_: Request<Incoming>| async move {
            if number == 1 {
                std::future::pending::<()>().await;
            }
            Ok::<_, Infallible>(Response::new(Full::<Bytes>::from("well")))
        });
        hyper::server::conn::http2::Builder::new(TokioExecutor::new())
            .serve_connection(TokioIo::new(stream), service)
            .await
            .ok();
    })
    .await;
    let tunnel = engine.publish_h2c(service.addr()).await;
    let host = tunnel.hostname();
    // One visitor, so that all connections belong to one worker.
    let mut visitor = engine.visitor().h2(host).await;
    assert_eq!(visitor.get("/", host).await.status, 504);
    assert_eq!(visitor.get("/", host).await.text(), "well");
    let mut other = engine.visitor().http1(host).await;
    let statuses = [
        other.get("/", host).await.status,
        other.get("/", host).await.status,
    ];
    assert_eq!(statuses, [200, 200]);
}

#[tokio::test]
async fn http_2_to_http_2_visits_are_logged_as_served() {
    let directory = tempfile::tempdir().unwrap();
    let log = directory.path().join("access.log");
    let section = format!("access_log: {{path: '{}'}}", log.display());
    let engine = TestEngine::start_with(&section).await;
    let service = Upstream::h2c().await;
    let tunnel = engine.publish_h2c(service.addr()).await;
    let host = tunnel.hostname().to_owned();
    let mut visitor = engine.visitor().h2(&host).await;
    for path in ["/", "/bytes/100000", "/chunked/100000", "/status/204"] {
        assert!(visitor.get(path, &host).await.is_complete, "{path}");
    }
    drop(visitor);
    tunnel.close().await;
    engine.stop().await;
    let log = std::fs::read_to_string(log).unwrap();
    let lines = log.lines().map(|line| serde_json::from_str(line).unwrap());
    let lines: Vec<Value> = lines.collect();
    assert_eq!(lines.len(), 4);
    for line in lines {
        assert_eq!(line["outcome"], "served", "{line}");
    }
}

#[tokio::test]
async fn a_visitor_beyond_the_stream_limit_of_a_connection_gets_another() {
    let engine = TestEngine::start().await;
    let service = Upstream::start(|stream, _| async move {
        let mut connection = h2::server::Builder::new()
            .max_concurrent_streams(1)
            .handshake::<_, Bytes>(stream)
            .await
            .unwrap();
        let mut in_flight = Vec::new();
        while let Some(Ok((_, mut answer))) = connection.accept().await {
            // The body does not end before the connection does.
            in_flight.push(answer.send_response(Response::new(()), false));
        }
    })
    .await;
    let tunnel = engine.publish_h2c(service.addr()).await;
    let host = tunnel.hostname();
    let mut visitor = engine.visitor().h2(host).await;
    let mut in_flight = Vec::new();
    for _ in 0..3 {
        let request = Request::get(format!("https://{host}/"))
            .body(testing::H2Visitor::empty())
            .unwrap();
        let response = visitor.send(request).await.unwrap();
        assert_eq!(response.status().as_u16(), 200);
        in_flight.push(response);
    }
    assert_eq!(service.accepted(), 3);
    drop(in_flight);
}

/// The engine sends at most 32 concurrent requests on a connection, whatever limit the service
/// offers.
#[tokio::test]
async fn a_connection_to_a_service_carries_32_requests() {
    let engine = TestEngine::start().await;
    let service = Upstream::start(|stream, _| async move {
        let mut connection = h2::server::handshake(stream).await.unwrap();
        let mut in_flight = Vec::new();
        while let Some(Ok((_, mut answer))) = connection.accept().await {
            // The body does not end before the connection does.
            in_flight.push(answer.send_response(Response::new(()), false));
        }
    })
    .await;
    let tunnel = engine.publish_h2c(service.addr()).await;
    let host = tunnel.hostname();
    let mut visitor = engine.visitor().h2(host).await;
    let mut in_flight = Vec::new();
    for number in 1..=65_usize {
        let request = Request::get(format!("https://{host}/"))
            .body(testing::H2Visitor::empty())
            .unwrap();
        let response = within("answer", visitor.send(request)).await.unwrap();
        assert_eq!(response.status().as_u16(), 200);
        in_flight.push(response);
        assert_eq!(service.accepted(), number.div_ceil(32), "{number}");
    }
}

/// A service that answers `/held` with [`HELD`] bytes, and counts those that have been sent.
async fn counting_service(gone: watch::Sender<usize>) -> Upstream {
    Upstream::start(move |stream, _| {
        let gone = gone.clone();
        let service = service_fn(move |request: Request<Incoming>| {
            let gone = gone.clone();
            let body: UnsyncBoxBody<Bytes, Infallible> = if request.uri().path() == "/held" {
                let frames = stream::iter((0..HELD / FRAME).map(move |_| {
                    gone.send_modify(|gone| *gone += FRAME);
                    Ok(Frame::data(Bytes::from_static(&[7; FRAME])))
                }));
                StreamBody::new(frames).boxed_unsync()
            } else {
                Full::from("small").boxed_unsync()
            };
            std::future::ready(Ok::<_, Infallible>(Response::new(body)))
        });
        async move {
            hyper::server::conn::http2::Builder::new(TokioExecutor::new())
                .serve_connection(TokioIo::new(stream), service)
                .await
                .ok();
        }
    })
    .await
}

/// Bytes in flight to a visitor that does not read.
const HELD: usize = 1024 * 1024;
const FRAME: usize = 16 * 1024;

#[tokio::test]
async fn slow_readers_delay_no_other_visitor() {
    const VISITORS: usize = 24;
    let engine = TestEngine::start().await;
    let (gone, mut seen) = watch::channel(0);
    let service = counting_service(gone).await;
    let tunnel = engine.publish_h2c(service.addr()).await;
    let host = tunnel.hostname();
    // One connection, so that it belongs to one worker. Each of its streams has a small window.
    let stream = engine.visitor();
    let stream = stream.connect(host, &engine.ca().client(&["h2"])).await;
    let (mut visitor, connection) = h2::client::Builder::new()
        .initial_connection_window_size(16 * 1024 * 1024)
        .handshake::<_, Bytes>(stream)
        .await
        .unwrap();
    let _connection = AbortOnDropHandle::new(tokio::spawn(connection));
    let mut get = async |path: &str| {
        let request = Request::get(format!("https://{host}{path}")).body(());
        visitor = visitor.clone().ready().await.unwrap();
        let (answer, _) = visitor.send_request(request.unwrap(), true).unwrap();
        within("answer", answer).await.unwrap()
    };
    let mut held = Vec::new();
    for _ in 0..VISITORS {
        held.push(get("/held").await);
    }
    let all = seen.wait_for(|gone| *gone == VISITORS * HELD);
    within("room for what nobody reads", all).await.unwrap();
    let mut small = get("/").await.into_body();
    let data = within("body", small.data()).await.unwrap().unwrap();
    assert_eq!(data, "small");
    assert_eq!(service.accepted(), 1, "they share a connection");
}

/// An agent that has reached its stream limit closes its own idle connections for new ones, and no
/// other agent's.
#[tokio::test]
async fn an_agent_without_free_streams_takes_none_of_another_agents_connections() {
    const MOST: usize = 2;
    let engine = TestEngine::start_with("limits: {max_streams_per_client: 2}").await;
    let service = Upstream::http1().await;
    let other = engine.publish(service.addr()).await;
    let host = other.hostname();
    let mut visitor = engine.visitor().http1(host).await;
    assert_eq!(visitor.get("/", host).await.status, 200);
    let busy = ScriptedUpstream::start(|_| {
        let answer = "HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nbegun";
        vec![Step::ReadHead, Step::write(answer), Step::KeepOpen]
    })
    .await;
    let full = engine.publish(busy.addr()).await;
    let mut held = Vec::new();
    for _ in 0..MOST {
        let mut visitor = engine.visitor().http1(full.hostname()).await;
        visitor.request("GET", "/", full.hostname(), "").await;
        assert_eq!(visitor.head().await.status, 200);
        held.push(visitor);
    }
    let mut refused = engine.visitor().http1(full.hostname()).await;
    let refused = refused.get("/", full.hostname()).await;
    assert_eq!(refused.status, 503, "{refused:?}");
    // The visitor's connection is the same, and so is the worker.
    let next = visitor.get("/", host).await.json();
    assert_eq!(next["request"], 2, "its connection is still idle");
}
