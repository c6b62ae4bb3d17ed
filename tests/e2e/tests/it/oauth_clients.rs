//! Third-party OAuth clients, as published, with `svc up`: the grants from metadata to revocation.
//!
//! Each requests one scope, lets a user sign in and approve, calls `/api/whoami` and the MCP tool
//! `svc_project_list` with its token, revokes the token, and gets a 401 from both. The two
//! libraries for Node use a user in Chromium, the ones for Python and Rust a user who submits the
//! forms.

mod oauth2_crate;

use anyhow::Result;
use e2e::Platform;
use serde_json::{Value, json};

/// OA-1, OA-2, OA-4, OA-5: both grants. It checks `state`, and `iss` of RFC 9207. It also requests
/// `openid` and `offline_access`, which are ignored: the response lists the granted scope.
#[test]
fn oa_2_openid_client_is_approved_with_both_grants() -> Result<()> {
    let platform = Platform::up()?;
    let results = platform.node("openid_client.mjs")?;
    for grant in ["code", "device"] {
        reached(&platform, &results[grant]);
        // OA-7: ninety days.
        assert_eq!(results[grant]["expires_in"], 90 * 24 * 3600);
    }
    Ok(())
}

/// MC-7, OA-1, OA-2, OA-3, OA-5, OA-6: it finds the authorization server from the resource, redeems
/// the code, and validates the token like a resource server (RFC 9068). A redeemed code is refused.
/// It starts with the address of the platform, and with the challenge of the MCP endpoint that
/// requires a token.
#[test]
fn oa_2_oauth4webapi_is_approved() -> Result<()> {
    let platform = Platform::up()?;
    let results = platform.node("oauth4webapi.mjs")?;
    for resource in ["origin", "sign_in"] {
        reached(&platform, &results[resource]);
    }
    Ok(())
}

/// OA-1, OA-2, OA-4, OA-5: both grants. The device grant is pending until the user approves.
#[test]
fn oa_2_authlib_is_approved_with_both_grants() -> Result<()> {
    let platform = Platform::up()?;
    let results = platform.python("oauth_authlib.py")?;
    for grant in ["code", "device"] {
        reached(&platform, &results[grant]);
    }
    Ok(())
}

/// OA-1, OA-2, OA-4, OA-5: both grants. The device grant is pending until the user approves.
#[test]
fn oa_2_oauth2_is_approved_with_both_grants() -> Result<()> {
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

/// Checks that the client acted for the user, with the granted permission, and saw their project.
fn reached(platform: &Platform, results: &Value) {
    let ready = platform.ready();
    assert_eq!(results["whoami"]["email"], ready["admin_email"]);
    assert_eq!(results["whoami"]["permissions"], json!([SCOPE]));
    assert_eq!(results["scope"], SCOPE);
    let projects = &results["listed"]["projects"];
    assert_eq!(projects.as_array().map(Vec::len), Some(1), "{projects}");
    assert_eq!(projects[0]["id"], ready["project_id"]);
}

/// The scope that the scripts request.
const SCOPE: &str = "account.projects.read-only";
