//! Clients of the Model Context Protocol, as published, with `svc up`: through sign-in and consent
//! to a tool.
//!
//! The clients start the flow on a 401. The endpoint that requires a token returns one immediately.
//! The endpoint with public lists returns none to a client without a credential, so the two SDKs
//! use an invalid one there (MC-7); the other clients use only the first. From the challenge they
//! find the metadata of the resource, from there the authorization server, and request all scopes
//! of the resource. By default each of them registers itself, which the platform does not support,
//! so they use the id of a registered client.

use anyhow::Result;
use e2e::Platform;
use serde_json::{Value, json};

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

/// MC-1, MC-3, MC-7, OA-1, OA-2, OA-4, OA-5, OA-6: `mcp-remote`, the bridge for clients that only
/// start programs, with a user in Chromium, and with a code on another device. It keeps the token
/// for its next start. Afterwards the token is revoked, and refused.
#[test]
fn mc_7_mcp_remote_signs_in_with_both_grants_and_calls_a_tool() -> Result<()> {
    let platform = Platform::up()?;
    let more = json!({"directory": platform.directory()});
    let results = platform.node_with("mcp_remote.mjs", more)?;
    reached_at(&platform, &results["code"], SIGN_IN);
    // The output of the program does not have the scopes of this grant.
    used(&platform, &results["device"]);
    Ok(())
}

/// MC-1, MC-3, MC-7, OA-1, OA-2, OA-5, OA-6: the command line of the inspector, with a user in
/// Chromium. It keeps the token for its next commands. Afterwards the token is revoked, and
/// refused.
#[test]
fn mc_7_the_inspector_signs_in_and_calls_a_tool() -> Result<()> {
    let platform = Platform::up()?;
    let more = json!({"directory": platform.directory()});
    let results = platform.node_with("mcp_inspector.mjs", more)?;
    reached_at(&platform, &results, SIGN_IN);
    Ok(())
}

/// MC-1, MC-3, MC-7, OA-1, OA-2, OA-6: the client of `fastmcp`, with a user who submits the forms.
/// It checks `state`, and `iss` of RFC 9207.
#[test]
fn mc_7_fastmcp_signs_in_and_calls_a_tool() -> Result<()> {
    let platform = Platform::up()?;
    reached_at(&platform, &platform.python("mcp_fastmcp.py")?, SIGN_IN);
    Ok(())
}

/// Path of the endpoint that requires a token.
const SIGN_IN: &str = "/api/mcp/sign-in";

fn reached(platform: &Platform, results: &Value) {
    reached_at(platform, &results["public"], "/api/mcp");
    reached_at(platform, &results["sign_in"], SIGN_IN);
}

/// `resource_path`: path of the endpoint, which its metadata name as the resource.
fn reached_at(platform: &Platform, results: &Value, resource_path: &str) {
    used(platform, results);
    // OA-6: a token is for the origin. The metadata name the resource of their address (RFC 9728
    // section 3.3). URL parsers add a `/`.
    let resource = results["resource"].as_str().unwrap_or_default();
    let wanted = format!("{}{resource_path}", platform.base_url());
    assert_eq!(resource.trim_end_matches('/'), wanted);
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
}

/// Checks that the client listed the tools, acted for the user, and saw their project.
fn used(platform: &Platform, results: &Value) {
    let ready = platform.ready();
    let names = results["tools"].as_array().cloned().unwrap_or_default();
    for name in ["svc_discovery", "svc_project_list", "svc_token_create"] {
        assert!(names.contains(&name.into()), "{results}");
    }
    assert_eq!(results["whoami"]["email"], ready["admin_email"]);
    let projects = &results["listed"]["projects"];
    assert_eq!(projects.as_array().map(Vec::len), Some(1), "{projects}");
    assert_eq!(projects[0]["id"], ready["project_id"]);
}
