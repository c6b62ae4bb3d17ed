//! Engines of one cluster, with a real store: a name has one owner at all of them.

use client::Properties;
use etcd::Cluster;
use ownership::Name;
use serde_json::json;
use testing::cluster::ClusterAuthority;
use testing::{ClosedPort, EtcdServers, TestEngine, TestTunnel, Upstream, within};
use wire::message::{CloseTunnelRsp, ServerMessage, TunnelProperties};
use wire::{Error, ErrorCode, Kind};

use crate::agent::raw_messages::{self, PlainAgent};

/// An engine that has joined the cluster of this store.
async fn member(servers: &EtcdServers, name: &str) -> TestEngine {
    let engine = member_at(&servers.endpoints(), name).await;
    within("join", cluster(&engine).wait_until_serving()).await;
    engine
}

/// An engine that starts to join, at these members of the store. Each has an authority of its own, so
/// the engines refuse each other: visitors are not forwarded.
async fn member_at(endpoints: &[String], name: &str) -> TestEngine {
    let authority = ClusterAuthority::new();
    let section = authority.section(name, "127.0.0.1:0", endpoints);
    TestEngine::start_with(&section).await
}

fn cluster(engine: &TestEngine) -> &Cluster {
    engine.running().membership().expect("a cluster")
}

/// The names of the engines that have agents with a host name.
fn servers(engine: &TestEngine, label: &str) -> Vec<String> {
    let name = Name::of_host(&format!("{label}.t.engine.localhost"));
    let servers = cluster(engine).servers(&name).into_iter();
    servers
        .map(|server| server.engine.name.to_string())
        .collect()
}

async fn wait_for_servers(engine: &TestEngine, label: &str, expected: &[&str]) {
    let wait = cluster(engine).wait_until(|_| servers(engine, label) == expected);
    within(&format!("servers {expected:?} of {label}"), wait).await;
}

fn other() -> serde_json::Value {
    json!({"userId": "usr_other"})
}

fn named(name: &str) -> TunnelProperties {
    TunnelProperties {
        name: Some(name.into()),
        publish: Some(false.into()),
        ..TunnelProperties::default()
    }
}

/// Requests a tunnel, again after each refusal for which agents try again: the store of a busy
/// machine may be slower than the time limit of a claim.
async fn open(
    agent: &mut PlainAgent,
    properties: TunnelProperties,
) -> Result<TunnelProperties, Error> {
    let answered = async {
        loop {
            match agent.open(properties.clone()).await {
                Err(error) if error.kind() == ErrorCode::ServiceUnavailable => {}
                outcome => return outcome,
            }
        }
    };
    within("answer to a request for a tunnel", answered).await
}

async fn status_of(engine: &TestEngine, label: &str) -> u16 {
    let host = format!("{label}.t.engine.localhost");
    let mut visitor = engine.visitor().http1(&host).await;
    visitor.get("/", &host).await.status
}

#[tokio::test]
async fn the_same_identity_takes_over_at_another_engine() {
    let store = EtcdServers::start(1).await;
    let first = member(&store, "engine-1").await;
    let second = member(&store, "engine-2").await;
    for (label, request) in [("web", raw_messages::http("web")), ("db", named("db"))] {
        let mut holder = PlainAgent::connect(&first).await;
        let held = open(&mut holder, request.clone()).await.unwrap();
        let mut stranger = PlainAgent::connect_as(&second, other()).await;
        let refused = open(&mut stranger, request.clone()).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorCode::InvalidRequest, "{label}");
        assert!(refused.text().ends_with(" is taken"), "{refused}");

        let mut mover = PlainAgent::connect(&second).await;
        open(&mut mover, request).await.unwrap();
        let taken_over = ServerMessage {
            message: ServerMessage::TAKEN_OVER.to_owned(),
        };
        let told = holder.channel.next().await;
        assert_eq!(told, Some(Kind::ServerMessage(taken_over)), "{label}");
        let tunnel_id = held.id.expect("an id").value;
        let closed = Kind::CloseTunnelRsp(CloseTunnelRsp { tunnel_id });
        assert_eq!(holder.channel.next().await, Some(closed), "{label}");
        if label == "web" {
            wait_for_servers(&first, label, &["engine-2"]).await;
        }
    }
    wait_for_servers(&first, "web", &[]).await;
    assert_eq!(
        status_of(&first, "web").await,
        503,
        "it was online recently"
    );
    first.stop().await;
    second.stop().await;
}

