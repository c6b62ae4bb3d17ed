//! External causes that end sessions, and the resulting states.

use api::link::{Item, WebttyServer};
use serde_json::json;
use testing::within;
use tty::managed::TERMINATE_GRACE;
use tty::message::{Kind, NoticeKind, Signal, Stream, TerminationReason};
use tty::session::SILENCE;

use super::server::ShellEvent;
use super::world::{World, record};

/// A session ends with the credential of its opener.
#[tokio::test]
async fn a_session_ends_with_its_openers_token() {
    let mut world = World::start().await;
    world.platform.add_member("usr_carl", &[super::world::A]);
    let (credential, carls) = world.platform.add_pat("usr_carl");
    world.engine.wait_for_changes().await;
    let mut carl = world.connect_client("", &carls).await.unwrap();
    carl.open(true).await;
    let mut shell = world.server.shell().await;
    let sessions = world.get("/api/webtty/sessions", &world.ann).await.1;
    let id = sessions[0]["id"].as_str().unwrap().to_owned();
    let (mut bob, _) = world.attach_and_join(&id, &world.bob).await;
    world.platform.revoke(&credential);
    carl.wait_for_close().await;
    bob.wait_for_close().await;
    shell.wait_for_end().await;
    let ended = world
        .wait_for_session(&id, |shown| shown["status"] == "closed")
        .await;
    assert_eq!(ended["error_code"], "revoked");
}

/// EN-8: the output of a revoked or terminated session is hidden from then on. The command keeps
/// writing and ignores every signal but KILL, which follows four seconds later.
#[tokio::test]
async fn en_8_a_terminated_session_shows_nothing_and_is_killed() {
    for revoked in [true, false] {
        let mut world = World::start().await;
        world.platform.add_member("usr_carl", &[super::world::A]);
        let (credential, carls) = world.platform.add_pat("usr_carl");
        world.engine.wait_for_changes().await;
        let mut carl = world.connect_client("", &carls).await.unwrap();
        carl.open(true).await;
        let mut shell = world.server.shell().await;
        shell.ignores_signals();
        let sessions = world.get("/api/webtty/sessions", &world.ann).await.1;
        let id = sessions[0]["id"].as_str().unwrap().to_owned();
        let (mut bob, _) = world.attach_and_join(&id, &world.bob).await;
        shell.shows("before");
        for person in [&mut carl, &mut bob] {
            person.wait_for_output("before").await;
        }
        let started_at = std::time::Instant::now();
        if revoked {
            world.platform.revoke(&credential);
        } else {
            let path = format!("/api/webtty/sessions/{id}");
            let (status, _) = world.call("DELETE", &path, &carls, None).await;
            assert_eq!(status, 204);
        }
        while shell.next().await != ShellEvent::Signalled(Signal::Terminate) {}
        // From here on it writes without end.
        shell.shows("after");
        while shell.next().await != ShellEvent::Signalled(Signal::Kill) {
            shell.shows("after");
        }
        // A unit test of `tty::managed` proves the exact times. Here, the timer must be this one.
        let took = started_at.elapsed();
        assert!((TERMINATE_GRACE..SILENCE).contains(&took), "{took:?}");
        shell.wait_for_end().await;
        for person in [&mut carl, &mut bob] {
            person.wait_for_close().await;
            let shown = String::from_utf8_lossy(&person.shown);
            assert!(!shown.contains("after"), "{shown}");
        }
    }
}

/// A spectator is disconnected with their token, and the session continues.
#[tokio::test]
async fn a_spectator_ends_with_their_token_and_the_session_does_not() {
    let mut world = World::start().await;
    let (mut ann, mut shell, id) = world.session().await;
    let (mut bob, _) = world.attach_and_join(&id, &world.bob).await;
    world.platform.revoke(&world.bobs);
    bob.notice(NoticeKind::Kicked).await;
    bob.wait_for_close().await;
    ann.notice(NoticeKind::Left).await;
    ann.type_text("on and on").await;
    shell.wait_for_input("on and on").await;
}

/// A session ends when its server is suspended, whatever its participants.
#[tokio::test]
async fn a_session_ends_with_its_servers_registration() {
    let mut world = World::start().await;
    let (mut ann, mut shell, id) = world.session().await;
    let mut server_record = record(&world.keys);
    server_record.status = "suspended".to_owned();
    world
        .platform
        .send(vec![Item::WebttyServer(Box::new(server_record))]);
    ann.wait_for_close().await;
    shell.wait_for_end().await;
    let ended = world
        .wait_for_session(&id, |shown| shown["ended_at"].is_string())
        .await;
    assert_eq!(ended["error_code"], "revoked");
}

