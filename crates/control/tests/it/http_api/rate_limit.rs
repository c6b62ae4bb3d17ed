//! Request limits of a credential, a user and a source. CP-10: the limit covers every operation
//! that requires a credential, including operations added later.

use std::net::SocketAddr;
use std::sync::Arc;

use api::control::health::{HEALTHZ, READYZ};
use api::control::{Access, operations};
use axum::body::Body;
use axum::response::IntoResponse as _;
use axum::routing::any;
use control::caller;
use control::oauth::OauthSection;
use control::router::router_with;
use http::{HeaderMap, Method, Request};
use serde_json::json;

use crate::http_api::walk::{ask, method, public_status};
use crate::support::{Answer, Person, TestControl};
use crate::tenants::projects::{order, place, preview, project};

const LIMITS: &str = "limits: {credential_requests_per_minute: 10, user_requests_per_minute: 15}";

async fn whoami(control: &TestControl, token: &str) -> Answer {
    control.get("/api/whoami", token).await
}

/// Sends all requests that the credential has left, and returns their number.
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
async fn no_operation_bypasses_the_rate_limit() {
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
    // A request without a credential counts for its source, and is answered.
    exhaust(&control, &ada.token).await;
    for operation in operations().filter(|operation| operation.access == Access::Public) {
        let token = Some(ada.token.as_str());
        let answer = ask(&control, operation, (&ada, &project), token).await;
        let status = public_status(operation, (&ada, &project));
        assert_eq!(answer.status, status, "{}", operation.id);
    }
    // Other users are not affected either.
    let bob = control.person("bob").await;
    assert_eq!(whoami(&control, &bob.token).await.status, 200);
}

#[tokio::test]
async fn all_credentials_of_a_user_share_a_limit() {
    let control = TestControl::start(LIMITS).await;
    let ada = control.person("ada").await;
    let second = second_token(&control, &ada).await;
    // One request was sent to create it.
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
    // A minted token counts for the credential from which it was minted.
    let bob = control.person("bob").await;
    let minted = control.delegated(&bob, json!({"permissions": []})).await;
    assert_eq!(exhaust(&control, &minted).await, 9);
    assert_eq!(whoami(&control, &bob.token).await.status, 429);
}

/// A session counts as a credential. An invalid token uses up no limit of a user.
#[tokio::test]
async fn sessions_have_the_limit_and_bad_tokens_do_not_count_for_it() {
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
    // Expired ones do not count.
    control.clock.advance(8 * 24 * 3600);
    invite("d").await.expect(201);

    project(&control, &ada).await;
    let order = order(&preview(&control, &ada, "basic").await);
    let refused = place(&control, &ada, &order).await;
    assert_eq!(refused.refused(409).0, "conflict");
}

const SOURCE: &str = "limits: {source_requests_per_minute: 10}";

/// A request of a client at an address, with further headers.
async fn from(
    control: &TestControl,
    address: &str,
    (method, path): (&str, &str),
    fields: &[(&str, &str)],
) -> Answer {
    let mut request = Request::builder().method(method).uri(path);
    for (name, value) in fields {
        request = request.header(*name, *value);
    }
    let peer = SocketAddr::new(address.parse().unwrap(), 40_000);
    let request = request.body(Body::empty()).unwrap();
    control.send_from(peer, request).await
}

const STRANGER: &str = "203.0.113.1";

