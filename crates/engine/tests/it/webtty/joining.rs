//! Joining a session: participants, their view, and their removal.

use bytes::Bytes;
use serde_json::json;
use testing::within;
use tty::message::{Kind, NoticeKind, Parameter, ParameterKind, Signal, Stream, TerminalSize};

use super::server::ShellEvent;
use super::world::{A, World};

/// WT-2, WT-4: a late participant sees the current screen and everything that follows, and cannot
/// change anything.
#[tokio::test]
async fn wt_4_a_spectator_sees_the_screen_and_writes_nothing() {
    let mut world = World::start().await;
    let (mut ann, mut shell, id) = world.session().await;
    shell.shows("\x1b[2J\x1b[H\x1b[31mred\x1b[0m\r\nsecond");
    ann.wait_for_output("second").await;
    let (mut bob, _) = world.attach_and_join(&id, &world.bob).await;
    bob.wait_for_output("second").await;
    assert_eq!(bob.screen(), ["red", "second", "", "", ""]);
    assert_eq!(ann.notice(NoticeKind::Joined).await.user, "usr_bob");
    shell.shows("\r\nthird");
    bob.wait_for_output("third").await;
    ann.wait_for_output("third").await;
    assert_eq!(bob.screen(), ann.screen());

    bob.type_text("rm -rf /\r").await;
    bob.signals(Signal::Kill).await;
    let size = TerminalSize {
        row: 1,
        col: 1,
        ..TerminalSize::default()
    };
    bob.send(Kind::Parameter(Parameter {
        parameter: Some(ParameterKind::TerminalSize(size)),
    }))
    .await;
    bob.send(Kind::end(Stream::Stdin)).await;
    bob.assert_quiet("a spectator changes nothing").await;
    ann.type_text("ls\r").await;
    assert!(matches!(shell.next().await, ShellEvent::Started(_)));
    assert_eq!(
        shell.next().await,
        ShellEvent::Typed(Bytes::from_static(b"ls\r"))
    );
    bob.wait_for_output("ls").await;

    shell.exits(0);
    bob.wait_for_close().await;
    assert_eq!(bob.closed.unwrap().return_code, 0);
}

/// A grant is valid once, for its participant and its session.
#[tokio::test]
async fn a_grant_is_only_valid_for_its_participant_and_session() {
    let mut world = World::start().await;
    let (_ann, _shell, id) = world.session().await;
    let (_other, _other_shell, _) = world.session().await;
    let sessions = world.get("/api/webtty/sessions", &world.bob).await.1;
    let ids = sessions.as_array().unwrap().iter();
    let mut ids = ids.map(|session| session["id"].as_str().unwrap().to_owned());
    let other = ids.find(|other| *other != id).unwrap();

    let (first, grant) = world.request_attach(&id, &world.bob).await;
    let (second, _) = world.request_attach(&id, &world.bob).await;
    let refused = "the attach grant is not valid";
    for (name, at, session, participant, shown) in [
        ("forged", &first, &id, &first, vec![1; 32]),
        ("empty", &first, &id, &first, Vec::new()),
        ("stolen for another", &second, &id, &second, grant.clone()),
        ("at another's address", &second, &id, &first, grant.clone()),
        ("of another session", &first, &other, &first, grant.clone()),
    ] {
        let mut person = world.connect_participant(&id, at, None).await.unwrap();
        person.attach(session, participant, &shown).await;
        person.wait_for_close().await;
        assert_eq!(person.error.as_deref(), Some(refused), "{name}");
        assert!(person.shown.is_empty(), "{name}");
    }
    // The other session has no such participant.
    let mut person = world
        .connect_participant(&other, &first, None)
        .await
        .unwrap();
    person.attach(&other, &first, &grant).await;
    person.wait_for_close().await;
    assert_eq!(person.error.as_deref(), Some(refused));

    let mut person = world
        .connect_participant(&id, &first, Some(&world.bob))
        .await
        .unwrap();
    person.attach(&id, &first, &grant).await;
    person.notice(NoticeKind::Snapshot).await;
    let mut replayed = world.connect_participant(&id, &first, None).await.unwrap();
    replayed.attach(&id, &first, &grant).await;
    replayed.wait_for_close().await;
    assert_eq!(replayed.error.as_deref(), Some(refused), "replayed");

    let mut silent = world.connect_participant(&id, &second, None).await.unwrap();
    silent.type_text("x").await;
    silent.wait_for_close().await;
    assert_eq!(silent.error.as_deref(), Some(refused), "no attach at all");
    assert_eq!(
        world
            .connect_participant(&id, &second, Some("x.y.z"))
            .await
            .err(),
        Some(401)
    );
    let nobody = "wts_01h455vb4pex5vsknk084sn02q";
    assert_eq!(
        world.connect_participant(nobody, &second, None).await.err(),
        Some(404)
    );
}

/// The parameters of an attachment are checked.
#[tokio::test]
async fn attaching_as_the_controller_or_with_an_invalid_session_is_refused() {
    let mut world = World::start().await;
    let (_ann, _shell, id) = world.session().await;
    let path = format!("/api/webtty/sessions/{id}/participants");
    for (body, field) in [
        (json!({"role": "controller"}), "role"),
        (json!({"transport": "plain"}), "transport"),
        (json!({"grant_state": "attached"}), "grant_state"),
        (json!({"device_id": "x".repeat(200)}), "device_id"),
    ] {
        let (status, problem) = world.post(&path, &world.bob, &body).await;
        assert_eq!((status, &problem["field"]), (400, &json!(field)), "{body}");
    }
    for body in [
        json!({"colour": "red"}),
        json!([]),
        json!({"metadata": {"a": "x".repeat(20_000)}}),
    ] {
        let (status, _) = world.post(&path, &world.bob, &body).await;
        assert!(matches!(status, 400 | 413), "{body}");
    }
}

