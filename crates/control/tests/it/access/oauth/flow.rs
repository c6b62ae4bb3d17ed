//! OA-2, OA-5, OA-6, OA-7: a client is approved, uses its token, and is revoked.

use http::Method;
use serde_json::{Value, json};
use store::sessions::Session;

use super::{
    SCOPE, access_token, at_callback, audit, authorize, code, press, program, redeem, with_token,
};
use crate::support::{Answer, BASE_URL, Browser, CALLBACK, LOOPBACK, PASSWORD, TestControl, both};

both! {
    oa_2_a_person_signs_in_reviews_approves_and_the_client_is_in,
    oa_2_a_denied_request_grants_nothing,
    oa_2_a_native_client_uses_the_port_that_it_has,
    oa_5_unknown_scopes_are_ignored_and_the_granted_scope_is_listed,
    oa_2_the_consent_page_shows_the_client_and_its_scopes,
    oa_2_a_restricted_session_grants_no_more_than_it_has,
    oa_2_an_approval_is_valid_once_and_for_the_shown_request,
    oa_2_a_state_of_four_kilobytes_is_returned,
    oa_2_an_approval_is_of_the_session_that_saw_the_page,
    oa_5_a_client_revokes_its_own_token,
    oa_7_a_token_lasts_ninety_days_and_is_not_renewed,
    an_access_token_is_a_credential_like_any_other,
}

async fn oa_2_a_person_signs_in_reviews_approves_and_the_client_is_in(control: TestControl) {
    let ada = control.person("Ada").await.user;
    let mut browser = control.browser();
    // Without a session the sign-in comes first, and then exactly this request.
    let asked = authorize(&[("resource", BASE_URL)]);
    let answer = browser.open(&asked).await;
    assert_eq!(answer.status, 303);
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
    assert_eq!(page.status, 200);
    let answer = press(&mut browser, &page, "approve").await;
    let mut callback = at_callback(&answer);
    assert_eq!(callback.take("state").as_deref(), Some("xyz ä&"));
    assert_eq!(callback.take("error"), None);
    let code = callback.take("code").unwrap();

    let answer = redeem(&control, &code, &[]).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
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

    // RFC 9068, and the claims that make it a personal access token.
    let inspected = ::credentials::inspect(token).unwrap();
    assert_eq!(inspected["header"]["typ"], "at+jwt");
    let claims = &inspected["claims"];
    assert_eq!(claims["type"], "pat");
    assert_eq!(
        (&claims["sub"], &claims["userId"]),
        (&json!(ada), &json!(ada))
    );
    for name in ["iss", "aud", "resource"] {
        assert_eq!(claims[name], BASE_URL, "OA-6: {name}");
    }
    assert_eq!(claims["client_id"], "web");
    assert_eq!(claims["scope"], SCOPE);
    assert_eq!(
        claims["permissions"],
        json!(SCOPE.split(' ').collect::<Vec<_>>())
    );
    assert_eq!(claims["token_endpoint"].as_str().unwrap().len(), 8);

    let identity = with_token(&control, "/api/whoami", token).await;
    assert_eq!(identity.status, 200, "{}", identity.text);
    assert_eq!(
        (&identity.json()["id"], &identity.json()["type"]),
        (&json!(ada), &json!("pat"))
    );
    let answer = with_token(&control, "/api/projects/tunnels", token).await;
    assert_eq!(answer.status, 200);
    let answer = with_token(&control, "/api/credentials", token).await;
    assert_eq!(answer.status, 403, "it has no scope for this");
    let done = audit(&control).await;
    let details = json!({"client": "web", "scope": SCOPE});
    let expected = [
        ("oauth.approved".to_owned(), details.clone()),
        ("oauth.token_issued".to_owned(), details),
    ];
    assert_eq!(done, expected);
}

