//! Hostile input from a provider, a browser or a network attacker. None of it signs a user in.

use http::StatusCode;
use serde_json::json;

use super::{ada, begin, sign_in, value, with_provider};
use crate::accounts::openid::provider::{Answer, Provider, TokenSignature};

/// Every required claim of an ID token, wrong or missing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_with_a_wrong_claim_signs_no_user_in() {
    let provider = Provider::start().await;
    let control = with_provider(&provider, &json!({"sign_up": "anyone"})).await;
    let now = control.app.now().as_second();
    let mut browser = control.browser();
    for (what, change) in [
        ("another nonce", json!({"nonce": "A".repeat(43)})),
        ("no nonce", json!({"nonce": null})),
        ("another audience", json!({"aud": "other"})),
        ("no audience", json!({"aud": null})),
        ("empty audiences", json!({"aud": []})),
        ("another party", json!({"azp": "other"})),
        (
            "two audiences and no party",
            json!({"aud": ["svc", "other"]}),
        ),
        ("another issuer", json!({"iss": "https://evil.example"})),
        (
            "the issuer with a slash",
            json!({"iss": format!("{}/", provider.issuer())}),
        ),
        ("expired", json!({"exp": now - 60})),
        ("no end", json!({"exp": null})),
        ("of the future", json!({"iat": now + 61})),
        ("not in force yet", json!({"nbf": now + 61})),
        ("no time", json!({"iat": null})),
        ("no subject", json!({"sub": null})),
        ("an empty subject", json!({"sub": ""})),
        ("a long subject", json!({"sub": "a".repeat(256)})),
        ("a subject of another kind", json!({"sub": 7})),
    ] {
        let mut claims = ada();
        for (name, value) in change.as_object().unwrap() {
            claims[name] = value.clone();
        }
        let answer = sign_in(&control, &provider, &mut browser, "/account", claims).await;
        assert_eq!(answer.status, StatusCode::BAD_GATEWAY, "{what}");
        assert_eq!(browser.cookie, None, "{what}");
    }
    // Values at the limits of acceptance.
    for change in [
        json!({"exp": now - 59}),
        json!({"iat": now + 60}),
        json!({"aud": ["svc", "other"], "azp": "svc"}),
    ] {
        let mut claims = ada();
        for (name, value) in change.as_object().unwrap() {
            claims[name] = value.clone();
        }
        let mut browser = control.browser();
        let answer = sign_in(&control, &provider, &mut browser, "/account", claims).await;
        assert_eq!(
            answer.status,
            StatusCode::SEE_OTHER,
            "{change}: {}",
            answer.text
        );
    }
}

/// `alg: none`, the public key as a secret, other keys, no signature.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_that_the_provider_did_not_sign_signs_no_user_in() {
    let provider = Provider::start().await;
    let control = with_provider(&provider, &json!({"sign_up": "anyone"})).await;
    let mut browser = control.browser();
    for sign in [
        TokenSignature::None,
        TokenSignature::PublicKeyAsSecret,
        TokenSignature::OtherKey,
        TokenSignature::UnknownKid,
        TokenSignature::Stripped,
    ] {
        provider.signs(sign);
        let answer = sign_in(&control, &provider, &mut browser, "/account", ada()).await;
        assert_eq!(answer.status, StatusCode::BAD_GATEWAY, "{sign:?}");
        assert_eq!(browser.cookie, None, "{sign:?}");
    }
    provider.signs(TokenSignature::Good);
    let answer = sign_in(&control, &provider, &mut browser, "/account", ada()).await;
    assert_eq!(answer.status, StatusCode::SEE_OTHER, "{}", answer.text);
}

/// Even if the provider announces such algorithms, a public key is not a secret.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn announced_weak_algorithms_are_not_accepted() {
    let provider = Provider::start().await;
    provider.set_metadata(
        "id_token_signing_alg_values_supported",
        json!(["none", "HS256", "ES256"]),
    );
    let control = with_provider(&provider, &json!({"sign_up": "anyone"})).await;
    let mut browser = control.browser();
    for sign in [TokenSignature::None, TokenSignature::PublicKeyAsSecret] {
        provider.signs(sign);
        let answer = sign_in(&control, &provider, &mut browser, "/account", ada()).await;
        assert_eq!(answer.status, StatusCode::BAD_GATEWAY, "{sign:?}");
    }
}

/// Answers are limited in size and time, and redirects are not followed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_invalid_answer_ends_with_a_page() {
    let provider = Provider::start().await;
    let control = with_provider(&provider, &json!({"sign_up": "anyone"})).await;
    let mut browser = control.browser();
    for (answer, status) in [
        (Answer::Huge, StatusCode::BAD_GATEWAY),
        (Answer::Redirect, StatusCode::BAD_GATEWAY),
        (Answer::NotJson, StatusCode::BAD_GATEWAY),
        (Answer::Refused, StatusCode::BAD_GATEWAY),
        (Answer::Slow, StatusCode::SERVICE_UNAVAILABLE),
    ] {
        provider.answers(answer);
        let page = sign_in(&control, &provider, &mut browser, "/account", ada()).await;
        assert_eq!(page.status, status, "{answer:?}: {}", page.text);
        assert_eq!(
            (&browser.cookie, &browser.sign_in),
            (&None, &None),
            "{answer:?}"
        );
    }
}

