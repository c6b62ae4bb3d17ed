//! Sign-in through an OpenID provider: a real one and a malicious one.

mod groups;
mod hostile;
mod links;
mod logout;
mod oidc_provider;
mod provider;
mod provider_kinds;
mod unconfirmed_addresses;

use http::StatusCode;
use serde_json::{Value, json};
use store::users::{self, Status};

use self::provider::{Answer, Provider, TokenSignature};
use crate::support::{self, Browser, TestControl};

/// A platform whose users sign in at this provider.
async fn with_provider(provider: &Provider, more: &Value) -> TestControl {
    let openid = section(provider, more);
    TestControl::start(&format!("openid: {openid}")).await
}

/// The configuration section of this provider.
fn section(provider: &Provider, more: &Value) -> Value {
    let mut openid = json!({
        "issuer": provider.issuer(),
        "client_id": "svc",
        "name": "Example ID",
    });
    for (key, value) in more.as_object().unwrap() {
        openid[key] = value.clone();
    }
    openid
}

/// Starts a sign-in. Returns the query that the browser sends to the provider.
async fn begin(browser: &mut Browser<'_>, next: &str) -> Vec<(String, String)> {
    let answer = browser.open(&format!("/login/openid?next={next}")).await;
    assert_eq!(answer.status, StatusCode::SEE_OTHER, "{}", answer.text);
    let url: reqwest::Url = answer.location.unwrap().parse().unwrap();
    url.query_pairs().into_owned().collect()
}

fn value<'a>(query: &'a [(String, String)], name: &str) -> &'a str {
    let found = query.iter().find(|(key, _)| key == name);
    &found.expect(name).1
}

/// The address on the page that leads to the provider.
fn address(page: &support::Answer) -> reqwest::Url {
    assert_eq!(page.status, StatusCode::OK, "{}", page.text);
    let address = page.between("content=\"0; url=", "\"");
    address
        .replace("&#38;", "&")
        .replace("&amp;", "&")
        .parse()
        .unwrap()
}

/// A complete sign-in with an ID token of these claims.
async fn sign_in(
    control: &TestControl,
    provider: &Provider,
    browser: &mut Browser<'_>,
    next: &str,
    claims: Value,
) -> support::Answer {
    let query = begin(browser, next).await;
    let (state, nonce) = (value(&query, "state"), value(&query, "nonce"));
    provider.set_next_token(control.app.now(), nonce, &claims);
    let path = format!("/login/openid/callback?code=abc&state={state}");
    browser.open(&path).await
}

fn ada() -> Value {
    json!({"sub": "ada-1", "email": "Ada@example.com", "email_verified": true, "name": "Ada L"})
}

async fn identities(control: &TestControl, user: types::id::UserId) -> usize {
    let mut read = control.app.store.read().await.unwrap();
    users::identities(&mut read, user).await.unwrap().len()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_confirmed_address_finds_its_account_and_the_subject_is_stored() {
    let provider = Provider::start().await;
    let control = with_provider(&provider, &json!({})).await;
    let user = control.person("Ada").await.user;
    let mut browser = control.browser();
    let login = browser.open("/login?next=/account").await;
    assert!(
        login.text.contains("Continue with Example ID"),
        "{}",
        login.text
    );
    assert!(login.text.contains("/login/openid?next=/account"));
    let query = begin(&mut browser, "/account").await;
    assert_eq!(value(&query, "code_challenge_method"), "S256");
    assert_eq!(value(&query, "scope"), "openid email profile");
    assert_eq!(
        value(&query, "redirect_uri"),
        "https://svc.example/login/openid/callback"
    );
    let answer = sign_in(&control, &provider, &mut browser, "/api/user", ada()).await;
    assert_eq!(
        answer.location.as_deref(),
        Some("/api/user"),
        "{}",
        answer.text
    );
    assert_eq!(
        browser.sign_in, None,
        "the cookie of the sign-in is removed"
    );
    assert_eq!(browser.open("/api/user").await.json()["id"], user.as_str());
    assert_eq!(identities(&control, user).await, 1);
    // From now on the subject identifies the account, not the address.
    let mut other = control.browser();
    let moved = json!({"sub": "ada-1", "email": "x@example.org", "email_verified": false});
    sign_in(&control, &provider, &mut other, "/account", moved).await;
    assert_eq!(other.open("/api/user").await.json()["id"], user.as_str());
    assert_eq!(identities(&control, user).await, 1);
    let mut read = control.app.store.read().await.unwrap();
    let entries = store::audit::of_user(&mut read, user, store::Paging::DEFAULT);
    let entries = entries.await.unwrap().items;
    let actions: Vec<_> = entries.iter().map(|entry| entry.action.as_str()).collect();
    assert!(actions.contains(&"user.identity_linked"), "{actions:?}");
    let sign_in = entries
        .iter()
        .find(|entry| entry.action == "user.signed_in");
    assert_eq!(sign_in.unwrap().details["openid"], provider.issuer());
}

/// Account pre-hijacking: confirmation by one side alone is not enough.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_account_is_linked_only_if_both_sides_confirmed_the_address() {
    let provider = Provider::start().await;
    let control = with_provider(&provider, &json!({})).await;
    let user = control.person("Ada").await.user;
    let mut browser = control.browser();
    for verified in [json!(false), json!(null), json!("yes"), json!(1)] {
        let claims = json!({"sub": "x", "email": "ada@example.com", "email_verified": verified});
        let answer = sign_in(&control, &provider, &mut browser, "/account", claims).await;
        assert_eq!(answer.status, StatusCode::FORBIDDEN);
        assert!(answer.text.contains("is not confirmed"), "{}", answer.text);
        assert_eq!(browser.cookie, None);
    }
    let mut tx = control.app.store.begin().await.unwrap();
    let now = control.app.now();
    users::set_email(&mut tx, user, "Ada", "ada@example.com", false, now)
        .await
        .unwrap();
    tx.commit().await.unwrap();
    let answer = sign_in(&control, &provider, &mut browser, "/account", ada()).await;
    assert_eq!(answer.status, StatusCode::FORBIDDEN);
    assert!(
        answer.text.contains("Confirm your address first"),
        "{}",
        answer.text
    );
    assert_eq!(
        (browser.cookie, identities(&control, user).await),
        (None, 0)
    );
}

