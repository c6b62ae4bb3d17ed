//! A table of credential kinds and ways to gain control (EN-8). A program that acts for a user with
//! tokens alone never gains control that was not granted, whichever token of its chain it uses for
//! which step.

use serde_json::{Value, json};
use tty::message::{Decision, Heartbeat, Kind, NoticeKind};

use super::link::Person;
use super::server::Shell;
use super::world::{A, MEMBER, World};

/// Two tokens of one program with Ann's account. It participates with one and acts with the other.
struct Party {
    kind: &'static str,
    asks: String,
    acts: String,
}

/// Every kind of token chain that a program can have. Ann herself connected with `world.ann`.
async fn parties(world: &World) -> Vec<Party> {
    let platform = &world.platform;
    let minted = |id: &str| platform.mint(json!({"userId": "usr_ann", "sourceCredentialId": id}));
    let (id, pat) = platform.add_pat("usr_ann");
    let issued = |root: &str| {
        let root = root.to_owned();
        platform.add_pat_with("usr_ann", |issued| issued.root = Some(root))
    };
    let (issued_id, issued_pat) = issued(&id);
    let app = platform.add_app("usr_ann");
    let (_, of_app) = issued(&app.id);
    let claims = |name: &str| json!({"userId": "usr_ann", "jti": name});
    let party = |kind, asks: &str, acts: &str| Party {
        kind,
        asks: asks.to_owned(),
        acts: acts.to_owned(),
    };
    let table = vec![
        party("one token", &pat, &pat),
        party("a token minted from it", &pat, &minted(&id)),
        party("two minted from it", &minted(&id), &minted(&id)),
        party("a token that it issued", &pat, &issued_pat),
        party("the other way round", &issued_pat, &pat),
        party("minted from what it issued", &pat, &minted(&issued_id)),
        party(
            "an application",
            &app.token(claims("a")),
            &app.token(claims("b")),
        ),
        party(
            "what an application issued",
            &app.token(claims("c")),
            &of_app,
        ),
        party("the person's own token", &world.ann, &world.ann),
        party(
            "minted from the person's own",
            &world.ann,
            &minted(&world.anns),
        ),
    ];
    world.engine.wait_for_changes().await;
    table
}

/// Tries each way to gain control. Each is refused, or changes nothing for the program.
async fn try_all(world: &World, id: &str, party: &Party, (anns, mine): (&str, &str)) {
    let kind = party.kind;
    let base = format!("/api/webtty/sessions/{id}");
    let (status, request) = world
        .request_control(id, mine, &party.asks, json!({}))
        .await;
    assert_eq!(
        (status, &request["status"]),
        (201, &json!("pending")),
        "{kind}"
    );
    for approver in [None, Some(anns), Some(mine)] {
        let mut grant = json!({"action": "grant"});
        if let Some(approver) = approver {
            grant["approver_participant_id"] = json!(approver);
        }
        let (status, problem) = world.resolves(id, &request, &party.acts, grant).await;
        let case = format!("{kind} grants as {approver:?}: {status} {problem}");
        assert!(matches!(status, 400 | 403), "{case}");
    }
    let path = format!("{base}/participants/{anns}");
    let (status, problem) = world.post(&path, &party.acts, &json!({})).await;
    assert_eq!(
        (status, &problem["code"]),
        (403, &json!("not_allowed")),
        "{kind} detaches"
    );
    let shown = controller(world, id).await;
    assert_eq!(shown, json!(anns), "{kind}");
    let refuse = json!({"action": "refuse"});
    world.resolves(id, &request, &party.acts, refuse).await;
}

async fn controller(world: &World, id: &str) -> Value {
    let (status, shown) = world
        .get(&format!("/api/webtty/sessions/{id}"), &world.bob)
        .await;
    assert_eq!(status, 200);
    shown["live"]["controller_participant_id"].clone()
}

fn decision(request: &Value, grant: bool) -> Kind {
    Kind::Heartbeat(Heartbeat {
        decision: Some(Decision {
            request_id: request["id"].as_str().unwrap().to_owned(),
            grant,
        }),
        ..Heartbeat::default()
    })
}

/// Ann's stream granted control to Bob. The program revokes that and gains nothing.
async fn revokes(
    world: &World,
    id: &str,
    party: &Party,
    (ann, shell, program, anns): (&mut Person, &mut Shell, &mut Person, &str),
) {
    let (mut bob, bobs) = world.attach_and_join(id, &world.bob).await;
    let (_, request) = world
        .request_control(id, &bobs, &world.bob, json!({}))
        .await;
    ann.send(decision(&request, true)).await;
    bob.notice(NoticeKind::Granted).await;
    let revoke = json!({"action": "revoke"});
    let (status, _) = world.resolves(id, &request, &party.acts, revoke).await;
    assert_eq!(status, 200, "{}", party.kind);
    bob.notice(NoticeKind::Revoked).await;
    assert_eq!(controller(world, id).await, json!(anns), "{}", party.kind);
    program.type_text("rm -rf /\r").await;
    ann.type_text("ls\r").await;
    shell.wait_for_input("ls\r").await;
}

