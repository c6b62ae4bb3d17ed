//! Sessions and challenges in a real browser.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use client::Properties;
use serde_json::{Value, json};
use tokio::process::Command;

use super::{Site, with_sessions};

/// ED-2, ED-6.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ed_2_ed_6_people_come_through_in_chromium() {
    let session = Site::start(with_sessions()).await;
    let both = Site::start(Properties {
        challenge_mode: Some(true),
        ..with_sessions()
    })
    .await;
    let address = |site: &Site| format!("https://{}:{}", site.host(), site.engine.addr().port());
    let given = json!({"session": address(&session), "both": address(&both)});
    run("edge.mjs", given).await;
    assert!(session.service.accepted() > 0 && both.service.accepted() > 0);
}

/// Runs `tests/node/<script>` with Chromium.
async fn run(script: &str, given: Value) {
    let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/node");
    let shots = Path::new(env!("CARGO_TARGET_TMPDIR")).join(script);
    let world = json!({"url": given["session"], "now": 0, "shots": shots, "given": given});
    let mut command = Command::new(variable("SVC_TEST_NODE"));
    command
        .arg(scripts.join(script))
        .env("SVC_TEST_NODE_PACKAGES", variable("SVC_TEST_NODE_PACKAGES"))
        .env("SVC_TEST_CHROMIUM", variable("SVC_TEST_CHROMIUM"))
        .env("SVC_TEST_WORLD", world.to_string())
        .stdin(Stdio::null())
        .kill_on_drop(true);
    let output = tokio::time::timeout(PATIENCE, command.output()).await;
    let output = output.expect("the script does not end").unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "{script} failed:\n{text}\n{errors}"
    );
}

/// What the tests need of the machine is never skipped: it is missing loudly.
fn variable(name: &str) -> PathBuf {
    let value = std::env::var_os(name);
    value
        .unwrap_or_else(|| panic!("{name} is not set: run `cargo xtask test`, which sets it"))
        .into()
}

/// A script that takes longer than this hangs.
const PATIENCE: Duration = Duration::from_mins(5);
