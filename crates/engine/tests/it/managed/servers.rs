//! Registered terminal servers: the tunnels that belong to them, and for how long.

use std::collections::BTreeMap;
use std::sync::Arc;

use api::link::{Item, WebttyServer, WebttyServerKeys};
use client::tunnel::CloseReason;
use client::{Agent, Properties, Status, Tunnel};
use engine::clock::SystemClock;
use jiff::{SignedDuration, Timestamp};
use testing::{FakePlatform, TestEngine, within};
use tty::admission::{self, LABEL, NONCE_LEN, SERVER_ID, Subject};
use tty::identity::EndpointIdentity;

use super::{A, B, TwoProjects, get};

/// A host with keys and the facts that it states.
struct Host {
    identity: EndpointIdentity,
    project: String,
    server: String,
    nonce: u8,
}

impl Host {
    /// A host with keys, whose server the engine does not have yet.
    fn unregistered(endpoint: &str) -> Self {
        Self {
            identity: EndpointIdentity::generate().unwrap(),
            project: format!("prj_{endpoint}"),
            server: format!("wsv_{endpoint}"),
            nonce: 0,
        }
    }

    /// A host whose server is registered in a project, and active.
    fn enrolled(platform: &FakePlatform, endpoint: &str) -> Self {
        let host = Self::unregistered(endpoint);
        host.told(platform, "active");
        host
    }

    fn told(&self, platform: &FakePlatform, status: &str) {
        let public = self.identity.public();
        platform.send(vec![Item::WebttyServer(Box::new(WebttyServer {
            id: self.server.clone(),
            project_id: self.project.clone(),
            name: "build".to_owned(),
            status: status.to_owned(),
            recording_policy: "recorded".to_owned(),
            encryption_policy: "disabled".to_owned(),
            access_policy: "project_members".to_owned(),
            keys: Some(WebttyServerKeys {
                encryption: public.encryption_text(),
                signing: public.signing.to_text(),
            }),
        }))]);
    }

    /// The labels of its tunnel, with a proof created at this time.
    fn labels(&mut self, at: Timestamp) -> BTreeMap<String, String> {
        self.nonce += 1;
        let mut labels: BTreeMap<_, _> = [
            (SERVER_ID, self.server.as_str()),
            ("svc.webtty.transport", "plain"),
        ]
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .into();
        let subject = Subject {
            project_id: &self.project,
            server_id: &self.server,
            tunnel_protocol: "webtty",
            tunnel_type: "bytestream",
            labels: &labels,
        };
        let nonce = [self.nonce; NONCE_LEN];
        let proof = admission::sign(&self.identity.signing, "wks", subject, nonce, at).unwrap();
        labels.insert(LABEL.to_owned(), proof);
        labels
    }
}

fn private(labels: BTreeMap<String, String>) -> Properties {
    Properties::private("build")
        .protocol("webtty")
        .labels(labels)
}

async fn opened(agent: &Agent, labels: BTreeMap<String, String>) -> Tunnel {
    let mut tunnel = agent.open(private(labels));
    within("the tunnel", tunnel.online()).await.unwrap();
    tunnel
}

/// The reason why the engine does not open the tunnel.
async fn refused(agent: &Agent, labels: BTreeMap<String, String>) -> String {
    let mut tunnel = agent.open(private(labels));
    let error = within("refusal", tunnel.online()).await.unwrap_err();
    error.refusal().unwrap().to_string()
}

/// Waits until the engine has closed the tunnel.
async fn closed(tunnel: &Tunnel) -> CloseReason {
    let mut status = tunnel.status();
    within("the end of the tunnel", async {
        loop {
            if let Status::Closed(closed) = &*status.borrow_and_update() {
                return closed.clone();
            }
            status.changed().await.unwrap();
        }
    })
    .await
}

/// CP-12: a registered server opens its tunnel with a proof, which is not visible afterwards.
#[tokio::test]
async fn cp_12_a_registered_server_is_admitted_with_a_proof() {
    let TwoProjects { platform, ann, .. } = TwoProjects::start().await;
    let mut host = Host::enrolled(&platform, A);
    let engine = TestEngine::managed(&platform).await;
    engine.wait_for_changes().await;
    let agent = engine.agent_at(A, &ann).await;
    let tunnel = opened(&agent, host.labels(Timestamp::now())).await;
    let list = get(&engine, A, "/api/tunnels", &ann).await;
    let shown = &list.json()[0];
    assert_eq!(shown["protocol"], "webtty");
    assert_eq!(shown["labels"][SERVER_ID], "wsv_aaaaaaaa");
    assert_eq!(shown["labels"].get(LABEL), None);
    tunnel.close().await;
}

