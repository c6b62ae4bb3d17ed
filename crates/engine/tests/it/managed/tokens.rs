//! Tokens that a managed engine accepts, and for how long.

use std::sync::Arc;
use std::time::{Duration, Instant};

use client::{Agent, Properties};
use engine::clock::SystemClock;
use serde_json::{Value, json};
use testing::{FakePlatform, TestEngine, Upstream, within};

use super::{A, B, TwoProjects, ask, get, publish, watch};
use crate::support::{CREATE, READ, STREAMS};

/// The status of listing project [`A`].
async fn status(engine: &TestEngine, token: &str) -> u16 {
    engine.wait_for_changes().await;
    get(engine, A, "/api/tunnels", token).await.status
}

fn now() -> i64 {
    jiff::Timestamp::now().as_second()
}

/// EN-1, EN-7.
#[tokio::test]
async fn en_7_tokens_of_each_kind_are_valid_where_their_user_has_access() {
    let TwoProjects { platform, ann, .. } = TwoProjects::start().await;
    let engine = TestEngine::managed(&platform).await;
    let app = platform.add_app("usr_ann");
    let (id, _) = platform.add_pat("usr_ann");
    let user = |claims: Value| {
        let mut all = json!({"userId": "usr_ann"});
        all.as_object_mut()
            .unwrap()
            .extend(claims.as_object().unwrap().clone());
        all
    };
    for (what, token) in [
        ("personal access token", ann),
        ("application", app.token(json!({}))),
        ("session", platform.mint(user(json!({})))),
        (
            "minted",
            platform.mint(user(json!({"sourceCredentialId": id}))),
        ),
    ] {
        assert_eq!(status(&engine, &token).await, 200, "{what}");
        assert_eq!(
            get(&engine, B, "/api/tunnels", &token).await.status,
            403,
            "{what}"
        );
    }
}

/// The platform confirms a change before its engines have received it, so a new member may use the
/// engine too early.
#[tokio::test]
async fn a_new_member_is_admitted_when_the_update_arrives() {
    let TwoProjects { platform, ann, .. } = TwoProjects::start().await;
    let engine = TestEngine::managed_unhurried(&platform, "", Arc::new(SystemClock)).await;
    let token = platform.mint(json!({"userId": "usr_new"}));
    let mut caller = ask(&engine, A, "/api/tunnels", &token).await;
    let update = async {
        // Meanwhile the engine reads the request and the hello.
        assert_eq!(get(&engine, A, "/api/tunnels", &ann).await.status, 200);
        platform.add_member("usr_new", &[A]);
    };
    let (agent, ()) = tokio::join!(engine.agent_at(A, &token), update);
    assert_eq!(caller.answer().await.status, 200);
    drop(agent);
}

#[tokio::test]
async fn tokens_without_an_active_credential_are_refused() {
    let TwoProjects { platform, .. } = TwoProjects::start().await;
    let engine = TestEngine::managed(&platform).await;
    let (revoked, of_revoked) = platform.add_pat("usr_ann");
    let (_, expired) = platform.add_pat_with("usr_ann", |pat| pat.expires_at = Some(now() - 1));
    let minted = platform.mint(json!({"userId": "usr_ann", "sourceCredentialId": revoked}));
    let app = platform.add_app("usr_ann");
    let other = FakePlatform::start().await;
    let session = "ses_01h455vb4pex5vsknk084sn02r";
    let of_session = platform.mint(json!({"userId": "usr_ann", "sourceCredentialId": session}));
    let token = platform.mint(json!({"userId": "usr_ann", "jti": "tok_1"}));
    for good in [&of_revoked, &minted, &of_session, &token] {
        assert_eq!(status(&engine, good).await, 200);
    }
    platform.revoke(&revoked);
    platform.revoke_token(session);
    platform.revoke_token("tok_1");
    let stranger = other.add_app("usr_ann");
    let hour = json!({"userId": "usr_ann", "iat": now(), "exp": now() + 7200});
    for (what, token) in [
        ("revoked", of_revoked),
        ("minted from it", minted),
        ("expired", expired),
        ("session ended", of_session),
        ("token ended", token),
        (
            "unknown",
            platform.mint(json!({"type": "pat", "userId": "usr_ann"})),
        ),
        (
            "another platform's",
            other.mint(json!({"userId": "usr_ann"})),
        ),
        ("too long", platform.mint(hour)),
        (
            "long application's",
            app.token(json!({"exp": now() + 7200})),
        ),
        ("unknown application's", {
            platform.revoke(&app.id);
            app.token(json!({}))
        }),
        (
            "application of another key",
            stranger.token(json!({"clientId": app.id})),
        ),
        (
            "another user's",
            platform.mint(json!({"userId": "usr_ben", "sourceCredentialId": "crd_1"})),
        ),
    ] {
        assert_eq!(status(&engine, &token).await, 401, "{what}");
    }
}

