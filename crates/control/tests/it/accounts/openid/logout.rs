//! Sign-out together with the provider: OpenID Connect Back-Channel Logout 1.0, and RP-Initiated
//! Logout 1.0.

use http::StatusCode;
use serde_json::{Value, json};
use store::{revoked_tokens, sessions};

use super::provider::{Answer as ProviderAnswer, Provider, TokenSignature};
use super::{ada, address, begin, sign_in, value, with_provider};
use crate::support::{Answer, BASE_URL, Browser, TestControl};

const PATH: &str = "/login/openid/back-channel-logout";

/// Claims of a logout token with these changes, where `null` removes a claim.
fn claims(control: &TestControl, provider: &Provider, changes: &Value) -> Value {
    let now = control.app.now().as_second();
    let mut all = json!({
        "iss": provider.issuer(),
        "aud": "svc",
        "iat": now,
        "exp": now + 120,
        "jti": format!("jti-{}", crate::support::next()),
        "sub": "ada-1",
        "events": {"http://schemas.openid.net/event/backchannel-logout": {}},
    });
    for (name, value) in changes.as_object().unwrap() {
        all[name] = value.clone();
    }
    let members = all.as_object_mut().unwrap();
    members.retain(|_, value| !value.is_null());
    all
}

/// The provider's request, without cookies and without the headers of a browser.
async fn post(control: &TestControl, token: &str) -> Answer {
    let fields = [("logout_token", token)];
    let mut browser = control.browser();
    let answer = browser.submit_from(PATH, &fields, &[]).await;
    assert_eq!(
        answer.headers["cache-control"], "no-store",
        "{}",
        answer.text
    );
    answer
}

async fn log_out(control: &TestControl, provider: &Provider, changes: Value) -> Answer {
    let claims = claims(control, provider, &changes);
    post(control, &provider.logout_token(&claims, "logout+jwt")).await
}

/// A browser that signed in at the provider, in this session there.
async fn with_sid<'a>(control: &'a TestControl, provider: &Provider, sid: Value) -> Browser<'a> {
    let mut browser = control.browser();
    let mut claims = ada();
    claims["sid"] = sid;
    let answer = sign_in(control, provider, &mut browser, "/account", claims).await;
    assert_eq!(answer.status, StatusCode::SEE_OTHER, "{}", answer.text);
    browser
}