/// An address that was reassigned at the provider does not open the account of its former owner.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reassigned_address_opens_no_account() {
    let provider = Provider::start().await;
    let control = with_provider(&provider, &json!({})).await;
    let user = control.person("Ada").await.user;
    sign_in(
        &control,
        &provider,
        &mut control.browser(),
        "/account",
        ada(),
    )
    .await;
    let mut browser = control.browser();
    let mut heir = ada();
    heir["sub"] = json!("heir-2");
    let answer = sign_in(&control, &provider, &mut browser, "/account", heir).await;
    assert_eq!(answer.status, StatusCode::FORBIDDEN);
    assert_eq!(
        (browser.cookie, identities(&control, user).await),
        (None, 1)
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_suspended_user_cannot_sign_in() {
    let provider = Provider::start().await;
    let control = with_provider(&provider, &json!({})).await;
    let user = control.person("Ada").await.user;
    sign_in(
        &control,
        &provider,
        &mut control.browser(),
        "/account",
        ada(),
    )
    .await;
    let mut tx = control.app.store.begin().await.unwrap();
    let now = control.app.now();
    users::set_status(&mut tx, user, Status::Suspended, now)
        .await
        .unwrap();
    tx.commit().await.unwrap();
    let mut browser = control.browser();
    let answer = sign_in(&control, &provider, &mut browser, "/account", ada()).await;
    assert_eq!(answer.status, StatusCode::FORBIDDEN);
    assert_eq!(browser.cookie, None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn our_second_factor_is_still_required() {
    let provider = Provider::start().await;
    let control = with_provider(&provider, &json!({})).await;
    let user = control.person("Ada").await.user;
    let mut tx = control.app.store.begin().await.unwrap();
    let now = control.app.now();
    let sealed = store::SealedBytes(vec![1; 60]);
    users::begin_totp(&mut tx, user, &sealed, now)
        .await
        .unwrap();
    users::confirm_totp(&mut tx, user, &sealed, 1, now)
        .await
        .unwrap();
    tx.commit().await.unwrap();
    let mut browser = control.browser();
    let answer = sign_in(&control, &provider, &mut browser, "/account", ada()).await;
    let on = answer.location.as_deref();
    assert_eq!(on, Some("/login/second-factor?next=/account"));
    assert_eq!(
        browser.open("/api/user").await.status,
        StatusCode::UNAUTHORIZED
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_user_without_invitation_gets_no_account_and_an_invited_one_joins() {
    let provider = Provider::start().await;
    let control = with_provider(&provider, &json!({})).await;
    let workspace = control.person("Ada").await.workspace;
    let grace = json!({"sub": "g", "email": "grace@example.com", "email_verified": true});
    let mut browser = control.browser();
    let answer = sign_in(&control, &provider, &mut browser, "/account", grace.clone()).await;
    assert_eq!(answer.status, StatusCode::FORBIDDEN);
    assert!(answer.text.contains("no account here"), "{}", answer.text);

    let mut owner = control.signed_in("Ada").await;
    let path = format!("/api/workspaces/{workspace}/invitations");
    let body = json!({"email": "grace@example.com", "role": "viewer"});
    let sent = owner.api(http::Method::POST, &path, body).await;
    assert_eq!(sent.status, StatusCode::CREATED, "{}", sent.text);
    let url = sent.json()["url"].as_str().unwrap().to_owned();
    let path = url
        .strip_prefix(crate::support::BASE_URL)
        .unwrap()
        .to_owned();
    let page = browser.open(&path).await;
    assert!(page.text.contains("Join with Example ID"), "{}", page.text);
    // The invitation is valid only for the invited address, whatever session opens the link.
    let eve = json!({"sub": "e", "email": "eve@example.com", "email_verified": true});
    let answer = sign_in(&control, &provider, &mut browser, &path, eve).await;
    assert_eq!(answer.status, StatusCode::FORBIDDEN);
    let answer = sign_in(&control, &provider, &mut browser, &path, grace).await;
    assert_eq!(
        answer.location.as_deref(),
        Some("/welcome"),
        "{}",
        answer.text
    );
    let user = browser.open("/api/user").await.json();
    assert_eq!(
        (&user["name"], &user["emailVerified"]),
        (&json!("grace"), &json!(true))
    );
    let account = browser.open("/account").await;
    assert!(account.text.contains("viewer"), "{}", account.text);
    assert!(
        account.text.contains("You have no password"),
        "{}",
        account.text
    );
    assert_eq!(
        control.browser().open(&path).await.status,
        StatusCode::NOT_FOUND
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_domain_rule_matches_the_whole_domain() {
    let provider = Provider::start().await;
    let rule = json!({"sign_up": "domains", "domains": ["Example.com"]});
    let control = with_provider(&provider, &rule).await;
    for (email, verified, status) in [
        ("a@example.com", true, StatusCode::SEE_OTHER),
        ("b@example.com", false, StatusCode::FORBIDDEN),
        ("c@sub.example.com", true, StatusCode::FORBIDDEN),
        ("d@notexample.com", true, StatusCode::FORBIDDEN),
        ("e@example.com.evil.example", true, StatusCode::FORBIDDEN),
    ] {
        let claims = json!({"sub": email, "email": email, "email_verified": verified});
        let mut browser = control.browser();
        let answer = sign_in(&control, &provider, &mut browser, "/account", claims).await;
        assert_eq!(answer.status, status, "{email}");
    }
}

/// A user without a password proves a change of address with a recent sign-in.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_password_a_fresh_sign_in_is_the_proof() {
    let provider = Provider::start().await;
    let control = with_provider(&provider, &json!({"sign_up": "anyone"})).await;
    let mut browser = control.browser();
    sign_in(&control, &provider, &mut browser, "/account", ada()).await;
    control.clock.advance(11 * 60);
    let change = [("email", "new@example.com")];
    let first = browser.submit("/account/email", &change).await.location;
    assert_eq!(first.as_deref(), Some("/account/confirm?next=/account"));
    let page = browser.open("/account/confirm?next=/account").await;
    assert!(
        page.text.contains("Sign in again with Example ID"),
        "{}",
        page.text
    );
    let answer = browser.open("/login/openid?next=/account&anew=yes").await;
    let location = answer.location.unwrap();
    assert!(location.contains("prompt=login") && location.contains("max_age=0"));
    let url: reqwest::Url = location.parse().unwrap();
    let query: Vec<_> = url.query_pairs().into_owned().collect();
    let path = format!(
        "/login/openid/callback?code=abc&state={}",
        value(&query, "state")
    );
    // The provider reports a sign-in of an hour ago, but a new one was requested.
    let mut stale = ada();
    stale["auth_time"] = json!(control.app.now().as_second() - 3600);
    provider.set_next_token(control.app.now(), value(&query, "nonce"), &stale);
    assert_eq!(browser.open(&path).await.status, StatusCode::BAD_GATEWAY);
    // A report without a time proves nothing either.
    let query = begin(&mut browser, "/account&anew=yes").await;
    provider.set_next_token(control.app.now(), value(&query, "nonce"), &ada());
    let path = format!(
        "/login/openid/callback?code=abc&state={}",
        value(&query, "state")
    );
    assert_eq!(browser.open(&path).await.status, StatusCode::BAD_GATEWAY);
    let answer = sign_in_anew(&control, &provider, &mut browser).await;
    assert_eq!(
        answer.location.as_deref(),
        Some("/account"),
        "{}",
        answer.text
    );
    let sent = browser.submit("/account/email", &change).await;
    assert_eq!(sent.location.as_deref(), Some("/account?done=email-sent"));
}

/// An existing session at the provider is not a fresh proof, and neither is one of unknown age.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sign_in_is_a_fresh_proof_only_if_the_provider_confirms_it() {
    let provider = Provider::start().await;
    let control = with_provider(&provider, &json!({"sign_up": "anyone"})).await;
    let now = control.app.now().as_second();
    let change = [("email", "new@example.com")];
    for (auth_time, is_fresh) in [(None, false), (Some(now - 3600), false), (Some(now), true)] {
        let mut person = ada();
        if let Some(auth_time) = auth_time {
            person["auth_time"] = json!(auth_time);
        }
        let mut browser = control.browser();
        sign_in(&control, &provider, &mut browser, "/account", person).await;
        let answer = browser.submit("/account/email", &change).await.location;
        let expected = if is_fresh {
            "/account?done=email-sent"
        } else {
            "/account/confirm?next=/account"
        };
        assert_eq!(answer.as_deref(), Some(expected), "{auth_time:?}");
    }
}

async fn sign_in_anew(
    control: &TestControl,
    provider: &Provider,
    browser: &mut Browser<'_>,
) -> crate::support::Answer {
    let query = begin(browser, "/account&anew=yes").await;
    let mut fresh = ada();
    fresh["auth_time"] = json!(control.app.now().as_second());
    provider.set_next_token(control.app.now(), value(&query, "nonce"), &fresh);
    let state = value(&query, "state");
    browser
        .open(&format!("/login/openid/callback?code=abc&state={state}"))
        .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_return_address_is_a_path_of_this_platform() {
    let provider = Provider::start().await;
    let control = with_provider(&provider, &json!({"sign_up": "anyone"})).await;
    for next in ["//evil.example", "https://evil.example", "/%5Cevil.example"] {
        let mut browser = control.browser();
        let answer = sign_in(&control, &provider, &mut browser, next, ada()).await;
        assert_eq!(answer.location.as_deref(), Some("/"), "{next}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_site_cannot_submit_the_form() {
    let provider = Provider::start().await;
    let control = with_provider(&provider, &json!({})).await;
    let mut browser = control.browser();
    let answer = browser
        .send(
            http::Method::GET,
            "/login/openid?next=/a",
            None,
            &[("sec-fetch-site", "cross-site")],
        )
        .await;
    assert_eq!(answer.location.as_deref(), Some("/login?next=/a"));
    assert_eq!(browser.sign_in, None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_provider_there_is_no_button() {
    let platform = TestControl::start("").await;
    let mut browser = platform.browser();
    assert!(!browser.open("/login").await.text.contains("/login/openid"));
    let answer = browser.open("/login/openid").await;
    assert_eq!(answer.status, StatusCode::NOT_FOUND);
}

/// An unreachable provider prevents neither the platform's start nor a sign-in with a password. Its
/// button leads to an error page.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unreachable_provider_does_not_prevent_sign_in_with_a_password() {
    let provider = Provider::start().await;
    provider.answers(Answer::Unavailable);
    let control = with_provider(&provider, &json!({})).await;
    control.person("Ada").await;
    let mut browser = control.browser();
    for seconds in [0, 1, 3] {
        control.clock.advance(seconds);
        let answer = browser.open("/login/openid?next=/account").await;
        assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE);
        assert!(
            answer.text.contains("Example ID cannot be reached"),
            "{}",
            answer.text
        );
    }
    assert_eq!(
        provider.requests(),
        1,
        "an unreachable provider is not contacted for a while"
    );
    control.signed_in("Ada").await;
    // Reachable again, a little later.
    provider.answers(Answer::Good);
    control.clock.advance(1);
    let answer = sign_in(&control, &provider, &mut browser, "/account", ada()).await;
    assert_eq!(
        answer.location.as_deref(),
        Some("/account"),
        "{}",
        answer.text
    );
}

/// A key that was published since the last fetch is fetched. Unknown key ids trigger at most two
/// fetches a minute.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_key_is_fetched_at_a_limited_rate() {
    let provider = Provider::start().await;
    let control = with_provider(&provider, &json!({"sign_up": "anyone"})).await;
    let mut browser = control.browser();
    sign_in(&control, &provider, &mut browser, "/account", ada()).await;
    browser.cookie = None;
    let before = provider.key_requests();
    provider.signs(TokenSignature::UnknownKid);
    for _ in 0..3 {
        let answer = sign_in(&control, &provider, &mut browser, "/account", ada()).await;
        assert_eq!(answer.status, StatusCode::BAD_GATEWAY);
    }
    assert_eq!(provider.key_requests(), before, "not within half a minute");
    control.clock.advance(30);
    sign_in(&control, &provider, &mut browser, "/account", ada()).await;
    assert_eq!(provider.key_requests(), before + 1);
    provider.signs(TokenSignature::NewKey);
    control.clock.advance(30);
    let answer = sign_in(&control, &provider, &mut browser, "/account", ada()).await;
    assert_eq!(answer.status, StatusCode::SEE_OTHER, "{}", answer.text);
}
