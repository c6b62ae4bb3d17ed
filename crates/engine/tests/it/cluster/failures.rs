//! Engines and tunnels that are lost.

use std::sync::Arc;

use client::{Properties, Target};
use engine::cluster::RemoteTunnel;
use futures_util::StreamExt;
use testing::cluster::{SERVING, TestCluster, VISITED};
use testing::{EventSource, FakePlatform, Gate, ScriptedUpstream, TestTunnel, Upstream, within};
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;

#[tokio::test]
async fn an_engine_that_dies_within_a_response_resets_the_visitor() {
    let cluster = TestCluster::start().await;
    let source = EventSource::start().await;
    let tunnel = cluster.publish(source.upstream.addr()).await;
    let host = tunnel.hostname().to_owned();
    let mut visitor = cluster.visitor().http1(&host).await;
    visitor.request("GET", "/", &host, "").await;
    assert_eq!(visitor.head().await.status, 200);
    let event = source.send("one");
    assert_eq!(visitor.chunk().await.unwrap(), event.as_bytes());
    let (visited, serving) = cluster.into_engines();
    serving.kill().await;
    // Not the last chunk.
    let rest = within("end of the response", visitor.chunk()).await;
    assert_eq!(rest, None);
    // A further visitor is asked to try again.
    let waiting = visited.running().wait_for_peer(SERVING, false);
    within("end of the link", waiting).await;
    let answer = visited.visitor().http1(&host).await.get("/", &host).await;
    assert_eq!(answer.status, 503);
    assert!(answer.header("retry-after").is_some(), "{answer:?}");
}

/// A response without a length is complete only if the connection is closed properly, or with its
/// last chunk.
#[tokio::test]
async fn a_truncated_stream_is_never_complete() {
    let cluster = TestCluster::start().await;
    for upstream in [
        ScriptedUpstream::cuts_a_length().await,
        ScriptedUpstream::cuts_chunks().await,
    ] {
        let tunnel = cluster.publish(upstream.addr()).await;
        let host = tunnel.hostname();
        let answer = cluster.visitor().http1(host).await.get("/", host).await;
        assert!(!answer.is_complete, "{answer:?}");
    }
}

#[tokio::test]
async fn a_service_that_is_not_reachable_gets_the_same_answer_as_at_its_own_engine() {
    let cluster = TestCluster::start().await;
    let closed = testing::ClosedPort::new();
    let tunnel = cluster.publish(closed.addr()).await;
    let host = tunnel.hostname();
    let here = cluster.serving().visitor().http1(host).await;
    let there = cluster.visitor().http1(host).await;
    for mut visitor in [here, there] {
        assert_eq!(visitor.get("/", host).await.status, 502);
    }
}

/// The visited engine still has the entry of a tunnel that has gone. The serving engine, whose
/// directory names the visited one, does not forward it again.
#[tokio::test]
async fn a_stream_is_forwarded_once() {
    let cluster = TestCluster::start().await;
    let upstream = Upstream::http1().await;
    let tunnel = cluster.publish(upstream.addr()).await;
    let host = tunnel.hostname().to_owned();
    let entry = cluster.entry(&tunnel);
    let back = RemoteTunnel::new(
        Arc::clone(entry.view()),
        entry.identity().clone(),
        None,
        None,
        [VISITED.to_owned()],
    );
    let address = cluster.visited().running().peers_addr().unwrap();
    let directory = cluster.serving_directory();
    directory.set_peers([(VISITED, address)]);
    directory.set_name(&host, Some(Arc::new(back)));
    let running = cluster.serving().running();
    within("link", running.wait_for_peer(VISITED, true)).await;
    tunnel.close().await;
    let mut visitor = cluster.visitor().http1(&host).await;
    let answer = visitor.get("/", &host).await;
    assert_eq!(answer.status, 503, "{answer:?}");
    assert!(answer.header("retry-after").is_some(), "{answer:?}");
    assert_eq!(answer.json()["code"], "tunnel_offline");
}