async fn is_signed_in(browser: &mut Browser<'_>) -> bool {
    browser.open("/api/user").await.status == 200
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_provider_ends_the_sessions_that_it_started() {
    let provider = Provider::start().await;
    let control = with_provider(&provider, &json!({})).await;
    let user = control.person("Ada").await.user;
    let mut own = control.signed_in("Ada").await;
    let mut first = with_sid(&control, &provider, json!("s-1")).await;
    let mut read = control.app.store.read().await.unwrap();
    let of_sid = sessions::of_sid(&mut read, provider.issuer(), "s-1").await;
    let first_id = of_sid.unwrap()[0].id;
    drop(read);
    let mut second = with_sid(&control, &provider, json!("s-2")).await;
    let mut third = with_sid(&control, &provider, Value::Null).await;

    // Tokens for an unknown session, and for another user's session with the same id.
    for other in [
        json!({"sid": "s-9", "sub": null}),
        json!({"sid": "s-1", "sub": "eve-1"}),
    ] {
        assert_eq!(log_out(&control, &provider, other).await.status, 200);
        assert!(is_signed_in(&mut first).await && is_signed_in(&mut third).await);
    }
    let answer = log_out(&control, &provider, json!({"sid": "s-1", "sub": null})).await;
    assert_eq!((answer.status, answer.text.as_str()), (200, ""));
    assert!(!is_signed_in(&mut first).await && is_signed_in(&mut second).await);
    // Its sessions at tunnels end with it: engines receive the id.
    let mut read = control.app.store.read().await.unwrap();
    let is_revoked = revoked_tokens::is_revoked(&mut read, first_id.as_str()).await;
    assert!(is_revoked.unwrap());
    drop(read);
    // A session here whose ID token did not name the provider's session ends with any of them.
    let answer = log_out(&control, &provider, json!({"sid": "s-9"})).await;
    assert_eq!(answer.status, 200);
    assert!(!is_signed_in(&mut third).await && is_signed_in(&mut second).await);
    let answer = log_out(&control, &provider, json!({})).await;
    assert_eq!(answer.status, 200);
    assert!(!is_signed_in(&mut second).await);
    assert!(
        is_signed_in(&mut own).await,
        "it was not started by the provider"
    );
    let mut read = control.app.store.read().await.unwrap();
    let entries = store::audit::list_all(&mut read, store::Paging::DEFAULT).await;
    let entries = entries.unwrap().items;
    let ended = entries
        .iter()
        .filter(|one| one.action == "user.sessions_ended");
    let ended: Vec<_> = ended
        .map(|one| (&one.target_id, &one.details["openid"]))
        .collect();
    assert_eq!(
        ended,
        vec![(&user.to_string(), &json!(provider.issuer())); 3]
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_logout_token_is_accepted_once_and_by_any_process() {
    let provider = Provider::start().await;
    let control = with_provider(&provider, &json!({})).await;
    control.person("Ada").await;
    let token = provider.logout_token(&claims(&control, &provider, &json!({})), "JWT");
    assert_eq!(post(&control, &token).await.status, 200);
    let mut later = with_sid(&control, &provider, json!("s-1")).await;
    let other = control.second_process().await.unwrap();
    for process in [&control, &other] {
        let answer = post(process, &token).await;
        assert_eq!(answer.json()["error"], "invalid_request");
        assert_eq!(answer.status, 400);
    }
    assert!(is_signed_in(&mut later).await);
}

/// Section 2.6 of the specification.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_invalid_logout_token_ends_nothing() {
    let provider = Provider::start().await;
    let control = with_provider(&provider, &json!({})).await;
    control.person("Ada").await;
    let mut browser = with_sid(&control, &provider, json!("s-1")).await;
    let now = control.app.now().as_second();
    let event = "http://schemas.openid.net/event/backchannel-logout";
    for changes in [
        json!({"iss": "https://evil.example"}),
        json!({"iss": null}),
        json!({"aud": "other"}),
        json!({"aud": ["other", "another"]}),
        json!({"aud": null}),
        json!({"exp": now - 61}),
        json!({"exp": null}),
        json!({"exp": "soon"}),
        json!({"iat": now + 61}),
        json!({"iat": now - 700, "exp": now + 1_000_000}),
        json!({"iat": null}),
        json!({"jti": null}),
        json!({"jti": ""}),
        json!({"jti": "j".repeat(256)}),
        json!({"sub": null}),
        json!({"sub": ""}),
        json!({"sub": 7}),
        json!({"sid": ""}),
        json!({"events": null}),
        json!({"events": {}}),
        json!({"events": [event]}),
        json!({"events": {event: true}}),
        json!({"events": {"http://schemas.openid.net/event/other": {}}}),
        json!({"nonce": "n"}),
    ] {
        let answer = log_out(&control, &provider, changes.clone()).await;
        assert_eq!(answer.status, 400, "{changes}");
        assert_eq!(answer.json()["error"], "invalid_request", "{changes}");
    }
    let good = claims(&control, &provider, &json!({}));
    for sign in [
        TokenSignature::None,
        TokenSignature::PublicKeyAsSecret,
        TokenSignature::OtherKey,
        TokenSignature::UnknownKid,
    ] {
        provider.signs(sign);
        let token = provider.logout_token(&good, "logout+jwt");
        assert_eq!(post(&control, &token).await.status, 400, "{sign:?}");
    }
    provider.signs(TokenSignature::Good);
    let other_kind = provider.logout_token(&good, "at+jwt");
    for token in [other_kind.as_str(), "", "a.b.c", "x"] {
        assert_eq!(post(&control, token).await.status, 400, "{token}");
    }
    assert!(is_signed_in(&mut browser).await);
    for kind in ["JWT", "application/logout+jwt"] {
        let claims = claims(&control, &provider, &json!({"aud": ["svc", "other"]}));
        let token = provider.logout_token(&claims, kind);
        assert_eq!(post(&control, &token).await.status, 200, "{kind}");
    }
    assert!(!is_signed_in(&mut browser).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_provider_there_is_no_back_channel() {
    let control = TestControl::start("").await;
    let mut browser = control.browser();
    let answer = browser
        .submit_from(PATH, &[("logout_token", "a.b.c")], &[])
        .await;
    assert_eq!(answer.status, 404);
}

fn with_end_session() -> Value {
    json!({"end_session": true})
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sign_out_continues_at_the_provider() {
    let provider = Provider::start().await;
    let end = format!("{}/end?x=1", provider.issuer());
    provider.set_metadata("end_session_endpoint", json!(end));
    let control = with_provider(&provider, &with_end_session()).await;
    control.person("Ada").await;
    let mut browser = with_sid(&control, &provider, json!("s-1")).await;
    let page = browser
        .submit("/logout", &[("next", "/projects/x?a=b")])
        .await;
    assert_eq!(browser.cookie, None);
    let url = address(&page);
    assert!(url.as_str().starts_with(&end), "{url}");
    let query: Vec<_> = url.query_pairs().into_owned().collect();
    assert_eq!(value(&query, "client_id"), "svc");
    let back = value(&query, "post_logout_redirect_uri");
    assert_eq!(back, format!("{BASE_URL}/login/openid/signed-out"));
    let state = value(&query, "state");
    assert_eq!(state, "/projects/x?a=b");
    for (state, next) in [
        (state, "/login?next=/projects/x?a=b"),
        ("//evil.example", "/login?next=/"),
        ("", "/login?next=/"),
    ] {
        let state = state.replace('?', "%3F").replace('=', "%3D");
        let path = format!("/login/openid/signed-out?state={state}");
        assert_eq!(browser.open(&path).await.location.as_deref(), Some(next));
    }
    let plain = browser.open("/login/openid/signed-out").await;
    assert_eq!(plain.location.as_deref(), Some("/login"));
    // A session that began with a password does not continue there.
    let mut own = control.signed_in("Ada").await;
    let answer = own.submit("/logout", &[]).await;
    assert_eq!(answer.location.as_deref(), Some("/login"));
}

/// The sign-out here does not depend on the provider.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sign_out_succeeds_without_the_provider() {
    for (endpoint, section, is_down) in [
        (true, json!({}), false),
        (false, with_end_session(), false),
        (true, with_end_session(), true),
    ] {
        let provider = Provider::start().await;
        if endpoint {
            let end = format!("{}/end", provider.issuer());
            provider.set_metadata("end_session_endpoint", json!(end));
        }
        let control = with_provider(&provider, &section).await;
        control.person("Ada").await;
        let mut browser = with_sid(&control, &provider, json!("s-1")).await;
        if is_down {
            provider.answers(ProviderAnswer::Unavailable);
            control.clock.advance(2 * 3600);
        }
        let before = browser.clone();
        let answer = browser.submit("/logout", &[]).await;
        assert_eq!(answer.location.as_deref(), Some("/login"), "{section}");
        assert!(!is_signed_in(&mut { before }).await);
    }
}

/// A provider in plain text could read or change what is sent there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_address_of_a_sign_out_must_be_safe() {
    let provider = Provider::start().await;
    provider.set_metadata("end_session_endpoint", json!("http://id.example/end"));
    let control = with_provider(&provider, &with_end_session()).await;
    control.person("Ada").await;
    let mut browser = control.browser();
    let answer = browser.open("/login/openid?next=/account").await;
    assert_eq!(answer.status, StatusCode::BAD_GATEWAY);
    provider.set_metadata("end_session_endpoint", Value::Null);
    control.clock.advance(6);
    begin(&mut browser, "/account").await;
}
