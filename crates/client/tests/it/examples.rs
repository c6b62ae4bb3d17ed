//! The examples work with an engine.

use std::{path::PathBuf, process::Stdio};

use serde_json::json;
use svc_client::Properties;
use testing::{TestEngine, Upstream, within};
use tokio::{
    io::{AsyncBufReadExt, BufReader, Lines},
    process::{Child, ChildStdout, Command},
};

/// A running example, which is killed on drop.
struct Example {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Example {
    fn run(engine: &TestEngine, name: &str, arguments: &[&str]) -> Self {
        let ca_file = engine.directory().join("ca-of-examples.pem");
        std::fs::write(&ca_file, engine.ca().pem()).unwrap();
        let mut child = Command::new(built(name))
            .args(arguments)
            .env(
                "SVC_ENGINE",
                format!("{}:{}", engine.host(), engine.addr().port()),
            )
            .env("SVC_TOKEN", engine.token(json!({})))
            .env("SVC_CA_FILE", ca_file)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        Self {
            child,
            lines: stdout.lines(),
        }
    }

    async fn line(&mut self) -> String {
        let line = within("a line of the example", self.lines.next_line()).await;
        line.unwrap().unwrap()
    }

    /// The host in the address that it prints.
    async fn host(&mut self) -> String {
        let address = self.line().await;
        let host = address.strip_prefix("https://").unwrap();
        host.split(':').next().unwrap().to_owned()
    }
}

/// Path of an example that cargo built for this package, next to the directory of this test.
fn built(name: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let profile = test.parent().and_then(|deps| deps.parent()).unwrap();
    let path = profile.join("examples").join(name);
    assert!(
        path.exists(),
        "`cargo test` builds examples unless it is told what to build: `cargo build -p svc-client --examples`"
    );
    path
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_is_forwarded() {
    let engine = TestEngine::start().await;
    let service = Upstream::http1().await;
    let target = service.addr().to_string();
    let mut example = Example::run(&engine, "forward", &[&target]);
    let host = example.host().await;
    let answer = engine.visitor().http1(&host).await.get("/a", &host).await;
    assert_eq!(
        (answer.status, &answer.json()["target"]),
        (200, &json!("/a"))
    );
    assert!(example.line().await.contains("active: true"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_axum_service_is_published_without_a_socket() {
    let engine = TestEngine::start().await;
    let mut example = Example::run(&engine, "publish", &[]);
    let host = example.host().await;
    let mut visitor = engine.visitor().http1(&host).await;
    for path in ["/a", "/b"] {
        let answer = visitor.get(path, &host).await;
        assert_eq!(answer.text(), format!("hello from {path} to 127.0.0.1\n"));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_private_http_service_is_dialled() {
    let engine = TestEngine::start().await;
    let service = Upstream::http1().await;
    let _tunnel = engine
        .publish_as(Properties::private("billing"), service.addr())
        .await;
    let mut example = Example::run(&engine, "dial", &["http://billing/invoices"]);
    assert_eq!(example.line().await, "200 OK");
    let answer: serde_json::Value = serde_json::from_str(&example.line().await).unwrap();
    assert_eq!(answer["target"], "/invoices");
    let ended = within("its end", example.child.wait()).await.unwrap();
    assert!(ended.success(), "{ended}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tunnel_events_are_printed() {
    let engine = TestEngine::start().await;
    let service = Upstream::tcp().await;
    let mut example = Example::run(&engine, "watch", &[]);
    assert!(example.line().await.contains("state.initial"));
    let _tunnel = engine
        .publish_as(Properties::private("db"), service.addr())
        .await;
    // The event of its agent comes before it.
    let event = loop {
        let event = example.line().await;
        if event.contains("tunnel.") {
            break event;
        }
    };
    assert!(event.contains("\"db\""), "{event}");
}