/// EN-8: attempts of a program with the user's account, while the user is connected and while not.
#[tokio::test]
async fn en_8_no_chain_of_tokens_gains_control_without_a_grant() {
    let mut world = World::start().await;
    for party in parties(&world).await {
        let kind = party.kind;
        let (mut ann, mut shell, id) = world.session().await;
        let path = format!("/api/webtty/sessions/{id}/participants");
        let (_, all) = world.get(&path, &world.bob).await;
        let anns = all[0]["id"].as_str().unwrap().to_owned();
        let (mut program, mine) = world.attach_and_join(&id, &party.asks).await;
        try_all(&world, &id, &party, (&anns, &mine)).await;
        let there = (&mut ann, &mut shell, &mut program, &*anns);
        revokes(&world, &id, &party, there).await;

        // While the user is away, requests come from an earlier participant and from a new one.
        drop(ann);
        world
            .wait_for_session(&id, |shown| {
                shown["live"]["controller_participant_id"].is_null()
            })
            .await;
        let (_again, again) = world.attach_and_join(&id, &party.acts).await;
        for (token, participant) in [(&party.asks, &mine), (&party.acts, &again)] {
            let (status, asked) = world
                .request_control(&id, participant, token, json!({}))
                .await;
            assert_eq!(
                (status, &asked["status"]),
                (201, &json!("pending")),
                "{kind}"
            );
            let grant = json!({"action": "grant"});
            let (status, _) = world.resolves(&id, &asked, &party.acts, grant).await;
            assert_eq!(status, 403, "{kind}");
        }
        assert_eq!(controller(&world, &id).await, Value::Null, "{kind}");
        program.type_text("rm -rf /\r").await;

        // The user returns with a browser and gets control.
        let page = world.platform.mint(json!({"userId": "usr_ann"}));
        let (mut ann, mine) = world.attach_and_join(&id, &page).await;
        let (status, asked) = world.request_control(&id, &mine, &page, json!({})).await;
        assert_eq!(
            (status, &asked["status"]),
            (201, &json!("granted")),
            "{kind}"
        );
        ann.type_text("whoami\r").await;
        shell.wait_for_input("whoami\r").await;
        shell.exits(0);
        ann.wait_for_close().await;
    }
}

/// EN-8: a program that opened a session cannot reclaim it from the user who took it over.
#[tokio::test]
async fn en_8_a_program_does_not_reclaim_its_session_from_a_person() {
    let mut world = World::start().await;
    let page = world.platform.mint(json!({"userId": "usr_ann"}));
    let other = world
        .platform
        .mint(json!({"userId": "usr_ann", "sourceCredentialId": "ses_01h455vb4pex5vsknk084sn02r"}));
    for party in parties(&world).await {
        let kind = party.kind;
        let mut program = world.connect_client("", &party.asks).await.unwrap();
        program.open(true).await;
        let mut shell = world.server.shell().await;
        let (_, sessions) = world.get("/api/webtty/sessions", &world.bob).await;
        let id = sessions[0]["id"].as_str().unwrap().to_owned();
        let base = format!("/api/webtty/sessions/{id}");
        let (mut ann, anns) = world.attach_and_join(&id, &page).await;
        let (_, request) = world.request_control(&id, &anns, &page, json!({})).await;
        // As the owner, in another of her browsers.
        let grant = json!({"action": "grant"});
        let (status, _) = world.resolves(&id, &request, &other, grant).await;
        assert_eq!(status, 200, "{kind}");
        ann.notice(NoticeKind::Granted).await;
        let revoke = json!({"action": "revoke"});
        let (status, _) = world
            .resolves(&id, &request, &party.acts, revoke.clone())
            .await;
        assert_eq!(status, 403, "{kind} revokes");
        let path = format!("{base}/participants/{anns}");
        let (status, _) = world.post(&path, &party.acts, &json!({})).await;
        assert_eq!(status, 403, "{kind} detaches");
        program.type_text("rm -rf /\r").await;
        ann.type_text("ls\r").await;
        shell.wait_for_input("ls\r").await;
        // Her browser may do so.
        let (status, _) = world.resolves(&id, &request, &page, revoke).await;
        assert_eq!(status, 200, "{kind}");
        let (status, _) = world.post(&path, &page, &json!({})).await;
        assert_eq!(status, 204, "{kind}");
        shell.exits(0);
        program.wait_for_close().await;
    }
}

/// EN-8: another user's token grants control within its permissions. The chain identifies the other
/// user.
#[tokio::test]
async fn en_8_an_owner_with_another_credential_grants() {
    let mut world = World::start().await;
    let mut admin = MEMBER.to_vec();
    admin.push("webtty.logs.read-only");
    world.platform.add_person("usr_ada", &[(A, &admin)]);
    let (_, ada) = world.platform.add_pat("usr_ada");
    world.engine.wait_for_changes().await;
    let (_ann, mut shell, id) = world.session().await;
    let (mut bob, bobs) = world.attach_and_join(&id, &world.bob).await;
    let (_, request) = world
        .request_control(&id, &bobs, &world.bob, json!({}))
        .await;
    let (status, _) = world
        .resolves(&id, &request, &ada, json!({"action": "grant"}))
        .await;
    assert_eq!(status, 200);
    bob.notice(NoticeKind::Granted).await;
    bob.type_text("ls\r").await;
    shell.wait_for_input("ls\r").await;
}
