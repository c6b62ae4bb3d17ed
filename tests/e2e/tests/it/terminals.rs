//! Terminals of registered and ad-hoc servers, from the pages of `svc up`, with real components
//! only.

use anyhow::{Context as _, Result};
use e2e::Platform;
use serde_json::json;

/// WT-2, EN-8: a user opens a terminal in a browser, another one watches and is granted control.
/// The recording plays in the browser, and the command line prints it as a transcript.
#[test]
fn wt_2_a_terminal_is_opened_watched_handed_over_and_replayed_in_browsers() -> Result<()> {
    let platform = Platform::up()?;
    let create = ["webtty", "server", "create", "build", "--enroll"];
    let created = platform.svc_json(&create)?;
    let id = created["id"].as_str().context("no id")?;
    let server = ["webtty", "server", "--server-id", id];
    let _server = platform.agent(&[&server[..], SPAWNS].concat())?;
    let restricted = ["--access-policy", "restricted", "--enroll"];
    let create = ["webtty", "server", "create", "vault"];
    let created = platform.svc_json(&[&create[..], &restricted].concat())?;
    let vault = created["id"].as_str().context("no id")?;
    let server = ["webtty", "server", "--server-id", vault];
    let _vault = platform.agent(&[&server[..], SPAWNS].concat())?;
    let given = json!({
        "workspace": platform.ready()["workspace_id"],
        "token": platform.ready()["token"],
        "restricted": vault,
    });
    let results = platform.node_with("managed_terminals.mjs", given)?;
    let session = results["session"].as_str().context("no session")?;

    let sessions = platform.svc_json(&["webtty", "sessions", "list"])?;
    let all = sessions.as_array().context("no list")?;
    let ended = all.iter().find(|shown| shown["id"] == session);
    let ended = ended.context("the session is not in the list")?;
    assert_eq!(ended["status"], "closed", "{ended}");
    assert_eq!(ended["exit_code"], 7, "{ended}");
    let transcript = platform.svc(&["webtty", "sessions", "export", session])?;
    for line in ["from-42-admin", "from-43-colleague"] {
        assert!(
            transcript.lines().any(|shown| shown == line),
            "{transcript}"
        );
    }
    let verdict = platform.svc_json(&["webtty", "sessions", "verify", session])?;
    assert_eq!(verdict["whole"], true, "{verdict}");
    Ok(())
}

/// A server without managed sessions waits for a page to reconnect, and resumes the same shell.
#[test]
fn a_terminal_outlives_its_page_and_is_resumed() -> Result<()> {
    let platform = Platform::up()?;
    let server = [
        "webtty",
        "server",
        "--name",
        "shell",
        "--shell",
        "/bin/bash",
    ];
    let _server = platform.agent(&[&server[..], SPAWNS].concat())?;
    let results = platform.node("kept_terminals.mjs")?;
    assert_eq!(results["kept"], true);
    Ok(())
}

/// Commands run as the user of the test.
const SPAWNS: &[&str] = &["--execution-mode", "spawn"];