/// Uses up the limit of the source with invalid bearers.
async fn exhaust_source(control: &TestControl, address: &str) {
    let bad = [("authorization", "Bearer bad")];
    for _ in 0..10 {
        let answer = from(control, address, ("GET", "/api/whoami"), &bad).await;
        assert_eq!(answer.status, 401, "{answer:?}");
    }
    let answer = from(control, address, ("GET", "/api/whoami"), &bad).await;
    assert_limited(&answer, "/api/whoami");
    assert_eq!(answer.header("ratelimit-policy"), r#""source";q=10;w=60"#);
}

/// Each surface refuses in its own format.
#[tokio::test]
async fn a_source_without_a_credential_has_a_limit_at_every_surface() {
    let control = TestControl::start(SOURCE).await;
    exhaust_source(&control, STRANGER).await;
    let problem = "application/problem+json";
    for (request, kind) in [
        (("GET", "/api/whoami"), problem),
        (("POST", "/api/projects"), problem),
        (("GET", "/.well-known/jwks.json"), problem),
        (("GET", "/no/such/path"), problem),
        (("GET", "/login"), "text/html; charset=utf-8"),
        (("POST", "/login"), "text/html; charset=utf-8"),
        (("GET", "/reset"), "text/html; charset=utf-8"),
        (("GET", "/invitations/x"), "text/html; charset=utf-8"),
        (("GET", "/oauth/authorize"), "text/html; charset=utf-8"),
        (("GET", "/device"), "text/html; charset=utf-8"),
        (("POST", "/oauth/token"), "application/json"),
        (("POST", "/oauth/revoke"), "application/json"),
        (("POST", "/oauth/device_authorization"), "application/json"),
    ] {
        let answer = from(&control, STRANGER, request, &[]).await;
        assert_limited(&answer, request.1);
        assert_eq!(answer.header("content-type"), kind, "{request:?}");
        if kind == "application/json" {
            let body: serde_json::Value = serde_json::from_str(&answer.text).unwrap();
            assert_eq!(body["error"], "temporarily_unavailable");
        }
    }
    for operation in operations().filter(|operation| operation.access == Access::Public) {
        let path = operation.path.replace(['{', '}'], "");
        let request = (method(operation).as_str().to_owned(), path);
        let answer = from(&control, STRANGER, (&request.0, &request.1), &[]).await;
        if [HEALTHZ.id, READYZ.id].contains(&operation.id) {
            assert_eq!(answer.status, 200, "load balancers need it");
        } else {
            assert_limited(&answer, operation.id);
        }
    }
    // Another source is not affected. Neighbours in a /64 are one source.
    let other = from(&control, "203.0.113.2", ("GET", "/login"), &[]).await;
    assert_eq!(other.status, 200);
    exhaust_source(&control, "2001:db8::1").await;
    let neighbour = from(&control, "2001:db8::2", ("GET", "/login"), &[]).await;
    assert_eq!(neighbour.status, 429);
}

/// A caller with a valid credential counts for itself. A recently verified credential stays usable
/// even if its source is flooded.
#[tokio::test]
async fn valid_credentials_do_not_count_for_their_source() {
    let control = TestControl::start(SOURCE).await;
    let ada = control.person("ada").await;
    let bob = control.person("bob").await;
    let bearer = |person: &Person| format!("Bearer {}", person.token);
    let (of_ada, of_bob) = (bearer(&ada), bearer(&bob));
    let cookie = control.session(&ada).await;
    let whoami = ("GET", "/api/whoami");
    for _ in 0..20 {
        let answer = from(&control, STRANGER, whoami, &[("authorization", &of_ada)]).await;
        assert_eq!(answer.status, 200);
        let page = from(
            &control,
            STRANGER,
            ("GET", "/account"),
            &[("cookie", &cookie)],
        )
        .await;
        assert_eq!(page.status, 200);
    }
    exhaust_source(&control, STRANGER).await;
    let answer = from(&control, STRANGER, whoami, &[("authorization", &of_ada)]).await;
    assert_eq!(answer.status, 200);
    let page = from(
        &control,
        STRANGER,
        ("GET", "/account"),
        &[("cookie", &cookie)],
    )
    .await;
    assert_eq!(page.status, 200);
    // A credential that was never seen here is not verified.
    let answer = from(&control, STRANGER, whoami, &[("authorization", &of_bob)]).await;
    assert_limited(&answer, "a credential that nobody knows");
    let answer = from(
        &control,
        "203.0.113.2",
        whoami,
        &[("authorization", &of_bob)],
    )
    .await;
    assert_eq!(answer.status, 200);
    // An expired one is refused as well.
    let credentials = control
        .get("/api/credentials", &ada.token)
        .await
        .expect(200);
    let id = credentials["credentials"][0]["id"]
        .as_str()
        .unwrap()
        .to_owned();
    control
        .delete(&format!("/api/credentials/{id}"), &ada.token)
        .await
        .expect(204);
    let answer = from(&control, STRANGER, whoami, &[("authorization", &of_ada)]).await;
    assert_limited(&answer, "a credential that has ended");
}

/// Pages count for the user, as operations do.
#[tokio::test]
async fn pages_have_the_limit_of_their_session() {
    let control = TestControl::start(LIMITS).await;
    let ada = control.person("ada").await;
    let cookie = control.session(&ada).await;
    let mut statuses = Vec::new();
    for _ in 0..12 {
        let fields = [("cookie", cookie.as_str())];
        let page = from(&control, STRANGER, ("GET", "/account"), &fields).await;
        statuses.push(page.status);
    }
    assert_eq!(statuses, [[200; 10].as_slice(), &[429; 2]].concat());
}

/// Behind a trusted proxy the reported address is the source. Reports of other clients are ignored.
#[tokio::test]
async fn the_source_is_the_address_that_a_trusted_proxy_reports() {
    let control = TestControl::start(SOURCE).await;
    let mut config = control.app.config.clone();
    config.trusted_proxies = vec!["198.51.100.0/24".parse().unwrap()];
    let control = control.restarted_with(config).await;
    let login = ("GET", "/login");
    for (peer, expected) in [("198.51.100.7", 200), (STRANGER, 429)] {
        for number in 0..30 {
            let forwarded = format!("192.0.2.{number}");
            let fields = [("x-forwarded-for", forwarded.as_str())];
            let answer = from(&control, peer, login, &fields).await;
            assert!(answer.status == 200 || number >= 10, "{peer}: {answer:?}");
            if number == 29 {
                assert_eq!(answer.status, expected, "{peer}");
            }
        }
    }
}

/// Another surface of the process has the limit as well, and its callers share their source limits.
#[tokio::test]
async fn another_surface_shares_the_limit_of_sources() {
    let mut control = TestControl::start(SOURCE).await;
    let ada = control.person("ada").await;
    let app = Arc::clone(&control.app);
    let tools =
        any(
            async move |headers: HeaderMap| match caller::of_bearer(&app, &headers).await {
                Ok(_) => "tools".into_response(),
                Err(refusal) => refusal.into_response(),
            },
        );
    let surface = axum::Router::new().route("/api/mcp", tools);
    control.router = router_with(Arc::clone(&control.app), surface);
    let bearer = format!("Bearer {}", ada.token);
    let good = [("authorization", bearer.as_str())];
    for _ in 0..20 {
        let answer = from(&control, STRANGER, ("POST", "/api/mcp"), &good).await;
        assert_eq!(answer.status, 200);
    }
    for bad in [&[][..], &[("authorization", "Bearer bad")]] {
        for _ in 0..5 {
            let answer = from(&control, STRANGER, ("POST", "/api/mcp"), bad).await;
            assert_ne!(answer.status, 429);
        }
    }
    for fields in [&[][..], &[("authorization", "Bearer bad")]] {
        let answer = from(&control, STRANGER, ("POST", "/api/mcp"), fields).await;
        assert_limited(&answer, "/api/mcp");
        assert_eq!(answer.header("content-type"), "application/problem+json");
    }
}

/// A page of a configured origin reads the wait at an MCP endpoint, and its preflights, which never
/// have a credential, are not limited.
#[tokio::test]
async fn pages_at_an_mcp_endpoint_read_the_limit() {
    let page = "https://app.example.com";
    let client = json!({
        "id": "page", "redirect_uris": [format!("{page}/callback")], "origins": [page],
    });
    let section = serde_json::from_value::<OauthSection>(json!({"clients": [client]})).unwrap();
    let control = TestControl::start(SOURCE).await;
    let mut config = control.app.config.clone();
    config.oauth = section.check(false).unwrap();
    let mut control = control.restarted_with(config).await;
    let surface = axum::Router::new().route("/api/mcp", any(async || "tools"));
    control.router = router_with(Arc::clone(&control.app), surface);
    exhaust_source(&control, STRANGER).await;
    let asks = ("access-control-request-method", "POST");
    let own = [("origin", page), asks];
    for _ in 0..20 {
        let answer = from(&control, STRANGER, ("OPTIONS", "/api/mcp"), &own).await;
        assert_eq!(answer.status, 200);
    }
    let answer = from(&control, STRANGER, ("POST", "/api/mcp"), &own[..1]).await;
    assert_limited(&answer, "a listed page");
    assert_eq!(answer.header("access-control-allow-origin"), page);
    assert_eq!(
        answer.header("access-control-expose-headers"),
        "retry-after"
    );
    for (request, origin) in [
        (("OPTIONS", "/api/mcp"), "https://evil.example"),
        (("POST", "/api/mcp"), "https://evil.example"),
        (("OPTIONS", "/api/whoami"), page),
    ] {
        let fields = [("origin", origin), asks];
        let answer = from(&control, STRANGER, request, &fields).await;
        assert_limited(&answer, origin);
        let allowed = answer.headers.get("access-control-allow-origin");
        assert_eq!(allowed, None, "{request:?} {origin}");
    }
}