#[tokio::test]
async fn another_identity_is_refused_within_the_hold() {
    let store = EtcdServers::start(1).await;
    let first = member(&store, "engine-1").await;
    let second = member(&store, "engine-2").await;
    let mut holder = PlainAgent::connect(&first).await;
    open(&mut holder, raw_messages::http("web")).await.unwrap();
    wait_for_servers(&second, "web", &["engine-1"]).await;
    drop(holder);
    wait_for_servers(&second, "web", &[]).await;
    for engine in [&first, &second] {
        let mut stranger = PlainAgent::connect_as(engine, other()).await;
        let refused = open(&mut stranger, raw_messages::http("web"))
            .await
            .unwrap_err();
        assert_eq!(refused.kind(), ErrorCode::InvalidRequest);
        assert!(refused.text().contains("ten minutes"), "{refused}");
        assert!(refused.text().ends_with(" is taken"), "{refused}");
    }
    let mut returned = PlainAgent::connect(&second).await;
    open(&mut returned, raw_messages::http("web"))
        .await
        .unwrap();
    wait_for_servers(&first, "web", &["engine-2"]).await;
}

#[tokio::test]
async fn the_names_of_a_killed_engine_are_claimed_by_their_identity_at_once() {
    let store = EtcdServers::start(1).await;
    let killed = member(&store, "engine-1").await;
    let other_engine = member(&store, "engine-2").await;
    let mut holder = PlainAgent::connect(&killed).await;
    for label in ["web", "shop"] {
        open(&mut holder, raw_messages::http(label)).await.unwrap();
    }
    wait_for_servers(&other_engine, "shop", &["engine-1"]).await;
    // A killed process sends nothing more to the store.
    cluster(&killed).cut_off();
    drop(killed);
    let mut stranger = PlainAgent::connect_as(&other_engine, other()).await;
    let refused = open(&mut stranger, raw_messages::http("shop"))
        .await
        .unwrap_err();
    assert_eq!(refused.kind(), ErrorCode::InvalidRequest, "{refused}");
    let mut mover = PlainAgent::connect(&other_engine).await;
    open(&mut mover, raw_messages::http("web")).await.unwrap();
    wait_for_servers(&other_engine, "web", &["engine-2"]).await;
}

#[tokio::test]
async fn without_its_store_an_engine_serves_known_names_and_says_why_new_ones_wait() {
    let mut store = EtcdServers::start(1).await;
    let engine = member(&store, "engine-1").await;
    let service = Upstream::http1().await;
    let agent = engine.agent().await;
    let properties = Properties::http().hostname("web");
    let target: client::Target = service.addr().to_string().parse().unwrap();
    let _tunnel = TestTunnel::open(agent, properties, target).await;
    store.kill(0);
    let mut late = PlainAgent::connect(&engine).await;
    let refused = late.open(raw_messages::http("new")).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorCode::ServiceUnavailable, "{refused}");
    assert!(refused.text().contains("etcd"), "{refused}");
    assert_ne!(status_of(&engine, "web").await, 503);
    // The agent's own name, at the same engine.
    let mut again = PlainAgent::connect(&engine).await;
    again.open(raw_messages::http("web")).await.unwrap();

    store.restart(0);
    open(&mut late, raw_messages::http("new")).await.unwrap();
}

/// An engine starts without its store, and refuses tunnels with the reason until it has joined.
#[tokio::test]
async fn an_engine_without_contact_opens_no_tunnel() {
    let nothing = ClosedPort::new();
    let engine = member_at(&[format!("http://{}", nothing.addr())], "engine-1").await;
    assert!(!cluster(&engine).serves());
    let mut agent = PlainAgent::connect(&engine).await;
    let refused = agent.open(raw_messages::http("web")).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorCode::ServiceUnavailable);
    assert!(refused.text().contains("etcd"), "{refused}");
    assert_eq!(status_of(&engine, "web").await, 404);
    // A tunnel without a name has no owner in the cluster.
    let unnamed = TunnelProperties {
        publish: Some(false.into()),
        ..TunnelProperties::default()
    };
    agent.open(unnamed).await.unwrap();
}

/// An engine that stops leaves the cluster, and its names stay held for their owners.
#[tokio::test]
async fn a_stopped_engine_parks_its_names() {
    let store = EtcdServers::start(1).await;
    let first = member(&store, "engine-1").await;
    let second = member(&store, "engine-2").await;
    let mut holder = PlainAgent::connect(&first).await;
    open(&mut holder, raw_messages::http("web")).await.unwrap();
    wait_for_servers(&second, "web", &["engine-1"]).await;
    let status = cluster(&second).status();
    assert!(status.is_serving && status.latency.is_some(), "{status:?}");
    assert_eq!((status.names.online, status.own_names), (1, 0));
    first.stop().await;
    let has_left = |cluster: &Cluster| cluster.status().engines.len() == 1;
    within("the leave", cluster(&second).wait_until(has_left)).await;
    assert_eq!(servers(&second, "web"), [""; 0]);
    let mut stranger = PlainAgent::connect_as(&second, other()).await;
    let refused = open(&mut stranger, raw_messages::http("web"))
        .await
        .unwrap_err();
    assert!(refused.text().contains("ten minutes"), "{refused}");
    let mut mover = PlainAgent::connect(&second).await;
    open(&mut mover, raw_messages::http("web")).await.unwrap();
}
