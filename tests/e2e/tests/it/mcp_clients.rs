//! The two official SDKs of the Model Context Protocol, as published, with `svc up`: from an
//! invalid bearer, through sign-in and consent, to a tool.
//!
//! Both start the flow on a 401. The endpoint that requires a token returns one at once. The endpoint
//! with public lists returns none to a client without a credential, so there they use an invalid one
//! (MC-7). From the challenge they find the metadata of the resource, from there the authorization
//! server, and request all scopes of the resource.

use anyhow::Result;
use e2e::Platform;
use serde_json::Value;

/// MC-1, MC-3, MC-7, OA-1, OA-2, OA-5, OA-6: with a user in Chromium. Afterwards the token is
/// revoked, and refused.
#[test]
fn mc_7_the_typescript_sdk_signs_in_and_calls_a_tool() -> Result<()> {
    let platform = Platform::up()?;
    reached(&platform, &platform.node("mcp_client.mjs")?);
    Ok(())
}

/// MC-1, MC-3, MC-7, OA-1, OA-2, OA-6: with a user who submits the forms. It checks `state`, and
/// `iss` of RFC 9207.
#[test]
fn mc_7_the_python_sdk_signs_in_and_calls_a_tool() -> Result<()> {
    let platform = Platform::up()?;
    reached(&platform, &platform.python("mcp_client.py")?);
    Ok(())
}

fn reached(platform: &Platform, results: &Value) {
    reached_at(platform, &results["public"], "/api/mcp");
    reached_at(platform, &results["sign_in"], "/api/mcp/sign-in");
}

/// `resource_path`: path of the endpoint, which its metadata name as the resource.
fn reached_at(platform: &Platform, results: &Value, resource_path: &str) {
    let ready = platform.ready();
    let names = results["tools"].as_array().cloned().unwrap_or_default();
    for name in ["svc_discovery", "svc_project_list", "svc_token_create"] {
        assert!(names.contains(&name.into()), "{results}");
    }
    // OA-6: a token is for the origin. The metadata name the resource of their address (RFC 9728
    // section 3.3). URL parsers add a `/`.
    let resource = results["resource"].as_str().unwrap_or_default();
    let wanted = format!("{}{resource_path}", platform.base_url());
    assert_eq!(resource.trim_end_matches('/'), wanted);
    assert_eq!(results["whoami"]["email"], ready["admin_email"]);
    // The user granted all requested scopes.
    let asked = results["asked"].as_str().unwrap_or_default();
    let mut asked: Vec<&str> = asked.split(' ').collect();
    let given = results["whoami"]["permissions"].as_array();
    let mut given: Vec<&str> = given
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    asked.sort_unstable();
    given.sort_unstable();
    assert!(asked.contains(&"account.projects.read-only"), "{asked:?}");
    assert_eq!(given, asked);
    let projects = &results["listed"]["projects"];
    assert_eq!(projects.as_array().map(Vec::len), Some(1), "{projects}");
    assert_eq!(projects[0]["id"], ready["project_id"]);
}
