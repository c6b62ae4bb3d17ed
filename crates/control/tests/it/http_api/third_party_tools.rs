//! The OpenAPI documents and their server, checked by third-party tools.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use daemon::shutdown::Shutdown;
use http::Request;
use serde_json::json;
use tokio::net::TcpListener;
use tokio::process::Command;

use crate::support::TestControl;

/// Schemathesis generates valid and invalid requests from the document, and compares the answers
/// with the document. A finding is printed with its request.
///
/// The requests are the same in each run. To test more by hand:
/// `SVC_TEST_SCHEMATHESIS="--max-time 300 --seed 2"`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cp_7_the_server_matches_its_document() {
    // All requests use one credential, as fast as a program sends them.
    let limits =
        "limits: {credential_requests_per_minute: 100000, user_requests_per_minute: 100000}";
    let control = TestControl::start(limits).await;
    let ada = control.person("ada").await;
    let (project, doomed) = (control.project(&ada).await, control.project(&ada).await);
    // Minted from a session, so that no API call revokes it.
    let cookie = control.session(&ada).await;
    let body = json!({"permissions": null, "ttlSeconds": 3600}).to_string();
    let mint = Request::post("/api/tokens")
        .header("cookie", cookie)
        .header("sec-fetch-site", "same-origin")
        .header("content-type", "application/json");
    let minted = control.send_raw(mint.body(body.into()).unwrap()).await;
    let token = minted.expect(200)["token"].as_str().unwrap().to_owned();
    let shutdown = Shutdown::new(Duration::from_secs(1));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let app = Arc::clone(&control.app);
    let running = control::start_on(app, listener, shutdown.clone())
        .await
        .unwrap();
    let url = format!("http://{}", running.address());
    let document = root().join("openapi/control-plane.json");
    let mut run = schemathesis();
    // It writes a cache into its working directory.
    let scratch = tempfile::tempdir().unwrap();
    run.current_dir(&scratch)
        .arg("--config-file")
        .arg(root().join("crates/control/tests/schemathesis.toml"))
        .arg("run")
        .arg(document)
        .args(["--url", &url])
        .args(["--header", &format!("Authorization: Bearer {token}")])
        .env("PROJECT_ID", project.id.as_str())
        .env("PROJECT_ENDPOINT", &project.endpoint)
        .env("DOOMED_PROJECT_ID", doomed.id.as_str())
        .env("WORKSPACE_ID", ada.workspace.as_str());
    if let Some(longer) = std::env::var_os("SVC_TEST_SCHEMATHESIS") {
        run.args(longer.to_str().unwrap().split_whitespace());
    }
    judge(run).await;
    shutdown.request();
    running.wait_until_stopped().await;
}

#[tokio::test]
async fn cp_7_the_documents_are_valid_openapi() {
    for document in DOCUMENTS {
        let mut validator = python();
        validator.args(["-m", "openapi_spec_validator", document]);
        judge(validator).await;
    }
}

#[tokio::test]
async fn cp_7_the_documents_keep_the_recommended_rules() {
    let mut lint = node("@redocly/cli/bin/cli.js");
    lint.arg("lint")
        .args(DOCUMENTS)
        .args(["--config", "openapi/redocly.yaml"])
        .env("REDOCLY_TELEMETRY", "off");
    judge(lint).await;
}

/// The types that are generated for TypeScript programs compile in their use.
#[tokio::test]
async fn cp_7_typescript_programs_can_use_the_documents() {
    let directory = tempfile::tempdir().unwrap();
    for document in DOCUMENTS {
        let name = Path::new(document).with_extension("d.ts");
        let mut types = node("openapi-typescript/bin/cli.js");
        types
            .arg(document)
            .arg("--output")
            .arg(directory.path().join(name.file_name().unwrap()));
        judge(types).await;
    }
    let program = directory.path().join("typed_use.ts");
    let source = root().join("crates/control/tests/typed_use.ts");
    std::fs::copy(source, &program).unwrap();
    let mut compiler = node("typescript/bin/tsc");
    compiler
        .args(["--noEmit", "--strict", "--target", "es2022"])
        .args(["--module", "nodenext"])
        .arg(program);
    judge(compiler).await;
}

const DOCUMENTS: [&str; 2] = ["openapi/control-plane.json", "openapi/engine.json"];

fn schemathesis() -> Command {
    let mut command = python();
    command.args(["-m", "schemathesis.cli"]);
    command
}

/// Runs a program that must succeed.
async fn judge(mut command: Command) {
    let directory = tempfile::tempdir().unwrap();
    if command.as_std().get_current_dir().is_none() {
        command.current_dir(root());
    }
    let output = command
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("HYPOTHESIS_STORAGE_DIRECTORY", directory.path())
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output()
        .await
        .unwrap();
    assert!(
        output.status.success(),
        "{}\n{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}

fn python() -> Command {
    Command::new(named("SVC_TEST_PYTHON"))
}

/// A program of the locked Node packages.
fn node(program: &str) -> Command {
    let packages = named("SVC_TEST_NODE_PACKAGES").join("node_modules");
    let mut node = Command::new(named("SVC_TEST_NODE"));
    node.arg(packages.join(program));
    node
}

fn named(variable: &str) -> PathBuf {
    match std::env::var_os(variable) {
        Some(path) => path.into(),
        None => panic!("{variable} is not set: run cargo xtask test"),
    }
}

fn root() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    root.canonicalize().unwrap()
}
