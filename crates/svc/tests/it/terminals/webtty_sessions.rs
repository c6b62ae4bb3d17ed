//! `svc webtty sessions`, and the terminal tools of AI clients, against a real managed engine: a
//! user at a terminal, a second user who joins, and an AI client that is first refused and then
//! granted control.

use nix::sys::signal::Signal;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::installed::{RunningUp, up};
use crate::program::{CommandOutput, Home, RunningCommand, SOON};
use crate::publishing::panel::TerminalSession;
use crate::terminals::mcp::Client;

/// WT-2: a user watches, is refused, and is then granted control by the controller. So does an AI
/// client, for one line. All of it is recorded, including the typing participant.
#[tokio::test]
#[expect(
    clippy::too_many_lines,
    reason = "a test tells one story from start to end"
)]
async fn wt_2_control_is_requested_refused_and_granted() {
    let home = Home::new();
    let up = up(&home, &[]).await;
    let server = serve(&home).await;
    let shell = [
        "webtty",
        "client",
        "build",
        "--",
        "sh",
        "-c",
        "echo ready; exec sh",
    ];
    let mut owner = window(&home, &shell);
    owner.until_text("ready").await;
    owner.press("echo begun-$((1+1))\r");
    owner.until_text("begun-2").await;
    let session = only_session(&home).await;
    let id = session["id"].as_str().unwrap();
    assert_eq!(session["status"], "active", "{session}");
    assert_names_and_start_of_id(&home, id).await;

    // A second user joins late, and sees the current screen.
    let mut other = window(
        &home,
        &["webtty", "sessions", "join", id, "--reason", "to help"],
    );
    other.until_text("begun-2").await;
    other.until_text("read-only").await;
    other.press("x");
    other.until_text("read-only: typing has no effect").await;
    other.press("~r");
    owner.until_text("to help").await;
    owner.press("\r~n");
    other.until_text("control was refused").await;
    clear(&mut owner, 1).await;
    other.press("~r");
    owner.until_text("to help").await;
    owner.press("\r~y");
    other.until_text("you have control").await;
    other.press("echo other-$((2+2))\r");
    other.until_text("other-4").await;
    owner.until_text("other-4").await;
    let requests = home
        .run(&["webtty", "sessions", "control-requests", id, "-o", "json"])
        .await
        .json();
    let statuses: Vec<_> = requests
        .as_array()
        .unwrap()
        .iter()
        .map(|one| &one["status"])
        .collect();
    assert_eq!(statuses, ["refused", "granted"], "{requests}");
    let request = requests[1]["id"].as_str().unwrap();
    let revoke = [
        "webtty",
        "sessions",
        "resolve-control",
        id,
        request,
        "--action",
        "revoke",
    ];
    ok(&home.run(&revoke).await);
    other.until_text("control was revoked").await;
    other.press("~.");
    assert_eq!(other.ended().await.0, Some(0));

    // An AI client.
    let mut agent = Client::start(&home).await;
    let of = |more: Value| {
        let mut arguments = more;
        arguments["project_id"] = json!(up.ready_field("project_id"));
        arguments["session_id"] = json!(id);
        arguments
    };
    let line = of(json!({"line": "echo agent-$((3+3))"}));
    let error = agent
        .call_error("svc_webtty_session_type", line.clone())
        .await;
    assert!(
        error.contains("svc_webtty_control_request_create"),
        "{error}"
    );
    let screen = agent
        .call_ok("svc_webtty_session_screen", of(json!({})))
        .await;
    assert!(has_row(&screen, "other-4"), "{screen}");
    assert_eq!(screen["control"]["state"], "none");
    let error = agent
        .call_error("svc_webtty_session_type", line.clone())
        .await;
    assert!(error.contains("control_required"), "{error}");
    let ask = of(json!({"reason": "to count", "lines": 1}));
    for (answer, state) in [("\r~n", "refused"), ("\r~y", "held")] {
        let asked = agent
            .call_ok("svc_webtty_control_request_create", ask.clone())
            .await;
        assert_eq!(asked["status"], "pending", "{asked}");
        assert_eq!(asked["control_lines"], 1, "{asked}");
        owner.until_text("to count").await;
        // The requester cannot answer, not even with the rights of its user.
        let own = of(json!({"request_id": asked["id"], "action": "grant"}));
        let error = agent
            .call_error("svc_webtty_control_request_resolve", own)
            .await;
        assert!(error.contains("credential"), "{error}");
        owner.press(answer);
        let mut screen = Value::Null;
        while screen["control"]["state"] != state {
            let wait = of(json!({"wait_seconds": 5}));
            screen = agent.call_ok("svc_webtty_session_screen", wait).await;
        }
        if state == "refused" {
            clear(&mut owner, 2).await;
        }
    }
    let mut screen = agent.call_ok("svc_webtty_session_type", line.clone()).await;
    // The screen a moment later. On a busy machine the shell may not have printed yet.
    for _ in 0..4 {
        if !has_row(&screen, "agent-6") {
            let wait = of(json!({"wait_seconds": 10}));
            screen = agent.call_ok("svc_webtty_session_screen", wait).await;
        }
    }
    assert!(has_row(&screen, "agent-6"), "{screen}");
    owner.until_text("agent-6").await;
    // Control was granted for one line, which has been typed.
    let error = agent.call_error("svc_webtty_session_type", line).await;
    assert!(error.contains("control_required"), "{error}");
    let participant = screen["participant_id"].as_str().unwrap();

    owner.press("exit 7\r");
    assert_eq!(owner.ended().await.0, Some(7));
    recorded(&home, id, participant).await;
    agent.leave().await;
    assert_eq!(server.terminate().await.code, Some(0));
    up.stop().await;
}