/// The name is known, and the engine that holds it is not connected.
#[tokio::test]
async fn a_tunnel_of_an_engine_that_is_not_connected_is_offline() {
    let cluster = TestCluster::start().await;
    let upstream = Upstream::http1().await;
    let tunnel = cluster.publish(upstream.addr()).await;
    let host = tunnel.hostname();
    cluster.directory().set_peers([]);
    cluster.wait_for_link(false).await;
    let answer = cluster.visitor().http1(host).await.get("/", host).await;
    assert_eq!(answer.status, 503, "{answer:?}");
    let host = "unknown.t.engine.localhost";
    let answer = cluster.visitor().http1(host).await.get("/", host).await;
    assert_eq!(answer.status, 404, "{answer:?}");
}

/// The requests that are in flight are answered, and the visited engine then connects to no engine.
#[tokio::test]
async fn a_draining_engine_completes_forwarded_requests() {
    let cluster = TestCluster::start().await;
    let gate = Gate::new();
    let upstream = ScriptedUpstream::slow_body(&gate).await;
    let tunnel = cluster.publish(upstream.addr()).await;
    let host = tunnel.hostname().to_owned();
    let mut visitor = cluster.visitor().http1(&host).await;
    visitor.request("GET", "/", &host, "").await;
    let head = visitor.head().await;
    let (visited, serving) = cluster.into_engines();
    let finishing = async {
        // The drain has started.
        gate.open();
        let answer = visitor.body(head).await;
        drop(visitor);
        answer
    };
    let ((), answer) = tokio::join!(serving.stop(), finishing);
    assert!(answer.is_complete, "{answer:?}");
    assert_eq!(answer.text(), "firstlater");
    let waiting = visited.running().wait_for_peer(SERVING, false);
    within("end of the link", waiting).await;
}

/// The visited engine closes them with Close frames, so that the drain of the other one ends.
#[tokio::test]
async fn a_draining_engine_closes_forwarded_websockets() {
    let short = "timeouts: {drain_seconds: 6, startup_grace_seconds: 0}";
    let cluster = TestCluster::start_with("", short).await;
    let upstream = Upstream::websocket().await;
    let tunnel = cluster.publish(upstream.addr()).await;
    let host = tunnel.hostname();
    let stream = cluster.visitor().http1(host).await.into_stream();
    let opening = tokio_tungstenite::client_async(format!("wss://{host}/"), stream);
    let (mut socket, _) = within("WebSocket", Box::pin(opening)).await.unwrap();
    let (_visited, serving) = cluster.into_engines();
    let stopping = tokio::spawn(serving.stop());
    let last = within("close frame", socket.next()).await.unwrap().unwrap();
    let Message::Close(Some(frame)) = last else {
        panic!("not a close frame: {last:?}");
    };
    assert_eq!(frame.code, CloseCode::Away);
    let next = within("end of the WebSocket", socket.next()).await;
    assert!(next.is_none(), "{next:?}");
    within("end of the engine", stopping).await.unwrap();
}

/// The serving engine ends them, because the visited one does not know the agent's credential.
#[tokio::test]
async fn forwarded_streams_end_with_the_credential_of_their_agent() {
    let endpoint = "aaaaaaaa";
    let platform = FakePlatform::start().await;
    let project = platform.add_project(endpoint);
    platform.add_member("usr_ann", &[endpoint]);
    let (credential, token) = platform.add_pat("usr_ann");
    let cluster = TestCluster::managed(&platform).await;
    let source = EventSource::start().await;
    let agent = cluster.serving().agent_at(endpoint, &token).await;
    let target: Target = source.upstream.addr().to_string().parse().unwrap();
    let tunnel = TestTunnel::open(agent, Properties::http(), target).await;
    let host = tunnel.hostname();
    let running = cluster.serving().running();
    let entry = running.directory_entry(&project.id, &tunnel.online().tunnel_id, None);
    let entry = entry.expect("the tunnel is online");
    cluster.directory().set_name(host, Some(Arc::new(entry)));
    let mut visitor = cluster.visitor().http1(host).await;
    visitor.request("GET", "/", host, "").await;
    assert_eq!(visitor.head().await.status, 200);
    let event = source.send("one");
    assert_eq!(visitor.chunk().await.unwrap(), event.as_bytes());
    platform.revoke(&credential);
    let rest = within("end of the response", visitor.chunk()).await;
    assert_eq!(rest, None);
}
