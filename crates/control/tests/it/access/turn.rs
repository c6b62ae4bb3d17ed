//! CP-6, TU-1, TU-2, TU-3.

use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::Method;
use serde_json::{Value, json};
use store::members::Role;

use crate::support::{Person, Project, TestControl, both};

both! {
    cp_6_both_routes_issue_a_credential,
    tu_3_access_permission_and_boundary_are_needed,
}

fn routes(project: &Project) -> [String; 2] {
    [
        format!(
            "/api/projects/tunnels/{}/turn-server/credentials",
            project.id
        ),
        format!(
            "/api/projects/tunnels/resolve/{}/turn-server/credentials",
            project.endpoint
        ),
    ]
}

const NOW: i64 = 1_767_225_600;

/// CP-6, TU-2.
async fn cp_6_both_routes_issue_a_credential(control: TestControl) {
    let ada = control.person("ada").await;
    let project = control.project(&ada).await;
    for path in routes(&project) {
        let answer = control
            .send(Method::POST, &path, Some(&ada.token), None)
            .await;
        assert_eq!(answer.status, 200, "{answer:?}");
        let body = answer.json();
        let username = format!("v1:{}:api:{}:{}", NOW + 600, project.endpoint, ada.user);
        assert_eq!(body["username"], username);
        assert_eq!(body["ttl"], 600);
        assert_eq!(
            body["urls"],
            json!([
                "turn:engine.example:3478?transport=udp",
                "turn:engine.example:3478?transport=tcp",
                "turns:engine.example:5349?transport=udp",
                "turns:engine.example:5349?transport=tcp",
            ])
        );
        // The relay's computation: the key from the shared secret, and the tag of the username.
        let secret = control.app.keys.turn_secret().expose();
        let salt = hmac::Key::new(hmac::HMAC_SHA256, b"engine.example");
        let extracted = hmac::sign(&salt, secret);
        let extracted = hmac::Key::new(hmac::HMAC_SHA256, extracted.as_ref());
        let key = hmac::sign(&extracted, b"turn-api-v1\x01");
        let key = hmac::Key::new(hmac::HMAC_SHA256, key.as_ref());
        let password = STANDARD.encode(hmac::sign(&key, username.as_bytes()));
        assert_eq!(body["credential"], password);
    }
}

/// TU-1.
#[tokio::test]
async fn tu_1_the_body_is_a_ttl_or_nothing() {
    let control = TestControl::start("").await;
    let ada = control.person("ada").await;
    let project = control.project(&ada).await;
    let [path, _] = routes(&project);
    for seconds in [1, 60, 3600] {
        let body = json!({"ttlSeconds": seconds});
        let answer = control.post(&path, &ada.token, &body).await;
        assert_eq!(answer.json()["ttl"], seconds);
    }
    assert_eq!(
        control.post(&path, &ada.token, &json!({})).await.json()["ttl"],
        600
    );
    for seconds in [
        json!(0),
        json!(3601),
        json!(-1),
        json!(60.0),
        json!("60"),
        json!([60]),
        json!(null),
    ] {
        let answer = control
            .post(&path, &ada.token, &json!({"ttlSeconds": seconds}))
            .await;
        assert_eq!(
            answer.problem(),
            (400, "invalid_request".to_owned()),
            "{seconds}"
        );
        assert_eq!(answer.json()["field"], "ttlSeconds", "{seconds}");
    }
    let unknown = json!({"ttlSeconds": 60, "realm": "x"});
    let answer = control.post(&path, &ada.token, &unknown).await;
    assert_eq!(
        (answer.status, &answer.json()["field"]),
        (400, &json!("realm"))
    );
    for body in [json!([]), json!(60), Value::Null] {
        assert_eq!(
            control.post(&path, &ada.token, &body).await.status,
            400,
            "{body}"
        );
    }
}

async fn statuses(
    control: &TestControl,
    who: &Person,
    body: &Value,
    project: &Project,
) -> Vec<u16> {
    let token = control.delegated(who, body.clone()).await;
    let mut statuses = Vec::new();
    for path in routes(project) {
        statuses.push(
            control
                .send(Method::POST, &path, Some(&token), None)
                .await
                .status,
        );
    }
    statuses
}

/// TU-3: access to the project is required. A restricted credential also needs the permission and
/// the boundary.
async fn tu_3_access_permission_and_boundary_are_needed(control: TestControl) {
    let ada = control.person("ada").await;
    let eve = control.person("eve").await;
    let project = control.project(&ada).await;
    let foreign = control.project(&eve).await;
    let permitted = json!({"permissions": ["turn.credentials.create"]});
    assert_eq!(
        statuses(&control, &ada, &permitted, &project).await,
        [200, 200]
    );
    let without = json!({"permissions": ["turn.relay.allocate"]});
    assert_eq!(
        statuses(&control, &ada, &without, &project).await,
        [403, 403]
    );
    assert_eq!(
        statuses(&control, &ada, &permitted, &foreign).await,
        [404, 404]
    );
    for (resources, status) in [
        (json!({"tunnels": {"projects": [project.id]}}), 200),
        (json!({"tunnels": {"workspaces": [ada.workspace]}}), 200),
        (json!({"tunnels": {"projects": [foreign.id]}}), 403),
        (json!({"tunnels": {"workspaces": [eve.workspace]}}), 403),
    ] {
        let body = json!({"permissions": ["turn.credentials.create"], "resources": resources});
        assert_eq!(
            statuses(&control, &ada, &body, &project).await,
            [status; 2],
            "{body}"
        );
    }
    // A viewer of the workspace gets no relay.
    let bob = control.person("bob").await;
    assert_eq!(
        statuses(&control, &bob, &permitted, &project).await,
        [404, 404]
    );
    control.join(&bob, ada.workspace, Role::Viewer).await;
    assert_eq!(
        statuses(&control, &bob, &permitted, &project).await,
        [403, 403]
    );
}

/// TU-3: a project of another user looks like a missing one.
#[tokio::test]
async fn tu_3_a_project_of_another_user_is_not_found() {
    let control = TestControl::start("").await;
    let ada = control.person("ada").await;
    let eve = control.person("eve").await;
    let foreign = control.project(&eve).await;
    let nothing = Project {
        id: "prj_01h455vb4pex5vsknk084sn02q".parse().unwrap(),
        endpoint: "ffffffff".to_owned(),
    };
    for (there, not) in routes(&foreign).iter().zip(&routes(&nothing)) {
        let there = control
            .send(Method::POST, there, Some(&ada.token), None)
            .await;
        let not = control
            .send(Method::POST, not, Some(&ada.token), None)
            .await;
        assert_eq!((there.status, &there.text), (404, &not.text));
    }
}

/// TU-2: a credential expires with the token that requested it.
#[tokio::test]
async fn tu_2_a_credential_does_not_outlive_its_caller() {
    let control = TestControl::start("").await;
    let ada = control.person("ada").await;
    let project = control.project(&ada).await;
    let body = json!({"permissions": ["turn.credentials.create"], "ttlSeconds": 90});
    let token = control.delegated(&ada, body).await;
    control.clock.advance(30);
    for path in routes(&project) {
        let body = control
            .post(&path, &token, &json!({"ttlSeconds": 3600}))
            .await
            .json();
        assert_eq!(body["ttl"], 60);
        let username = body["username"].as_str().unwrap();
        assert!(
            username.starts_with(&format!("v1:{}:api:", NOW + 90)),
            "{username}"
        );
    }
}
