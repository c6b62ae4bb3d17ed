//! OA-2, OA-5, OA-6, OA-7: a client is let in, uses what it was given, and is put out again.

use http::{Method, StatusCode};
use serde_json::{Value, json};
use store::sessions::Session;

use super::{
    SCOPE, access_token, at_callback, audit, authorize, code, press, program, redeem, with_token,
};
use crate::browser::{Answer, BASE, Browser, CALLBACK, LOOPBACK, PASSWORD, Platform, both};

both! {
    oa_2_a_person_signs_in_reviews_approves_and_the_client_is_in
    oa_2_a_person_who_denies_gives_nothing
    oa_2_the_consent_page_says_who_asks_and_for_what
    oa_2_a_narrowed_session_gives_no_more_than_it_has
    oa_2_an_approval_is_of_the_session_that_saw_the_page
    oa_5_a_client_revokes_its_own_token
    oa_7_a_token_lasts_ninety_days_and_is_not_renewed
    an_access_token_is_a_credential_like_any_other
}

async fn oa_2_a_person_signs_in_reviews_approves_and_the_client_is_in(platform: Platform) {
    let (ada, _) = platform.person("Ada").await;
    let mut browser = platform.browser();
    // Not signed in: first that, and then back to exactly this request.
    let asked = authorize(&[("resource", BASE)]);
    let answer = browser.open(&asked).await;
    assert_eq!(answer.status, StatusCode::SEE_OTHER);
    let login = answer.location.unwrap();
    assert!(
        login.starts_with("/login?next=/oauth/authorize?"),
        "{login}"
    );
    let page = browser.open(&login).await;
    let next = page
        .between("name=\"next\" value=\"", "\"")
        .replace("&#38;", "&");
    let fields = [
        ("email", "ada@example.com"),
        ("password", PASSWORD),
        ("next", &next),
    ];
    let answer = browser.submit("/login", &fields).await;
    let page = browser.open(&answer.location.unwrap()).await;
    assert_eq!(page.status, StatusCode::OK);
    let answer = press(&mut browser, &page, "approve").await;
    let mut callback = at_callback(&answer);
    assert_eq!(callback.take("state").as_deref(), Some("xyz ä&"));
    assert_eq!(callback.take("error"), None);
    let code = callback.take("code").unwrap();

    let answer = redeem(&platform, &code, &[]).await;
    assert_eq!(answer.status, StatusCode::OK, "{}", answer.text);
    assert_eq!(answer.headers["cache-control"], "no-store");
    assert_eq!(answer.headers["pragma"], "no-cache");
    let issued = answer.json();
    let members: Vec<_> = issued.as_object().unwrap().keys().collect();
    assert_eq!(
        members,
        ["access_token", "expires_in", "scope", "token_type"]
    );
    assert_eq!(issued["token_type"], "Bearer");
    assert_eq!(issued["scope"], SCOPE);
    let token = issued["access_token"].as_str().unwrap();

    // RFC 9068, and what makes it a personal access token.
    let inspected = ::credentials::inspect(token).unwrap();
    assert_eq!(inspected["header"]["typ"], "at+jwt");
    let claims = &inspected["claims"];
    assert_eq!(claims["type"], "pat");
    assert_eq!(
        (&claims["sub"], &claims["userId"]),
        (&json!(ada), &json!(ada))
    );
    for name in ["iss", "aud", "resource"] {
        assert_eq!(claims[name], BASE, "OA-6: {name}");
    }
    assert_eq!(claims["client_id"], "web");
    assert_eq!(claims["scope"], SCOPE);
    assert_eq!(
        claims["permissions"],
        json!(SCOPE.split(' ').collect::<Vec<_>>())
    );
    assert_eq!(claims["token_endpoint"].as_str().unwrap().len(), 8);

    let who = with_token(&platform, "/api/whoami", token).await;
    assert_eq!(who.status, StatusCode::OK, "{}", who.text);
    assert_eq!(
        (&who.json()["id"], &who.json()["type"]),
        (&json!(ada), &json!("pat"))
    );
    let answer = with_token(&platform, "/api/projects/tunnels", token).await;
    assert_eq!(answer.status, StatusCode::OK);
    let answer = with_token(&platform, "/api/credentials", token).await;
    assert_eq!(
        answer.status,
        StatusCode::FORBIDDEN,
        "it has no scope for this"
    );
    let done = audit(&platform).await;
    let details = json!({"client": "web", "scope": SCOPE});
    let expected = [
        ("oauth.approved".to_owned(), details.clone()),
        ("oauth.token_issued".to_owned(), details),
    ];
    assert_eq!(done, expected);
}

