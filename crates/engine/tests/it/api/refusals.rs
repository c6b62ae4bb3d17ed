//! Refusals of the Engine API, their recipients and the order of the checks.

use ::api::engine::{Access, Method as Calls, OPERATIONS};
use http::Method;
use serde_json::{Value, json};
use types::permission::Permission;

use crate::support::{CREATE, NOW, READ, STREAMS, TestApi, auth, pat, signed, token};

/// EN-1a.
#[tokio::test]
async fn en_1a_an_unknown_route_is_a_json_404_and_a_wrong_method_a_405() {
    let api = TestApi::start().await;
    for path in [
        "/",
        "/api",
        "/api/",
        "/api/tunnels/",
        "/api/nothing",
        "/api/clients/x",
        "/metrics",
    ] {
        let response = api.get(path).send().await.unwrap();
        assert_eq!(response.status(), 404, "{path}");
        assert_eq!(
            response.headers()["content-type"],
            "application/problem+json"
        );
        assert_eq!(response.json::<Value>().await.unwrap()["code"], "not_found");
    }
    for operation in OPERATIONS.iter().filter(|one| one.method == Calls::Get) {
        let others: Vec<_> = OPERATIONS
            .iter()
            .filter(|other| other.path == operation.path)
            .map(|other| method_of(other.method))
            .collect();
        for method in [
            Method::POST,
            Method::PUT,
            Method::DELETE,
            Method::PATCH,
            Method::OPTIONS,
        ] {
            if others.contains(&method) {
                continue;
            }
            let request = api.http.request(method.clone(), api.url(operation.path));
            let response = request.bearer_auth(token(&pat())).send().await.unwrap();
            assert_eq!(response.status(), 405, "{method} {}", operation.path);
            assert!(
                response.headers()["allow"]
                    .to_str()
                    .unwrap()
                    .contains("GET")
            );
            assert_eq!(
                response.headers()["content-type"],
                "application/problem+json"
            );
            assert_eq!(
                response.json::<Value>().await.unwrap()["code"],
                "method_not_allowed"
            );
        }
    }
}

#[tokio::test]
async fn api_auth_answers_204_to_any_valid_credential() {
    let api = TestApi::start().await;
    for claims in [
        pat(),
        auth(NOW, 5, json!({"permissions": []})),
        json!({"type": "app", "clientId": "a"}),
    ] {
        let response = api
            .http
            .get(api.url("/api/auth"))
            .bearer_auth(token(&claims))
            .send()
            .await
            .unwrap();
        assert_eq!(response.status(), 204, "{claims}");
        assert_eq!(response.bytes().await.unwrap().len(), 0);
    }
}

fn method_of(method: Calls) -> Method {
    match method {
        Calls::Get => Method::GET,
        Calls::Post => Method::POST,
        Calls::Delete => Method::DELETE,
    }
}

/// The path of an operation with its parameters filled in.
fn path_of(operation: &str) -> String {
    operation
        .replace("{id}", "tun_01h455vb4pex5vsknk084sn02q")
        .replace("{participant_id}", "wtp_01h455vb4pex5vsknk084sn02q")
        .replace("{request_id}", "wtc_01h455vb4pex5vsknk084sn02q")
}

/// A body that every operation with a body accepts.
const BODY: &str = r#"{"participant_id": "wtp_01h455vb4pex5vsknk084sn02q"}"#;
const ANSWER: &str = r#"{"action": "refuse"}"#;

