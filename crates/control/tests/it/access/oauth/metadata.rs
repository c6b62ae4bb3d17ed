//! OA-1: metadata that clients discover, and the origins that may read it.

use http::Method;
use serde_json::json;
use types::permission::Permission;

use crate::support::{BASE_URL, TestControl};

const PUBLIC: [&str; 5] = [
    "/.well-known/oauth-authorization-server",
    "/.well-known/oauth-protected-resource",
    "/.well-known/oauth-protected-resource/api/mcp",
    "/.well-known/oauth-protected-resource/api/mcp/sign-in",
    "/.well-known/jwks.json",
];

/// OA-1: RFC 8414 section 2, with the additions of RFC 9207 and RFC 8628.
#[tokio::test]
async fn oa_1_the_authorization_server_publishes_its_metadata() {
    let control = TestControl::start("").await;
    let answer = control.browser().open(PUBLIC[0]).await;
    assert_eq!(answer.headers["content-type"], "application/json");
    let scopes: Vec<_> = Permission::ALL.iter().map(|one| one.as_str()).collect();
    assert_eq!(
        answer.json(),
        json!({
            "issuer": BASE_URL,
            "authorization_endpoint": format!("{BASE_URL}/oauth/authorize"),
            "token_endpoint": format!("{BASE_URL}/oauth/token"),
            "device_authorization_endpoint": format!("{BASE_URL}/oauth/device_authorization"),
            "revocation_endpoint": format!("{BASE_URL}/oauth/revoke"),
            "jwks_uri": format!("{BASE_URL}/.well-known/jwks.json"),
            "scopes_supported": scopes,
            "response_types_supported": ["code"],
            "response_modes_supported": ["query"],
            "grant_types_supported":
                ["authorization_code", "urn:ietf:params:oauth:grant-type:device_code"],
            "token_endpoint_auth_methods_supported": ["none"],
            "revocation_endpoint_auth_methods_supported": ["none"],
            "code_challenge_methods_supported": ["S256"],
            "authorization_response_iss_parameter_supported": true,
            "protected_resources": [BASE_URL],
        })
    );
}

/// OA-1, OA-6: RFC 9728 section 3.3, at each address: the resource is the one that the address names.
/// CP-14: clients do not request permissions for tokens and credentials by default.
#[tokio::test]
async fn oa_1_the_metadata_names_the_resource_of_its_address() {
    let control = TestControl::start("").await;
    for path in &PUBLIC[1..4] {
        let metadata = control.browser().open(path).await.json();
        let inserted = path.strip_prefix(PUBLIC[1]).unwrap();
        assert_eq!(metadata["resource"], format!("{BASE_URL}{inserted}"));
        assert_eq!(metadata["authorization_servers"], json!([BASE_URL]));
        assert_eq!(metadata["bearer_methods_supported"], json!(["header"]));
        let scopes = metadata["scopes_supported"].as_array().unwrap();
        assert_eq!(scopes.len(), Permission::ALL.len() - 3);
        for scope in scopes {
            let scope = scope.as_str().unwrap();
            assert!(scope.parse::<Permission>().is_ok());
            assert!(
                !scope.contains(".tokens.") && !scope.contains(".credentials.read"),
                "{scope}"
            );
        }
    }
    // The challenge of a 401 leads there (RFC 9728 section 5.1).
    let answer = control.browser().open("/api/whoami").await;
    let challenge = answer.headers["www-authenticate"].to_str().unwrap();
    assert!(challenge.contains(&format!("resource_metadata=\"{BASE_URL}{}\"", PUBLIC[1])));
}

#[tokio::test]
async fn public_documents_are_cached_and_read_from_any_origin() {
    let control = TestControl::start("").await;
    let foreign = [("origin", "https://page.example")];
    for path in PUBLIC {
        let mut browser = control.browser();
        let answer = browser.send(Method::GET, path, None, &foreign).await;
        assert_eq!(answer.status, 200);
        assert_eq!(
            answer.headers["cache-control"], "public, max-age=300",
            "{path}"
        );
        assert!(answer.headers.contains_key("etag"), "{path}");
        assert_eq!(answer.headers["access-control-allow-origin"], "*", "{path}");
        assert!(
            !answer
                .headers
                .contains_key("access-control-allow-credentials")
        );
    }
}

/// A web page that is an MCP client sends a preflight and redeems its code. Other origins can read
/// neither pages nor the approval of devices.
#[tokio::test]
async fn the_endpoints_of_web_clients_answer_other_origins() {
    let control = TestControl::start("").await;
    let asks = [
        ("origin", "https://page.example"),
        ("access-control-request-method", "POST"),
        (
            "access-control-request-headers",
            "content-type,mcp-protocol-version",
        ),
    ];
    for path in PUBLIC.into_iter().chain(["/oauth/token", "/oauth/revoke"]) {
        let mut browser = control.browser();
        let answer = browser.send(Method::OPTIONS, path, None, &asks).await;
        assert_eq!(answer.status, 204, "{path}");
        assert_eq!(answer.headers["access-control-allow-origin"], "*");
        let allowed = answer.headers["access-control-allow-headers"]
            .to_str()
            .unwrap();
        for name in ["content-type", "authorization", "mcp-protocol-version"] {
            assert!(allowed.contains(name));
        }
        assert!(
            !answer
                .headers
                .contains_key("access-control-allow-credentials")
        );
    }
    let answer = super::program(&control, "/oauth/token", &[("a", "b")]).await;
    assert_eq!(
        answer.headers["access-control-allow-origin"], "*",
        "refusals can be read as well"
    );
    for path in [
        "/oauth/authorize",
        "/oauth/device_authorization",
        "/device",
        "/api/whoami",
    ] {
        let mut browser = control.browser();
        let answer = browser.send(Method::OPTIONS, path, None, &asks).await;
        assert_eq!(answer.status, 405, "{path}");
        assert!(
            !answer.headers.contains_key("access-control-allow-origin"),
            "{path}"
        );
    }
}

/// An unknown path returns a JSON problem, never a page.
#[tokio::test]
async fn unknown_paths_next_to_the_endpoints_are_problems() {
    let control = TestControl::start("").await;
    for path in [
        "/oauth",
        "/oauth/nothing",
        "/oauth/token/",
        "/.well-known/openid-configuration",
        "/.well-known/oauth-authorization-server/api",
        "/.well-known/oauth-protected-resource/api",
    ] {
        let answer = control.browser().open(path).await;
        assert_eq!(answer.status, 404, "{path}");
        assert_eq!(answer.headers["content-type"], "application/problem+json");
    }
    let answer = control.browser().open("/oauth/token").await;
    assert_eq!(answer.status, 405);
}
