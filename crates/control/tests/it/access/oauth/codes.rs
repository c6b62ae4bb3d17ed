//! OA-3: a code works once, within five minutes, for the client to which it is bound.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::ConnectInfo;
use http::Request;
use http_body_util::BodyExt as _;
use store::users::Status;
use tower::ServiceExt as _;
use types::form::encode;

use super::{VERIFIER, audit, code, error, program, redeem, with_token};
use crate::support::{CALLBACK, LOOPBACK, TestControl, both};

both! {
    oa_3_a_code_is_valid_for_five_minutes,
    oa_3_reusing_a_code_revokes_its_token,
    oa_3_of_parallel_requests_one_redeems_and_the_others_revoke,
    oa_3_a_code_is_bound_to_client_callback_and_verifier,
    oa_5_missing_parameters_of_a_token_request_are_named,
    a_code_ends_with_the_session_that_approved_it,
}

async fn oa_3_a_code_is_valid_for_five_minutes(control: TestControl) {
    control.person("Ada").await;
    let mut browser = control.signed_in("Ada").await;
    for (seconds, status) in [(299, 200), (300, 400), (3600, 400)] {
        let code = code(&mut browser, &[]).await;
        control.clock.advance(seconds);
        let answer = redeem(&control, &code, &[]).await;
        assert_eq!(answer.status, status, "{seconds}: {}", answer.text);
    }
}

async fn oa_3_reusing_a_code_revokes_its_token(control: TestControl) {
    control.person("Ada").await;
    let mut browser = control.signed_in("Ada").await;
    // Any use of it counts, by any client and in any form.
    for changes in [
        &[][..],
        &[("client_id", "other")],
        &[(
            "code_verifier",
            "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXX",
        )],
    ] {
        let code = code(&mut browser, &[]).await;
        let issued = redeem(&control, &code, &[]).await.json();
        let token = issued["access_token"].as_str().unwrap();
        // A minute or an hour later.
        control.clock.advance(3600);
        assert_eq!(with_token(&control, "/api/whoami", token).await.status, 200);
        assert_eq!(
            error(&redeem(&control, &code, changes).await),
            "invalid_grant"
        );
        let who = with_token(&control, "/api/whoami", token).await;
        assert_eq!(who.status, 401, "{changes:?}");
        assert_eq!(audit(&control).await.last().unwrap().0, "oauth.code_reused");
    }
}

async fn oa_3_of_parallel_requests_one_redeems_and_the_others_revoke(control: TestControl) {
    control.person("Ada").await;
    let mut browser = control.signed_in("Ada").await;
    let code = code(&mut browser, &[]).await;
    let body = encode([
        ("grant_type", "authorization_code"),
        ("client_id", "web"),
        ("redirect_uri", CALLBACK),
        ("code", &code),
        ("code_verifier", VERIFIER),
    ]);
    let start = Arc::new(tokio::sync::Barrier::new(64));
    let tries: Vec<_> = (0..64)
        .map(|_| {
            let (router, body, start) = (control.router.clone(), body.clone(), Arc::clone(&start));
            tokio::spawn(async move {
                let request = Request::post("/oauth/token")
                    .header("content-type", "application/x-www-form-urlencoded")
                    .extension(ConnectInfo(std::net::SocketAddr::from(([192, 0, 2, 9], 1))))
                    .body(Body::from(body))
                    .unwrap();
                start.wait().await;
                let response = router.oneshot(request).await.unwrap();
                let status = response.status();
                let bytes = response.into_body().collect().await.unwrap().to_bytes();
                (
                    status,
                    serde_json::from_slice::<serde_json::Value>(&bytes).unwrap(),
                )
            })
        })
        .collect();
    let mut tokens = Vec::new();
    for attempt in tries {
        let (status, answer) = attempt.await.unwrap();
        if let Some(token) = answer["access_token"].as_str() {
            tokens.push(token.to_owned());
        } else {
            assert_eq!(status, 400, "{answer}");
            assert_eq!(answer["error"], "invalid_grant");
        }
    }
    assert_eq!(tokens.len(), 1);
    let who = with_token(&control, "/api/whoami", &tokens[0]).await;
    assert_eq!(who.status, 401);
    let done: Vec<_> = audit(&control)
        .await
        .into_iter()
        .map(|(action, _)| action)
        .collect();
    assert_eq!(
        done,
        ["oauth.approved", "oauth.code_reused", "oauth.token_issued"]
    );
}

