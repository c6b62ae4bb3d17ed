//! Control of a terminal: requests, decisions, and the return of control.

use bytes::Bytes;
use serde_json::json;
use testing::within;
use tty::message::{Decision, Heartbeat, Kind, NoticeKind};

use super::world::{A, MEMBER, World};

fn decision(request: &serde_json::Value, grant: bool) -> Kind {
    Kind::Heartbeat(Heartbeat {
        decision: Some(Decision {
            request_id: request["id"].as_str().unwrap().to_owned(),
            grant,
        }),
        ..Heartbeat::default()
    })
}

/// EN-8, WT-2: the controller sees the requester and the reason, and grants control at the
/// terminal. Then the other participant types until control is taken back.
#[tokio::test]
async fn en_8_control_is_requested_granted_and_revoked() {
    let mut world = World::start().await;
    let (mut ann, mut shell, id) = world.session().await;
    let (mut bob, participant) = world.attach_and_join(&id, &world.bob).await;
    let metadata = json!({"metadata": {"ticket": "T-1"}});
    let (status, request) = world
        .request_control(&id, &participant, &world.bob, metadata)
        .await;
    assert_eq!(status, 201);
    assert_eq!(request["status"], "pending");
    assert_eq!(request["metadata"]["ticket"], "T-1");
    assert_eq!(request["requester_user_id"], "usr_bob");
    let (status, problem) = world
        .request_control(&id, &participant, &world.bob, json!({}))
        .await;
    assert_eq!((status, &problem["code"]), (409, &json!("is_pending")));

    let asked = ann.notice(NoticeKind::Requested).await;
    assert_eq!(
        (asked.user.as_str(), asked.reason.as_str()),
        ("usr_bob", "to help")
    );
    // The requester itself cannot grant it. The answer to the decision follows the output of
    // earlier input.
    bob.type_text("not yet").await;
    bob.send(decision(&request, true)).await;
    bob.notice(NoticeKind::Unspecified).await;
    ann.send(decision(&request, true)).await;
    bob.notice(NoticeKind::Granted).await;
    bob.type_text("bob was here\r").await;
    ann.type_text("and ann was not").await;
    // The answer follows it, so it was processed before control is taken back.
    ann.send(decision(&request, true)).await;
    ann.notice(NoticeKind::Unspecified).await;
    shell.wait_for_input("bob was here\r").await;

    let path = format!("/api/webtty/sessions/{id}/control-requests");
    let (_, requests) = world.get(&path, &world.ann).await;
    assert_eq!(requests[0]["status"], "granted");
    let (_, session) = world
        .get(&format!("/api/webtty/sessions/{id}"), &world.ann)
        .await;
    assert_eq!(
        session["live"]["controller_participant_id"],
        participant.as_str()
    );

    let revoke = json!({"action": "revoke"});
    let (status, revoked) = world.resolves(&id, &request, &world.ann, revoke).await;
    assert_eq!((status, &revoked["status"]), (200, &json!("revoked")));
    bob.notice(NoticeKind::Revoked).await;
    bob.type_text("once more").await;
    bob.assert_quiet("who lost control types nothing").await;
    ann.type_text("ann again\r").await;
    shell.wait_for_input("ann again\r").await;

    let filter = types::form::encode([("params", r#"{"filters":{"status":"pending"}}"#)]);
    let (_, none) = world.get(&format!("{path}?{filter}"), &world.ann).await;
    assert_eq!(none, json!([]));
}

/// A granted controller sets the pace of the command. It receives 20 MiB completely, and keeps
/// control.
#[tokio::test]
async fn a_granted_controller_keeps_control_while_its_command_prints_much() {
    let mut world = World::start().await;
    let (mut ann, mut shell, id) = world.session().await;
    let (mut bob, participant) = world.attach_and_join(&id, &world.bob).await;
    let (_, request) = world
        .request_control(&id, &participant, &world.bob, json!({}))
        .await;
    ann.notice(NoticeKind::Requested).await;
    ann.send(decision(&request, true)).await;
    bob.notice(NoticeKind::Granted).await;
    let (piece, pieces) = (Bytes::from(vec![0; 64 * 1024]), 320);
    for _ in 0..pieces {
        shell.shows_bytes(piece.clone());
    }
    shell.shows("the end");
    let reading = async {
        tokio::join!(
            ann.wait_for_output("the end"),
            bob.wait_for_output("the end")
        );
    };
    Box::pin(within("both participants", reading)).await;
    let zeros = bob.shown.split(|byte| *byte != 0);
    let received: usize = zeros.map(<[u8]>::len).sum();
    assert_eq!(received, pieces * piece.len());
    bob.type_text("still mine\r").await;
    shell.wait_for_input("still mine\r").await;
    let (_, session) = world
        .get(&format!("/api/webtty/sessions/{id}"), &world.ann)
        .await;
    let controller = &session["live"]["controller_participant_id"];
    assert_eq!(controller, participant.as_str());
}

#[tokio::test]
async fn a_requester_withdraws_its_request_once() {
    let mut world = World::start().await;
    let (mut ann, _shell, id) = world.session().await;
    let (mut bob, participant) = world.attach_and_join(&id, &world.bob).await;
    let (_, request) = world
        .request_control(&id, &participant, &world.bob, json!({}))
        .await;
    let withdraw = json!({"action": "revoke", "approver_participant_id": participant});
    let (status, withdrawn) = world
        .resolves(&id, &request, &world.bob, withdraw.clone())
        .await;
    assert_eq!((status, &withdrawn["status"]), (200, &json!("revoked")));
    bob.notice(NoticeKind::Revoked).await;
    // The controller must not answer it any more.
    let notice = ann.notice(NoticeKind::Revoked).await;
    assert_eq!(
        (notice.request_id.as_str(), notice.user.as_str()),
        (request["id"].as_str().unwrap(), "usr_bob")
    );
    let (status, _) = world.resolves(&id, &request, &world.bob, withdraw).await;
    assert_eq!(status, 409);
}

/// Control is refused over the API, a request expires automatically, and invalid requests are
/// refused.
#[tokio::test]
async fn a_request_for_control_is_refused_and_expires() {
    let mut world = World::start().await;
    let (_ann, _shell, id) = world.session().await;
    let (mut bob, participant) = world.attach_and_join(&id, &world.bob).await;
    let (_, request) = world
        .request_control(&id, &participant, &world.bob, json!({}))
        .await;
    let anns = world
        .get(
            &format!("/api/webtty/sessions/{id}/participants"),
            &world.ann,
        )
        .await
        .1;
    let anns = anns[0]["id"].clone();
    let body = json!({"action": "refuse", "approver_participant_id": anns});
    let (status, refused) = world
        .resolves(&id, &request, &world.ann, body.clone())
        .await;
    assert_eq!((status, &refused["status"]), (200, &json!("refused")));
    assert_eq!(refused["approver_participant_id"], anns);
    bob.notice(NoticeKind::Refused).await;
    let (status, problem) = world.resolves(&id, &request, &world.ann, body).await;
    assert_eq!((status, &problem["code"]), (409, &json!("not_pending")));

    // Soon, but later than the engine processes it, which takes time on a busy machine.
    let mut wait = jiff::SignedDuration::from_millis(200);
    let request = loop {
        let soon = json!({"expires_at": (jiff::Timestamp::now() + wait).to_string()});
        let (status, request) = world
            .request_control(&id, &participant, &world.bob, soon)
            .await;
        if status == 201 {
            break request;
        }
        assert!(wait.as_secs() < 30, "{status}");
        wait *= 2;
    };
    bob.notice(NoticeKind::Expired).await;
    let grant = json!({"action": "grant"});
    let (status, _) = world.resolves(&id, &request, &world.ann, grant).await;
    assert_eq!(status, 409);
    for bad in [
        json!({"control_lines": 0}),
        json!({"expires_at": "2000-01-01T00:00:00Z"}),
        json!({"expires_at": "soon"}),
        json!({"reason": "x".repeat(5000)}),
    ] {
        let (status, _) = world
            .request_control(&id, &participant, &world.bob, bad.clone())
            .await;
        assert_eq!(status, 400, "{bad}");
    }
}

/// Control that was granted for one line ends with the line. Control for some seconds can be used
/// before its end.
#[tokio::test]
async fn control_is_granted_for_a_line_or_for_some_seconds() {
    let mut world = World::start().await;
    let (mut ann, mut shell, id) = world.session().await;
    let (mut bob, participant) = world.attach_and_join(&id, &world.bob).await;
    let revoke = json!({"action": "revoke"});
    for (limit, typed, has_ended) in [
        (json!({"control_lines": 1}), Some("one line\r"), true),
        (json!({"control_seconds": 600}), Some("some seconds"), false),
        (json!({"control_seconds": 1}), None, true),
    ] {
        let (status, request) = world
            .request_control(&id, &participant, &world.bob, limit)
            .await;
        assert_eq!(status, 201);
        let grant = json!({"action": "grant"});
        let (status, _) = world.resolves(&id, &request, &world.ann, grant).await;
        assert_eq!(status, 200);
        bob.notice(NoticeKind::Granted).await;
        if let Some(typed) = typed {
            bob.type_text(typed).await;
            shell.wait_for_input(typed).await;
        }
        if !has_ended {
            let revoke = revoke.clone();
            let (status, _) = world.resolves(&id, &request, &world.ann, revoke).await;
            assert_eq!(status, 200);
        }
        bob.notice(NoticeKind::Revoked).await;
        ann.type_text("mine").await;
        shell.wait_for_input("mine").await;
    }
}

/// A request may be answered by the controller or by an owner (the opener of the session, or an
/// admin), and never with the credential that made the request.
#[tokio::test]
async fn a_request_is_answered_by_the_controller_or_an_owner_but_not_the_requester() {
    let mut world = World::start().await;
    let (mut ann, mut shell, id) = world.session().await;
    world.platform.add_person("usr_dan", &[(A, MEMBER)]);
    let (_, dan) = world.platform.add_pat("usr_dan");
    let mut admin = MEMBER.to_vec();
    admin.push("webtty.logs.read-only");
    world.platform.add_person("usr_ada", &[(A, &admin)]);
    let (_, ada) = world.platform.add_pat("usr_ada");
    // A program that acts for Ann has her rights, with its own credential.
    let (_, agent) = world.platform.add_pat("usr_ann");
    world.engine.wait_for_changes().await;
    let grant = || json!({"action": "grant"});

    let (mut bob, participant) = world.attach_and_join(&id, &world.bob).await;
    let (_, request) = world
        .request_control(&id, &participant, &world.bob, json!({}))
        .await;
    for (name, token) in [("another member", &dan), ("who asks", &world.bob)] {
        let (status, _) = world.resolves(&id, &request, token, grant()).await;
        assert_eq!(status, 403, "{name}");
        let mine = json!({"action": "grant", "approver_participant_id": participant});
        let (status, _) = world.resolves(&id, &request, token, mine).await;
        assert!(matches!(status, 400 | 403), "{name}: {status}");
    }
    let (status, granted) = world.resolves(&id, &request, &ada, grant()).await;
    assert_eq!(
        (status, &granted["approver_user_id"]),
        (200, &json!("usr_ada"))
    );
    bob.notice(NoticeKind::Granted).await;
    ann.notice(NoticeKind::Revoked).await;
    let revoke = json!({"action": "revoke"});
    world.resolves(&id, &request, &world.ann, revoke).await;

    let (mut program, participant) = world.attach_and_join(&id, &agent).await;
    let (status, request) = world
        .request_control(&id, &participant, &agent, json!({}))
        .await;
    assert_eq!(status, 201);
    let (status, problem) = world.resolves(&id, &request, &agent, grant()).await;
    assert_eq!((status, &problem["code"]), (403, &json!("not_allowed")));
    let (status, _) = world.resolves(&id, &request, &world.ann, grant()).await;
    assert_eq!(status, 200);
    program.notice(NoticeKind::Granted).await;
    program.type_text("ls\r").await;
    shell.wait_for_input("ls\r").await;
    // Nor can Bob request control for another user's participant.
    let (status, problem) = world
        .request_control(&id, &participant, &world.bob, json!({}))
        .await;
    assert_eq!((status, &problem["field"]), (400, &json!("participant_id")));
}

/// The opener of a session lost the connection. They return as a participant with a browser
/// session, and get control immediately on request.
#[tokio::test]
async fn the_opener_of_a_session_can_return_to_it() {
    let mut world = World::start().await;
    let (ann, mut shell, id) = world.session().await;
    shell.shows("working");
    drop(ann);
    let alone = world
        .wait_for_session(&id, |shown| shown["live"]["participant_count"] == 0)
        .await;
    assert_eq!(alone["status"], "active");
    let page = world.platform.mint(json!({"userId": "usr_ann"}));
    let (mut ann, participant) = world.attach_and_join(&id, &page).await;
    ann.wait_for_output("working").await;
    let (status, request) = world
        .request_control(&id, &participant, &page, json!({}))
        .await;
    assert_eq!((status, &request["status"]), (201, &json!("granted")));
    ann.type_text("back\r").await;
    shell.wait_for_input("back\r").await;
}

/// The opener's page was reloaded while another participant had control. Control returns to the
/// opener's new stream, and never to a watch-only token.
#[tokio::test]
async fn granted_control_returns_to_the_stream_that_replaced_the_first_one() {
    for may in [true, false] {
        let mut world = World::start().await;
        let (ann, mut shell, id) = world.session().await;
        shell.shows("ready");
        let (bob, participant) = world.attach_and_join(&id, &world.bob).await;
        let (_, request) = world
            .request_control(&id, &participant, &world.bob, json!({}))
            .await;
        let grant = json!({"action": "grant"});
        let (status, _) = world.resolves(&id, &request, &world.ann, grant).await;
        assert_eq!(status, 200);
        drop(ann);
        world
            .wait_for_session(&id, |shown| shown["live"]["participant_count"] == 1)
            .await;
        let mut claims = json!({"userId": "usr_ann"});
        if !may {
            claims["permissions"] = json!(["webtty.sessions.read-only"]);
        }
        let token = world.platform.mint(claims);
        let (mut ann, anns) = world.attach_and_join(&id, &token).await;
        ann.wait_for_output("ready").await;
        drop(bob);
        let wanted = may.then_some(anns);
        world
            .wait_for_session(&id, |shown| {
                let controller = &shown["live"]["controller_participant_id"];
                shown["live"]["participant_count"] == 1 && *controller == json!(wanted)
            })
            .await;
        ann.type_text("mine\r").await;
        if may {
            ann.notice(NoticeKind::Granted).await;
            shell.wait_for_input("mine\r").await;
        } else {
            ann.assert_quiet("who only watches types nothing").await;
        }
    }
}
