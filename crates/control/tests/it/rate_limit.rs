//! How many requests a credential and a person may send. CP-10: every operation that asks for a
//! credential has the limit, whoever adds it.

use api::control::{Access, operations};
use http::Method;
use serde_json::json;

use crate::support::{Answer, Person, TestControl};
use crate::walk::{ask, method};

const LIMITS: &str = "limits: {credential_requests_per_minute: 10, user_requests_per_minute: 15}";

async fn whoami(control: &TestControl, token: &str) -> Answer {
    control.get("/api/whoami", token).await
}

/// Takes what the credential may still send, and returns how much that was.
async fn exhaust(control: &TestControl, token: &str) -> usize {
    for sent in 0..100 {
        let answer = whoami(control, token).await;
        if answer.status == 429 {
            return sent;
        }
        assert_eq!(answer.status, 200, "{answer:?}");
    }
    panic!("there is no limit");
}

#[track_caller]
fn assert_limited(answer: &Answer, id: &str) {
    assert_eq!(answer.status, 429, "{id}: {answer:?}");
    let wait: u32 = answer.header("retry-after").parse().unwrap();
    assert!((1..=60).contains(&wait), "{id}: {wait}");
    assert!(answer.header("ratelimit").contains("r=0;"), "{id}");
}

async fn second_token(control: &TestControl, person: &Person) -> String {
    let body = json!({"type": "pat", "name": "second"});
    let made = control.post("/api/credentials", &person.token, &body).await;
    made.expect(201)["token"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn no_operation_is_beyond_the_limit() {
    let control = TestControl::start(LIMITS).await;
    let ada = control.person("ada").await;
    let project = control.project(&ada).await;
    for operation in operations().filter(|operation| operation.access != Access::Public) {
        exhaust(&control, &ada.token).await;
        let token = Some(ada.token.as_str());
        let answer = ask(&control, operation, (&ada, &project), token).await;
        assert_limited(&answer, operation.id);
        if method(operation) == Method::GET {
            let path = operation.path.replace(['{', '}'], "");
            exhaust(&control, &ada.token).await;
            let answer = control.send(Method::HEAD, &path, token, None).await;
            assert_eq!(answer.status, 429, "HEAD {path}");
        }
    }
    // What asks for no credential is not counted, and is answered.
    exhaust(&control, &ada.token).await;
    for operation in operations().filter(|operation| operation.access == Access::Public) {
        let token = Some(ada.token.as_str());
        let answer = ask(&control, operation, (&ada, &project), token).await;
        assert_eq!(answer.status, operation.answer.status, "{}", operation.id);
    }
    // Nor is anybody else.
    let bob = control.person("bob").await;
    assert_eq!(whoami(&control, &bob.token).await.status, 200);
}

#[tokio::test]
async fn all_credentials_of_a_person_share_a_limit() {
    let control = TestControl::start(LIMITS).await;
    let ada = control.person("ada").await;
    let second = second_token(&control, &ada).await;
    // One was sent to make it.
    let answer = whoami(&control, &ada.token).await;
    assert_eq!(
        answer.header("ratelimit-policy"),
        r#""credential";q=10;w=60, "user";q=15;w=60"#
    );
    assert!(
        answer
            .header("ratelimit")
            .starts_with(r#""credential";r=8;t="#)
    );
    assert!(answer.header("ratelimit").contains(r#", "user";r=13;t="#));
    assert_eq!(exhaust(&control, &ada.token).await, 8);
    assert_eq!(exhaust(&control, &second).await, 5);
    // A token that was minted is the credential that it was minted from.
    let bob = control.person("bob").await;
    let minted = control.delegated(&bob, json!({"permissions": []})).await;
    assert_eq!(exhaust(&control, &minted).await, 9);
    assert_eq!(whoami(&control, &bob.token).await.status, 429);
}

/// A session is a credential, too; and a token that is none takes nothing from anybody.
#[tokio::test]
async fn sessions_have_the_limit_and_bad_tokens_have_none() {
    let control = TestControl::start(LIMITS).await;
    let ada = control.person("ada").await;
    for _ in 0..30 {
        let mut bad = ada.token.clone();
        bad.pop();
        assert_eq!(whoami(&control, &bad).await.status, 401);
    }
    let cookie = control.session(&ada).await;
    let mut statuses = Vec::new();
    for _ in 0..12 {
        let request = http::Request::get("/api/whoami").header("cookie", &cookie);
        let request = request.body(axum::body::Body::empty()).unwrap();
        statuses.push(control.send_raw(request).await.status);
    }
    assert_eq!(statuses, [[200; 10].as_slice(), &[429; 2]].concat());
}

#[tokio::test]
async fn open_invitations_and_projects_have_a_limit() {
    let control =
        TestControl::start("limits: {open_invitations: 2, projects_per_workspace: 1}").await;
    let ada = control.person("ada").await;
    let team = control
        .post("/api/workspaces", &ada.token, &json!({"name": "Team"}))
        .await
        .expect(201);
    let path = format!(
        "/api/workspaces/{}/invitations",
        team["id"].as_str().unwrap()
    );
    let invite = async |name: &str| {
        let body = json!({"email": format!("{name}@example.com"), "role": "member"});
        control.post(&path, &ada.token, &body).await
    };
    let first = invite("a").await.expect(201);
    invite("b").await.expect(201);
    assert_eq!(invite("c").await.refused(409).0, "conflict");
    let id = first["invitation"]["id"]
        .as_str()
        .or(first["id"].as_str())
        .unwrap();
    control
        .delete(&format!("{path}/{id}"), &ada.token)
        .await
        .expect(204);
    invite("c").await.expect(201);
    // What has ended waits no longer.
    control.clock.advance(8 * 24 * 3600);
    invite("d").await.expect(201);
}
