//! Sessions from start to end, and their list entries.

use serde_json::{Value, json};
use tty::message::{Kind, Parameter, ParameterKind, Stream, TerminationReason};
use tty::size::Size;

use super::server::ShellEvent;
use super::world::{SERVER, World, project};

/// EN-8, WT-2: a session of a registered server is listed while it runs and after its end, with its
/// opener, purpose and exit status.
#[tokio::test]
#[expect(
    clippy::too_many_lines,
    reason = "a test tells one story from start to end"
)]
async fn en_8_a_session_runs_and_is_listed() {
    let mut world = World::start().await;
    let query = "?session_mode=interactive&origin=agent&initiator_kind=agent&agent_name=Helper\
        &purpose=look+around&group_id=grp-1&unknown=x";
    let mut ann = world.connect_client(query, &world.ann).await.unwrap();
    let (_, sessions) = world.get("/api/webtty/sessions", &world.ann).await;
    assert_eq!(sessions[0]["status"], "opening");
    assert_eq!(sessions[0]["session_mode"], "interactive");
    ann.open(true).await;
    let mut shell = world.server.shell().await;
    let size = Size { rows: 5, cols: 20 };
    assert_eq!(shell.next().await, ShellEvent::Started(Some(size)));
    ann.type_text("ls\r").await;
    shell.wait_for_input("ls\r").await;
    ann.wait_for_output("ls").await;
    let wide = Size { rows: 9, cols: 40 };
    let new_size: tty::message::TerminalSize = wide.into();
    ann.send(Kind::Parameter(Parameter {
        parameter: Some(ParameterKind::TerminalSize(new_size)),
    }))
    .await;
    assert_eq!(shell.next().await, ShellEvent::Resized(wide));

    let (status, sessions) = world.get("/api/webtty/sessions", &world.bob).await;
    assert_eq!(status, 200);
    let session = &sessions[0];
    let id = session["id"].as_str().unwrap().to_owned();
    for (field, value) in [
        ("status", json!("active")),
        ("project_id", json!(project())),
        ("server_id", json!(SERVER)),
        ("initiator_user_id", json!("usr_ann")),
        ("group_id", json!("grp-1")),
        ("session_mode", json!("interactive")),
        ("recording_mode", json!("private")),
        ("encryption_mode", json!("managed")),
        ("downstream_transport", json!("websocket")),
        ("upstream_transport", json!("plain")),
        ("command_meta", json!({"command": "work"})),
    ] {
        assert_eq!(session[field], value, "{field}");
    }
    assert_eq!(session["context"]["origin"], "agent");
    assert_eq!(session["context"]["purpose"], "look around");
    let live = &session["live"];
    assert_eq!(live["available"], true);
    assert_eq!(live["attachable"], true);
    assert_eq!(live["has_upstream"], true);
    assert_eq!(live["participant_count"], 1);
    let path = format!("/api/webtty/sessions/{id}/participants");
    let (_, participants) = world.get(&path, &world.bob).await;
    assert_eq!(participants[0]["id"], live["controller_participant_id"]);
    assert_eq!(participants[0]["role"], "controller");
    assert_eq!(participants[0]["live"]["connected"], true);
    assert!(participants[0].get("attach_grant").is_none());

    let (_, groups) = world.get("/api/webtty/groups", &world.bob).await;
    assert_eq!(groups[0]["id"], "grp-1");
    assert!(groups[0].get("closed_at").is_none());

    shell.exits(3);
    ann.wait_for_close().await;
    let close = ann.closed.clone().expect("a close");
    assert_eq!(close.return_code, 3);
    let ended = world
        .wait_for_session(&id, |shown| shown["status"] == "closed")
        .await;
    assert_eq!(ended["exit_code"], 3);
    assert!(ended["ended_at"].is_string() && ended.get("error_code").is_none());
    assert_eq!(ended["live"]["available"], false);
    let (_, participants) = world.get(&path, &world.bob).await;
    assert_eq!(participants[0]["grant_state"], "detached");
    let (_, group) = world.get("/api/webtty/groups/grp-1", &world.bob).await;
    assert!(group["closed_at"].is_string());
    let (status, _) = world.get("/api/webtty/groups/grp-2", &world.bob).await;
    assert_eq!(status, 404);
    let (status, keys) = world
        .get(&format!("/api/webtty/sessions/{id}/key-grants"), &world.bob)
        .await;
    assert_eq!((status, keys), (200, json!([])));

    for (filters, count) in [
        (json!({"status": "closed", "user_id": "usr_ann"}), 1),
        (json!({"server_id": SERVER, "group_id": "grp-1"}), 1),
        (json!({"origin": "human"}), 0),
        (json!({"status": "active"}), 0),
        (json!({"started_from": "2000-01-01T00:00:00Z"}), 1),
        (json!({"started_to": "2000-01-01T00:00:00Z"}), 0),
    ] {
        let found = list(&world, &json!({"filters": filters})).await;
        assert_eq!(found.1.as_array().unwrap().len(), count, "{filters}");
    }
    let (status, problem) = list(&world, &json!({"filters": {"color": "red"}})).await;
    assert_eq!((status, &problem["field"]), (400, &json!("filters.color")));
}