/// A shell that stops the program prints on its screen.
#[tokio::test]
async fn a_spectator_that_continues_draws_the_whole_screen() {
    let home = Home::new();
    let up = up(&home, &[]).await;
    let server = serve(&home).await;
    let script = "echo ready; exec sh";
    let shell = ["webtty", "client", "build", "--", "sh", "-c", script];
    let mut owner = window(&home, &shell);
    owner.until_text("ready").await;
    owner.press("echo begun-$((1+1))\r");
    owner.until_text("begun-2").await;
    let session = only_session(&home).await;
    let id = session["id"].as_str().unwrap();
    let mut other = window(&home, &["webtty", "sessions", "join", id]);
    let has_session = |screen: &vt100::Screen| {
        let text = screen.contents();
        text.contains("begun-2") && text.contains("read-only") && !text.contains("another job")
    };
    other.until(has_session).await;
    other.signal(Signal::SIGSTOP);
    other.is_in_state('T').await;
    other.print("\x1b[2J\x1b[Hanother job");
    other.until_text("another job").await;
    other.signal(Signal::SIGCONT);
    other.until(has_session).await;
    other.press("~.");
    assert_eq!(other.ended().await.0, Some(0));
    owner.press("exit\r");
    assert_eq!(owner.ended().await.0, Some(0));
    assert_eq!(server.terminate().await.code, Some(0));
    up.stop().await;
}

/// An AI client runs one command. The session names the client.
#[tokio::test]
async fn an_agent_runs_a_command_on_a_server() {
    let home = Home::new();
    let up: RunningUp = up(&home, &[]).await;
    let server = serve(&home).await;
    let mut agent = Client::start(&home).await;
    let project = up.ready_field("project_id").to_owned();
    let servers = agent
        .call_ok("svc_webtty_list", json!({"project_id": project}))
        .await;
    assert_eq!(servers["servers"][0]["target"], "build", "{servers}");
    let exec = json!({
        "project_id": project, "server": "build", "command": ["sh", "-c", "cat; echo no >&2; exit 3"],
        "stdin": "given",
    });
    let done = agent.call_ok("svc_webtty_exec", exec).await;
    assert_eq!(
        (&done["exit_code"], &done["timed_out"]),
        (&json!(3), &json!(false)),
        "{done}"
    );
    assert_eq!(
        (&done["stdout"], &done["stderr"]),
        (&json!("given"), &json!("no\n")),
        "{done}"
    );
    let slow = json!({
        "project_id": project, "server": "build", "command": ["sleep", "60"], "timeout_seconds": 1,
    });
    let done = agent.call_ok("svc_webtty_exec", slow).await;
    assert_eq!(done["timed_out"], true, "{done}");
    let error = agent
        .call_error(
            "svc_webtty_exec",
            json!({"project_id": project, "server": "nobody", "command": ["id"]}),
        )
        .await;
    assert!(error.contains("svc_webtty_list"), "{error}");
    agent.leave().await;
    assert_eq!(server.terminate().await.code, Some(0));
    up.stop().await;
}

