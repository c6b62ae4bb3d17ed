//! CP-10: accepted callers, and the answers to all others.

use axum::body::Body;
use http::Request;
use serde_json::json;
use store::sessions;
use store::users::{self, Status};

use crate::support::{Answer, BASE_URL, TestControl, both};

both! {
    cp_10_suspended_users_have_no_valid_credential,
    cp_13_a_bearer_has_priority_over_a_cookie_and_a_bad_bearer_is_final,
    cp_13_a_cookie_writes_from_this_origin_only,
}

/// CP-10.
#[tokio::test]
async fn cp_10_without_a_bearer_there_is_a_challenge_without_an_error() {
    let control = TestControl::start("").await;
    let answer = control
        .send(http::Method::GET, "/api/whoami", None, None)
        .await;
    assert_eq!(answer.problem(), (401, "unauthenticated".to_owned()));
    let challenge = answer.header("www-authenticate");
    assert_eq!(
        challenge,
        format!(
            "Bearer realm=\"svc\", \
             resource_metadata=\"{BASE_URL}/.well-known/oauth-protected-resource\""
        )
    );
}

/// CP-10: the answer is the same for every kind of invalid token.
#[tokio::test]
async fn cp_10_a_bad_bearer_is_a_401_without_details() {
    let control = TestControl::start("").await;
    let ada = control.person("ada").await;
    let mut forged = ada.token.clone();
    forged.truncate(forged.len() - 4);
    forged.push_str("AAAA");
    let fields = [
        "Bearer",
        "Bearer ",
        "Bearer a.b.c",
        "Basic YWRhOmFkYQ==",
        &format!("Bearer {forged}"),
        &format!("Bearer {}.{}", ada.token, ada.token),
        &format!("Bearer {} {}", ada.token, ada.token),
    ];
    let mut bodies = Vec::new();
    for field in fields {
        let request = Request::get("/api/whoami").header("authorization", field);
        let answer = control.send_raw(request.body(Body::empty()).unwrap()).await;
        assert_eq!(
            answer.problem(),
            (401, "invalid_token".to_owned()),
            "{field}"
        );
        assert!(
            answer
                .header("www-authenticate")
                .contains("error=\"invalid_token\"")
        );
        assert!(
            answer
                .header("www-authenticate")
                .contains("resource_metadata=")
        );
        bodies.push(answer.text);
    }
    bodies.dedup();
    assert_eq!(bodies.len(), 1);
    // Two valid headers do not authenticate.
    let field = format!("Bearer {}", ada.token);
    let twice = Request::get("/api/whoami")
        .header("authorization", &field)
        .header("authorization", &field);
    let answer = control.send_raw(twice.body(Body::empty()).unwrap()).await;
    assert_eq!(answer.status, 401);
}

/// CP-10: a token of another issuer that names one of our credentials.
#[tokio::test]
async fn cp_10_another_platforms_token_is_not_valid_here() {
    let control = TestControl::start("").await;
    let other = TestControl::start("").await;
    let eve = other.person("eve").await;
    control.person("eve").await;
    assert_eq!(other.get("/api/whoami", &eve.token).await.status, 200);
    let answer = control.get("/api/whoami", &eve.token).await;
    assert_eq!(answer.problem(), (401, "invalid_token".to_owned()));
}

/// CP-10: a suspension applies immediately, to the credential and to all tokens derived from it.
async fn cp_10_suspended_users_have_no_valid_credential(control: TestControl) {
    let ada = control.person("ada").await;
    let delegated = control.delegated(&ada, json!({"permissions": null})).await;
    let mut tx = control.app.store.begin().await.unwrap();
    users::set_status(&mut tx, ada.user, Status::Suspended, control.now())
        .await
        .unwrap();
    tx.commit().await.unwrap();
    for token in [&ada.token, &delegated] {
        assert_eq!(control.get("/api/whoami", token).await.status, 401);
    }
}

/// Unknown paths return a JSON problem, in every part of the API and with every method.
#[tokio::test]
async fn unknown_paths_are_json() {
    let control = TestControl::start("").await;
    for path in [
        "/api",
        "/api/",
        "/api/nothing",
        "/oauth/nothing",
        "/.well-known/nothing",
    ] {
        for method in ["GET", "POST", "DELETE"] {
            let method = method.parse().unwrap();
            let answer = control.send(method, path, None, None).await;
            assert_eq!(answer.problem(), (404, "not_found".to_owned()), "{path}");
        }
    }
    let answer = control
        .send(http::Method::PUT, "/api/whoami", None, None)
        .await;
    assert_eq!(answer.problem(), (405, "method_not_allowed".to_owned()));
    assert_eq!(answer.header("allow"), "GET,HEAD");
}