async fn oa_2_a_person_who_denies_gives_nothing(platform: Platform) {
    platform.person("Ada").await;
    let mut browser = platform.signed_in("Ada").await;
    let page = browser.open(&authorize(&[])).await;
    for decision in ["deny", "", "APPROVE"] {
        let answer = press(&mut browser, &page, decision).await;
        let mut callback = at_callback(&answer);
        assert_eq!(callback.take("error").as_deref(), Some("access_denied"));
        assert_eq!(callback.take("state").as_deref(), Some("xyz ä&"));
        assert_eq!(callback.take("code"), None);
    }
    assert_eq!(audit(&platform).await[0].0, "oauth.denied");
}

async fn oa_2_the_consent_page_says_who_asks_and_for_what(platform: Platform) {
    platform.person("Ada").await;
    let mut browser = platform.signed_in("Ada").await;
    let scope = format!("{SCOPE} tunnels.tunnels.create-delete account.credentials.read-write");
    let page = browser.open(&authorize(&[("scope", &scope)])).await;
    for expected in [
        "Let Web Client in?",
        "<b>client.example</b>",
        "<b>ada@example.com</b>",
        "<b>Ada</b>",
        "<h2>Use an existing project and open a tunnel</h2>",
        "List, select and resolve tunnel projects.",
        "<code>tunnels.tunnels.create-delete</code>",
        "<h2 class=\"grave\">Give access to others in your name</h2>",
        "Issue, rotate, revoke and manage long-lived credentials.",
        "value=\"approve\">Approve</button>",
        "value=\"deny\">Deny</button>",
        "90 days",
    ] {
        assert!(page.text.contains(expected), "{expected}: {}", page.text);
    }
    assert!(!page.text.contains("on this machine"));
    let page = browser
        .open(&authorize(&[("redirect_uri", LOOPBACK)]))
        .await;
    assert!(
        page.text
            .contains("<b>127.0.0.1:49152</b>, on this machine.")
    );
}

/// Narrows the session of the person in the browser.
async fn narrow(
    platform: &Platform,
    browser: &mut Browser<'_>,
    permissions: &[&str],
    resources: Value,
) {
    let cookie = browser.cookie.clone().unwrap();
    let secret = cookie.split('=').nth(1).unwrap();
    let secret = control::people::secret_link::LinkSecret::parse(secret).unwrap();
    let hash = store::SecretHash(secret.hash());
    let mut tx = platform.app.store.begin().await.unwrap();
    let now = platform.app.now();
    let found = store::sessions::live(&mut tx, hash, now)
        .await
        .unwrap()
        .unwrap();
    store::sessions::end(&mut tx, hash).await.unwrap();
    let narrowed = Session {
        permissions: Some(permissions.iter().map(|one| (*one).to_owned()).collect()),
        resources: Some(resources),
        ..found
    };
    store::sessions::insert(&mut tx, &narrowed).await.unwrap();
    tx.commit().await.unwrap();
}