async fn list(world: &World, params: &Value) -> (u16, Value) {
    let query = types::form::encode([("params", params.to_string().as_str())]);
    let path = format!("/api/webtty/sessions?{query}");
    world.get(&path, &world.bob).await
}

/// WT-3: no answer or event of a session contains typed or printed bytes, from its start until
/// after its end.
#[tokio::test]
async fn wt_3_no_answer_contains_a_byte_of_a_terminal() {
    let mut world = World::start().await;
    let events = super::events::watch(&world, &world.bob, true).await;
    let (mut ann, mut shell, id) = world.session().await;
    let (mut bob, participant) = world.attach_and_join(&id, &world.bob).await;
    ann.type_text("typed-4711\r").await;
    shell.wait_for_input("typed-4711\r").await;
    shell.shows("shown-4712");
    shell.hides(true);
    ann.type_text("hidden-4713\r").await;
    shell.wait_for_input("hidden-4713\r").await;
    bob.wait_for_output("shown-4712").await;
    let (status, request) = world
        .request_control(&id, &participant, &world.bob, json!({}))
        .await;
    assert_eq!(status, 201);
    world
        .resolves(&id, &request, &world.ann, json!({"action": "refuse"}))
        .await;
    let base = format!("/api/webtty/sessions/{id}");
    let paths = [
        "/api/webtty/capabilities".to_owned(),
        "/api/webtty/sessions".to_owned(),
        "/api/webtty/groups".to_owned(),
        "/api/tunnels".to_owned(),
        "/api/clients".to_owned(),
        base.clone(),
        format!("{base}/participants"),
        format!("{base}/control-requests"),
        format!("{base}/key-grants"),
    ];
    for path in &paths {
        assert_eq!(world.get(path, &world.ann).await.0, 200, "{path}");
    }
    shell.exits(0);
    ann.wait_for_close().await;
    world
        .wait_for_session(&id, |shown| shown["status"] == "closed")
        .await;
    for path in &paths {
        world.get(path, &world.ann).await;
    }
    let mut texts = world.answers.lock().clone();
    texts.extend(super::events::until(events, "webtty.session.closed").await);
    assert!(
        texts.iter().any(|text| text.contains("usr_ann")),
        "{texts:?}"
    );
    for secret in ["typed-4711", "shown-4712", "hidden-4713", "NDcx"] {
        let leaks: Vec<_> = texts.iter().filter(|text| text.contains(secret)).collect();
        assert!(leaks.is_empty(), "{secret} in {leaks:?}");
    }
}

/// A command with pipes: both output streams, the end of its input, and no control requests.
#[tokio::test]
async fn a_command_without_a_terminal_belongs_to_its_opener_alone() {
    let mut world = World::start().await;
    let mut ann = world.connect_client("", &world.ann).await.unwrap();
    ann.open(false).await;
    let mut shell = world.server.shell().await;
    assert_eq!(shell.next().await, ShellEvent::Started(None));
    let (_, sessions) = world.get("/api/webtty/sessions", &world.bob).await;
    let id = sessions[0]["id"].as_str().unwrap().to_owned();
    assert_eq!(sessions[0]["session_mode"], "non-interactive");
    let (mut bob, participant) = world.attach_and_join(&id, &world.bob).await;
    let (status, problem) = world
        .request_control(&id, &participant, &world.bob, json!({}))
        .await;
    assert_eq!(status, 409, "{problem}");
    assert_eq!(problem["code"], "session_without_terminal");
    ann.type_text("input").await;
    shell.wait_for_input("input").await;
    bob.wait_for_output("input").await;
    ann.send(Kind::end(Stream::Stdin)).await;
    shell.exits(0);
    ann.wait_for_close().await;
    assert_eq!(ann.closed.unwrap().return_code, 0);
    bob.wait_for_close().await;
}