/// OA-2, RFC 8252 section 7.3: the browser returns to the port of the request, and the code is bound
/// to it.
async fn oa_2_a_native_client_uses_the_port_that_it_has(control: TestControl) {
    control.person("Ada").await;
    let mut browser = control.signed_in("Ada").await;
    let at = |port: u16| format!("http://127.0.0.1:{port}/callback");
    let (own, other) = (at(49152), at(49153));
    let approve = async |browser: &mut Browser<'_>, callback: &str| {
        let asked = [("client_id", "native"), ("redirect_uri", callback)];
        let page = browser.open(&authorize(&asked)).await;
        assert!(page.text.contains("127.0.0.1:49152"), "{}", page.text);
        let answer = press(browser, &page, "approve").await;
        let location = answer.location.unwrap();
        let query = location.strip_prefix(&format!("{callback}?")).unwrap();
        let mut form = types::form::Form::parse(query).unwrap();
        form.take("code").unwrap()
    };
    let code = approve(&mut browser, &own).await;
    for (callback, status) in [(&other, 400), (&own, 200)] {
        let changes = [("client_id", "native"), ("redirect_uri", callback.as_str())];
        let answer = redeem(&control, &code, &changes).await;
        assert_eq!(answer.status, status, "{callback}: {}", answer.text);
    }
    // Everything else is an unknown callback, which gets a page and no redirect.
    for callback in [
        "http://127.0.0.1:49152/callback/",
        "http://127.0.0.1:49152/callback?x=1",
        "http://127.0.0.2:49152/callback",
        "http://localhost:49152/callback",
        "https://127.0.0.1:49152/callback",
        "http://127.0.0.1:49152@evil.example/callback",
    ] {
        let asked = [("client_id", "native"), ("redirect_uri", callback)];
        let answer = browser.open(&authorize(&asked)).await;
        assert_eq!(
            (answer.status, &answer.location),
            (400, &None),
            "{callback}"
        );
    }
    // A client that is not registered so has the ports of its configuration only.
    let asked = [("redirect_uri", other.as_str())];
    let answer = browser.open(&authorize(&asked)).await;
    assert_eq!((answer.status, answer.location), (400, None));
}

/// OA-5: clients that add names of other servers get the permissions that exist here.
async fn oa_5_unknown_scopes_are_ignored_and_the_granted_scope_is_listed(control: TestControl) {
    control.person("Ada").await;
    let mut browser = control.signed_in("Ada").await;
    let asked = format!("openid {SCOPE} offline_access urn:x:y");
    let code = code(&mut browser, &[("scope", &asked)]).await;
    let answer = redeem(&control, &code, &[]).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    let issued = answer.json();
    assert_eq!(issued["scope"], SCOPE);
    let token = issued["access_token"].as_str().unwrap();
    let claims = ::credentials::inspect(token).unwrap()["claims"].clone();
    assert_eq!(claims["scope"], SCOPE);
    assert_eq!(with_token(&control, "/api/whoami", token).await.status, 200);
    for nothing in [
        "openid",
        "openid offline_access",
        "Account.projects.read-only",
    ] {
        let answer = browser.open(&authorize(&[("scope", nothing)])).await;
        let mut callback = at_callback(&answer);
        assert_eq!(callback.take("error").as_deref(), Some("invalid_scope"));
    }
}

async fn oa_2_a_denied_request_grants_nothing(control: TestControl) {
    control.person("Ada").await;
    let mut browser = control.signed_in("Ada").await;
    for decision in ["deny", "", "APPROVE"] {
        let page = browser.open(&authorize(&[])).await;
        let answer = press(&mut browser, &page, decision).await;
        let mut callback = at_callback(&answer);
        assert_eq!(callback.take("error").as_deref(), Some("access_denied"));
        assert_eq!(callback.take("state").as_deref(), Some("xyz ä&"));
        assert_eq!(callback.take("code"), None);
    }
    assert_eq!(audit(&control).await[0].0, "oauth.denied");
}

