//! Terminals: requests to an engine, and calls to the component that has streams.

use mcp::ProjectName;
use serde_json::{Value, json};
use types::permission::Permission;

use crate::platform::Platform;

fn of_session(more: Value) -> Value {
    let mut arguments = more;
    arguments["project_id"] = json!("prj_1");
    arguments["session_id"] = json!("wts_1");
    arguments
}

#[tokio::test]
async fn a_list_is_requested_from_the_engine_with_its_own_filter_names() {
    let platform = Platform::with(200, json!([{"id": "wts_1"}]));
    let arguments = json!({
        "project_endpoint": "e7e8a732", "status": "active", "origin": "agent",
        "started_after": "2026-01-02T03:04:05Z",
    });
    let result = platform
        .call(Some("good"), "svc_webtty_sessions_list", arguments)
        .await;
    assert_eq!(
        result["structuredContent"],
        json!({"sessions": [{"id": "wts_1"}]})
    );
    let request = platform.asked_of_engine().remove(0);
    assert_eq!(
        request.project,
        ProjectName::Endpoint("e7e8a732".to_owned())
    );
    assert_eq!(request.needed, Permission::WebttySessionsReadOnly);
    let query = request
        .address
        .strip_prefix("/api/webtty/sessions?params=")
        .unwrap();
    assert_eq!(
        query,
        "%7B%22filters%22%3A%7B%22origin%22%3A%22agent%22%2C%22started_from%22%3A%222026-01-02T03%3A04%3A05Z%22%2C%22status%22%3A%22active%22%7D%2C%22limit%22%3A50%7D"
    );
}

#[tokio::test]
async fn operations_have_their_paths_bodies_and_permissions() {
    let platform = Platform::with(200, json!({"id": "wtr_1", "status": "granted"}));
    let arguments = of_session(json!({"request_id": "wtr_1", "action": "grant"}));
    let result = platform
        .call(
            Some("good"),
            "svc_webtty_control_request_resolve",
            arguments,
        )
        .await;
    assert_eq!(result["structuredContent"]["status"], "granted", "{result}");
    let request = platform.asked_of_engine().remove(0);
    assert_eq!(
        request.address,
        "/api/webtty/sessions/wts_1/control-requests/wtr_1"
    );
    assert_eq!(request.body, json!({"action": "grant"}));
    assert_eq!(request.needed, Permission::WebttySessionsReadWrite);

    let platform = Platform::with(200, json!([]));
    let arguments = of_session(json!({"from_seq": 7}));
    platform
        .call(Some("good"), "svc_webtty_session_events", arguments)
        .await;
    let request = platform.asked_of_engine().remove(0);
    assert_eq!(request.needed, Permission::WebttyLogsReadOnly);
    // Text on the wire, because JSON parsers may round a number of this size.
    assert!(
        request.address.contains("%22from_seq%22%3A%227%22"),
        "{}",
        request.address
    );
}

#[tokio::test]
async fn bad_arguments_cause_no_engine_request() {
    let platform = Platform::with(200, json!([]));
    for (tool, arguments, expected) in [
        (
            "svc_webtty_session_get",
            json!({"project_id": "prj_1"}),
            "session_id: ",
        ),
        (
            "svc_webtty_session_get",
            json!({"session_id": "wts_1"}),
            "project_id: ",
        ),
        (
            "svc_webtty_session_get",
            json!({"project_id": "prj_1", "session_id": "../x"}),
            "session_id: ",
        ),
        (
            "svc_webtty_session_get",
            of_session(json!({"token": "x"})),
            "token: ",
        ),
        ("svc_webtty_session_type", of_session(json!({})), "line: "),
    ] {
        let result = platform.call(Some("good"), tool, arguments).await;
        let text = result["content"][0]["text"].as_str().unwrap();
        assert!(text.starts_with(expected), "{expected}: {text}");
    }
    assert_eq!(platform.asked_of_engine(), []);
}

/// MC-6: a caller without a sign-in is asked to sign in, before anything is done.
#[tokio::test]
async fn mc_6_terminals_need_a_login() {
    let platform = Platform::with(200, json!([]));
    for (tool, scope) in [
        ("svc_webtty_sessions_list", "webtty.sessions.read-only"),
        ("svc_webtty_session_type", "webtty.sessions.read-write"),
    ] {
        let result = platform.call(None, tool, of_session(json!({}))).await;
        let challenge = result["_meta"]["mcp/www_authenticate"][0].as_str().unwrap();
        assert!(challenge.contains(scope), "{challenge}");
    }
}

/// The component with streams gets the arguments, the credential, and the AI client's name.
#[tokio::test]
async fn stream_tools_are_passed_to_the_component_with_streams() {
    let platform = Platform::with(200, json!([]));
    let call = |arguments: Value, meta: Value| {
        json!({
            "jsonrpc": "2.0", "id": 1, "method": "tools/call",
            "params": {"name": "svc_webtty_exec", "arguments": arguments, "_meta": meta},
        })
    };
    let arguments = json!({"project_id": "prj_1", "server": "build", "command": ["id"]});
    let headers = [
        ("authorization", "Bearer good"),
        ("user-agent", "helpful/2.1 (like others)"),
        ("mcp-protocol-version", "2025-11-25"),
    ];
    let message = call(arguments.clone(), json!({}));
    let (status, answer) = platform.send(&message, &headers).await;
    assert_eq!(status, 200, "{answer}");
    let request = &answer["result"]["structuredContent"];
    assert_eq!(
        *request,
        json!({
            "project": "Id(\"prj_1\")",
            "needed": "tunnels.resources.read-only",
            "act": "Exec",
            "arguments": {"server": "build", "command": ["id"], "timeout_seconds": 30},
            "agent": ["helpful", "2.1"],
            "credential": "Bearer good",
            "by": "ada",
        })
    );
}

/// A problem of that component is returned as a problem of the tool.
#[tokio::test]
async fn the_engine_names_the_argument_at_fault() {
    let problem =
        json!({"code": "invalid_request", "detail": "No.", "field": "filters.started_from"});
    let platform = Platform::with(400, problem);
    let arguments = json!({"project_id": "prj_1", "started_after": "then"});
    let result = platform
        .call(Some("good"), "svc_webtty_sessions_list", arguments)
        .await;
    assert_eq!(result["_meta"]["svc/problem"]["argument"], "started_after");
}