/// The list for people has the names of user and server, and the start of an id is enough.
async fn assert_names_and_start_of_id(home: &Home, id: &str) {
    let list = TerminalSession::start(home, &["webtty", "sessions", "list"], 200, 10);
    let (code, shown) = list.ended().await;
    assert_eq!(code, Some(0), "{shown}");
    let line = shown.lines().find(|line| line.contains(id)).unwrap();
    let has = |name: &str| line.split_whitespace().any(|word| word == name);
    assert!(has("build") && has("admin@localhost"), "{shown}");
    let start = &id[..id.len() - 1];
    let show = ["webtty", "sessions", "show", start, "-o", "json"];
    assert_eq!(home.run(&show).await.json()["id"], id);
}

/// The content of the first test's recording, and its exports.
#[expect(
    clippy::too_many_lines,
    reason = "a test tells one story from start to end"
)]
async fn recorded(home: &Home, id: &str, participant: &str) {
    // The terminal receives the end before the recording is completely stored.
    let late = Instant::now() + SOON;
    let events = loop {
        let events = home
            .run(&["webtty", "sessions", "events", id, "-o", "json"])
            .await
            .json();
        let mut all = events.as_array().unwrap().iter();
        if all.any(|event| event["type"] == "close") {
            break events;
        }
        assert!(Instant::now() < late, "{events}");
    };
    let typed = events
        .as_array()
        .unwrap()
        .iter()
        .any(|event| event["stream_type"] == "stdin" && event["participant_id"] == participant);
    assert!(typed, "{events}");
    let verified = home
        .run(&["webtty", "sessions", "verify", id, "-o", "json"])
        .await
        .json();
    assert_eq!(
        (&verified["whole"], &verified["end_is_known"]),
        (&json!(true), &json!(true))
    );
    let text = home.run(&["webtty", "sessions", "export", id]).await;
    ok(&text);
    assert!(text.stdout.contains("agent-6"), "{text:?}");
    let export = |more: &[&'static str]| {
        let export = ["webtty", "sessions", "export", id, "--format", "ndjson"];
        [&export[..], &["--file", "kept.ndjson"], more].concat()
    };
    let file = ["webtty", "sessions", "verify", id, "--file", "kept.ndjson"];
    // Without the input, the positions of those records are still in the chain.
    ok(&home.run(&export(&[])).await);
    let found = home
        .run(&[&file[..], &["-o", "json"]].concat())
        .await
        .json();
    assert_eq!(found["whole"], true, "{found}");
    assert_eq!(found["records"], verified["records"], "{found}");
    assert_ne!(found["withheld"], "0", "{found}");
    std::fs::remove_file(home.path().join("kept.ndjson")).unwrap();
    ok(&home.run(&export(&["--include-stdin"])).await);
    let whole = home.run(&file).await;
    ok(&whole);
    let kept = std::fs::read_to_string(home.path().join("kept.ndjson")).unwrap();
    let without: Vec<_> = kept
        .lines()
        .enumerate()
        .filter(|(at, _)| *at != 5)
        .collect();
    let without: Vec<_> = without.into_iter().map(|(_, line)| line).collect();
    std::fs::write(home.path().join("kept.ndjson"), without.join("\n")).unwrap();
    let broken = home.run(&file).await;
    assert_eq!(broken.code, Some(1), "{broken:?}");
    assert!(broken.stderr.contains("recording_broken"), "{broken:?}");
    let found = home
        .run(&["webtty", "sessions", "search", "AGENT-6", "-o", "json"])
        .await
        .json();
    assert_eq!(found["hits"][0]["session_id"], id, "{found}");

    let mut replay = window(
        home,
        &[
            "webtty",
            "sessions",
            "replay",
            id,
            "--speed",
            "100",
            "--idle-limit",
            "100ms",
        ],
    );
    replay.until_text("the end").await;
    replay.until_text("agent-6").await;
    replay.press("q");
    assert_eq!(replay.ended().await.0, Some(0));
    let without_terminal = home.run(&["webtty", "sessions", "replay", id]).await;
    assert!(
        without_terminal.stderr.contains("no_terminal"),
        "{without_terminal:?}"
    );

    ok(&home
        .run(&["webtty", "sessions", "delete-recording", id, "--yes"])
        .await);
    let gone = home.run(&["webtty", "sessions", "export", id]).await;
    assert_eq!(gone.code, Some(1), "{gone:?}");
}

