//! `svc run --docker` with a server that implements the JSON of the Docker Engine API. No Docker
//! can run where the tests run. The JSON follows its public reference.

use std::{
    collections::BTreeMap,
    convert::Infallible,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
};

use axum::{
    Json, Router,
    body::Body,
    extract::{Path as UrlPath, Query, State},
    http::StatusCode,
    response::{IntoResponse, Response},
    routing::get,
};
use bytes::Bytes;
use futures_util::{StreamExt, stream};
use serde_json::{Value, json};
use tokio::{
    net::UnixListener,
    sync::{mpsc, watch},
    task::JoinHandle,
};

use crate::installed::alone;
use crate::program::{Home, RunningCommand};
use crate::publishing::run::{applied, echo, online};

/// Containers of the engine, and the subscribers of its events.
#[derive(Clone, Default)]
struct Engine {
    containers: Arc<Mutex<BTreeMap<String, Value>>>,
    followers: Arc<Mutex<Vec<mpsc::UnboundedSender<Bytes>>>>,
    lists: Arc<watch::Sender<usize>>,
    /// Replaces the answer to a list.
    broken: Arc<Mutex<Option<DockerFault>>>,
}

#[derive(Clone, Copy)]
enum DockerFault {
    /// Invalid JSON.
    Garbage,
    /// JSON that does not end.
    Endless,
}

/// The engine at its socket.
struct DockerServer {
    socket: PathBuf,
    task: JoinHandle<()>,
}

impl Engine {
    fn serve(&self, directory: &Path) -> DockerServer {
        let socket = directory.join("docker.sock");
        let routes = Router::new()
            .route("/containers/json", get(list))
            .route("/containers/{id}/json", get(inspect))
            .route("/events", get(events))
            .with_state(self.clone());
        let listener = UnixListener::bind(&socket).unwrap();
        let task = tokio::spawn(async move { axum::serve(listener, routes).await.unwrap() });
        DockerServer { socket, task }
    }

    /// Adds a container whose service is on this machine.
    fn put(&self, id: &str, name: &str, running: bool, labels: &Value) {
        let state = if running { "running" } else { "exited" };
        let inspected = json!({
            "Id": id,
            "Created": "2026-01-02T03:04:05.678901234Z",
            "Path": "/shop",
            "Args": [],
            "State": {
                "Status": state, "Running": running, "Paused": false, "Restarting": false,
                "OOMKilled": false, "Dead": false, "Pid": 1234, "ExitCode": 0, "Error": "",
                "StartedAt": "2026-01-02T03:04:06Z", "FinishedAt": "0001-01-01T00:00:00Z"
            },
            "Image": "sha256:8c811b4aec35f259572d0f79207bc0678df4c736eeec50bc9fec37ed936a472a",
            "Name": format!("/{name}"),
            "RestartCount": 0,
            "HostConfig": {"NetworkMode": "shop_default", "PortBindings": {}},
            "Config": {"Hostname": id, "Image": "shop:1", "Labels": labels, "Env": ["A=b"]},
            "NetworkSettings": {
                "Ports": {},
                "Networks": {"shop_default": {
                    "Gateway": "172.18.0.1", "IPPrefixLen": 16, "GlobalIPv6Address": "",
                    "IPAddress": if running { "127.0.0.1" } else { "" },
                    "MacAddress": "02:42:ac:12:00:02", "Aliases": null
                }}
            }
        });
        self.containers
            .lock()
            .unwrap()
            .insert(id.to_owned(), inspected);
    }

    fn remove(&self, id: &str) {
        self.containers.lock().unwrap().remove(id);
    }

    /// Sends an event to all subscribers, in two chunks of which the first ends within the object.
    fn send_event(&self, action: &str, id: &str) {
        let attributes = self.containers.lock().unwrap().get(id).map_or_else(
            || json!({"image": "shop:1", "svc.enable": "true"}),
            |container| {
                let mut labels = container["Config"]["Labels"].clone();
                labels["name"] = json!(container["Name"].as_str().unwrap().trim_matches('/'));
                labels
            },
        );
        let event = json!({
            "status": action, "id": id, "from": "shop:1", "Type": "container", "Action": action,
            "Actor": {"ID": id, "Attributes": attributes},
            "scope": "local", "time": 1_767_323_045, "timeNano": 1_767_323_045_678_901_234_u64
        });
        let text = format!("{event}\n").into_bytes();
        let (first, second) = text.split_at(text.len() / 2);
        for part in [first, second] {
            self.send_chunk(part);
        }
    }