/// EN-7 for every operation of the document. An operation that is added without a check fails here.
#[tokio::test]
#[expect(
    clippy::too_many_lines,
    reason = "a test tells one story from start to end"
)]
async fn en_7_every_operation_requires_the_documented_permission() {
    let api = TestApi::start().await;
    let permissions = [
        READ,
        CREATE,
        "webtty.sessions.read-only",
        "webtty.sessions.read-write",
        "webtty.logs.read-only",
        "webtty.logs.read-write",
    ];
    let foreign =
        json!({"resources": {"tunnels": {"projects": ["elsewhere"]}}, "permissions": permissions});
    let credentials = [
        ("none", None),
        ("garbage", Some("x.y.z".to_owned())),
        (
            "foreign signature",
            Some(signed(&pat(), "another secret of at least 32 bytes")),
        ),
        ("expired", Some(token(&auth(NOW - 60, 60, json!({}))))),
        (
            "weak",
            Some(token(&auth(
                NOW,
                60,
                json!({"permissions": [CREATE, STREAMS]}),
            ))),
        ),
        ("foreign project", Some(token(&auth(NOW, 60, foreign)))),
    ];
    let document = ::api::engine::document();
    let paths = document["paths"].as_object().unwrap().values();
    let described = paths.map(|path| path.as_object().unwrap().len());
    assert_eq!(described.sum::<usize>(), OPERATIONS.len());
    for operation in OPERATIONS {
        let method = method_of(operation.method);
        let name = method.as_str().to_ascii_lowercase();
        assert!(document["paths"][operation.path].get(&name).is_some());
        for (name, credential) in &credentials {
            let url = api.url(&path_of(operation.path));
            let mut request = api.http.request(method.clone(), url);
            if method == Method::POST && operation.path.contains("control-requests") {
                let resolves = operation.path.ends_with("{request_id}");
                request = request.body(if resolves { ANSWER } else { BODY });
            }
            if let Some(credential) = credential {
                request = request.bearer_auth(credential);
            }
            let response = request.send().await.unwrap();
            let status = response.status().as_u16();
            let challenge = response
                .headers()
                .get("www-authenticate")
                .map(|c| c.to_str().unwrap().to_owned());
            let case = format!("{} with {name}", operation.id);
            match (operation.access, *name) {
                (Access::Public, _) => assert_eq!(status, 200, "{case}"),
                // Without an upgrade there is no stream on which a grant could be shown.
                (Access::Granted, "none" | "foreign project") => assert_eq!(status, 426, "{case}"),
                (_, "none") => {
                    assert_eq!(status, 401, "{case}");
                    let challenge = challenge.unwrap();
                    assert!(
                        challenge.starts_with("Bearer") && !challenge.contains("error"),
                        "{challenge}"
                    );
                }
                (_, "garbage" | "foreign signature" | "expired") => {
                    assert_eq!(status, 401, "{case}");
                    assert!(
                        challenge.unwrap().contains(r#"error="invalid_token""#),
                        "{case}"
                    );
                }
                (Access::Granted, _) => assert_eq!(status, 403, "{case}"),
                (Access::Authenticated, _) => assert!(matches!(status, 200 | 204), "{case}"),
                // The token sees no tunnel, so this tunnel does not exist for it.
                (Access::Permitted(..), "foreign project") if operation.path.contains('{') => {
                    assert_eq!(status, 404, "{case}");
                }
                // It has this permission.
                (Access::Permitted(Permission::TunnelsTunnelsCreateDelete, _), "weak") => {
                    assert_eq!(status, 404, "{case}");
                }
                (Access::Permitted(permission, _), _) => {
                    // A WebSocket route that is requested without an upgrade still authenticates
                    // first.
                    let expected = if operation.path == "/api/websocket" && *name != "weak" {
                        426
                    } else {
                        403
                    };
                    assert_eq!(status, expected, "{case}");
                    if expected == 403 {
                        let challenge = challenge.unwrap();
                        assert!(
                            challenge.contains(r#"error="insufficient_scope""#),
                            "{case}: {challenge}"
                        );
                        assert!(
                            challenge.contains(permission.as_str()),
                            "{case}: {challenge}"
                        );
                    }
                }
            }
        }
    }
}

/// EN-5.
#[tokio::test]
async fn en_5_query_credentials_only_work_on_streams() {
    let api = TestApi::start().await;
    let good = token(&auth(NOW, 60, json!({"permissions": [READ]})));
    for path in [
        "/api/clients",
        "/api/tunnels",
        "/api/auth",
        "/api/tunnels/x",
    ] {
        let response = api
            .http
            .get(api.url(&format!("{path}?svc.token={good}")))
            .send()
            .await
            .unwrap();
        assert_eq!(response.status(), 401, "{path}");
        let problem: Value = response.json().await.unwrap();
        assert_eq!(
            problem["code"], "unauthenticated",
            "the credential is not read"
        );
    }
    // ED-1d: query credentials are not read there, so a bad one does no harm.
    let response = api
        .get("/api/tunnels?svc.token=bad&svc.token=")
        .send()
        .await
        .unwrap();
    assert_eq!(response.status(), 200);
}

#[tokio::test]
async fn the_order_of_checks_is_credential_permission_shape_boundary() {
    let api = TestApi::start().await;
    let elsewhere = json!({"tunnels": {"projects": ["elsewhere"]}});
    let bad = "/api/tunnels?params=%7B%22x%22%3A1%7D";
    for (claims, path, expected) in [
        (None, bad, 401),
        (Some(auth(NOW, 60, json!({"permissions": []}))), bad, 403),
        (
            Some(auth(NOW, 60, json!({"resources": elsewhere}))),
            bad,
            400,
        ),
        (
            Some(auth(NOW, 60, json!({"resources": elsewhere}))),
            "/api/tunnels",
            403,
        ),
    ] {
        let mut request = api.http.get(api.url(path));
        if let Some(claims) = &claims {
            request = request.bearer_auth(token(claims));
        }
        assert_eq!(
            request.send().await.unwrap().status(),
            expected,
            "{claims:?} {path}"
        );
    }
}
