//! A page of one tunnel that calls an API behind another one, which needs a credential, in Chromium.

use anyhow::Result;
use e2e::{Peer, Platform, Service};
use serde_json::json;

/// ED-1, ED-2, ED-4: a page that the tunnel lists reads why it is refused, and passes with a token
/// and with the session of its user. The edge answers its preflights, so the service receives none of
/// them. Requests of other pages do not reach the service, with the same credentials.
#[test]
fn a_listed_page_calls_a_protected_api() -> Result<()> {
    let platform = Platform::up()?;
    let pages = Service::mirror()?.to_string();
    let page = platform.forward(&pages, &["--name", "page"])?;
    let other = platform.forward(&pages, &["--name", "other"])?;
    let service = Peer::start("cors_service.mjs")?;
    let origin = page.url("");
    let guards = ["--name", "api", "--token-auth", "--svc-auth"];
    let args = [&guards[..], &["--allowed-origins", &origin]].concat();
    let api = platform.forward(service.address()?, &args)?;
    let token = platform.svc(&["token", "create", "--ttl", "5m"])?;
    let more = json!({
        "page": origin,
        "other": other.url(""),
        "api": api.url(""),
        "token": token,
    });
    let results = platform.node_with("cors.mjs", more)?;
    let passed = json!(["PUT /token", "PUT /session", "PUT /last"]);
    assert_eq!(results["seen"], passed, "{results} {}", service.log());
    Ok(())
}