/// A registered server that is online.
async fn serve(home: &Home) -> RunningCommand {
    let create = [
        "webtty", "server", "create", "build", "--enroll", "-o", "json",
    ];
    let created = home.run(&create).await.json();
    let id = created["id"].as_str().unwrap();
    let mut server = home.start(&[
        "webtty",
        "server",
        "--server-id",
        id,
        "--execution-mode",
        "spawn",
        "-o",
        "json",
    ]);
    server.json_where(|line| line["status"] == "online").await;
    server
}

async fn only_session(home: &Home) -> Value {
    let list = [
        "webtty", "sessions", "list", "--status", "active", "-o", "json",
    ];
    let sessions = home.run(&list).await.json();
    assert_eq!(sessions.as_array().unwrap().len(), 1, "{sessions}");
    sessions[0].clone()
}

/// CP-12: the error for a registered server without a tunnel states the reason.
#[tokio::test]
async fn cp_12_an_offline_server_is_reported_with_a_reason() {
    let home = Home::new();
    let _up = up(&home, &[]).await;
    let created = ["webtty", "server", "create", "build", "-o", "json"];
    let created = home.run(&created).await.json();
    let id = created["id"].as_str().unwrap();
    for (change, told) in [
        (None, "is not enrolled yet"),
        (Some("enroll"), "is offline"),
        (Some("suspend"), "is suspended"),
        (Some("resume"), "is offline"),
    ] {
        if let Some(change) = change {
            ok(&home.run(&["webtty", "server", change, "build"]).await);
        }
        for name in ["build", id] {
            let away = home.run(&["webtty", "exec", name, "--", "true"]).await;
            let code = "error[webtty_server_offline]";
            assert!(away.stderr.contains(code), "{away:?}");
            assert!(away.stderr.contains(told), "{away:?}");
        }
    }
    let none = home.run(&["webtty", "exec", "built", "--", "true"]).await;
    assert!(
        none.stderr.contains("error[webtty_server_not_found]"),
        "{none:?}"
    );
}

fn has_row(screen: &Value, text: &str) -> bool {
    let rows = screen["rows"].as_array().unwrap();
    rows.iter().any(|row| row.as_str().unwrap().contains(text))
}

fn ok(output: &CommandOutput) {
    assert_eq!(output.code, Some(0), "{output:?}");
}

/// A command at its own terminal.
fn window(home: &Home, args: &[&str]) -> TerminalSession {
    TerminalSession::start_with(home, args, 160, 30, &[("TERM", "xterm"), ("PS1", "$ ")])
}

/// Clears the screen, so that new output can be distinguished from old.
async fn clear(window: &mut TerminalSession, number: u32) {
    window.press(&format!(
        "printf '\\033[2J\\033[H'cleared-$(({number}+0))-\r"
    ));
    window.until_text(&format!("cleared-{number}-")).await;
}
