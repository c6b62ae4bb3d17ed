//! The endpoint: protocol revisions, authentication, and requests that are refused before any tool
//! is selected.

use serde_json::{Value, json};

use crate::platform::Platform;

fn list() -> Value {
    json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"})
}

fn platform() -> Platform {
    Platform::with(200, json!({}))
}

/// MC-1, MC-2: without a session and without a credential, in the revision of 2025.
#[tokio::test]
async fn mc_2_tools_are_listed_for_everyone() {
    let initialize = json!({
        "jsonrpc": "2.0", "id": 0, "method": "initialize",
        "params": {
            "protocolVersion": "2025-11-25", "capabilities": {},
            "clientInfo": {"name": "test", "version": "1"},
        },
    });
    let (status, answer) = platform().send(&initialize, &[]).await;
    assert_eq!(status, 200, "{answer}");
    assert_eq!(answer["result"]["protocolVersion"], "2025-11-25");
    assert_eq!(answer["result"]["serverInfo"]["name"], "svc");

    let version = [("mcp-protocol-version", "2025-11-25")];
    let (status, answer) = platform().send(&list(), &version).await;
    assert_eq!(status, 200, "{answer}");
    let tools = answer["result"]["tools"].as_array().unwrap();
    assert_eq!(tools.len(), mcp::TOOLS.len());
    for tool in tools {
        // MC-3: next to `_meta` and inside it.
        assert_eq!(
            tool["securitySchemes"], tool["_meta"]["securitySchemes"],
            "{tool}"
        );
        assert!(tool["securitySchemes"].is_array(), "{tool}");
    }
    assert_eq!(Value::from(mcp::documents()), answer["result"]["tools"]);
}

/// The list of tools is added to a result, and not to content that only resembles one.
#[tokio::test]
async fn an_answer_with_its_own_tools_is_unchanged() {
    let mut message = list();
    message["id"] = json!("\"tools\":[]");
    let (_, answer) = platform().send(&message, &[]).await;
    assert_eq!(answer["id"], message["id"]);
    let tools = answer["result"]["tools"].as_array().unwrap();
    assert_eq!(tools.len(), mcp::TOOLS.len());

    let own = json!({"tools": []});
    let call = json!({
        "jsonrpc": "2.0", "id": 1, "method": "tools/call",
        "params": {"name": "svc_whoami", "arguments": {}},
    });
    let bearer = [("authorization", "Bearer good")];
    let platform = Platform::with(200, own.clone());
    let (_, answer) = platform.send(&call, &bearer).await;
    assert_eq!(answer["result"]["structuredContent"], own, "{answer}");
}

/// MC-1: in the revision of 2026 each request contains the fields that a session had before.
#[tokio::test]
async fn mc_1_the_revision_without_sessions_is_supported() {
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let message = json!({
        "jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": meta},
    });
    let headers = [
        ("mcp-protocol-version", "2026-07-28"),
        ("mcp-method", "tools/list"),
    ];
    let (status, answer) = platform().send(&message, &headers).await;
    assert_eq!(status, 200, "{answer}");
    assert!(answer["result"]["tools"].is_array(), "{answer}");
}

/// MC-5: a cookie has no effect.
#[tokio::test]
async fn mc_5_cookies_do_not_authenticate() {
    let call = json!({
        "jsonrpc": "2.0", "id": 1, "method": "tools/call",
        "params": {"name": "svc_whoami", "arguments": {}},
    });
    let headers = [("cookie", "__Host-svc_session=abc")];
    let platform = platform();
    let (status, answer) = platform.send(&call, &headers).await;
    assert_eq!(status, 200);
    assert!(
        answer["result"]["_meta"]["mcp/www_authenticate"].is_array(),
        "{answer}"
    );
    assert_eq!(platform.asked(), []);
}

/// MC-7: a bad bearer is refused immediately, also for anonymous tools.
#[tokio::test]
async fn mc_7_a_bad_bearer_is_401_with_a_challenge() {
    let headers = [("authorization", "Bearer bad")];
    let response = platform().send_raw(list().to_string(), &headers).await;
    assert_eq!(response.status(), 401);
    let challenge = response.headers()["www-authenticate"].to_str().unwrap();
    assert!(challenge.contains("invalid_token"), "{challenge}");
}

#[tokio::test]
async fn foreign_origins_hosts_and_methods_are_refused() {
    for (headers, expected) in [
        (&[("origin", "https://evil.example")][..], 403),
        (&[("origin", "null")], 403),
        (&[("host", "evil.example")], 403),
        (&[("origin", "https://svc.example.com")], 200),
        (&[("accept", "application/json")], 200),
        (&[("accept", "*/*")], 200),
        (
            &[("accept", "application/json;q=0.9, text/event-stream;q=1")],
            200,
        ),
        (&[("accept", "text/event-stream")], 406),
        (&[("accept", "application/json;q=0, */*")], 406),
        (&[("accept", "text/html")], 406),
        (&[("mcp-protocol-version", "1999-01-01")], 400),
    ] {
        let (status, answer) = platform().send(&list(), headers).await;
        assert_eq!(status, expected, "{headers:?}: {answer}");
        if status >= 400 {
            assert_eq!(answer["status"], status, "a problem: {answer}");
        }
    }
}

