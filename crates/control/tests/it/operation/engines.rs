//! The engine link: platforms that serve, and engines that read and report.

mod certificates;
pub(super) mod changes;
mod identity;
mod links;
mod relays;
mod reports;
mod sign_in;
mod takedowns;
mod traffic;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use api::link::{CHANGES, Cursor, Item, LinkMessage, MAX_LINE_BYTES, Platform, VERSION};
use control::RunningPlatform;
use control::config::ClusterConfig;
use daemon::shutdown::Shutdown;
use http::Request;
use http_body_util::{BodyExt as _, Empty};
use hyper::body::{Bytes, Incoming};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use crate::support::{Person, Project, TestControl};

/// Secret of the engines of `engine.example`.
const SECRET: &str = "0123456789abcdef0123456789abcdef";
/// Secret of the engines of `other.example`.
const OTHER_SECRET: &str = "fedcba9876543210fedcba9876543210";
/// Secret of the relays of `engine.example`.
const RELAY_SECRET: &str = "00112233445566778899aabbccddeeff";
/// Time limit for immediate events on a busy machine.
const WAIT_LIMIT: Duration = Duration::from_mins(1);

/// The platform with two clusters, each with a region and a secret.
async fn linkable(control: TestControl) -> TestControl {
    linkable_with(control, json!({})).await
}

/// The same with further catalogue entries.
async fn linkable_with(control: TestControl, mut catalogue: Value) -> TestControl {
    catalogue["regions"] = json!([
        {"provider": "other", "region": "local", "cluster_domain": "engine.example", "engine_port": 8443},
        {"provider": "other", "region": "far", "cluster_domain": "other.example"},
    ]);
    let control = control.configured(json!({"catalog": catalogue})).await;
    let mut config = control.app.config.clone();
    let secrets = [("engine.example", SECRET), ("other.example", OTHER_SECRET)];
    config.engines = secrets
        .into_iter()
        .map(|(domain, secret)| {
            let file = control.directory().join(domain);
            std::fs::write(&file, format!("{secret}\n")).unwrap();
            ClusterConfig {
                cluster_domain: domain.to_owned(),
                enrolment_secret_file: Some(file),
                relay_secret_file: (domain == "engine.example").then(|| {
                    let file = control.directory().join("relays");
                    std::fs::write(&file, RELAY_SECRET).unwrap();
                    file
                }),
                ca_file: None,
                tcp_ports: None,
            }
        })
        .collect();
    control.restarted_with(config).await
}

/// A platform on a socket.
struct PlatformServer {
    address: SocketAddr,
    running: RunningPlatform,
    shutdown: Shutdown,
}

impl PlatformServer {
    async fn start(control: &TestControl) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let shutdown = Shutdown::new(Duration::from_secs(5));
        let app = Arc::clone(&control.app);
        let running = control::start_on(app, listener, shutdown.clone());
        let running = running.await.unwrap();
        Self {
            address: running.address(),
            running,
            shutdown,
        }
    }

    /// Sends a request in the way of an engine.
    async fn send(&self, request: Request<Empty<Bytes>>) -> http::Response<Incoming> {
        let stream = TcpStream::connect(self.address).await.unwrap();
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
            .await
            .unwrap();
        tokio::spawn(connection);
        timeout(WAIT_LIMIT, sender.send_request(request))
            .await
            .unwrap()
            .unwrap()
    }

    /// A link of `engine.example`.
    async fn link(&self, since: Option<&Cursor>) -> Link {
        self.link_of(SECRET, since).await
    }

    async fn link_of(&self, secret: &str, since: Option<&Cursor>) -> Link {
        let response = self.send(asks(secret, since)).await;
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["content-type"], "application/x-ndjson");
        assert_eq!(response.headers()["svc-link-version"], VERSION);
        Link {
            body: response.into_body(),
            read: Vec::new(),
        }
    }

    async fn stop(self) {
        self.shutdown.request();
        timeout(WAIT_LIMIT, self.running.wait_until_stopped())
            .await
            .unwrap();
    }
}