/// OA-2: permissions and resources of the browser session stay on what it approves.
async fn oa_2_a_narrowed_session_gives_no_more_than_it_has(platform: Platform) {
    let (_, workspace) = platform.person("Ada").await;
    platform.person("Eve").await;
    let mut browser = platform.signed_in("Ada").await;
    let lists =
        json!({"tunnels": {"workspaces": [workspace], "scopes": {"tunnels": {"list": true}}}});
    let held = [
        "account.projects.read-only",
        "tunnels.resources.read-only",
        "tunnels.tunnels.create-delete",
        "account.tokens.create",
    ];
    narrow(&platform, &mut browser, &held, lists.clone()).await;
    // Plan: not of the session. Creation: of its permissions, and nowhere in its boundary.
    let scope = format!("{SCOPE} account.plan.read-only tunnels.tunnels.create-delete");
    let page = browser.open(&authorize(&[("scope", &scope)])).await;
    assert!(page.text.contains("does not get the rest"), "{}", page.text);
    assert!(!page.text.contains("account.plan") && !page.text.contains("tunnels.tunnels"));
    let answer = press(&mut browser, &page, "approve").await;
    let code = at_callback(&answer).take("code").unwrap();
    let issued = redeem(&platform, &code, &[]).await.json();
    assert_eq!(issued["scope"], SCOPE, "the client is told what it got");
    let token = issued["access_token"].as_str().unwrap();
    let who = with_token(&platform, "/api/whoami", token).await.json();
    assert_eq!(
        who["permissions"],
        json!(SCOPE.split(' ').collect::<Vec<_>>())
    );
    assert_eq!(who["resources"], lists);
    // The session itself is held to its limits too, and so is what it mints.
    let answer = browser
        .api(Method::GET, "/api/credentials", Value::Null)
        .await;
    assert_eq!(answer.status, StatusCode::FORBIDDEN);
    let body = json!({"permissions": ["account.plan.read-only"]});
    let answer = browser.api(Method::POST, "/api/tokens", body).await;
    assert_eq!(answer.status, StatusCode::FORBIDDEN);
    let body = json!({"permissions": ["account.projects.read-only"]});
    let minted = browser.api(Method::POST, "/api/tokens", body).await.json();
    let who = with_token(&platform, "/api/whoami", minted["token"].as_str().unwrap()).await;
    assert_eq!(who.json()["resources"], lists);
    // Nothing of it at all: there is no button to approve, and none that could be made up.
    let page = browser
        .open(&authorize(&[("scope", "account.plan.read-only")]))
        .await;
    assert!(!page.text.contains("value=\"approve\""), "{}", page.text);
    let answer = press(&mut browser, &page, "approve").await;
    let error = at_callback(&answer).take("error");
    assert_eq!(error.as_deref(), Some("access_denied"));
}

async fn oa_2_an_approval_is_of_the_session_that_saw_the_page(platform: Platform) {
    platform.person("Ada").await;
    platform.person("Eve").await;
    let page = platform.signed_in("Ada").await.open(&authorize(&[])).await;
    let mut eve = platform.signed_in("Eve").await;
    let answer = press(&mut eve, &page, "approve").await;
    assert_eq!(answer.status, StatusCode::OK, "the page again, for her");
    assert!(answer.text.contains("<b>eve@example.com</b>"));
    let answer = press(&mut platform.browser(), &page, "approve").await;
    assert!(
        answer
            .location
            .unwrap()
            .starts_with("/login?next=/oauth/authorize?")
    );
}

async fn whoami(platform: &Platform, token: &str) -> StatusCode {
    with_token(platform, "/api/whoami", token).await.status
}