/// A foreign page gets no information about a credential, because `Origin` is checked first. Our
/// own pages are accepted for every spelling of their origin.
#[tokio::test]
async fn a_foreign_origin_is_refused_before_a_bad_bearer() {
    for (origin, status) in [
        ("https://evil.example", 403),
        ("null", 403),
        ("https://svc.example.com.evil.example", 403),
        ("https://svc.example.com@evil.example", 403),
        ("https://svc.example.com/", 403),
        ("http://svc.example.com", 403),
        ("https://svc.example.com:444", 403),
        ("https://svc.example.com", 401),
        ("https://svc.example.com:443", 401),
        ("https://SVC.example.com", 401),
    ] {
        let headers = [("origin", origin), ("authorization", "Bearer bad")];
        let response = platform().send_raw(list().to_string(), &headers).await;
        assert_eq!(response.status(), status, "{origin}");
    }
}

/// With two versions it is undefined which one applies.
#[tokio::test]
async fn a_repeated_protocol_version_is_refused() {
    let response = platform()
        .send_twice("mcp-protocol-version", "2025-11-25")
        .await;
    assert_eq!(response.status(), 400);
    let response = platform()
        .send_twice("origin", "https://svc.example.com")
        .await;
    assert_eq!(response.status(), 403);
}

/// JSON that is not a JSON-RPC message, and one whose parameters its method does not have.
#[tokio::test]
async fn json_that_is_not_a_message_is_an_invalid_request() {
    for (body, code) in [
        (json!({}), -32600),
        (json!({"method": "tools/list", "id": 1}), -32600),
        (
            json!({"jsonrpc": "1.0", "method": "tools/list", "id": 1}),
            -32600,
        ),
        (json!({"jsonrpc": "2.0", "id": 1}), -32600),
        (
            json!({"jsonrpc": "2.0", "id": {}, "method": "tools/list"}),
            -32600,
        ),
        (json!({"jsonrpc": "2.0", "id": 1, "method": 5}), -32600),
        (
            json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": 5}),
            -32600,
        ),
        (json!({"jsonrpc": "2.0", "id": true, "result": {}}), -32600),
    ] {
        let (status, answer) = platform().send(&body, &[]).await;
        assert_eq!(
            (status, &answer["error"]["code"]),
            (400, &json!(code)),
            "{body}"
        );
    }
}

#[tokio::test]
async fn a_body_that_is_not_a_single_message_is_refused() {
    let batch = format!("[{}, {}]", list(), list());
    for body in [batch.as_str(), "", "{", "null", "[]"] {
        let response = platform().send_raw(body.to_owned(), &[]).await;
        assert_eq!(response.status(), 400, "{body}");
    }
    let huge = json!({"jsonrpc": "2.0", "id": 1, "method": "x".repeat(300_000)});
    let response = platform().send_raw(huge.to_string(), &[]).await;
    assert_eq!(response.status(), 413);
}

#[tokio::test]
async fn a_notification_is_accepted_without_an_answer() {
    let message = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
    let (status, answer) = platform().send(&message, &[]).await;
    assert_eq!((status, answer), (202, Value::Null));
}

#[tokio::test]
async fn an_unknown_tool_is_an_error_of_the_protocol() {
    let call = json!({
        "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "svc_nothing"},
    });
    let (_, answer) = platform().send(&call, &[]).await;
    assert_eq!(answer["error"]["code"], -32602, "{answer}");
}

/// Prompts and resources are declared, because clients request them from every server. There are
/// none.
#[tokio::test]
async fn prompts_and_resources_are_empty_lists() {
    for (method, list) in [
        ("prompts/list", "prompts"),
        ("resources/list", "resources"),
        ("resources/templates/list", "resourceTemplates"),
    ] {
        let message = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": {}});
        let (_, answer) = platform().send(&message, &[]).await;
        assert_eq!(answer["result"][list], json!([]), "{method}: {answer}");
    }
}

#[tokio::test]
async fn an_undeclared_method_is_not_found() {
    for method in ["completion/complete", "logging/setLevel", "tasks/get"] {
        let message = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": {}});
        let (_, answer) = platform().send(&message, &[]).await;
        assert_eq!(answer["error"]["code"], -32601, "{method}: {answer}");
    }
}

/// MC-2: both anonymous tools answer without a credential.
#[tokio::test]
async fn mc_2_discovery_and_documents_need_no_credential() {
    let platform = platform();
    let found = platform.call(None, "svc_discovery", json!({})).await;
    let found = &found["structuredContent"];
    assert_eq!(found["resource"], "https://svc.example.com");
    assert_eq!(found["tools"].as_array().unwrap().len(), mcp::TOOLS.len());
    assert!(found["bundles"].as_array().unwrap().len() >= 3);
    assert_eq!(found.get("local"), None, "there are no local tools");

    let listed = platform.call(None, "svc_openapi", json!({})).await;
    let operations = listed["structuredContent"]["operations"]
        .as_array()
        .unwrap();
    assert!(operations.len() > 30);
    for document in ["control-plane", "engine"] {
        let id = if document == "engine" {
            "list_engine_tunnels"
        } else {
            "get_whoami"
        };
        let arguments = json!({"document": document, "operation_id": id});
        let one = platform.call(None, "svc_openapi", arguments).await;
        assert_eq!(one["isError"], false, "{one}");
        let described = &one["structuredContent"]["operation"]["description"];
        assert_eq!(described["operationId"], id);
    }
    assert_eq!(platform.asked(), []);
}