fn asks(secret: &str, since: Option<&Cursor>) -> Request<Empty<Bytes>> {
    let query = since.map_or(String::new(), |cursor| format!("?since={}", cursor.0));
    Request::get(format!("{CHANGES}{query}"))
        .header("host", "svc.example")
        .header("authorization", format!("Bearer {secret}"))
        .header("svc-link-version", VERSION)
        .header("user-agent", "svc/9.8.7")
        .body(Empty::new())
        .unwrap()
}

/// The engine's end of a link.
struct Link {
    body: Incoming,
    read: Vec<u8>,
}

/// A full snapshot as the platform sent it.
#[derive(Debug)]
struct FullSnapshot {
    platform: Platform,
    items: Vec<Item>,
    cursor: Cursor,
}

impl Link {
    /// The next line, or `None` when the link has ended.
    async fn line(&mut self) -> Option<LinkMessage> {
        loop {
            if let Some(end) = self.read.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.read.drain(..=end).collect();
                assert!(line.len() <= MAX_LINE_BYTES);
                return Some(serde_json::from_slice(&line).unwrap());
            }
            let frame = timeout(WAIT_LIMIT, self.body.frame()).await.unwrap()?;
            let Ok(frame) = frame else { return None };
            self.read.extend(frame.into_data().unwrap());
        }
    }

    /// The next line that is not a heartbeat.
    async fn next_update(&mut self) -> Option<LinkMessage> {
        loop {
            let line = self.line().await;
            if line != Some(LinkMessage::Alive {}) {
                return line;
            }
        }
    }

    async fn everything(&mut self) -> FullSnapshot {
        let begin = self.next_update().await;
        let Some(LinkMessage::SnapshotBegin { platform }) = begin else {
            panic!("{begin:?}");
        };
        let mut items = Vec::new();
        loop {
            match self.next_update().await.unwrap() {
                LinkMessage::Item { item } => items.push(item),
                LinkMessage::SnapshotEnd { cursor } => {
                    return FullSnapshot {
                        platform,
                        items,
                        cursor,
                    };
                }
                other => panic!("{other:?}"),
            }
        }
    }

    async fn change(&mut self) -> (Cursor, Vec<Item>) {
        match self.next_update().await {
            Some(LinkMessage::Change { cursor, items }) => (cursor, items),
            other => panic!("{other:?}"),
        }
    }
}

/// The items as JSON, without the keys.
fn to_json(items: &[Item]) -> Vec<Value> {
    let items = items.iter().filter(|item| !matches!(item, Item::Keys(_)));
    items
        .map(|item| serde_json::to_value(item).unwrap())
        .collect()
}

/// Kind and id of each item.
fn kinds_and_ids(items: &[Item]) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let mut named: Vec<_> = to_json(items)
        .iter()
        .map(|item| (text(&item["item"]), text(&item["id"])))
        .collect();
    named.sort();
    named
}

/// Expected kinds and ids, sorted.
fn names<const N: usize>(names: [(&str, &str); N]) -> Vec<(String, String)> {
    let mut names: Vec<_> = names
        .map(|(kind, id)| (kind.to_owned(), id.to_owned()))
        .into();
    names.sort();
    names
}

/// The id of the user's only credential.
async fn credential_of(control: &TestControl, person: &Person) -> String {
    let list = control.get("/api/credentials", &person.token).await;
    list.expect(200)["credentials"][0]["id"]
        .as_str()
        .unwrap()
        .to_owned()
}

/// A running platform, a user with a project, and a link that has received both.
async fn linked(control: TestControl) -> (TestControl, PlatformServer, Link, Person, Project) {
    let control = Box::pin(linkable(control)).await;
    let ada = control.person("ada").await;
    let project = control.project(&ada).await;
    let served = Box::pin(PlatformServer::start(&control)).await;
    let mut link = served.link(None).await;
    link.everything().await;
    (control, served, link, ada, project)
}