    /// Sends a chunk to all subscribers.
    fn send_chunk(&self, bytes: &[u8]) {
        let bytes = Bytes::copy_from_slice(bytes);
        self.followers
            .lock()
            .unwrap()
            .retain(|follower| follower.send(bytes.clone()).is_ok());
    }

    /// Waits until the list has been requested this many times.
    async fn listed(&self, times: usize) {
        let mut lists = self.lists.subscribe();
        lists.wait_for(|seen| *seen >= times).await.unwrap();
    }
}

impl DockerServer {
    /// The engine stops, with all connections to it.
    async fn stop(self, engine: &Engine) {
        self.task.abort();
        drop(self.task.await);
        engine.followers.lock().unwrap().clear();
        std::fs::remove_file(self.socket).unwrap();
    }

    fn flag(&self) -> String {
        format!("--docker=unix://{}", self.socket.display())
    }
}

async fn list(
    State(engine): State<Engine>,
    Query(query): Query<BTreeMap<String, String>>,
) -> Response {
    let filters: Value = serde_json::from_str(&query["filters"]).unwrap();
    assert_eq!(
        filters,
        json!({"label": ["svc.enable"], "status": ["running"]})
    );
    engine.lists.send_modify(|seen| *seen += 1);
    match engine.broken.lock().unwrap().take() {
        Some(DockerFault::Garbage) => return "<html>not here</html>".into_response(),
        Some(DockerFault::Endless) => {
            let filling = stream::repeat(Bytes::from(vec![b' '; 1024 * 1024]));
            return Body::from_stream(filling.map(Ok::<_, Infallible>)).into_response();
        }
        None => {}
    }
    let containers = engine.containers.lock().unwrap();
    let running = containers.values().filter(|container| {
        container["State"]["Running"] == true
            && container["Config"]["Labels"].get("svc.enable").is_some()
    });
    let listed = running.map(|container| {
        json!({
            "Id": container["Id"], "Names": [container["Name"]], "Image": "shop:1",
            "Labels": container["Config"]["Labels"], "State": "running", "Status": "Up 1 second",
            "Ports": [], "NetworkSettings": container["NetworkSettings"]
        })
    });
    Json(listed.collect::<Vec<_>>()).into_response()
}

async fn inspect(State(engine): State<Engine>, UrlPath(id): UrlPath<String>) -> Response {
    if let Some(container) = engine.containers.lock().unwrap().get(&id) {
        return Json(container.clone()).into_response();
    }
    let problem = json!({"message": format!("No such container: {id}")});
    (StatusCode::NOT_FOUND, Json(problem)).into_response()
}

async fn events(
    State(engine): State<Engine>,
    Query(query): Query<BTreeMap<String, String>>,
) -> Response {
    let filters: Value = serde_json::from_str(&query["filters"]).unwrap();
    assert_eq!(filters["type"], json!(["container", "network"]));
    let (sender, receiver) = mpsc::unbounded_channel();
    engine.followers.lock().unwrap().push(sender);
    let chunks = stream::unfold(receiver, async |mut receiver| {
        let chunk = receiver.recv().await?;
        Some((Ok::<_, Infallible>(chunk), receiver))
    });
    Body::from_stream(chunks).into_response()
}

async fn closed(agent: &mut RunningCommand, key: &str) {
    agent
        .json_where(|line| line["tunnel"] == key && line["status"] == "closed")
        .await;
}

