//! Sessions, challenges and refusals in a real browser.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use api::link::Limits;
use client::{Properties, Target};
use serde_json::{Value, json};
use testing::{ClosedPort, TestTunnel, Upstream};
use tokio::process::Command;

use super::{Site, with_sessions};
use crate::world::{A, World};

/// ED-2, ED-6.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ed_2_ed_6_people_come_through_in_chromium() {
    let session = Site::start(with_sessions()).await;
    let both = Site::start(with_sessions().challenge_mode(true)).await;
    let address = |site: &Site| format!("https://{}:{}", site.host(), site.engine.addr().port());
    let given = json!({"session": address(&session), "both": address(&both)});
    run("edge.mjs", &given["session"], &given).await;
    assert!(session.service.accepted() > 0 && both.service.accepted() > 0);
}

/// Error pages of a service that cannot be reached: each in light and dark, on a phone and on a
/// desktop, and without scripts.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn error_pages_explain_the_refusal_in_chromium() {
    let world = World::with("").await;
    // The clock stands still, so that used-up limits stay used up.
    let visits = 40;
    world
        .change(|project| {
            project.limits = Limits {
                tunnel_requests_per_second: Some(visits),
                ..Limits::default()
            };
        })
        .await;
    let service = Upstream::http1().await;
    let silent = Upstream::start(|stream, _number| async move {
        let kept = stream;
        std::future::pending::<()>().await;
        drop(kept);
    })
    .await;
    let nobody = ClosedPort::new();
    let down: Target = nobody.addr().to_string().parse().unwrap();

    let offline = world.publish(Properties::http(), &service).await;
    let limited = Properties::http().time_to_first_byte_seconds(1);
    let timeout = world.publish(limited, &silent).await;
    let agent = world.engine.agent_at(A, &world.token).await;
    let unreachable = TestTunnel::open(agent, Properties::http(), down).await;
    let token = Properties::http().token_auth(true);
    let token = world.publish(token, &service).await;
    let session = world.publish(with_sessions(), &service).await;
    let elsewhere = Properties::http().trusted_ips(vec!["198.51.100.0/24".to_owned()]);
    let elsewhere = world.publish(elsewhere, &service).await;
    let open = world.publish(Properties::http(), &service).await;

    let port = world.engine.addr().port();
    let at = |tunnel: &TestTunnel| format!("https://{}:{port}", tunnel.hostname());
    let given = json!({
        "unknown": format!("https://nobody-{A}.t.{}:{port}", world.engine.host()),
        "offline": at(&offline),
        "unreachable": at(&unreachable),
        "timeout": at(&timeout),
        "token": at(&token),
        "session": at(&session),
        "elsewhere": at(&elsewhere),
        "limited": at(&open),
        "visits": visits,
        // Texts that no page may show.
        "secrets": [world.token],
    });
    offline.close().await;
    run("refusals.mjs", &given["unknown"], &given).await;
}

/// Runs `tests/node/<script>` with Chromium.
async fn run(script: &str, url: &Value, given: &Value) {
    let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/node");
    let shots = Path::new(env!("CARGO_TARGET_TMPDIR")).join(script);
    let world = json!({"url": url, "now": 0, "shots": shots, "given": given});
    let mut command = Command::new(variable("SVC_TEST_NODE"));
    command
        .arg(scripts.join(script))
        .env("SVC_TEST_NODE_PACKAGES", variable("SVC_TEST_NODE_PACKAGES"))
        .env("SVC_TEST_CHROMIUM", variable("SVC_TEST_CHROMIUM"))
        .env("SVC_TEST_WORLD", world.to_string())
        .stdin(Stdio::null())
        .kill_on_drop(true);
    let output = tokio::time::timeout(WAIT_LIMIT, command.output()).await;
    let output = output.expect("the script timed out").unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "{script} failed:\n{text}\n{errors}"
    );
}

/// A missing prerequisite of the machine fails the test instead of skipping it.
fn variable(name: &str) -> PathBuf {
    let value = std::env::var_os(name);
    value
        .unwrap_or_else(|| panic!("{name} is not set: run `cargo xtask test`, which sets it"))
        .into()
}

/// Time limit of a script. A script that takes longer hangs.
const WAIT_LIMIT: Duration = Duration::from_mins(10);
