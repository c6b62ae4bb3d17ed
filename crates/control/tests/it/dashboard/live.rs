//! Requests of pages that the platform forwards to an engine.

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use http::Method;
use serde_json::{Value, json};
use store::members::Role;

use super::engine::{Engine, IdleConnectionEnd};
use crate::support::{BASE_URL, Browser};

/// The claims of the token in a request to the engine.
fn claims(authorization: &str) -> Value {
    let token = authorization.strip_prefix("Bearer ").unwrap();
    let claims = token.split('.').nth(1).unwrap();
    serde_json::from_slice(&BASE64_URL_SAFE_NO_PAD.decode(claims).unwrap()).unwrap()
}

/// Calls like a page of the platform.
async fn get(browser: &mut Browser<'_>, path: &str) -> crate::support::Answer {
    let headers = [("sec-fetch-site", "same-origin")];
    browser.send(Method::GET, path, None, &headers).await
}

#[tokio::test]
async fn a_list_is_forwarded_with_a_token_for_this_list_only() {
    let (engine, control) = Engine::start().await;
    let ada = control.person("Ada").await;
    let project = control.project(&ada).await;
    let mut browser = control.signed_in("Ada").await;
    engine.answers(200, "[{\"id\":\"t1\"}]");
    let path = format!(
        "/engine/{}/api/tunnels?params=%7B%22limit%22:1%7D",
        project.id
    );
    let answer = get(&mut browser, &path).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    assert_eq!(answer.json(), json!([{"id": "t1"}]));
    assert_eq!(answer.header("content-type"), "application/json");
    assert_eq!(answer.header("cache-control"), "no-store");
    assert!(answer.header("content-security-policy").contains("sandbox"));
    // Fields of the engine's connection and of its own origin stay there.
    assert_eq!(answer.header("set-cookie"), "");
    assert_eq!(answer.header("access-control-allow-origin"), "");

    let requests = engine.received();
    let [request] = requests.as_slice() else {
        panic!("{requests:?}");
    };
    let wanted = "GET /api/tunnels?params=%7B%22limit%22:1%7D HTTP/1.1";
    assert_eq!(request.line, wanted);
    let host = request.header("host").unwrap();
    assert!(host.starts_with(&format!("{}.engine.localhost:", project.endpoint)));
    assert_eq!(request.header("cookie"), None);
    let claims = claims(request.header("authorization").unwrap());
    assert_eq!(
        claims["permissions"],
        json!(["tunnels.resources.read-only"])
    );
    let boundary = json!({"tunnels": {"projects": [project.id.as_str()]}});
    assert_eq!(claims["resources"], boundary);
    let lives = claims["exp"].as_i64().unwrap() - control.now().as_second();
    assert!((1..=60).contains(&lives), "{lives}");
}

#[tokio::test]
async fn writes_are_forwarded_with_their_body() {
    let (engine, control) = Engine::start().await;
    let ada = control.person("Ada").await;
    let project = control.project(&ada).await;
    let mut browser = control.signed_in("Ada").await;
    engine.answers(404, "{}");
    let path = format!("/engine/{}/api/webtty/sessions/wts_1", project.id);
    let answer = browser.api(Method::DELETE, &path, Value::Null).await;
    // The engine's own refusal.
    assert_eq!(answer.status, 404);
    assert_eq!(answer.text, "{}");
    let requests = engine.received();
    assert!(
        requests[0]
            .line
            .starts_with("DELETE /api/webtty/sessions/wts_1 ")
    );
    let claims = claims(requests[0].header("authorization").unwrap());
    assert_eq!(claims["permissions"], json!(["webtty.sessions.read-write"]));
}

/// EN-7: a viewer does not close a tunnel, and the engine is not asked.
#[tokio::test]
async fn en_7_a_tunnel_is_closed_with_a_token_for_that_only_and_not_by_a_viewer() {
    let (engine, control) = Engine::start().await;
    let (ada, grace) = (control.person("Ada").await, control.person("Grace").await);
    control.join(&grace, ada.workspace, Role::Viewer).await;
    let project = control.project(&ada).await;
    engine.answers(204, "");
    let path = format!("/engine/{}/api/tunnels/tun_1", project.id);
    let mut viewer = control.signed_in("Grace").await;
    let answer = viewer.api(Method::DELETE, &path, Value::Null).await;
    assert_eq!(answer.problem(), (403, "insufficient_scope".to_owned()));
    assert!(engine.received().is_empty());
    let mut owner = control.signed_in("Ada").await;
    let answer = owner.api(Method::DELETE, &path, Value::Null).await;
    assert_eq!(answer.status, 204, "{}", answer.text);
    let requests = engine.received();
    assert!(requests[0].line.starts_with("DELETE /api/tunnels/tun_1 "));
    let claims = claims(requests[0].header("authorization").unwrap());
    assert_eq!(
        claims["permissions"],
        json!(["tunnels.tunnels.create-delete"])
    );
}

