//! Tool calls: the API requests that they send, and the results that the client gets.

use serde_json::json;

use crate::platform::{ApiRequest, Platform, json_response};

fn asked(line: &str, body: serde_json::Value) -> ApiRequest {
    ApiRequest {
        line: line.to_owned(),
        body,
        by: "ada".to_owned(),
    }
}

#[tokio::test]
async fn arguments_go_into_path_query_and_body() {
    let platform = Platform::with(200, json!({"name": "x"}));
    let good = Some("good");
    platform
        .call(
            good,
            "svc_project_list",
            json!({"q": "a b&c", "page_size": 5}),
        )
        .await;
    platform
        .call(
            good,
            "svc_project_update",
            json!({"project_id": "prj_1", "name": "new"}),
        )
        .await;
    platform
        .call(
            good,
            "svc_project_settings_patch",
            json!({"project_id": "prj_1", "settings": {"trustedIps": null}}),
        )
        .await;
    platform
        .call(
            good,
            "svc_project_turn_credentials_create",
            json!({"project_endpoint": "e7e8a732", "ttl_seconds": 60}),
        )
        .await;
    assert_eq!(
        platform.asked(),
        [
            asked(
                "GET /api/projects/tunnels?q=a%20b%26c&pageSize=5",
                json!(null)
            ),
            asked("PATCH /api/projects/tunnels/prj_1", json!({"name": "new"})),
            asked(
                "PATCH /api/projects/tunnels/prj_1/settings",
                json!({"trustedIps": null})
            ),
            asked(
                "POST /api/projects/tunnels/resolve/e7e8a732/turn-server/credentials",
                json!({"ttlSeconds": 60})
            ),
        ]
    );
}

#[tokio::test]
async fn an_answer_is_returned_structured_and_as_text() {
    let platform = Platform::with(200, json!({"id": "usr_1"}));
    let result = platform.call(Some("good"), "svc_whoami", json!({})).await;
    assert_eq!(result["structuredContent"], json!({"id": "usr_1"}));
    assert_eq!(result["content"][0]["text"], "{\"id\":\"usr_1\"}");
    assert_eq!(result["isError"], false);
}

#[tokio::test]
async fn bad_arguments_are_named_and_cause_no_request() {
    let platform = Platform::with(200, json!({}));
    for (tool, arguments, expected) in [
        ("svc_project_get", json!({}), "project_id: "),
        (
            "svc_project_get",
            json!({"project_id": "prj_1", "project_endpoint": "e7e8a732"}),
            "project_endpoint: ",
        ),
        (
            "svc_project_get",
            json!({"project_id": "../whoami"}),
            "project_id: ",
        ),
        (
            "svc_project_get",
            json!({"project_id": ["a"]}),
            "project_id: ",
        ),
        ("svc_project_list", json!({"limit": 3}), "limit: "),
        (
            "svc_project_update",
            json!({"project_id": "prj_1"}),
            "name: ",
        ),
        ("svc_openapi", json!({"document": "other"}), "document: "),
        (
            "svc_openapi",
            json!({"operation_id": "nothing"}),
            "operation_id: ",
        ),
    ] {
        let result = platform.call(Some("good"), tool, arguments.clone()).await;
        assert_eq!(result["isError"], true, "{tool} {arguments}");
        let text = result["content"][0]["text"].as_str().unwrap();
        assert!(text.starts_with(expected), "{tool} {arguments}: {text}");
    }
    let asked = platform.asked();
    let others: Vec<_> = asked
        .iter()
        .filter(|asked| asked.line != "GET /api/whoami")
        .collect();
    assert!(others.is_empty(), "{others:?}");
}

#[tokio::test]
async fn a_problem_names_the_argument_and_the_next_step() {
    let platform = Platform::with(
        400,
        json!({"status": 400, "code": "invalid_request", "detail": "Too long.", "field": "ttlSeconds"}),
    );
    let arguments = json!({"project_id": "prj_1", "ttl_seconds": 0});
    let tool = "svc_project_turn_credentials_create";
    let result = platform.call(Some("good"), tool, arguments).await;
    assert_eq!(result["isError"], true);
    assert_eq!(result["_meta"]["svc/problem"]["argument"], "ttl_seconds");

    let platform = Platform::with(
        402,
        json!({"status": 402, "code": "payment_required", "detail": "Pay.", "url": "https://x/y"}),
    );
    let result = platform
        .call(Some("good"), tool, json!({"project_id": "prj_1"}))
        .await;
    assert_eq!(result["_meta"]["svc/problem"]["url"], "https://x/y");
    assert!(
        result["content"][0]["text"]
            .as_str()
            .unwrap()
            .contains("https://x/y")
    );
}