#[tokio::test]
async fn containers_start_stop_and_restart_under_their_names() {
    let home = Home::new();
    let _up = alone(&home, &[]).await;
    let port = echo("").await.to_string();
    let engine = Engine::default();
    let served = engine.serve(home.path());
    let web = json!({"svc.enable": "true", "svc.port": port, "com.docker.compose.service": "web"});
    engine.put("a1", "web", true, &web);
    let mut agent = home.start(&["run", &served.flag(), "-o", "json"]);
    let first = online(&mut agent, "docker/web").await;
    assert_eq!(first["name"], "web");
    assert_eq!(first["forwarded"], format!("127.0.0.1:{port}"));

    // Two tunnels, and a third one with an error.
    let both = json!({
        "svc.enable": "true",
        "svc.tunnels.db.port": port, "svc.tunnels.db.publish": "false",
        "svc.tunnels.tcp.port": port, "svc.tunnels.tcp.protocol": "tcp",
        "svc.tunnels.bad.prot": port,
    });
    engine.put("b2", "shop", true, &both);
    engine.send_event("start", "b2");
    let line = applied(&mut agent).await;
    assert_eq!(
        line["added"],
        json!(["docker/shop/db", "docker/shop/tcp"]),
        "{line}"
    );
    let mut seen = BTreeMap::new();
    while seen.len() < 2 {
        let line = agent.json_where(|line| line["status"] == "online").await;
        seen.insert(line["tunnel"].as_str().unwrap().to_owned(), line);
    }
    assert_eq!(seen["docker/shop/db"]["name"], "shop-db");
    let dialled = home.run_with_input(&["dial", "svc://shop-db"], b"x").await;
    assert_eq!(dialled.stdout, "x", "{dialled:?}");

    // A stopped container, and one that is created again under its name, keep their tunnel.
    engine.put("a1", "web", false, &web);
    engine.send_event("die", "a1");
    closed(&mut agent, "docker/web").await;
    engine.remove("a1");
    engine.send_event("destroy", "a1");
    engine.put("c3", "web", true, &web);
    engine.send_event("start", "c3");
    let second = online(&mut agent, "docker/web").await;
    assert_eq!(first["forwarding"], second["forwarding"]);

    engine.put("c3", "site", true, &web);
    engine.send_event("rename", "c3");
    let line = applied(&mut agent).await;
    assert_eq!(
        (&line["added"], &line["removed"], &line["unchanged"]),
        (&json!(["docker/site"]), &json!(["docker/web"]), &json!(2)),
        "{line}"
    );
    assert_eq!(online(&mut agent, "docker/site").await["name"], "site");
    let output = agent.terminate().await;
    assert_eq!(output.code, Some(0), "{output:?}");
    let wrong = "error: container shop: svc.tunnels.bad.prot: unknown label; the nearest known one \
                 is svc.port\n";
    assert!(output.stderr.contains(wrong), "{output:?}");
}

#[tokio::test]
async fn an_engine_that_restarts_finds_tunnels_unchanged() {
    let home = Home::new();
    let _up = alone(&home, &[]).await;
    let port = echo("").await.to_string();
    let file = home.path().join("svc.yaml");
    let text = format!("version: 1\ntunnels: {{filed: {{target: {port}, publish: false}}}}\n");
    std::fs::write(&file, text).unwrap();
    let engine = Engine::default();
    let served = engine.serve(home.path());
    let flag = served.flag();
    let labels = json!({"svc.enable": "true", "svc.port": port, "svc.publish": "false"});
    engine.put("a1", "stays", true, &labels);
    engine.put("b2", "goes", true, &labels);
    let mut agent = home.start(&["run", &flag, "-o", "json"]);
    let mut seen = 0;
    while seen < 3 {
        agent.json_where(|line| line["status"] == "online").await;
        seen += 1;
    }
    served.stop(&engine).await;
    agent.wait_for_stderr("tunnels stay").await;
    let dialled = home.run_with_input(&["dial", "svc://goes"], b"x").await;
    assert_eq!(dialled.stdout, "x", "{dialled:?}");

    engine.remove("b2");
    engine.put("c3", "comes", true, &labels);
    let served = engine.serve(home.path());
    let line = applied(&mut agent).await;
    assert_eq!(
        (&line["added"], &line["removed"], &line["unchanged"]),
        (&json!(["docker/comes"]), &json!(["docker/goes"]), &json!(2)),
        "{line}"
    );
    online(&mut agent, "docker/comes").await;
    assert_eq!(agent.terminate().await.code, Some(0));
    drop(served);
}

#[tokio::test]
async fn invalid_answers_are_limited_and_retried() {
    let home = Home::new();
    let _up = alone(&home, &[]).await;
    let port = echo("").await.to_string();
    let engine = Engine::default();
    *engine.broken.lock().unwrap() = Some(DockerFault::Garbage);
    let served = engine.serve(home.path());
    let labels = json!({"svc.enable": "true", "svc.port": port, "svc.publish": "false"});
    let mut agent = home.start(&["run", &served.flag(), "-o", "json"]);
    agent.wait_for_stderr("a response cannot be parsed").await;
    engine.listed(2).await;

    // An event without an end, then a list without one.
    *engine.broken.lock().unwrap() = Some(DockerFault::Endless);
    engine.send_chunk(b"{\"Type\": \"");
    for _ in 0..17 {
        engine.send_chunk(&vec![b'x'; 64 * 1024]);
    }
    agent.wait_for_stderr("a response is too large").await;
    engine.listed(4).await;
    engine.put("a1", "db", true, &labels);
    engine.send_event("start", "a1");
    online(&mut agent, "docker/db").await;
    assert_eq!(agent.terminate().await.code, Some(0));

    let wrong = home.run(&["run", "--docker=tcp://127.0.0.1:2375"]).await;
    assert_eq!(wrong.code, Some(2), "{wrong:?}");
}