async fn oa_2_the_consent_page_shows_the_client_and_its_scopes(control: TestControl) {
    control.person("Ada").await;
    let mut browser = control.signed_in("Ada").await;
    let scope = format!("{SCOPE} tunnels.tunnels.create-delete account.credentials.read-write");
    let page = browser.open(&authorize(&[("scope", &scope)])).await;
    for expected in [
        "Allow Web Client to access your account?",
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

/// Restricts the session of the user in the browser.
pub(super) async fn narrow(
    control: &TestControl,
    browser: &mut Browser<'_>,
    permissions: &[&str],
    resources: Value,
) {
    let cookie = browser.cookie.clone().unwrap();
    let secret = cookie.split('=').nth(1).unwrap();
    let secret = control::people::secret_link::LinkSecret::parse(secret).unwrap();
    let hash = store::SecretHash(secret.hash());
    let mut tx = control.app.store.begin().await.unwrap();
    let now = control.app.now();
    let found = store::sessions::live(&mut tx, hash, now)
        .await
        .unwrap()
        .unwrap();
    store::sessions::end(&mut tx, hash, control.now())
        .await
        .unwrap();
    let narrowed = Session {
        permissions: Some(permissions.iter().map(|one| (*one).to_owned()).collect()),
        resources: Some(resources),
        ..found
    };
    store::sessions::insert(&mut tx, &narrowed).await.unwrap();
    tx.commit().await.unwrap();
}

/// OA-2: tokens that a browser session approves keep the permissions and resources of that session.
async fn oa_2_a_restricted_session_grants_no_more_than_it_has(control: TestControl) {
    let workspace = control.person("Ada").await.workspace;
    control.person("Eve").await;
    let mut browser = control.signed_in("Ada").await;
    let lists =
        json!({"tunnels": {"workspaces": [workspace], "scopes": {"tunnels": {"list": true}}}});
    let held = [
        "account.projects.read-only",
        "tunnels.resources.read-only",
        "tunnels.tunnels.create-delete",
        "account.tokens.create",
    ];
    narrow(&control, &mut browser, &held, lists.clone()).await;
    // The plan permission is not part of the session. The creation permission is, but no part of
    // its boundary allows it.
    let scope = format!("{SCOPE} account.plan.read-only tunnels.tunnels.create-delete");
    let page = browser.open(&authorize(&[("scope", &scope)])).await;
    assert!(
        page.text.contains("more than your session can grant"),
        "{}",
        page.text
    );
    assert!(
        !page.text.contains("<code>account.plan") && !page.text.contains("<code>tunnels.tunnels")
    );
    let answer = press(&mut browser, &page, "approve").await;
    let code = at_callback(&answer).take("code").unwrap();
    let issued = redeem(&control, &code, &[]).await.json();
    assert_eq!(
        issued["scope"], SCOPE,
        "the client receives its actual scope"
    );
    let token = issued["access_token"].as_str().unwrap();
    let identity = with_token(&control, "/api/whoami", token).await.json();
    assert_eq!(
        identity["permissions"],
        json!(SCOPE.split(' ').collect::<Vec<_>>())
    );
    assert_eq!(identity["resources"], lists);
    // The session itself is restricted as well, and so are the tokens that it mints.
    let answer = browser
        .api(Method::GET, "/api/credentials", Value::Null)
        .await;
    assert_eq!(answer.status, 403);
    let body = json!({"permissions": ["account.plan.read-only"]});
    let answer = browser.api(Method::POST, "/api/tokens", body).await;
    assert_eq!(answer.status, 403);
    let body = json!({"permissions": ["account.projects.read-only"]});
    let minted = browser.api(Method::POST, "/api/tokens", body).await.json();
    let identity = with_token(&control, "/api/whoami", minted["token"].as_str().unwrap()).await;
    assert_eq!(identity.json()["resources"], lists);
    // This includes limits that were set later.
    narrow(&control, &mut browser, &held[1..], lists.clone()).await;
    let identity = with_token(&control, "/api/whoami", minted["token"].as_str().unwrap()).await;
    assert_eq!(identity.json()["permissions"], json!([]));
    // Without any common permission there is no approve button, and a made-up request is refused.
    let page = browser
        .open(&authorize(&[("scope", "account.plan.read-only")]))
        .await;
    assert!(!page.text.contains("value=\"approve\""), "{}", page.text);
    let answer = press(&mut browser, &page, "approve").await;
    let error = at_callback(&answer).take("error");
    assert_eq!(error.as_deref(), Some("access_denied"));
}

async fn oa_2_an_approval_is_of_the_session_that_saw_the_page(control: TestControl) {
    control.person("Ada").await;
    control.person("Eve").await;
    let page = control.signed_in("Ada").await.open(&authorize(&[])).await;
    let mut eve = control.signed_in("Eve").await;
    let answer = press(&mut eve, &page, "approve").await;
    assert_eq!(answer.status, 200, "the page again, for the user");
    assert!(answer.text.contains("<b>eve@example.com</b>"));
    let answer = press(&mut control.browser(), &page, "approve").await;
    assert!(
        answer
            .location
            .unwrap()
            .starts_with("/login?next=/oauth/authorize?")
    );
}

async fn whoami(control: &TestControl, token: &str) -> u16 {
    with_token(control, "/api/whoami", token).await.status
}

/// OA-5: RFC 7009.
async fn oa_5_a_client_revokes_its_own_token(control: TestControl) {
    control.person("Ada").await;
    let mut browser = control.signed_in("Ada").await;
    let token = access_token(&mut browser, &control).await;
    let revoke = async |fields: &[(&str, &str)]| program(&control, "/oauth/revoke", fields).await;
    let error = |answer: &Answer| super::error(answer);
    assert_eq!(
        error(&revoke(&[("client_id", "web")]).await),
        "invalid_request"
    );
    let answer = revoke(&[("client_id", "other"), ("token", &token)]).await;
    assert_eq!(error(&answer), "unauthorized_client");
    let answer = revoke(&[("client_id", "nobody"), ("token", &token)]).await;
    assert_eq!(error(&answer), "invalid_client");
    assert_eq!(whoami(&control, &token).await, 200);
    // This includes tokens that belong to no client, which stay valid.
    let body = json!({"type": "pat", "name": "mine"});
    let pat = browser
        .api(Method::POST, "/api/credentials", body)
        .await
        .json();
    let pat = pat["token"].as_str().unwrap();
    for unknown in ["a", "a.b.c", pat] {
        let answer = revoke(&[("client_id", "web"), ("token", unknown)]).await;
        assert_eq!((answer.status, answer.text.as_str()), (200, ""));
    }
    assert_eq!(whoami(&control, pat).await, 200);
    let hint = [
        ("client_id", "web"),
        ("token", &token),
        ("token_type_hint", "access_token"),
    ];
    for _ in 0..2 {
        assert_eq!(revoke(&hint).await.status, 200);
        assert_eq!(whoami(&control, &token).await, 401);
    }
    assert_eq!(
        audit(&control).await.last().unwrap().0,
        "oauth.token_revoked"
    );
    // Without a client, as the published SDKs send the request.
    let token = access_token(&mut browser, &control).await;
    assert_eq!(revoke(&[("token", &token)]).await.status, 200);
    assert_eq!(whoami(&control, &token).await, 401);
}

/// OA-7.
async fn oa_7_a_token_lasts_ninety_days_and_is_not_renewed(control: TestControl) {
    const DAYS_90: i64 = 90 * 24 * 3600;
    control.person("Ada").await;
    let mut browser = control.signed_in("Ada").await;
    let code = code(&mut browser, &[]).await;
    let issued = redeem(&control, &code, &[]).await.json();
    assert_eq!(issued["expires_in"], DAYS_90);
    assert_eq!(issued.get("refresh_token"), None);
    let token = issued["access_token"].as_str().unwrap();
    let fields = [
        ("grant_type", "refresh_token"),
        ("client_id", "web"),
        ("refresh_token", token),
    ];
    let answer = program(&control, "/oauth/token", &fields).await;
    assert_eq!(super::error(&answer), "unsupported_grant_type");
    control.clock.advance(DAYS_90 - 1);
    assert_eq!(whoami(&control, token).await, 200);
    control.clock.advance(1);
    assert_eq!(whoami(&control, token).await, 401);
}

async fn an_access_token_is_a_credential_like_any_other(control: TestControl) {
    control.person("Ada").await;
    let mut browser = control.signed_in("Ada").await;
    let token = access_token(&mut browser, &control).await;
    let list = browser
        .api(Method::GET, "/api/credentials", Value::Null)
        .await
        .json();
    let all = list["credentials"].as_array().unwrap();
    let listed = all.iter().find(|one| one["name"] == "Web Client").unwrap();
    assert_eq!(
        (&listed["name"], &listed["type"], &listed["oauthClientId"]),
        (&json!("Web Client"), &json!("pat"), &json!("web"))
    );
    assert_eq!(
        listed["permissions"],
        json!(SCOPE.split(' ').collect::<Vec<_>>())
    );
    let path = format!("/api/credentials/{}", listed["id"].as_str().unwrap());
    // OA-7: a successor by rotation would be a refresh token.
    let answer = browser
        .api(Method::POST, &format!("{path}/rotate"), Value::Null)
        .await;
    assert_eq!(answer.status, 409, "{}", answer.text);
    let answer = browser.api(Method::DELETE, &path, Value::Null).await;
    assert_eq!(answer.status, 204);
    assert_eq!(whoami(&control, &token).await, 401);
    // Exactly the registered callback, including its own query.
    assert!(CALLBACK.ends_with("?x=1"));
}

/// OA-2: a consent page is answered once, for the request that it shows.
async fn oa_2_an_approval_is_valid_once_and_for_the_shown_request(control: TestControl) {
    control.person("Ada").await;
    let mut browser = control.signed_in("Ada").await;
    let page = browser.open(&authorize(&[])).await;
    let first = press(&mut browser, &page, "approve").await;
    assert_eq!(first.status, 303);
    for decision in ["approve", "deny"] {
        let again = press(&mut browser, &page, decision).await;
        assert_eq!((again.status, again.location), (400, None));
    }
    // Not after more than half an hour either.
    let page = browser.open(&authorize(&[])).await;
    control.clock.advance(30 * 60);
    let late = press(&mut browser, &page, "approve").await;
    assert_eq!((late.status, late.location), (400, None));
    // A denied request cannot be approved afterwards.
    let page = browser.open(&authorize(&[])).await;
    press(&mut browser, &page, "deny").await;
    let again = press(&mut browser, &page, "approve").await;
    assert_eq!((again.status, again.location), (400, None));
}

/// RFC 6749 section 4.1.1: this includes a sign-in in between.
async fn oa_2_a_state_of_four_kilobytes_is_returned(control: TestControl) {
    control.person("Ada").await;
    for state in ["a".repeat(4096), "%&+ä".repeat(4096 / 5)] {
        let path = authorize(&[("state", &state)]);
        let mut browser = control.browser();
        let login = browser.open(&path).await.location.unwrap();
        let next = login.strip_prefix("/login?next=").unwrap();
        let next = types::form::Form::parse(&format!("next={next}"));
        let next = next.unwrap().take("next").unwrap();
        let fields = [
            ("email", "ada@example.com"),
            ("password", PASSWORD),
            ("next", &next),
        ];
        let on = browser.submit("/login", &fields).await.location.unwrap();
        let page = browser.open(&on).await;
        assert_eq!(page.status, 200, "{on}");
        let answer = press(&mut browser, &page, "approve").await;
        assert_eq!(at_callback(&answer).take("state").unwrap(), state);
    }
}