/// EN-7.
#[tokio::test]
async fn en_7_role_and_credential_must_both_allow() {
    let TwoProjects { platform, ann, .. } = TwoProjects::start().await;
    let engine = TestEngine::managed(&platform).await;
    let (_, narrow) = platform.add_pat_with("usr_ann", |pat| {
        pat.permissions = Some(vec![CREATE.to_owned()]);
    });
    let (_, elsewhere) = platform.add_pat_with("usr_ann", |pat| {
        pat.workspace_id = Some("wks_bbbbbbbb".to_owned());
    });
    assert_eq!(status(&engine, &ann).await, 200);
    assert_eq!(status(&engine, &narrow).await, 403);
    assert_eq!(status(&engine, &elsewhere).await, 403);
    // A read-only role.
    platform.add_person("usr_ann", &[(A, &[READ])]);
    assert_eq!(status(&engine, &ann).await, 200);
    let agent = Agent::connect(engine.agent_config_at(A, &ann)).await;
    if let Ok(agent) = agent {
        let mut tunnel = agent.open(Properties::private("db"));
        let refused = within("refusal", tunnel.online()).await;
        assert!(refused.is_err(), "tunnels.tunnels.create-delete");
    }
    platform.add_person("usr_ann", &[(A, &[CREATE, STREAMS])]);
    assert_eq!(status(&engine, &ann).await, 403);
    // A role without permissions, and then no role in the project.
    platform.add_person("usr_ann", &[(A, &[])]);
    assert_eq!(status(&engine, &ann).await, 403);
    platform.add_member("usr_ann", &[B]);
    assert_eq!(status(&engine, &ann).await, 403);
    assert_eq!(get(&engine, B, "/api/tunnels", &ann).await.status, 200);
}

#[tokio::test]
async fn a_suspended_project_serves_nothing_until_it_is_reactivated() {
    let TwoProjects { platform, ann, .. } = TwoProjects::start().await;
    let engine = TestEngine::managed(&platform).await;
    let service = Upstream::http1().await;
    let agent = engine.agent_at(A, &ann).await;
    let tunnel = publish(agent, Properties::http(), &service).await;
    platform.add_project_with(A, |project| project.suspended = true);
    assert_eq!(status(&engine, &ann).await, 403);
    let host = tunnel.hostname();
    let refused = engine.visitor().http1(host).await.get("/", host).await;
    assert_ne!(refused.status, 200);
    platform.add_project(A);
    assert_eq!(status(&engine, &ann).await, 200);
}

/// Within a second. A busy machine gets ten.
#[tokio::test]
async fn a_revocation_ends_event_streams_immediately() {
    let TwoProjects { platform, ben, .. } = TwoProjects::start().await;
    let engine = TestEngine::managed(&platform).await;
    let (id, token) = platform.add_pat("usr_ann");
    let session = platform.mint(json!({"userId": "usr_ann"}));
    engine.wait_for_changes().await;
    let mut by_pat = watch(&engine, A, &token).await;
    let mut by_session = watch(&engine, A, &session).await;
    let mut other = watch(&engine, B, &ben).await;
    let revoked = Instant::now();
    platform.revoke(&id);
    let last = by_pat.chunk().await.unwrap();
    assert!(last.starts_with(b": closed"), "{}", last.escape_ascii());
    assert!(revoked.elapsed() < Duration::from_secs(10));
    // A user leaves the workspace.
    platform.send(vec![api::link::Item::PersonGone {
        id: "usr_ann".to_owned(),
    }]);
    let last = by_session.chunk().await.unwrap();
    assert!(last.starts_with(b": closed"), "{}", last.escape_ascii());
    let _agent = engine.agent_at(B, &ben).await;
    let event = other.chunk().await.unwrap();
    assert!(event.starts_with(b"data: "), "the other streams stay open");
}