#[tokio::test]
async fn only_a_page_of_the_platform_with_a_session_is_served() {
    let (engine, control) = Engine::start().await;
    let ada = control.person("Ada").await;
    control.person("Eve").await;
    let project = control.project(&ada).await;
    let mut browser = control.signed_in("Ada").await;
    let path = format!("/engine/{}/api/tunnels", project.id);
    for headers in [
        &[][..],
        &[("sec-fetch-site", "cross-site")],
        &[("sec-fetch-site", "same-site")],
        &[("sec-fetch-site", "none")],
        &[("origin", "https://evil.example")],
    ] {
        let answer = browser.send(Method::GET, &path, None, headers).await;
        assert_eq!(answer.problem(), (403, "foreign_origin".to_owned()));
        // A write is refused by another layer, with the same problem.
        let session = format!("/engine/{}/api/webtty/sessions/wts_1", project.id);
        let answer = browser.send(Method::DELETE, &session, None, headers).await;
        assert_eq!(answer.problem(), (403, "foreign_origin".to_owned()));
    }
    let bearer = format!("Bearer {}", ada.token);
    let headers = [
        ("sec-fetch-site", "same-origin"),
        ("authorization", bearer.as_str()),
    ];
    let answer = browser.send(Method::GET, &path, None, &headers).await;
    assert_eq!(answer.status, 400);
    let answer = get(&mut control.browser(), &path).await;
    assert_eq!(answer.problem(), (401, "unauthenticated".to_owned()));
    // Another tenant's data is not reachable.
    let answer = get(&mut control.signed_in("Eve").await, &path).await;
    assert_eq!(answer.problem(), (404, "not_found".to_owned()));
    for (path, status) in [
        ("api/websocket", 404),
        ("api/nothing", 404),
        ("api/tunnels/..", 404),
        ("api/tunnels?svc.token=a.b.c", 400),
    ] {
        let path = format!("/engine/{}/{path}", project.id);
        assert_eq!(get(&mut browser, &path).await.status, status, "{path}");
    }
    let answer = browser.api(Method::POST, &path, Value::Null).await;
    assert_eq!(answer.status, 405);
    assert!(engine.received().is_empty(), "nothing was forwarded");
    let headers = [("origin", BASE_URL)];
    let answer = browser.send(Method::GET, &path, None, &headers).await;
    assert_eq!(answer.status, 200);
}

#[tokio::test]
async fn a_refused_token_does_not_look_like_the_end_of_the_session() {
    let (engine, control) = Engine::start().await;
    let ada = control.person("Ada").await;
    let project = control.project(&ada).await;
    let mut browser = control.signed_in("Ada").await;
    let path = format!("/engine/{}/api/clients", project.id);
    engine.answers(401, "{}");
    let answer = get(&mut browser, &path).await;
    assert_eq!(answer.problem(), (503, "engine_not_ready".to_owned()));
    assert_eq!(answer.header("retry-after"), "1");
    drop(engine);
    let answer = get(&mut browser, &path).await;
    assert_eq!(answer.problem(), (502, "engine_unreachable".to_owned()));
}

/// An engine closes an idle connection while a request is on its way.
#[tokio::test]
async fn a_read_is_repeated_if_the_engine_closes_a_kept_connection() {
    for end in [IdleConnectionEnd::Session, IdleConnectionEnd::Connection] {
        let (engine, control) = Engine::start().await;
        let ada = control.person("Ada").await;
        let project = control.project(&ada).await;
        let mut browser = control.signed_in("Ada").await;
        let path = format!("/engine/{}/api/clients", project.id);
        engine.keeps_next(end);
        assert_eq!(get(&mut browser, &path).await.status, 200, "{end:?}");
        let answer = get(&mut browser, &path).await;
        assert_eq!(answer.status, 200, "{end:?}: {}", answer.text);
        let lines: Vec<_> = engine.received().into_iter().map(|one| one.line).collect();
        assert_eq!(lines, ["GET /api/clients HTTP/1.1"; 3], "{end:?}");

        // A write may have had its effect already.
        engine.keeps_next(end);
        assert_eq!(get(&mut browser, &path).await.status, 200, "{end:?}");
        let session = format!("/engine/{}/api/webtty/sessions/wts_1", project.id);
        let answer = browser.api(Method::DELETE, &session, Value::Null).await;
        assert_eq!(answer.problem(), (502, "engine_unreachable".to_owned()));
        assert_eq!(engine.received().len(), 5, "{end:?}");
    }
}

#[tokio::test]
async fn a_large_body_is_refused() {
    let (engine, control) = Engine::start().await;
    let ada = control.person("Ada").await;
    let project = control.project(&ada).await;
    let mut browser = control.signed_in("Ada").await;
    let path = format!("/engine/{}/api/webtty/sessions/wts_1", project.id);
    let body = json!("a".repeat(66_000));
    let answer = browser.api(Method::DELETE, &path, body).await;
    assert_eq!(answer.status, 413);
    assert!(engine.received().is_empty());
}