/// CP-12: a server that connects before the engine has received its enrolment waits for it.
#[tokio::test]
async fn cp_12_a_server_is_admitted_when_its_enrolment_arrives() {
    let TwoProjects { platform, ann, .. } = TwoProjects::start().await;
    let engine = TestEngine::managed_unhurried(&platform, "", Arc::new(SystemClock)).await;
    let agent = engine.agent_at(A, &ann).await;
    let mut host = Host::unregistered(A);
    let mut tunnel = agent.open(private(host.labels(Timestamp::now())));
    // The engine processes the requests of an agent in their order.
    let mut other = agent.open(Properties::private("other"));
    within("the other tunnel", other.online()).await.unwrap();
    assert!(!matches!(&*tunnel.status().borrow(), Status::Closed(_)));
    host.told(&platform, "active");
    within("the tunnel", tunnel.online()).await.unwrap();
}

/// CP-12: a token of the project is not enough to act as one of its servers.
#[tokio::test]
async fn cp_12_a_server_without_a_valid_proof_is_refused() {
    let TwoProjects {
        platform, ann, ben, ..
    } = TwoProjects::start().await;
    let mut host = Host::enrolled(&platform, A);
    let engine = TestEngine::managed(&platform).await;
    engine.wait_for_changes().await;
    let agent = engine.agent_at(A, &ann).await;
    let now = Timestamp::now();

    let good = host.labels(now);
    let without = |key: &str| {
        let mut labels = good.clone();
        labels.remove(key);
        labels
    };
    for key in [SERVER_ID, LABEL] {
        let reason = refused(&agent, without(key)).await;
        assert!(reason.contains(key), "{reason}");
    }
    let mut unknown = good.clone();
    unknown.insert(SERVER_ID.to_owned(), "wsv_bbbbbbbb".to_owned());
    let reason = refused(&agent, unknown).await;
    assert!(reason.contains("no such registered server"), "{reason}");
    let mut other = good.clone();
    other.insert("svc.webtty.capabilities".to_owned(), "fs".to_owned());
    let reason = refused(&agent, other).await;
    assert!(reason.contains("its labels differs"), "{reason}");

    let old = now.checked_sub(SignedDuration::from_secs(91)).unwrap();
    let reason = refused(&agent, host.labels(old)).await;
    assert!(reason.contains("has expired"), "{reason}");
    let ahead = now.checked_add(SignedDuration::from_secs(60)).unwrap();
    let reason = refused(&agent, host.labels(ahead)).await;
    assert!(reason.contains("not valid yet"), "{reason}");

    // Another server's key, under this server's name.
    let mut thief = Host {
        identity: EndpointIdentity::generate().unwrap(),
        project: host.project.clone(),
        server: host.server.clone(),
        nonce: 0,
    };
    let reason = refused(&agent, thief.labels(now)).await;
    assert!(reason.contains("another key"), "{reason}");

    // There is no such server in another project, even with a valid proof.
    let there = engine.agent_at(B, &ben).await;
    let reason = refused(&there, good.clone()).await;
    assert!(reason.contains("no such registered server"), "{reason}");

    // The proof itself was valid all the time, and works once.
    opened(&agent, good.clone()).await.close().await;
    let reason = refused(&agent, good).await;
    assert!(reason.contains("used before"), "{reason}");
}

/// CP-12: the tunnel of a suspended or deleted server is closed immediately.
#[tokio::test]
async fn cp_12_a_tunnel_is_closed_with_its_server() {
    let TwoProjects { platform, ann, .. } = TwoProjects::start().await;
    let mut host = Host::enrolled(&platform, A);
    let engine = TestEngine::managed(&platform).await;
    engine.wait_for_changes().await;
    let agent = engine.agent_at(A, &ann).await;

    let tunnel = opened(&agent, host.labels(Timestamp::now())).await;
    host.told(&platform, "suspended");
    closed(&tunnel).await;
    let reason = refused(&agent, host.labels(Timestamp::now())).await;
    assert!(reason.contains("the server is suspended"), "{reason}");

    host.told(&platform, "active");
    engine.wait_for_changes().await;
    let tunnel = opened(&agent, host.labels(Timestamp::now())).await;
    let id = host.server.clone();
    platform.send(vec![Item::WebttyServerGone { id }]);
    closed(&tunnel).await;
    let reason = refused(&agent, host.labels(Timestamp::now())).await;
    assert!(reason.contains("no such registered server"), "{reason}");
    let list = get(&engine, A, "/api/tunnels", &ann).await;
    assert_eq!(list.text(), "[]");
}
