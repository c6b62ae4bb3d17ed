//! The endpoint that requires a token, and web pages that call the endpoints.

use axum::body::Body;
use axum::response::Response;
use http::{HeaderMap, Method, Request};
use serde_json::{Value, json};

use crate::platform::{BASE_URL, PAGE_ORIGIN, Platform};

const LIST: &str = r#"{"jsonrpc": "2.0", "id": 1, "method": "tools/list"}"#;

fn platform() -> Platform {
    Platform::with(200, json!({}))
}

/// The list of tools from a path, with these headers.
async fn list(path: &str, method: Method, headers: &[(&str, &str)]) -> Response {
    let mut request = Request::builder().method(method).uri(path);
    request = request.header("content-type", "application/json");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let request = request.body(Body::from(LIST)).unwrap();
    platform().send_request(request).await
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> &'a str {
    headers
        .get(name)
        .map_or("", |value| value.to_str().unwrap())
}

/// MC-7: for clients that start a sign-in on a 401 only. The challenge leads to the metadata of this
/// endpoint (RFC 9728 section 5.1).
#[tokio::test]
async fn mc_7_the_sign_in_endpoint_requires_a_token_for_every_method() {
    let metadata = format!(
        "resource_metadata=\"{BASE_URL}/.well-known/oauth-protected-resource{}\"",
        mcp::SIGN_IN_PATH
    );
    for method in [
        Method::POST,
        Method::GET,
        Method::DELETE,
        Method::OPTIONS,
        Method::HEAD,
        Method::PUT,
    ] {
        for headers in [
            &[][..],
            &[("cookie", "__Host-svc_session=abc")],
            &[("authorization", "Bearer bad")],
        ] {
            let answer = list(mcp::SIGN_IN_PATH, method.clone(), headers).await;
            assert_eq!(answer.status(), 401, "{method} {headers:?}");
            let challenge = text(answer.headers(), "www-authenticate");
            assert!(challenge.starts_with("Bearer "), "{challenge}");
            assert!(challenge.ends_with(&metadata), "{challenge}");
            let is_bad = headers.iter().any(|(name, _)| *name == "authorization");
            assert_eq!(challenge.contains("invalid_token"), is_bad, "{challenge}");
        }
    }
    // A foreign page gets no information about a credential here either.
    let foreign = [("origin", "https://evil.example")];
    let answer = list(mcp::SIGN_IN_PATH, Method::POST, &foreign).await;
    assert_eq!(answer.status(), 403);
}

/// A challenge leads to the metadata of the endpoint that was called: clients discard the metadata
/// of another resource (RFC 9728 section 3.3).
#[tokio::test]
async fn mc_7_every_challenge_names_the_metadata_of_its_endpoint() {
    let call = json!({
        "jsonrpc": "2.0", "id": 1, "method": "tools/call",
        "params": {"name": "svc_project_list", "arguments": {}},
    });
    for path in [mcp::PATH, mcp::SIGN_IN_PATH] {
        let metadata =
            format!("resource_metadata=\"{BASE_URL}/.well-known/oauth-protected-resource{path}\"");
        let bad = [("authorization", "Bearer bad")];
        let answer = list(path, Method::POST, &bad).await;
        assert_eq!(answer.status(), 401, "{path}");
        let challenge = text(answer.headers(), "www-authenticate");
        assert!(challenge.ends_with(&metadata), "{challenge}");
        // A token without permissions.
        let request = Request::post(path)
            .header("content-type", "application/json")
            .header("authorization", "Bearer holds:")
            .body(Body::from(call.to_string()))
            .unwrap();
        let answer = platform().send_request(request).await;
        assert_eq!(answer.status(), 200, "{path}");
        let bytes = axum::body::to_bytes(answer.into_body(), 1 << 22).await;
        let answer: Value = serde_json::from_slice(&bytes.unwrap()).unwrap();
        let challenge = &answer["result"]["_meta"]["mcp/www_authenticate"][0];
        let challenge = challenge.as_str().unwrap();
        assert!(challenge.ends_with(&metadata), "{challenge}");
    }
}

