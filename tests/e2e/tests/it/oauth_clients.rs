//! OAuth clients of others, as published, against `svc up`: the grants from the metadata to the
//! revocation.
//!
//! Each asks for one scope, has a person sign in and approve, calls `/api/whoami` and the MCP tool
//! `svc_project_list` with what it got, revokes it, and sees 401 from both. The two libraries for
//! Node have a person in Chromium, the ones for Python and Rust a person who sends the forms.

mod oauth2_crate;

use anyhow::Result;
use e2e::Platform;
use serde_json::{Value, json};

/// OA-1, OA-2, OA-4, OA-5: both grants. It checks `state`, and `iss` of RFC 9207.
#[test]
fn oa_2_openid_client_is_let_in_by_both_grants() -> Result<()> {
    let platform = Platform::up()?;
    let results = platform.node("openid_client.mjs")?;
    for grant in ["code", "device"] {
        reached(&platform, &results[grant]);
        // OA-7: ninety days.
        assert_eq!(results[grant]["expires_in"], 90 * 24 * 3600);
    }
    Ok(())
}

/// OA-1, OA-2, OA-3, OA-5, OA-6: it goes from the resource to its authorization server, redeems
/// the code, and validates the token as a resource server does (RFC 9068). A code that was redeemed
/// is refused.
#[test]
fn oa_2_oauth4webapi_is_let_in() -> Result<()> {
    let platform = Platform::up()?;
    reached(&platform, &platform.node("oauth4webapi.mjs")?);
    Ok(())
}

/// OA-1, OA-2, OA-4, OA-5: both grants; the device's is pending until the person approves.
#[test]
fn oa_2_authlib_is_let_in_by_both_grants() -> Result<()> {
    let platform = Platform::up()?;
    let results = platform.python("oauth_authlib.py")?;
    for grant in ["code", "device"] {
        reached(&platform, &results[grant]);
    }
    Ok(())
}

/// OA-1, OA-2, OA-4, OA-5: both grants; the device's is pending until the person approves.
#[test]
fn oa_2_oauth2_is_let_in_by_both_grants() -> Result<()> {
    let platform = Platform::up()?;
    for results in [
        oauth2_crate::code_grant(&platform)?,
        oauth2_crate::device_grant(&platform)?,
    ] {
        reached(&platform, &results);
        // OA-7: ninety days.
        assert_eq!(results["expires_in"], 90 * 24 * 3600);
    }
    Ok(())
}

/// The client acted for the person, with the right that they gave, and saw their project.
fn reached(platform: &Platform, results: &Value) {
    let ready = platform.ready();
    assert_eq!(results["whoami"]["email"], ready["admin_email"]);
    assert_eq!(results["whoami"]["permissions"], json!([SCOPE]));
    assert_eq!(results["scope"], SCOPE);
    let projects = &results["listed"]["projects"];
    assert_eq!(projects.as_array().map(Vec::len), Some(1), "{projects}");
    assert_eq!(projects[0]["id"], ready["project_id"]);
}

/// What the scripts ask for.
const SCOPE: &str = "account.projects.read-only";
