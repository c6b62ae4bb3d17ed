//! Two engines that find the tunnels of each other in a real store.

use client::Properties;
use client::properties::LinkPassword;
use credentials::{Secret, link_password};
use etcd::Cluster;
use ownership::Name;
use serde_json::json;
use testing::cluster::ClusterAuthority;
use testing::{EtcdServers, ReceivedResponse, TestEngine, Upstream, within};
use wire::ErrorCode;

use crate::agent::raw_messages::{self, PlainAgent};

/// Two engines that are connected to each other.
struct TwoEngines {
    first: TestEngine,
    second: TestEngine,
    store: EtcdServers,
}

impl TwoEngines {
    async fn start() -> Self {
        let store = EtcdServers::start(1).await;
        let authority = ClusterAuthority::new();
        let first = member(&authority, &store, "engine-1").await;
        let second = member(&authority, &store, "engine-2").await;
        for (engine, other) in [(&first, "engine-2"), (&second, "engine-1")] {
            let linked = engine.running().wait_for_peer(other, true);
            within("link between the engines", linked).await;
        }
        Self {
            first,
            second,
            store,
        }
    }
}

/// An engine that has joined the cluster of this store.
async fn member(authority: &ClusterAuthority, store: &EtcdServers, name: &str) -> TestEngine {
    let section = authority.section(name, "127.0.0.1:0", &store.endpoints());
    let engine = TestEngine::start_with(&section).await;
    within("join", membership(&engine).wait_until_serving()).await;
    engine
}

fn membership(engine: &TestEngine) -> &Cluster {
    engine.running().membership().expect("a cluster")
}

/// Waits until an engine has the entry of a tunnel at another engine.
async fn wait_for_entry(engine: &TestEngine, host: &str, at: &str) {
    let name = Name::of_host(host);
    let has_it = |cluster: &Cluster| {
        let servers = cluster.servers(&name).into_iter();
        let with_entry = servers.filter(|server| server.entry.is_some());
        with_entry
            .map(|server| server.engine.name.to_string())
            .eq([at.to_owned()])
    };
    within(
        &format!("entry of {host} at {at}"),
        membership(engine).wait_until(has_it),
    )
    .await;
}

/// Sends a GET on its own connection. `fields` are lines including their line ends.
async fn get(engine: &TestEngine, host: &str, fields: &str) -> ReceivedResponse {
    let mut visitor = engine.visitor().http1(host).await;
    visitor.request("GET", "/", host, fields).await;
    visitor.answer().await
}

#[tokio::test]
async fn a_visitor_of_any_engine_reaches_the_agent() {
    let mut engines = TwoEngines::start().await;
    let service = Upstream::http1().await;
    let tunnel = engines
        .first
        .publish_as(Properties::http(), service.addr())
        .await;
    let host = tunnel.hostname();
    wait_for_entry(&engines.second, host, "engine-1").await;
    for engine in [&engines.first, &engines.second] {
        let answer = get(engine, host, "").await;
        assert_eq!((answer.status, answer.is_complete), (200, true));
        assert_eq!(answer.json()["target"], "/");
    }
    let unknown = get(&engines.second, "unknown.t.engine.localhost", "").await;
    assert_eq!(unknown.status, 404);
    // Routing makes no request to the store.
    engines.store.kill(0);
    let answer = get(&engines.second, host, "").await;
    assert_eq!(answer.status, 200, "{answer:?}");
}

/// The visited engine has served the tunnel, so it has what it derived from the entry.
#[tokio::test]
async fn without_its_agent_a_name_is_offline_at_both_engines() {
    let engines = TwoEngines::start().await;
    let service = Upstream::http1().await;
    let tunnel = engines
        .first
        .publish_as(Properties::http(), service.addr())
        .await;
    let host = tunnel.hostname().to_owned();
    wait_for_entry(&engines.second, &host, "engine-1").await;
    assert_eq!(get(&engines.second, &host, "").await.status, 200);
    tunnel.close().await;
    let here = get(&engines.first, &host, "").await;
    assert_eq!(here.status, 503, "{here:?}");
    let same_answer = async {
        loop {
            let there = get(&engines.second, &host, "").await;
            // The second engine has an idle connection to the service, which it closes when the
            // notice of the end arrives.
            if there.status == 200 {
                continue;
            }
            assert_eq!(there.status, 503, "{there:?}");
            assert_eq!(there.json()["code"], "tunnel_offline");
            // Until the end of the entry arrives, the engine that had the agent refuses the stream,
            // and the visitor may try again immediately.
            if there.header("retry-after") == here.header("retry-after") {
                return;
            }
        }
    };
    within("answer of an engine without the agent", same_answer).await;
}

#[tokio::test]
async fn a_name_moves_with_its_owner_and_not_to_another_one() {
    let engines = TwoEngines::start().await;
    let (before, after) = (Upstream::http1().await, Upstream::http1().await);
    let web = || Properties::http().hostname("web");
    let tunnel = engines.first.publish_as(web(), before.addr()).await;
    let host = tunnel.hostname().to_owned();
    wait_for_entry(&engines.second, &host, "engine-1").await;

    let stranger = json!({"userId": "usr_other"});
    let mut stranger = PlainAgent::connect_as(&engines.second, stranger).await;
    let refused = async {
        loop {
            match stranger.open(raw_messages::http("web")).await {
                // The store of a busy machine may be slower than the time limit of a claim.
                Err(error) if error.kind() == ErrorCode::ServiceUnavailable => {}
                answer => return answer.unwrap_err(),
            }
        }
    };
    let refused = within("refusal", refused).await;
    assert_eq!(refused.kind(), ErrorCode::InvalidRequest, "{refused}");
    assert_eq!(get(&engines.second, &host, "").await.status, 200);
    assert_eq!(after.accepted(), 0);

    let _moved = engines.second.publish_as(web(), after.addr()).await;
    wait_for_entry(&engines.first, &host, "engine-2").await;
    let reached = async {
        loop {
            // The first engine closes its own tunnel when it reads the change.
            let answer = get(&engines.first, &host, "").await;
            if after.accepted() > 0 {
                return answer;
            }
        }
    };
    let answer = within("response of the other service", reached).await;
    assert_eq!(answer.status, 200, "{answer:?}");
}

/// The engine that the visitor reaches makes the decision, with the settings of the entry.
#[tokio::test]
async fn the_access_rules_of_a_tunnel_apply_at_both_engines() {
    let engines = TwoEngines::start().await;
    let service = Upstream::http1().await;
    let hash = link_password::hash(&Secret::new("sesame"), &[7; link_password::SALT_BYTES]);
    let password = LinkPassword::new("ann", hash.unwrap().as_str());
    let guarded = Properties::http().link_passwords(vec![password]);
    let tunnel = engines.first.publish_as(guarded, service.addr()).await;
    let host = tunnel.hostname();
    wait_for_entry(&engines.second, host, "engine-1").await;
    // `ann:wrong` and `ann:sesame` in base64.
    let wrong = "Authorization: Basic YW5uOndyb25n\r\n";
    let right = "Authorization: Basic YW5uOnNlc2FtZQ==\r\n";
    for engine in [&engines.second, &engines.first] {
        for (fields, code) in [("", "password_required"), (wrong, "invalid_password")] {
            let refused = get(engine, host, fields).await;
            assert_eq!(refused.status, 401, "{refused:?}");
            assert_eq!(refused.json()["code"], code);
        }
    }
    assert_eq!(service.accepted(), 0);
    for engine in [&engines.second, &engines.first] {
        let answer = get(engine, host, right).await;
        assert_eq!(answer.status, 200, "{answer:?}");
    }
}