/// Everything else is equal: the list of tools, and a missing permission.
#[tokio::test]
async fn mc_1_the_sign_in_endpoint_serves_the_same_tools() {
    let bearer = [("authorization", "Bearer good")];
    let mut lists = Vec::new();
    for path in [mcp::PATH, mcp::SIGN_IN_PATH] {
        let answer = list(path, Method::POST, &bearer).await;
        assert_eq!(answer.status(), 200, "{path}");
        let bytes = axum::body::to_bytes(answer.into_body(), 1 << 22).await;
        lists.push(serde_json::from_slice::<Value>(&bytes.unwrap()).unwrap());
    }
    assert_eq!(lists[0], lists[1]);
    assert!(lists[0]["result"]["tools"].is_array());
    // MC-2: the other endpoint stays public.
    let answer = list(mcp::PATH, Method::POST, &[]).await;
    assert_eq!(answer.status(), 200);
    // Neither has a stream of its own.
    let answer = list(mcp::SIGN_IN_PATH, Method::GET, &bearer).await;
    let other = list(mcp::PATH, Method::GET, &bearer).await;
    assert_eq!(answer.status(), other.status());
}

/// A page of a configured origin sends a preflight, which has no token, and reads the challenge.
#[tokio::test]
async fn pages_of_configured_origins_may_call_the_endpoints() {
    for path in [mcp::PATH, mcp::SIGN_IN_PATH] {
        let preflight = [
            ("origin", PAGE_ORIGIN),
            ("access-control-request-method", "POST"),
            (
                "access-control-request-headers",
                "authorization, mcp-protocol-version",
            ),
        ];
        let answer = list(path, Method::OPTIONS, &preflight).await;
        assert_eq!(answer.status(), 204, "{path}");
        let headers = answer.headers();
        assert_eq!(text(headers, "access-control-allow-origin"), PAGE_ORIGIN);
        assert!(text(headers, "access-control-allow-methods").contains("POST"));
        let names = text(headers, "access-control-allow-headers");
        for name in [
            "authorization",
            "content-type",
            "mcp-protocol-version",
            "mcp-session-id",
        ] {
            assert!(names.contains(name), "{names}");
        }
        assert!(!headers.contains_key("access-control-allow-credentials"));
        let page = [("origin", PAGE_ORIGIN), ("authorization", "Bearer bad")];
        let answer = list(path, Method::POST, &page).await;
        assert_eq!(answer.status(), 401);
        let headers = answer.headers();
        assert_eq!(text(headers, "access-control-allow-origin"), PAGE_ORIGIN);
        assert!(text(headers, "access-control-expose-headers").contains("www-authenticate"));
        assert_eq!(text(headers, "vary"), "Origin");
        let page = [("origin", PAGE_ORIGIN), ("authorization", "Bearer good")];
        let answer = list(path, Method::POST, &page).await;
        assert_eq!(answer.status(), 200);
        assert_eq!(
            text(answer.headers(), "access-control-allow-origin"),
            PAGE_ORIGIN
        );
    }
}

#[tokio::test]
async fn pages_of_other_origins_are_refused() {
    for origin in [
        "https://evil.example",
        "null",
        "https://app.example.com.evil.example",
        "https://app.example.com/",
        "https://APP.example.com",
        "https://app.example.com:444",
        "http://app.example.com",
        "https://app.example.com https://evil.example",
    ] {
        for method in [Method::OPTIONS, Method::POST] {
            let headers = [
                ("origin", origin),
                ("access-control-request-method", "POST"),
                ("authorization", "Bearer good"),
            ];
            let answer = list(mcp::PATH, method.clone(), &headers).await;
            assert_eq!(answer.status(), 403, "{method} {origin}");
            let has = answer.headers().contains_key("access-control-allow-origin");
            assert!(!has, "{method} {origin}");
        }
    }
}