/// OA-5: RFC 7009.
async fn oa_5_a_client_revokes_its_own_token(platform: Platform) {
    platform.person("Ada").await;
    let mut browser = platform.signed_in("Ada").await;
    let token = access_token(&mut browser, &platform).await;
    let revoke = async |fields: &[(&str, &str)]| program(&platform, "/oauth/revoke", fields).await;
    let error = |answer: &Answer| super::error(answer);
    assert_eq!(
        error(&revoke(&[("client_id", "web")]).await),
        "invalid_request"
    );
    let answer = revoke(&[("client_id", "other"), ("token", &token)]).await;
    assert_eq!(error(&answer), "unauthorized_client");
    let answer = revoke(&[("client_id", "nobody"), ("token", &token)]).await;
    assert_eq!(error(&answer), "invalid_client");
    assert_eq!(whoami(&platform, &token).await, StatusCode::OK);
    // Also what is no token of a client: it stays what it is.
    let body = json!({"type": "pat", "name": "mine"});
    let pat = browser
        .api(Method::POST, "/api/credentials", body)
        .await
        .json();
    let pat = pat["token"].as_str().unwrap();
    for unknown in ["a", "a.b.c", pat] {
        let answer = revoke(&[("client_id", "web"), ("token", unknown)]).await;
        assert_eq!((answer.status, answer.text.as_str()), (StatusCode::OK, ""));
    }
    assert_eq!(whoami(&platform, pat).await, StatusCode::OK);
    let hint = [
        ("client_id", "web"),
        ("token", &token),
        ("token_type_hint", "access_token"),
    ];
    for _ in 0..2 {
        assert_eq!(revoke(&hint).await.status, StatusCode::OK);
        assert_eq!(whoami(&platform, &token).await, StatusCode::UNAUTHORIZED);
    }
    assert_eq!(
        audit(&platform).await.last().unwrap().0,
        "oauth.token_revoked"
    );
    // Without a client, as the published SDKs send it.
    let token = access_token(&mut browser, &platform).await;
    assert_eq!(revoke(&[("token", &token)]).await.status, StatusCode::OK);
    assert_eq!(whoami(&platform, &token).await, StatusCode::UNAUTHORIZED);
}

/// OA-7.
async fn oa_7_a_token_lasts_ninety_days_and_is_not_renewed(platform: Platform) {
    const DAYS_90: i64 = 90 * 24 * 3600;
    platform.person("Ada").await;
    let mut browser = platform.signed_in("Ada").await;
    let code = code(&mut browser, &[]).await;
    let issued = redeem(&platform, &code, &[]).await.json();
    assert_eq!(issued["expires_in"], DAYS_90);
    assert_eq!(issued.get("refresh_token"), None);
    let token = issued["access_token"].as_str().unwrap();
    let fields = [
        ("grant_type", "refresh_token"),
        ("client_id", "web"),
        ("refresh_token", token),
    ];
    let answer = program(&platform, "/oauth/token", &fields).await;
    assert_eq!(super::error(&answer), "unsupported_grant_type");
    platform.clock.advance(DAYS_90 - 1);
    assert_eq!(whoami(&platform, token).await, StatusCode::OK);
    platform.clock.advance(1);
    assert_eq!(whoami(&platform, token).await, StatusCode::UNAUTHORIZED);
}

async fn an_access_token_is_a_credential_like_any_other(platform: Platform) {
    platform.person("Ada").await;
    let mut browser = platform.signed_in("Ada").await;
    let token = access_token(&mut browser, &platform).await;
    let list = browser
        .api(Method::GET, "/api/credentials", Value::Null)
        .await
        .json();
    let listed = &list["credentials"][0];
    assert_eq!(
        (&listed["name"], &listed["type"], &listed["oauthClientId"]),
        (&json!("Web Client"), &json!("pat"), &json!("web"))
    );
    assert_eq!(
        listed["permissions"],
        json!(SCOPE.split(' ').collect::<Vec<_>>())
    );
    let path = format!("/api/credentials/{}", listed["id"].as_str().unwrap());
    // OA-7: a successor by hand would be a refresh token.
    let answer = browser
        .api(Method::POST, &format!("{path}/rotate"), Value::Null)
        .await;
    assert_eq!(answer.status, StatusCode::CONFLICT, "{}", answer.text);
    let answer = browser.api(Method::DELETE, &path, Value::Null).await;
    assert_eq!(answer.status, StatusCode::NO_CONTENT);
    assert_eq!(whoami(&platform, &token).await, StatusCode::UNAUTHORIZED);
    // Byte for byte the callback that was registered, with its own query kept.
    assert!(CALLBACK.ends_with("?x=1"));
}