/// MC-6: without a credential the result requests a sign-in, and the API is not called.
#[tokio::test]
async fn mc_6_missing_login_is_a_challenge_in_the_result() {
    let platform = Platform::with(200, json!({}));
    let result = platform
        .call(None, "svc_project_list", json!({"wrong": 1}))
        .await;
    assert_eq!(result["isError"], true);
    assert_eq!(
        result["_meta"]["mcp/www_authenticate"],
        json!([
            "Bearer error=\"invalid_token\", error_description=\"Sign in to use this tool.\", \
             scope=\"account.projects.read-only\", \
             resource_metadata=\"https://svc.example.com/.well-known/oauth-protected-resource\
             /api/mcp\""
        ])
    );
    assert_eq!(platform.asked(), []);
}

/// MC-6: a missing permission is `insufficient_scope` with the scopes.
#[tokio::test]
async fn mc_6_a_missing_permission_is_named_in_the_result() {
    let platform = Platform::answering(|_| {
        let mut response = json_response(403, &json!({"code": "insufficient_scope"}));
        response.headers_mut().insert(
            "www-authenticate",
            "Bearer error=\"insufficient_scope\", scope=\"account.plan.read-only\""
                .parse()
                .unwrap(),
        );
        response
    });
    let result = platform
        .call(
            Some("good"),
            "svc_project_usage",
            json!({"project_id": "prj_1"}),
        )
        .await;
    let challenge = result["_meta"]["mcp/www_authenticate"][0].as_str().unwrap();
    assert!(
        challenge.starts_with("Bearer error=\"insufficient_scope\""),
        "{challenge}"
    );
    assert!(
        challenge.contains("scope=\"account.plan.read-only\""),
        "{challenge}"
    );
}

fn creation() -> serde_json::Value {
    json!({
        "workspace_id": "wks_1", "name": "n", "plan": "pro", "provider": "other",
        "region": "local", "creation_fingerprint": "f",
    })
}

/// CP-4g: without the user's confirmation nothing is created, and the answer shows the impact.
#[tokio::test]
async fn cp_4g_an_unconfirmed_creation_shows_the_billing_impact() {
    let preview = json!({"plans": [{"plan": "pro", "billingImpact": {"label": "Twenty a month"}}]});
    let platform = Platform::with(200, preview);
    for confirmed in [json!(null), json!(false), json!("yes")] {
        let mut arguments = creation();
        arguments["confirmed"] = confirmed;
        let result = platform
            .call(Some("good"), "svc_project_create", arguments)
            .await;
        assert_eq!(result["isError"], true);
        let text = result["content"][0]["text"].as_str().unwrap();
        assert!(text.contains("Twenty a month"), "{text}");
    }
    assert!(
        platform
            .asked()
            .iter()
            .all(|asked| asked.line.starts_with("GET "))
    );
}

/// Without the user's confirmation no plan is changed, and the answer shows the impact.
#[tokio::test]
async fn an_unconfirmed_change_of_plan_shows_the_billing_impact() {
    let preview = json!({"projectId": "prj_1", "billingImpact": {"label": "Twenty a month"}});
    let platform = Platform::with(200, preview);
    for confirmed in [json!(null), json!(false), json!("yes")] {
        let arguments = json!({
            "project_id": "prj_1", "plan": "pro", "change_fingerprint": "f", "confirmed": confirmed,
        });
        let result = platform
            .call(Some("good"), "svc_project_plan_change", arguments)
            .await;
        assert_eq!(result["isError"], true);
        let text = result["content"][0]["text"].as_str().unwrap();
        assert!(text.contains("Twenty a month"), "{text}");
    }
    let line = "GET /api/projects/tunnels/prj_1/plan-change?plan=pro";
    assert!(platform.asked().iter().all(|asked| asked.line == line));
}

#[tokio::test]
async fn a_confirmed_change_of_plan_sends_the_fingerprint() {
    let platform = Platform::with(200, json!({"id": "prj_1"}));
    let arguments = json!({
        "project_id": "prj_1", "plan": "pro", "change_fingerprint": "f", "confirmed": true,
    });
    let result = platform
        .call(Some("good"), "svc_project_plan_change", arguments)
        .await;
    assert_eq!(result["structuredContent"]["id"], "prj_1");
    let asked = platform.asked();
    assert_eq!(asked.len(), 1);
    assert_eq!(
        asked[0].line,
        "POST /api/projects/tunnels/prj_1/plan-change"
    );
    let body = json!({"plan": "pro", "changeFingerprint": "f"});
    assert_eq!(asked[0].body, body);
}

