//! Terminal events on the live stream, and their recipients (WT-5).

use serde_json::{Value, json};
use testing::RawVisitor;
use tty::message::NoticeKind;

use super::world::{A, MEMBER, World, host};

/// Opens the event stream of the project.
pub(crate) async fn watch(world: &World, token: &str, webtty: bool) -> RawVisitor {
    let mut watcher = ask(world, token, webtty).await;
    assert_eq!(watcher.head().await.status, 200);
    let first = watcher.chunk().await.unwrap();
    assert!(first.starts_with(b"data: "), "{}", first.escape_ascii());
    watcher
}

async fn ask(world: &World, token: &str, webtty: bool) -> RawVisitor {
    let host = host();
    let mut watcher = world.engine.visitor().http1(&host).await;
    let params = json!({"webtty": webtty}).to_string();
    let query = types::form::encode([("params", params.as_str())]);
    let bearer = format!("Authorization: Bearer {token}\r\n");
    let path = format!("/api/sse?{query}");
    watcher.request("GET", &path, &host, &bearer).await;
    watcher
}

/// All events up to one of this type.
pub(crate) async fn until(mut watcher: RawVisitor, last: &str) -> Vec<String> {
    let mut events = Vec::new();
    loop {
        let chunk = testing::within("an event", watcher.chunk()).await.unwrap();
        let line = String::from_utf8(chunk).unwrap();
        let ends = line.contains(&format!("\"type\":\"{last}\""));
        events.push(line);
        if ends {
            return events;
        }
    }
}

/// WT-5: events of sessions, participants and control requests are sent in order, to streams that
/// request them.
#[tokio::test]
async fn wt_5_participants_and_requests_are_sent_on_request() {
    let mut world = World::start().await;
    let watcher = watch(&world, &world.bob, true).await;
    let without = watch(&world, &world.bob, false).await;
    let (mut ann, shell, id) = world.session().await;
    let (mut bob, participant) = world.attach_and_join(&id, &world.bob).await;
    let (_, request) = world
        .request_control(&id, &participant, &world.bob, json!({}))
        .await;
    let grant = json!({"action": "grant"});
    world.resolves(&id, &request, &world.ann, grant).await;
    bob.notice(NoticeKind::Granted).await;
    drop(bob);
    ann.notice(NoticeKind::Left).await;
    shell.exits(0);
    ann.wait_for_close().await;

    let events = until(watcher, "webtty.session.closed").await;
    let events: Vec<Value> = events
        .iter()
        .map(|line| serde_json::from_str(line.strip_prefix("data: ").unwrap()).unwrap())
        .collect();
    let types: Vec<_> = events
        .iter()
        .map(|event| event["type"].as_str().unwrap())
        .collect();
    let of = |name: &str| {
        let place = types.iter().position(|found| *found == name);
        place.unwrap_or_else(|| panic!("{name} in {types:?}"))
    };
    let order = [
        "webtty.session.created",
        "webtty.session.updated",
        "webtty.participant.attached",
        "webtty.control_request.created",
        "webtty.control_request.resolved",
        "webtty.participant.detached",
        "webtty.session.closed",
    ];
    assert!(order.iter().map(|name| of(name)).is_sorted(), "{types:?}");
    for event in &events {
        assert_eq!(event["project_id"], format!("prj_{A}"));
        let object = &event["object"];
        let session = object.get("session_id").unwrap_or(&object["id"]);
        assert_eq!(session, id.as_str(), "{event}");
    }
    let attached = &events[of("webtty.participant.attached")]["object"];
    assert_eq!(attached["id"], participant.as_str());
    assert!(attached.get("attach_grant").is_none());
    assert_eq!(
        events[of("webtty.control_request.created")]["object"]["reason"],
        "to help"
    );
    assert_eq!(
        events[of("webtty.session.closed")]["object"]["exit_code"],
        0
    );

    // A stream without that option gets tunnel events only.
    world.server.stop();
    let events = until(without, "tunnel.deleted").await;
    assert!(
        events
            .iter()
            .all(|line| !line.contains("\"type\":\"webtty.")),
        "{events:?}"
    );
}

/// WT-5: terminal events need a session permission. The stream is closed when the permission is
/// removed.
#[tokio::test]
async fn wt_5_events_of_terminals_need_their_permission() {
    let world = World::start().await;
    let claims = json!({"userId": "usr_bob", "permissions": ["tunnels.resources.read-only"]});
    let narrow = world.platform.mint(claims);
    for (webtty, status) in [(true, 403), (false, 200)] {
        let mut watcher = ask(&world, &narrow, webtty).await;
        assert_eq!(watcher.head().await.status, status, "{webtty}");
    }
    let mut watcher = watch(&world, &world.bob, true).await;
    let mut stays = watch(&world, &world.bob, false).await;
    let less: Vec<_> = MEMBER
        .iter()
        .filter(|name| !name.starts_with("webtty"))
        .copied()
        .collect();
    world.platform.add_person("usr_bob", &[(A, &less)]);
    let end = testing::within("the end", watcher.chunk()).await.unwrap();
    assert!(end.starts_with(b": closed"), "{}", end.escape_ascii());
    world.server.stop();
    let events = testing::within("an event", stays.chunk()).await.unwrap();
    assert!(events.starts_with(b"data: "), "{}", events.escape_ascii());
}
