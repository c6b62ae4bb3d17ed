//! How many connections there may be, in all and of one source, and how long they may do nothing.

use client::Properties;
use testing::{TestEngine, Upstream, within};
use tokio_util::task::AbortOnDropHandle;

use crate::world::{A, World};

/// The source is whom a trusted proxy names. What one source may have takes nothing from others.
#[tokio::test]
async fn connections_of_one_source_have_a_limit() {
    const MOST: usize = 8;
    let world = World::with("limits: {max_connections_per_source: 8}").await;
    let service = Upstream::http1().await;
    let tunnel = world.publish(Properties::http(), &service).await;
    let host = tunnel.hostname();
    let mut held = Vec::new();
    for _ in 0..MOST {
        let mut visitor = world.visitor_from("203.0.113.1", host).await;
        assert_eq!(visitor.get("/", host).await.status, 200);
        held.push(visitor);
    }
    assert!(world.is_closed_unread("203.0.113.1").await);
    let mut other = world.visitor_from("203.0.113.2", host).await;
    assert_eq!(other.get("/", host).await.status, 200);
    assert_eq!(held[0].get("/", host).await.status, 200);
}

/// Of all connections the last are for agents and the Engine API.
#[tokio::test]
async fn visitors_leave_room_for_agents_and_the_engine_api() {
    let limits = "limits: {max_connections: 32, max_connections_per_source: 32}";
    let world = World::with(limits).await;
    let service = Upstream::http1().await;
    let tunnel = world.publish(Properties::http(), &service).await;
    let host = tunnel.hostname();
    let mut held = Vec::new();
    // The agent has one that counts.
    for _ in 0..29 {
        let mut visitor = world.visitor_from("203.0.113.1", host).await;
        assert_eq!(visitor.get("/", host).await.status, 200);
        held.push(visitor);
    }
    let config = world.engine.ca().client(&["http/1.1"]);
    let visitor = world.engine.visitor();
    assert!(visitor.try_connect(host, &config).await.is_none());
    let own = format!("{A}.engine.localhost");
    let bearer = format!("Authorization: Bearer {}\r\n", world.token);
    let mut caller = visitor.http1(&own).await;
    caller.request("GET", "/api/tunnels", &own, &bearer).await;
    assert_eq!(caller.answer().await.status, 200);
}

/// A connection of the Engine API without a request ends, whatever came before; a stream that is
/// watched keeps its connection.
#[tokio::test]
async fn an_idle_api_connection_over_http2_ends() {
    let engine = TestEngine::start_with("timeouts: {http_idle_seconds: 1}").await;
    let bearer = format!("Bearer {}", engine.token(serde_json::json!({})));
    let connect = async || {
        let config = engine.ca().client(&["h2"]);
        let stream = engine.visitor().connect(engine.host(), &config).await;
        h2::client::handshake(stream).await.unwrap()
    };
    let ask = async |sender: &h2::client::SendRequest<bytes::Bytes>, path: &str| {
        let request = http::Request::get(format!("https://{}{path}", engine.host()))
            .header("authorization", &bearer)
            .body(())
            .unwrap();
        let mut sender = sender.clone().ready().await.unwrap();
        let (answer, _) = sender.send_request(request, true).unwrap();
        within("answer", answer).await.unwrap()
    };
    let (watcher, connection) = connect().await;
    let watching = AbortOnDropHandle::new(tokio::spawn(connection));
    let stream = ask(&watcher, "/api/sse").await;
    assert_eq!(stream.status(), 200);
    let (idle, connection) = connect().await;
    let ending = tokio::spawn(connection);
    assert!(ask(&idle, "/api/auth").await.status().is_success());
    within("end of the idle connection", ending)
        .await
        .unwrap()
        .ok();
    assert!(!watching.is_finished());
    assert!(ask(&watcher, "/api/auth").await.status().is_success());
}
