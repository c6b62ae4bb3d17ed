//! Live objects: requests to the engine of a project, and results for the client.

use mcp::ProjectName;
use serde_json::{Value, json};
use types::permission::Permission;

use crate::platform::{Platform, json_response};

const CLIENTS: &str = "svc_clients_list";
const TUNNELS: &str = "svc_tunnels_list";
const CLOSE: &str = "svc_tunnel_close";

fn by_id(more: Value) -> Value {
    let mut arguments = more;
    arguments["project_id"] = json!("prj_1");
    arguments
}

/// The engine gets the request and the caller's bearer, and nothing else of the caller's request.
#[tokio::test]
async fn the_engine_gets_the_bearer_and_nothing_else() {
    let platform = Platform::with(200, json!([]));
    let call = json!({
        "jsonrpc": "2.0", "id": 1, "method": "tools/call",
        "params": {"name": TUNNELS, "arguments": {
            "project_endpoint": "e7e8a732", "filters": {"name": "a&b"}, "limit": 5,
        }},
    });
    let headers = [
        ("authorization", "Bearer good"),
        ("cookie", "session=secret"),
        ("x-forwarded-for", "192.0.2.1"),
        ("mcp-protocol-version", "2025-11-25"),
    ];
    let (status, answer) = platform.send(&call, &headers).await;
    assert_eq!(status, 200, "{answer}");
    let all_asked = platform.asked_of_engine();
    assert_eq!(all_asked.len(), 1, "{answer}");
    let request = &all_asked[0];
    assert_eq!(
        request.project,
        ProjectName::Endpoint("e7e8a732".to_owned())
    );
    assert_eq!(
        request.address,
        "/api/tunnels?params=%7B%22filters%22%3A%7B%22name%22%3A%22a%26b%22%7D%2C%22limit%22%3A5%7D"
    );
    let bearer = ("authorization".to_owned(), "Bearer good".to_owned());
    assert_eq!(request.headers, [bearer]);
    assert_eq!(request.by, "ada");
    assert_eq!(platform.asked(), [], "the API is not called");
}

#[tokio::test]
async fn a_list_is_returned_under_its_name() {
    let live = json!([{"id": "one"}, {"id": "two"}]);
    let platform = Platform::with(200, live.clone());
    for (tool, key, address) in [
        (CLIENTS, "clients", "/api/clients"),
        (TUNNELS, "tunnels", "/api/tunnels"),
    ] {
        let result = platform.call(Some("good"), tool, by_id(json!({}))).await;
        assert_eq!(result["isError"], false, "{result}");
        assert_eq!(result["structuredContent"], json!({ key: live }));
        let request = platform.asked_of_engine();
        let request = request.last().unwrap();
        assert_eq!(request.address, address);
        assert_eq!(request.project, ProjectName::Id("prj_1".to_owned()));
    }
}

#[tokio::test]
async fn bad_arguments_cause_no_engine_request() {
    let platform = Platform::with(200, json!([]));
    for (arguments, expected) in [
        (json!({}), "project_id: "),
        (json!({"project_id": "../x"}), "project_id: "),
        (json!({"project_endpoint": 7}), "project_endpoint: "),
        (
            by_id(json!({"project_endpoint": "e7e8a732"})),
            "project_endpoint: ",
        ),
        (by_id(json!({"svc.token": "x"})), "svc.token: "),
        (
            by_id(json!({"filters": {"name": "x".repeat(70_000)}})),
            "filters: ",
        ),
    ] {
        let result = platform.call(Some("good"), CLIENTS, arguments).await;
        let text = result["content"][0]["text"].as_str().unwrap();
        assert!(text.starts_with(expected), "{expected}: {text}");
        assert_eq!(result["isError"], true);
    }
    assert_eq!(platform.asked_of_engine(), []);
}