/// EN-8: an owner ends a session. Other participants cannot.
#[tokio::test]
async fn en_8_a_session_is_terminated_by_its_owner() {
    let mut world = World::start().await;
    let (mut ann, mut shell, id) = world.session().await;
    let path = format!("/api/webtty/sessions/{id}");
    let (status, problem) = world.call("DELETE", &path, &world.bob, None).await;
    assert_eq!((status, &problem["code"]), (403, &json!("not_allowed")));
    let (status, _) = world.call("DELETE", &path, &world.ann, None).await;
    assert_eq!(status, 204);
    ann.wait_for_close().await;
    let why = ann.closed.unwrap().termination.expect("why");
    assert_eq!(why.reason(), TerminationReason::Terminated);
    shell.wait_for_end().await;
    let ended = world
        .wait_for_session(&id, |shown| shown["status"] == "closed")
        .await;
    assert_eq!(ended["error_code"], "terminated");
    let (status, problem) = world.call("DELETE", &path, &world.ann, None).await;
    assert_eq!(
        (status, &problem["code"]),
        (409, &json!("session_not_active"))
    );
}

/// The published host of a managed server opens terminals for clients with a token, and serves
/// nothing else.
#[tokio::test]
async fn the_published_host_opens_terminals_and_nothing_else() {
    let mut world = World::start().await;
    let hostname = world.server.hostname.clone().unwrap();
    assert_eq!(world.connect_client("", "x.y.z").await.err(), Some(401));
    let visitor = world.engine.visitor().http1(&hostname).await;
    let anonymous = super::world::request(&format!("wss://{hostname}/"), None);
    assert_eq!(
        super::world::upgrade(visitor, anonymous).await.err(),
        Some(401)
    );
    assert_eq!(
        world.connect_client("?origin=mars", &world.ann).await.err(),
        Some(400)
    );
    let bearer = format!("Authorization: Bearer {}\r\n", world.ann);
    let upgrade = "Connection: upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n";
    for (method, fields, status) in [
        ("GET", String::new(), 426),
        ("GET", upgrade.to_owned(), 400),
        ("GET", format!("{upgrade}Sec-WebSocket-Key: short\r\n"), 400),
        ("POST", String::new(), 426),
        (
            "GET",
            "Connection: upgrade\r\nUpgrade: other\r\n".to_owned(),
            426,
        ),
    ] {
        let mut visitor = world.engine.visitor().http1(&hostname).await;
        let fields = format!("{bearer}{fields}");
        visitor.request(method, "/", &hostname, &fields).await;
        assert_eq!(visitor.head().await.status, status, "{method} {fields}");
    }
    // Browsers may send the token in the query.
    let visitor = world.engine.visitor().http1(&hostname).await;
    let query = format!("wss://{hostname}/?svc.token={}", world.ann);
    let by_query = super::world::request(&query, None);
    let mut ann = super::world::upgrade(visitor, by_query).await.unwrap();
    ann.open(true).await;
    world.server.shell().await.exits(0);
    ann.wait_for_close().await;
    let (_, sessions) = world.get("/api/webtty/sessions", &world.bob).await;
    assert_eq!(
        sessions.as_array().unwrap().len(),
        1,
        "refusals start no session"
    );
    assert!(!sessions.to_string().contains(&world.ann));
}

/// An invalid message ends the participation of its sender.
#[tokio::test]
async fn an_invalid_message_is_answered_with_an_error() {
    let mut world = World::start().await;
    let (mut ann, mut shell, id) = world.session().await;
    let (mut bob, _) = world.attach_and_join(&id, &world.bob).await;
    bob.link.send_text("hello").await;
    bob.wait_for_close().await;
    assert_eq!(bob.error.as_deref(), Some("messages are binary"));
    ann.type_text("still here").await;
    shell.wait_for_input("still here").await;
    ann.send(Kind::data(Stream::Stdout, "from a client")).await;
    ann.wait_for_close().await;
    assert_eq!(ann.error.as_deref(), Some("an unexpected data"));
}