/// A forged document at the provider's address, or one with unencrypted endpoints.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn metadata_of_another_issuer_is_refused() {
    for (name, bad) in [
        ("issuer", json!("https://evil.example")),
        ("token_endpoint", json!("http://evil.example/token")),
        ("authorization_endpoint", json!("javascript:alert(1)")),
        ("jwks_uri", json!("file:///etc/passwd")),
        ("jwks_uri", json!(7)),
    ] {
        let provider = Provider::start().await;
        provider.set_metadata(name, bad.clone());
        let control = with_provider(&provider, &json!({})).await;
        let answer = control.browser().open("/login/openid").await;
        assert_eq!(answer.status, StatusCode::BAD_GATEWAY, "{name}: {bad}");
    }
}

/// RFC 9207: an answer of another provider is refused. So is one without an issuer, if the provider
/// announces that it sends one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_that_names_another_issuer_is_refused() {
    let provider = Provider::start().await;
    provider.set_metadata(
        "authorization_response_iss_parameter_supported",
        json!(true),
    );
    let control = with_provider(&provider, &json!({"sign_up": "anyone"})).await;
    let mut browser = control.browser();
    let good = provider.issuer().replace(':', "%3A").replace('/', "%2F");
    for (iss, status) in [
        ("&iss=https%3A%2F%2Fevil.example", StatusCode::BAD_GATEWAY),
        ("&iss=", StatusCode::BAD_GATEWAY),
        ("", StatusCode::BAD_GATEWAY),
        (&format!("&iss={good}"), StatusCode::SEE_OTHER),
    ] {
        let query = begin(&mut browser, "/account").await;
        provider.set_next_token(control.app.now(), value(&query, "nonce"), &ada());
        let state = value(&query, "state");
        let requests = provider.requests();
        let path = format!("/login/openid/callback?code=abc&state={state}{iss}");
        let answer = browser.open(&path).await;
        assert_eq!(answer.status, status, "{iss}: {}", answer.text);
        if status == StatusCode::BAD_GATEWAY {
            assert_eq!(
                provider.requests(),
                requests,
                "the code went to the provider: {iss}"
            );
        }
    }
}

/// Login CSRF: an answer that another browser obtained does not work in this one, and does not
/// disturb the pending sign-in.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_belongs_to_the_browser_that_started_the_sign_in() {
    let provider = Provider::start().await;
    let control = with_provider(&provider, &json!({"sign_up": "anyone"})).await;
    let (mut eve, mut ada_s) = (control.browser(), control.browser());
    let eves = begin(&mut eve, "/account").await;
    let eves = format!(
        "/login/openid/callback?code=abc&state={}",
        value(&eves, "state")
    );
    assert_eq!(ada_s.open(&eves).await.status, StatusCode::BAD_REQUEST);
    let query = begin(&mut ada_s, "/account").await;
    assert_eq!(ada_s.open(&eves).await.status, StatusCode::BAD_REQUEST);
    for state in ["", "&state=", "&state=x"] {
        let path = format!("/login/openid/callback?code=abc{state}");
        assert_eq!(ada_s.open(&path).await.status, StatusCode::BAD_REQUEST);
    }
    assert_eq!(ada_s.cookie, None);
    provider.set_next_token(control.app.now(), value(&query, "nonce"), &ada());
    let state = value(&query, "state");
    let own = format!("/login/openid/callback?code=abc&state={state}");
    let doubled = format!("{own}&code=def");
    assert_eq!(ada_s.open(&doubled).await.status, StatusCode::BAD_REQUEST);
    let answer = ada_s.open(&own).await;
    assert_eq!(answer.status, StatusCode::SEE_OTHER, "{}", answer.text);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_works_once_and_for_ten_minutes() {
    let provider = Provider::start().await;
    let control = with_provider(&provider, &json!({"sign_up": "anyone"})).await;
    let mut browser = control.browser();
    let query = begin(&mut browser, "/account").await;
    provider.set_next_token(control.app.now(), value(&query, "nonce"), &ada());
    let state = value(&query, "state");
    let path = format!("/login/openid/callback?code=abc&state={state}");
    let mut replayed = browser.clone();
    assert_eq!(browser.open(&path).await.status, StatusCode::SEE_OTHER);
    let requests = provider.requests();
    assert_eq!(replayed.open(&path).await.status, StatusCode::BAD_REQUEST);
    assert_eq!((provider.requests(), replayed.cookie), (requests, None));

    let mut late = control.browser();
    let query = begin(&mut late, "/account").await;
    control.clock.advance(600);
    let state = value(&query, "state");
    let path = format!("/login/openid/callback?code=abc&state={state}");
    assert_eq!(late.open(&path).await.status, StatusCode::BAD_REQUEST);
}

/// A refusal of the provider ends the sign-in. None of its text appears on our page.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refusal_has_its_own_page() {
    let provider = Provider::start().await;
    let control = with_provider(&provider, &json!({})).await;
    let mut browser = control.browser();
    let query = begin(&mut browser, "/account").await;
    let state = value(&query, "state");
    let path = format!(
        "/login/openid/callback?error=access_denied&error_description=evil-words&state={state}"
    );
    let answer = browser.open(&path).await;
    assert_eq!(answer.status, StatusCode::FORBIDDEN);
    assert!(!answer.text.contains("evil-words"), "{}", answer.text);
    assert_eq!(browser.sign_in, None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_cookie_is_for_this_host_and_short_lived() {
    let provider = Provider::start().await;
    let control = with_provider(&provider, &json!({})).await;
    let answer = control.browser().open("/login/openid").await;
    let cookie = answer.headers["set-cookie"].to_str().unwrap();
    assert!(cookie.starts_with("__Host-svc_sign_in="), "{cookie}");
    assert!(
        cookie.ends_with("; Path=/; Max-Age=600; HttpOnly; SameSite=Lax; Secure"),
        "{cookie}"
    );
}