/// OA-3, RFC 9700 section 4.5: a request without a part of the proof gets nothing, and does not use
/// up the code that the client is about to redeem.
async fn oa_3_a_code_is_bound_to_client_callback_and_verifier(control: TestControl) {
    control.person("Ada").await;
    let mut browser = control.signed_in("Ada").await;
    let code = code(&mut browser, &[]).await;
    for (name, value, expected) in [
        ("client_id", "other", "invalid_grant"),
        ("client_id", "nobody", "invalid_client"),
        ("client_id", "svc-cli", "unauthorized_client"),
        ("redirect_uri", LOOPBACK, "invalid_grant"),
        (
            "redirect_uri",
            "https://client.example/callback",
            "invalid_grant",
        ),
        (
            "code_verifier",
            "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXX",
            "invalid_grant",
        ),
        ("code_verifier", super::CHALLENGE, "invalid_grant"),
        ("code_verifier", "short", "invalid_request"),
        ("code", "short", "invalid_grant"),
        (
            "code",
            "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
            "invalid_grant",
        ),
        ("resource", "https://other.example", "invalid_target"),
    ] {
        let answer = redeem(&control, &code, &[(name, value)]).await;
        assert_eq!(error(&answer), expected, "{name}={value}");
        assert_eq!(answer.status, 400);
    }
    let answer = redeem(&control, &code, &[]).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
}

async fn oa_5_missing_parameters_of_a_token_request_are_named(control: TestControl) {
    control.person("Ada").await;
    let mut browser = control.signed_in("Ada").await;
    let code = code(&mut browser, &[]).await;
    for name in [
        "grant_type",
        "client_id",
        "redirect_uri",
        "code",
        "code_verifier",
    ] {
        let answer = redeem(&control, &code, &[(name, "")]).await;
        assert_eq!(error(&answer), "invalid_request", "{name}");
        let described = answer.json()["error_description"].to_string();
        assert!(described.contains(name), "{described}");
    }
    for (changes, expected) in [
        ([("grant_type", "password")], "unsupported_grant_type"),
        ([("client_secret", "s")], "invalid_client"),
        ([("client_assertion", "a.b.c")], "invalid_client"),
        ([("extra", "is ignored")], "good"),
    ] {
        let answer = redeem(&control, &code, &changes).await;
        match expected {
            "good" => assert_eq!(answer.status, 200, "{}", answer.text),
            expected => assert_eq!(error(&answer), expected, "{changes:?}"),
        }
    }
    let twice = [("grant_type", "authorization_code"), ("a", "1"), ("a", "2")];
    let answer = program(&control, "/oauth/token", &twice).await;
    assert_eq!(error(&answer), "invalid_request");
    // A client that sends credentials gets an error, because public clients have none.
    let basic = [("authorization", "Basic d2ViOg==")];
    let answer = control
        .browser()
        .submit_from("/oauth/token", &twice[..1], &basic)
        .await;
    assert_eq!(
        (answer.status, error(&answer).as_str()),
        (401, "invalid_client")
    );
    assert!(
        answer.headers["www-authenticate"]
            .to_str()
            .unwrap()
            .starts_with("Basic ")
    );
    // Any other body than a form.
    for (kind, body) in [
        ("application/json", "{}".to_owned()),
        ("text/plain", "grant_type=authorization_code".to_owned()),
        ("application/x-www-form-urlencoded", "a=%zz".to_owned()),
        (
            "application/x-www-form-urlencoded",
            format!("a={}", "a".repeat(20_000)),
        ),
    ] {
        let mut browser = control.browser();
        let body = Some((kind, body));
        let answer = browser
            .send(http::Method::POST, "/oauth/token", body, &[])
            .await;
        assert_eq!(error(&answer), "invalid_request", "{kind}");
    }
}

async fn a_code_ends_with_the_session_that_approved_it(control: TestControl) {
    let ada = control.person("Ada").await.user;
    let now = control.app.now();
    // The user signed out in the meantime.
    let mut browser = control.signed_in("Ada").await;
    let code_value = code(&mut browser, &[]).await;
    browser.submit("/logout", &[]).await;
    assert_eq!(
        error(&redeem(&control, &code_value, &[]).await),
        "invalid_grant"
    );
    // The user was suspended in the meantime: the code is refused, and so is a token that was
    // issued before.
    let mut browser = control.signed_in("Ada").await;
    let token = super::access_token(&mut browser, &control).await;
    let code_value = code(&mut browser, &[]).await;
    let mut tx = control.app.store.begin().await.unwrap();
    store::users::set_status(&mut tx, ada, Status::Suspended, now)
        .await
        .unwrap();
    tx.commit().await.unwrap();
    assert_eq!(
        error(&redeem(&control, &code_value, &[]).await),
        "invalid_grant"
    );
    let who = with_token(&control, "/api/whoami", &token).await;
    assert_eq!(who.status, 401);
}
