//! Applications that trust a proxy's header for their users: Django and Radicale, behind `svc
//! forward` and the sign-in of `svc up`, in Chromium.

use anyhow::{Context as _, Result};
use e2e::{Peer, Platform};
use serde_json::{Value, json};

/// ED-2: the application receives the user of the platform, in the header that it wants and by an
/// assertion that it verifies with the platform's keys. Neither a page nor the bearer of a token
/// can name another user.
#[test]
fn ed_2_an_application_receives_the_user_of_the_platform() -> Result<()> {
    let platform = Platform::up()?;
    let issuer = platform.base_url();
    let keys = format!("{issuer}/keyrings/identity/engine.localhost");
    let service = Peer::start_with("django_service.py", &[issuer, &keys])?;
    let identity = "email=Remote-User,name,groups,assertion,email";
    let args = [
        "--name",
        "app",
        "--svc-auth",
        "--token-auth",
        "--identity",
        identity,
    ];
    let agent = platform.forward(service.address()?, &args)?;

    let results = platform.node_with("identity.mjs", json!({"app": agent.url("")}))?;
    let email = platform.ready()["admin_email"]
        .as_str()
        .context("no address")?;
    let shared = results["shared"].as_str().unwrap_or_default();
    assert!(
        shared.contains(email) && shared.contains("owner"),
        "{shared}"
    );
    for seen in [&results["seen"], &results["forged"]] {
        assert_eq!(seen["user"], email, "{results} {}", service.log());
        assert_eq!(seen["accounts"], json!([email]), "{results}");
        assert_eq!(seen["groups"], "owner", "{results}");
        let claims = &seen["claims"];
        assert_eq!(claims["email"], email, "{results}");
        assert_eq!(claims["groups"], json!(["owner"]), "{results}");
        assert_eq!(
            claims["project_id"],
            platform.ready()["project_id"],
            "{results}"
        );
        // An account without a name has none in either form.
        let name = claims["name"].as_str().unwrap_or_default();
        assert_eq!(seen["name"], name, "{results}");
    }

    // A program with a token of the same user is not the user.
    let token = platform.ready()["token"].as_str().context("no token")?;
    let bearer = format!("Authorization: Bearer {token}");
    let forged = [
        "-H",
        &bearer,
        "-H",
        "Remote_User: root",
        "-H",
        "remote-user: root",
    ];
    let url = agent.url("/api");
    let seen: Value = platform
        .curl()
        .get(&[&forged[..], &[&url]].concat())?
        .json();
    assert_eq!(seen["is_authenticated"], false, "{seen}");
    assert_eq!(
        (&seen["claims"], &seen["name"]),
        (&Value::Null, &json!("")),
        "{seen}"
    );
    assert_eq!(seen["accounts"], json!([email]), "{seen}");
    Ok(())
}

/// ED-2: a server of calendars, unchanged, gives the user of the platform their own collections. A
/// visitor who sends the header is not another user: neither a signed-in user, nor the bearer of a
/// token, nor a visitor without a credential.
#[test]
fn ed_2_a_calendar_server_gives_each_user_their_own_collections() -> Result<()> {
    let platform = Platform::up()?;
    let files = platform.directory().join("calendars");
    let files = files.to_str().context("a path that is no text")?;
    let service = Peer::start_with("radicale_service.py", &[files])?;
    let args = [
        "--name",
        "calendars",
        "--svc-auth",
        "--token-auth",
        "--identity",
        "email=X-Remote-User",
    ];
    let agent = platform.forward(service.address()?, &args)?;

    let more = json!({"app": agent.url(""), "service": service.address()?});
    let results = platform.node_with("radicale.mjs", more)?;
    let email = platform.ready()["admin_email"]
        .as_str()
        .context("no address")?;
    let principal = format!("/{email}/");
    assert_eq!(results["seen"], principal, "{results} {}", service.log());
    let forged = results["forged"].as_array().context("nothing forged")?;
    assert_eq!(forged.len(), 4, "{results}");
    for seen in forged {
        let own = json!({"principal": principal, "other": 403});
        assert_eq!(seen, &own, "{results}");
    }

    let token = platform.ready()["token"].as_str().context("no token")?;
    let authorization = format!("Authorization: Bearer {token}");
    let bearer: &[&str] = &["-H", &authorization];
    let anonymous: &[&str] = &[];
    let other = results["other"].as_str().context("no other user")?;
    // Radicale refuses a request without a user, and the edge a visitor without a credential.
    for (credential, status) in [(bearer, 403), (anonymous, 401)] {
        // One at a time, because the service would join the values of both.
        for name in ["X-Remote-User", "x_remote_user"] {
            let header = format!("{name}: {other}");
            let find = ["-X", "PROPFIND", "-H", &header];
            for path in ["/".to_owned(), format!("/{other}/private/")] {
                let url = agent.url(&path);
                let args = [&find[..], credential, &[&url]].concat();
                let seen = platform.curl().get(&args)?;
                assert_eq!(seen.status, status, "{name} {path} {}", seen.text());
            }
        }
    }
    Ok(())
}