/// EN-7: the engine gets one request with its permission, and its refusal reaches the client.
#[tokio::test]
async fn en_7_a_tunnel_is_closed_by_its_id() {
    let id = "tun_01h455vb4pex5vsknk084sn02q";
    let platform = Platform::with(204, Value::Null);
    let arguments = by_id(json!({"tunnel_id": id}));
    let result = platform.call(Some("good"), CLOSE, arguments).await;
    assert_eq!(result["structuredContent"], json!({"done": true}));
    let all_asked = platform.asked_of_engine();
    assert_eq!(all_asked.len(), 1, "{result}");
    let request = &all_asked[0];
    assert_eq!(request.method, "DELETE");
    assert_eq!(request.address, format!("/api/tunnels/{id}"));
    assert_eq!(request.needed, Permission::TunnelsTunnelsCreateDelete);
    assert_eq!(request.project, ProjectName::Id("prj_1".to_owned()));

    let problem = json!({"code": "invalid_request", "detail": "No.", "field": "id"});
    let platform = Platform::with(400, problem);
    let arguments = by_id(json!({"tunnel_id": id}));
    let result = platform.call(Some("good"), CLOSE, arguments).await;
    assert_eq!(result["_meta"]["svc/problem"]["argument"], "tunnel_id");
}

#[tokio::test]
async fn a_close_without_a_valid_id_causes_no_engine_request() {
    let platform = Platform::with(204, Value::Null);
    for (arguments, expected) in [
        (by_id(json!({})), "tunnel_id: missing"),
        (by_id(json!({"tunnel_id": "../x"})), "tunnel_id: not an"),
        (by_id(json!({"tunnel_id": 7})), "tunnel_id: not an"),
        (
            by_id(json!({"tunnel_id": "tun_1", "name": "web"})),
            "name: unknown",
        ),
        (json!({"tunnel_id": "tun_1"}), "project_id: "),
    ] {
        let result = platform.call(Some("good"), CLOSE, arguments).await;
        let text = result["content"][0]["text"].as_str().unwrap();
        assert!(text.starts_with(expected), "{expected}: {text}");
        assert_eq!(result["isError"], true);
    }
    assert_eq!(platform.asked_of_engine(), []);
}

/// MC-6: a caller without a sign-in is asked to sign in, before any engine request.
#[tokio::test]
async fn mc_6_live_lists_need_a_login() {
    let platform = Platform::with(200, json!([]));
    let result = platform.call(None, TUNNELS, by_id(json!({}))).await;
    let challenge = result["_meta"]["mcp/www_authenticate"][0].as_str().unwrap();
    assert!(
        challenge.contains("error=\"invalid_token\"")
            && challenge.contains("scope=\"tunnels.resources.read-only\""),
        "{challenge}"
    );
    assert_eq!(platform.asked_of_engine(), []);
}

/// MC-6: a missing permission is `insufficient_scope`, whichever component notices it.
#[tokio::test]
async fn mc_6_an_engine_that_misses_a_permission_is_a_challenge() {
    let platform = Platform::answering(|_| {
        let mut response = json_response(403, &json!({"code": "insufficient_scope"}));
        let challenge =
            "Bearer error=\"insufficient_scope\", scope=\"tunnels.resources.read-only\"";
        let headers = response.headers_mut();
        headers.insert("www-authenticate", challenge.parse().unwrap());
        response
    });
    let result = platform.call(Some("good"), CLIENTS, by_id(json!({}))).await;
    let challenge = result["_meta"]["mcp/www_authenticate"][0].as_str().unwrap();
    assert!(
        challenge.starts_with("Bearer error=\"insufficient_scope\""),
        "{challenge}"
    );
}

/// A connection error is a result with the next step.
#[tokio::test]
async fn an_unreachable_engine_is_a_result() {
    let problem = json!({"code": "engine_unreachable", "detail": "Call again in a minute."});
    let platform = Platform::with(502, problem);
    let result = platform.call(Some("good"), TUNNELS, by_id(json!({}))).await;
    assert_eq!(result["isError"], true);
    assert_eq!(result["_meta"]["svc/problem"]["code"], "engine_unreachable");
    let text = result["content"][0]["text"].as_str().unwrap();
    assert!(text.contains("Call again in a minute."), "{text}");

    // Another server than an engine is at its address.
    let platform = Platform::with(200, json!({"no": "list"}));
    let result = platform.call(Some("good"), TUNNELS, by_id(json!({}))).await;
    assert_eq!(result["isError"], true, "{result}");
}

#[tokio::test]
async fn the_engine_names_the_argument_at_fault() {
    let problem = json!({"code": "invalid_request", "detail": "No.", "field": "filters.nmae"});
    let platform = Platform::with(400, problem);
    let arguments = by_id(json!({"filters": {"nmae": "x"}}));
    let result = platform.call(Some("good"), TUNNELS, arguments).await;
    assert_eq!(result["_meta"]["svc/problem"]["argument"], "filters.nmae");
}