/// A request of a browser: a cookie, optionally a bearer, and the origin of the request.
async fn whoami(control: &TestControl, cookie: &str, bearer: Option<&str>) -> Answer {
    let mut request = Request::get("/api/whoami").header("cookie", cookie);
    if let Some(token) = bearer {
        request = request.header("authorization", format!("Bearer {token}"));
    }
    control.send_raw(request.body(Body::empty()).unwrap()).await
}

/// CP-13: an explicit bearer counts, and the cookie that a browser adds automatically does not.
async fn cp_13_a_bearer_has_priority_over_a_cookie_and_a_bad_bearer_is_final(control: TestControl) {
    let ada = control.person("ada").await;
    let eve = control.person("eve").await;
    let cookie = control.session(&ada).await;
    let who = whoami(&control, &cookie, None).await.json();
    assert_eq!(
        (&who["type"], &who["id"]),
        (&json!("session"), &json!(ada.user))
    );
    let who = whoami(&control, &cookie, Some(&eve.token)).await.json();
    assert_eq!(
        (&who["type"], &who["id"]),
        (&json!("pat"), &json!(eve.user))
    );
    let answer = whoami(&control, &cookie, Some("a.b.c")).await;
    assert_eq!(answer.problem(), (401, "invalid_token".to_owned()));
    let answer = whoami(&control, "__Host-svc_session=nothing", Some(&eve.token)).await;
    assert_eq!(answer.status, 200);
}

/// Mints a token with the cookie alone.
async fn mint(control: &TestControl, cookie: &str, headers: &[(&str, &str)]) -> Answer {
    let mut request = Request::post("/api/tokens")
        .header("cookie", cookie)
        .header("content-type", "application/json");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let body = Body::from(json!({"permissions": null}).to_string());
    control.send_raw(request.body(body).unwrap()).await
}

/// CP-13: a cookie alone authorises writes only from our own pages. Tokens minted with it end with
/// the session.
async fn cp_13_a_cookie_writes_from_this_origin_only(control: TestControl) {
    let ada = control.person("ada").await;
    let cookie = control.session(&ada).await;
    for foreign in [
        &[][..],
        &[("origin", "https://evil.example")],
        &[("sec-fetch-site", "cross-site")],
        &[("sec-fetch-site", "same-site"), ("origin", BASE_URL)],
    ] {
        let answer = mint(&control, &cookie, foreign).await;
        assert_eq!(answer.problem().0, 403, "{foreign:?}");
    }
    let ours = [("sec-fetch-site", "same-origin"), ("origin", BASE_URL)];
    let answer = mint(&control, &cookie, &ours).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    let token = answer.json()["token"].as_str().unwrap().to_owned();
    assert_eq!(control.get("/api/whoami", &token).await.status, 200);
    // A signed-in user creates credentials that outlive the session.
    let pat = json!({"type": "pat", "name": "a"});
    let request = Request::post("/api/credentials")
        .header("cookie", &cookie)
        .header("content-type", "application/json")
        .header("sec-fetch-site", "same-origin");
    let answer = control
        .send_raw(request.body(Body::from(pat.to_string())).unwrap())
        .await;
    assert_eq!(answer.status, 201);
    assert_eq!(answer.json()["credential"].get("expiresAt"), None);
    let mut tx = control.app.store.begin().await.unwrap();
    sessions::end_all(&mut tx, ada.user, None, control.now())
        .await
        .unwrap();
    tx.commit().await.unwrap();
    assert_eq!(control.get("/api/whoami", &token).await.status, 401);
    let pat = answer.json()["token"].as_str().unwrap().to_owned();
    assert_eq!(control.get("/api/whoami", &pat).await.status, 200);
}

/// The first operator is created once, and signs in with the password that was shown.
#[tokio::test]
async fn the_first_operator_is_created_once() {
    let control = TestControl::start("").await;
    let made = control::first_admin(&control.app, "Root@example.com").await;
    assert_eq!(made.unwrap().unwrap().expose().len(), 24);
    let again = control::first_admin(&control.app, "root@example.com").await;
    assert_eq!(again.unwrap(), None);
    assert!(control::first_admin(&control.app, "nobody").await.is_err());
    let mut read = control.app.store.read().await.unwrap();
    let user = users::by_email(&mut read, "root@example.com")
        .await
        .unwrap();
    assert_eq!(user.unwrap().role, users::Role::Admin);
}