/// The session of a server that disconnects or sends invalid messages ends as failed.
#[tokio::test]
async fn a_session_without_its_server_has_failed() {
    let mut world = World::start().await;
    let (mut ann, shell, id) = world.session().await;
    let (mut bob, _) = world.attach_and_join(&id, &world.bob).await;
    shell.disconnect();
    for person in [&mut ann, &mut bob] {
        person.wait_for_close().await;
        let error = person.error.as_deref();
        assert_eq!(error, Some("the connection to the server was lost"));
    }
    let ended = world
        .wait_for_session(&id, |shown| shown["status"] == "errored")
        .await;
    assert_eq!(ended["error_code"], "server_lost");
    assert_eq!(ended["live"]["has_upstream"], false);

    let (mut ann, shell, id) = world.session().await;
    shell.says(Kind::data(Stream::Stdin, "from a server"));
    ann.wait_for_close().await;
    let ended = world
        .wait_for_session(&id, |shown| shown["status"] == "errored")
        .await;
    assert_eq!(ended["error_code"], "server_error");

    // The agent disconnects. Accepted sessions continue, and no further session is opened.
    let (mut ann, mut shell, id) = world.session().await;
    world.server.stop();
    within("the tunnel to go", async {
        while world.connect_client("", &world.ann).await.err() != Some(503) {
            tokio::task::yield_now().await;
        }
    })
    .await;
    ann.type_text("still here").await;
    shell.wait_for_input("still here").await;
    shell.exits(0);
    ann.wait_for_close().await;
    world
        .wait_for_session(&id, |shown| shown["status"] == "closed")
        .await;
}

/// The command of a client with pipes ends with its client.
#[tokio::test]
async fn a_command_without_a_terminal_ends_with_its_client() {
    let mut world = World::start().await;
    let mut ann = world.connect_client("", &world.ann).await.unwrap();
    ann.open(false).await;
    let mut shell = world.server.shell().await;
    let sessions = world.get("/api/webtty/sessions", &world.ann).await.1;
    let id = sessions[0]["id"].as_str().unwrap().to_owned();
    drop(ann);
    shell.wait_for_end().await;
    let ended = world
        .wait_for_session(&id, |shown| shown["ended_at"].is_string())
        .await;
    assert_eq!(ended["error_code"], "abandoned");
}

/// A stopping engine ends its sessions in order, with a reason.
#[tokio::test]
async fn a_drain_ends_sessions_in_order() {
    let mut world = World::start().await;
    let (mut ann, mut shell, id) = world.session().await;
    let (mut bob, _) = world.attach_and_join(&id, &world.bob).await;
    let engine = world.engine.stop();
    let ending = async {
        while shell.next().await != ShellEvent::Signalled(tty::message::Signal::Terminate) {}
        shell.wait_for_end().await;
        ann.wait_for_close().await;
        bob.wait_for_close().await;
    };
    tokio::join!(engine, ending);
    for person in [ann, bob] {
        let why = person.closed.unwrap().termination.unwrap();
        assert_eq!(why.reason(), TerminationReason::Drain);
        assert_eq!(why.detail, "drain");
    }
}

/// A list may be limited.
#[tokio::test]
async fn the_newest_session_is_listed_first() {
    let mut world = World::start().await;
    for _ in 0..3 {
        let (mut ann, shell, id) = world.session().await;
        shell.exits(0);
        ann.wait_for_close().await;
        world
            .wait_for_session(&id, |shown| shown["status"] == "closed")
            .await;
    }
    let query = types::form::encode([("params", json!({"limit": 2}).to_string().as_str())]);
    let path = format!("/api/webtty/sessions?{query}");
    let (_, sessions) = world.get(&path, &world.ann).await;
    let ids: Vec<_> = sessions
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["id"].as_str().unwrap())
        .collect();
    assert_eq!(ids.len(), 2);
    assert!(
        ids.is_sorted_by(|left, right| left > right),
        "the newest first"
    );
}

/// WT-4: the content of a running session's recording is returned or refused. An unreadable
/// recording is not reported as empty.
#[tokio::test]
async fn a_recording_that_cannot_be_read_is_not_empty() {
    let recorded = |server: &mut WebttyServer| server.recording_policy = "recorded".to_owned();
    let mut world = World::with(recorded, true, "plain").await;
    let (_ann, shell, id) = world.session().await;
    shell.shows("hello");
    let path = format!("/api/webtty/sessions/{id}/events");
    within("what was recorded", async {
        while world.get(&path, &world.ann).await == (200, json!([])) {
            tokio::task::yield_now().await;
        }
    })
    .await;
    let project = super::world::project();
    let known = format!("recordings/sessions/{project}/{id}/session");
    std::fs::write(world.data.path().join(known), "something else").unwrap();
    let (status, problem) = world.get(&path, &world.ann).await;
    assert_eq!(
        (status, &problem["code"]),
        (409, &json!("recording_broken"))
    );
}