/// EN-8: an owner removes a participant, who is notified. Any other participant cannot remove
/// others, but may leave.
#[tokio::test]
async fn en_8_participants_are_removed_and_leave() {
    let mut world = World::start().await;
    let (mut ann, mut shell, id) = world.session().await;
    let sessions = format!("/api/webtty/sessions/{id}/participants");
    let (_, all) = world.get(&sessions, &world.bob).await;
    let anns = all[0]["id"].as_str().unwrap();
    let (status, _) = world
        .post(&format!("{sessions}/{anns}"), &world.bob, &json!({}))
        .await;
    assert_eq!(status, 403);

    let (mut bob, bobs) = world.attach_and_join(&id, &world.bob).await;
    let path = format!("{sessions}/{bobs}");
    let body = json!({"reason": "thank you"});
    // A program may have one of Ann's tokens. Her browser has a session.
    let (status, problem) = world.post(&path, &world.ann, &body).await;
    assert_eq!((status, &problem["code"]), (403, &json!("not_allowed")));
    let page = world.platform.mint(json!({"userId": "usr_ann"}));
    let (status, _) = world.post(&path, &page, &body).await;
    assert_eq!(status, 204);
    bob.notice(NoticeKind::Kicked).await;
    bob.wait_for_close().await;
    ann.notice(NoticeKind::Left).await;
    let (status, _) = world.post(&path, &page, &body).await;
    assert_eq!(status, 404, "already removed");

    let (mut bob, bobs) = world.attach_and_join(&id, &world.bob).await;
    let path = format!("{sessions}/{bobs}");
    let (status, _) = world.post(&path, &world.bob, &json!({})).await;
    assert_eq!(status, 204);
    bob.wait_for_close().await;
    ann.type_text("x").await;
    shell.wait_for_input("x").await;
}

/// A viewer that does not read has a bounded queue, and delays no other participant. When it reads
/// again, it gets the current screen.
#[tokio::test]
async fn a_viewer_that_never_reads_delays_no_other_participant() {
    let mut world = World::start().await;
    let (mut ann, shell, id) = world.session().await;
    let (mut bob, _) = world.attach_and_join(&id, &world.bob).await;
    // More than the buffers of both sockets (4 and 6 MiB at most) and the queue can store together.
    let piece = Bytes::from(vec![0; 64 * 1024]);
    let pieces = 256;
    let reading = async {
        for _ in 0..pieces {
            shell.shows_bytes(piece.clone());
        }
        shell.shows("\x1b[2J\x1b[Hthe end");
        ann.wait_for_output("the end").await;
    };
    Box::pin(within("the controller", reading)).await;
    assert!(ann.shown.len() > pieces * piece.len());
    bob.wait_for_output("the end").await;
    assert_eq!(bob.screen(), ["the end", "", "", "", ""]);
    assert!(
        bob.shown.len() < ann.shown.len() / 2,
        "{} bytes",
        bob.shown.len()
    );
}

/// A controller that does not read pauses the command, and nothing is lost.
#[tokio::test]
async fn a_controller_that_does_not_read_pauses_the_command() {
    let mut world = World::start().await;
    let (mut ann, shell, _) = world.session().await;
    let (piece, pieces) = (Bytes::from(vec![0; 64 * 1024]), 64);
    for _ in 0..pieces {
        shell.shows_bytes(piece.clone());
    }
    shell.shows("the end");
    ann.wait_for_output("the end").await;
    let typed = ann.shown.iter().filter(|byte| **byte != 0).count();
    assert_eq!(ann.shown.len() - typed, pieces * piece.len());
}

/// Sessions of a project are hidden from other projects, in lists and by id.
#[tokio::test]
async fn sessions_of_another_project_are_not_found() {
    let mut world = World::start().await;
    let (_ann, _shell, id) = world.session().await;
    world.platform.add_project("bbbbbbbb");
    world.platform.add_member("usr_eve", &["bbbbbbbb"]);
    let (_, eve) = world.platform.add_pat("usr_eve");
    world.engine.wait_for_changes().await;
    let (status, _) = world.get("/api/webtty/sessions", &eve).await;
    assert_eq!(status, 403, "not a member of {A}");
    let host = "bbbbbbbb.engine.localhost";
    for (path, status) in [
        ("/api/webtty/sessions".to_owned(), 200),
        (format!("/api/webtty/sessions/{id}"), 404),
        (format!("/api/webtty/sessions/{id}/participants"), 404),
        (format!("/api/webtty/sessions/{id}/control-requests"), 404),
    ] {
        let mut caller = world.engine.visitor().http1(host).await;
        let bearer = format!("Authorization: Bearer {eve}\r\n");
        caller.request("GET", &path, host, &bearer).await;
        let answer = caller.answer().await;
        assert_eq!(answer.status, status, "{path}");
        assert!(!answer.text().contains(&id) || status == 404);
    }
    // Her token cannot open a session there either.
    assert_eq!(world.connect_client("", &eve).await.err(), Some(403));
}