/// CP-4a: the same confirmed creation has the same idempotency key, and a different one has
/// another.
#[tokio::test]
async fn cp_4a_a_creation_without_a_key_gets_a_deterministic_one() {
    let platform = Platform::with(201, json!({"id": "prj_1"}));
    for name in ["n", "n", "other"] {
        let mut arguments = creation();
        arguments["confirmed"] = json!(true);
        arguments["name"] = json!(name);
        platform
            .call(Some("good"), "svc_project_create", arguments)
            .await;
    }
    let keys: Vec<_> = platform
        .asked()
        .iter()
        .map(|asked| asked.body["idempotencyKey"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(keys[0], keys[1]);
    assert_ne!(keys[0], keys[2]);
    let first = &platform.asked()[0];
    assert_eq!(first.line, "POST /api/workspaces/wks_1/projects/tunnels");
    assert_eq!(first.body["creationFingerprint"], "f");
    assert!(first.body.get("confirmed").is_none());
}

#[tokio::test]
async fn a_successful_deletion_is_confirmed() {
    let platform = Platform::answering(|_| {
        http::Response::builder()
            .status(204)
            .body(axum::body::Body::empty())
            .unwrap()
    });
    let arguments = json!({"project_id": "prj_1"});
    let result = platform
        .call(Some("good"), "svc_project_delete", arguments)
        .await;
    assert_eq!(result["structuredContent"], json!({"done": true}));
}

/// MC-6 for every tool: a caller without the scopes gets the names of all of them, before any error
/// about arguments, and no request is sent.
#[tokio::test]
async fn mc_6_every_tool_names_all_missing_scopes() {
    let platform = Platform::with(200, json!({}));
    let mut several = 0;
    for tool in mcp::TOOLS {
        let Some(scopes) = tool.scopes().filter(|scopes| !scopes.is_empty()) else {
            continue;
        };
        several += usize::from(scopes.len() > 1);
        for held in std::iter::once(None).chain(scopes.iter().map(Some)) {
            let missing = scopes.iter().filter(|scope| Some(*scope) != held);
            let missing: types::permission::Permissions = missing.copied().collect();
            if missing.to_string().is_empty() {
                continue;
            }
            let token = format!(
                "holds:{}",
                held.map(ToString::to_string).unwrap_or_default()
            );
            let result = platform.call(Some(&token), tool.name, json!({})).await;
            let challenge = result["_meta"]["mcp/www_authenticate"][0].as_str().unwrap();
            assert!(
                challenge.contains("error=\"insufficient_scope\""),
                "{challenge}"
            );
            let named = format!("scope=\"{missing}\"");
            assert!(
                challenge.contains(&named),
                "{} {held:?}: {challenge}",
                tool.name
            );
        }
    }
    assert!(several > 0, "some tool needs more than one");
    assert_eq!(platform.asked(), []);
    assert_eq!(platform.asked_of_engine(), []);
}

/// MC-6 for every tool: `svc mcp` on a user's own machine does not have the permissions of the
/// credential. A missing permission is still reported before a missing argument.
#[tokio::test]
async fn mc_6_a_missing_permission_is_reported_before_a_missing_argument() {
    let platform = Platform::with(200, json!({"permissions": []}));
    let mut tools = 0;
    for tool in mcp::TOOLS {
        let required = &tool.document()["inputSchema"]["required"];
        let has_required = required.as_array().is_some_and(|names| !names.is_empty());
        if tool.scopes().is_none_or(|scopes| scopes.is_empty()) || !has_required {
            continue;
        }
        tools += 1;
        let result = platform.call(Some("good"), tool.name, json!({})).await;
        let challenge = result["_meta"]["mcp/www_authenticate"][0].as_str();
        let expected = "Bearer error=\"insufficient_scope\"";
        assert!(
            challenge.is_some_and(|challenge| challenge.starts_with(expected)),
            "{}: {result}",
            tool.name
        );
    }
    assert!(tools > 10, "{tools}");
}

/// MC-6: if the permissions are not known in advance, as on a user's own machine, the refusal names
/// one, and the platform supplies the others.
#[tokio::test]
async fn mc_6_a_refusal_of_one_scope_becomes_one_of_all() {
    let platform = Platform::answering(|asked| {
        if asked.line.contains("/api/whoami") {
            return json_response(200, &json!({"permissions": ["account.projects.read-only"]}));
        }
        let mut refused = json_response(403, &json!({"code": "insufficient_scope"}));
        let challenge =
            "Bearer error=\"insufficient_scope\", scope=\"tunnels.resources.read-only\"";
        let headers = refused.headers_mut();
        headers.insert("www-authenticate", challenge.parse().unwrap());
        refused
    });
    let arguments = json!({"project_id": "prj_1", "server": "build", "command": ["id"]});
    let result = platform
        .call(Some("good"), "svc_webtty_exec", arguments)
        .await;
    let challenge = result["_meta"]["mcp/www_authenticate"][0].as_str().unwrap();
    let all = "scope=\"tunnels.resources.read-only tunnels.streams.create-delete\"";
    assert!(challenge.contains(all), "{challenge}");
}
