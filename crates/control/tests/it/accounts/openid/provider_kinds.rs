//! The npm package `oidc-provider`, configured as three common providers answer.

use serde_json::{Value, json};
use store::members::Role;
use store::workspaces::Type;
use store::{members, workspaces};
use types::id::WorkspaceId;

use super::oidc_provider::{RealBrowser, RealPlatform, between, sign_in};

/// The user that `/api/user` shows, or `Null` on another page.
fn user(page: &str) -> Value {
    serde_json::from_str(page).unwrap_or_default()
}

/// Entra ID: no `email_verified`, the address in `preferred_username`, a tenant in `tid`, and all of
/// it in the ID token.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn users_sign_in_as_with_entra() {
    let options = json!({
        "claims": {"openid": ["sub", "tid", "oid", "preferred_username", "name"], "email": [], "profile": []},
        "user": {
            "tid": "2d8a4f6e-0b1c-4d5e-8f90-a1b2c3d4e5f6",
            "oid": "00000000-0000-0000-66f3-3332eca7ea81",
            "preferred_username": "$id",
            "name": "Somebody",
        },
    });
    let trusted = json!({
        "sign_up": "domains",
        "domains": ["example.com"],
        "trust_email": true,
        "email_claim": "preferred_username",
    });
    let platform = RealPlatform::start(&options, &trusted).await;
    let mut grace = RealBrowser::new();
    let (url, page) = sign_in(&mut grace, &platform, "grace@example.com").await;
    assert_eq!(url.path(), "/api/user", "{page}");
    assert_eq!(user(&page)["email"], "grace@example.com");
    assert_eq!(user(&page)["emailVerified"], false);
    for (name, why) in [
        ("ada@example.com", "You have an account here already"),
        ("eve@example.org", "Your mail address is not accepted"),
    ] {
        let (_, page) = sign_in(&mut RealBrowser::new(), &platform, name).await;
        assert!(page.contains(why), "{page}");
    }
    platform.stop().await;
}

/// Google: a confirmed address, the domain of the organisation in `hd`, and no sign-out.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn users_sign_in_as_with_google() {
    let options = json!({
        "claims": {
            "openid": ["sub", "email", "email_verified", "hd"], "email": [], "profile": ["name"],
        },
        "user": {
            "email": "$id", "email_verified": true, "hd": "example.com", "name": "Somebody",
            "picture": "https://id.example/a.png", "given_name": "Some",
        },
    });
    let openid = json!({
        "sign_up": "domains", "domains": ["example.com"], "end_session": true,
    });
    let platform = RealPlatform::start(&options, &openid).await;
    let mut browser = RealBrowser::new();
    let (url, page) = sign_in(&mut browser, &platform, "ada@example.com").await;
    assert_eq!(url.path(), "/api/user", "{page}");
    assert_eq!(user(&page)["id"], platform.ada.as_str());
    let (url, _) = sign_out(&mut browser, &platform).await;
    assert_eq!(url.path(), "/login", "the provider has no sign-out");
    let (_, page) = sign_in(&mut RealBrowser::new(), &platform, "eve@example.org").await;
    assert!(page.contains("You have no account here"), "{page}");
    platform.stop().await;
}

/// Presses "Sign out" on the account page.
async fn sign_out(browser: &mut RealBrowser, platform: &RealPlatform) -> (reqwest::Url, String) {
    let url = format!("{}/logout", platform.base).parse().unwrap();
    browser
        .go(reqwest::Method::POST, url, Some(Vec::new()))
        .await
}

async fn team(platform: &RealPlatform) -> WorkspaceId {
    let now = platform.app.now();
    let id = WorkspaceId::new(0, [7; 10]);
    let mut tx = platform.app.store.begin().await.unwrap();
    workspaces::insert(&mut tx, id, Type::Team, "Team", now)
        .await
        .unwrap();
    members::insert(&mut tx, id, platform.ada, Role::Owner, None, now)
        .await
        .unwrap();
    tx.commit().await.unwrap();
    id
}

/// Keycloak: paths as groups, sign-out at the provider, and back-channel logout of its session.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn users_sign_in_and_out_as_with_keycloak() {
    let options = json!({
        "claims": {
            "openid": ["sub"], "email": ["email", "email_verified"],
            "profile": ["name", "groups"],
        },
        "user": {
            "email": "$id", "email_verified": true, "name": "Somebody",
            "groups": ["/staff", "/staff/engineering"],
        },
        "logout": true,
    });
    let workspace = WorkspaceId::new(0, [7; 10]).to_string();
    let openid = json!({
        "sign_up": "anyone",
        "groups_claim": "groups",
        "groups": [
            {"group": "/staff", "workspace": workspace, "role": "viewer"},
            {"group": "/staff/engineering", "workspace": workspace, "role": "member"},
        ],
        "end_session": true,
    });
    let platform = RealPlatform::start(&options, &openid).await;
    let base = &platform.base;
    let workspace = team(&platform).await;
    let mut browser = RealBrowser::new();
    let (url, page) = sign_in(&mut browser, &platform, "grace@example.com").await;
    assert_eq!(url.path(), "/api/user", "{page}");
    let (_, page) = browser.follow(&format!("{base}/account")).await;
    assert!(
        page.contains("<span>Team</span> <span class=\"quiet\">member</span>"),
        "{page}"
    );
    let mut read = platform.app.store.read().await.unwrap();
    let count = members::count(&mut read, workspace).await.unwrap();
    assert_eq!(count, 2);
    drop(read);

    // A second session here that the same session at the provider started.
    let is_of_platform = |key: &(String, String)| key.0 == *base;
    let mut first = RealBrowser::new();
    let cookies = browser.cookies.clone();
    first.cookies = cookies
        .into_iter()
        .filter(|(key, _)| is_of_platform(key))
        .collect();
    browser.cookies.retain(|key, _| !is_of_platform(key));
    let (url, _) = browser
        .follow(&format!("{base}/login/openid?next=/api/user"))
        .await;
    assert_eq!(url.path(), "/api/user", "the provider asks nothing");
    // A session of another user stays.
    let mut other = RealBrowser::new();
    sign_in(&mut other, &platform, "ada@example.com").await;

    let (_, page) = sign_out(&mut browser, &platform).await;
    let address = between(&page, "content=\"0; url=", "\"").replace("&#38;", "&");
    let confirm = browser.follow(&address).await;
    let issuer = &platform.provider.issuer;
    assert!(confirm.0.as_str().starts_with(issuer), "{}", confirm.0);
    let (url, page) = browser.submit(confirm, &[("logout", "yes")]).await;
    assert_eq!(url.as_str(), format!("{base}/login"), "{page}");
    // The provider has sent the logout token before it answered.
    let user_page = format!("{base}/api/user");
    for (browser, is_signed_in) in [
        (&mut browser, false),
        (&mut first, false),
        (&mut other, true),
    ] {
        let (_, page) = browser.follow(&user_page).await;
        assert_eq!(user(&page)["id"].is_string(), is_signed_in, "{page}");
    }
    let start = format!("{base}/login/openid?next=/api/user");
    let (url, _) = browser.follow(&start).await;
    assert!(
        url.as_str().starts_with(issuer),
        "the session there has ended, too: {url}"
    );
    platform.stop().await;
}
