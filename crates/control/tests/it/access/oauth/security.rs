//! RFC 9700, row by row, as far as it applies to a server with codes for public clients. Tokens are
//! covered in `validation`, devices in `device`.

use http::Method;

use super::{at_callback, authorize, code, error, press, redeem};
use crate::support::{BASE_URL, CALLBACK, LOOPBACK, TestControl, both};

both! {
    section_4_1_redirects_go_only_to_a_registered_callback,
    section_4_2_the_referrer_reveals_nothing_to_other_sites,
    section_4_3_tokens_never_travel_through_the_browser,
    section_4_4_every_answer_names_its_issuer,
    section_4_5_an_injected_code_is_refused,
    section_4_7_another_site_cannot_approve,
    section_4_8_pkce_cannot_be_bypassed,
    section_4_11_there_is_no_open_redirect,
    section_4_12_a_form_is_never_sent_on,
    section_4_14_there_is_no_approval_without_a_person,
    section_4_16_no_page_is_put_into_another,
}

async fn section_4_1_redirects_go_only_to_a_registered_callback(control: TestControl) {
    control.person("Ada").await;
    let mut browser = control.signed_in("Ada").await;
    for (name, value) in [
        ("client_id", "nobody"),
        ("client_id", "svc-cli"),
        ("redirect_uri", ""),
        ("redirect_uri", "https://client.example/callback"),
        ("redirect_uri", "https://client.example/callback?x=1&y=2"),
        (
            "redirect_uri",
            "https://client.example.evil.example/callback?x=1",
        ),
        (
            "redirect_uri",
            "https://client.example@evil.example/callback?x=1",
        ),
        ("redirect_uri", "https://other.example/callback"),
        ("redirect_uri", "http://127.0.0.1:49153/callback"),
        ("redirect_uri", "javascript:alert(1)"),
    ] {
        let page = browser.open(&authorize(&[(name, value)])).await;
        assert_eq!((page.status, page.location), (400, None), "{value}");
        assert_eq!(page.headers["content-type"], "text/html; charset=utf-8");
        assert!(value.is_empty() || !page.text.contains(value), "{value}");
    }
    for twice in ["client_id=web", "state=b", "unknown=1&unknown=2"] {
        let page = browser.open(&format!("{}&{twice}", authorize(&[]))).await;
        assert_eq!((page.status, page.location), (400, None), "{twice}");
    }
    // The answer of the consent page is checked again, because its form does not contain the
    // target.
    let page = browser.open(&authorize(&[])).await;
    let request = authorize(&[("redirect_uri", "https://evil.example/")]);
    let session = page.between("name=\"session\" value=\"", "\"");
    let fields = [
        ("request", request.split_once('?').unwrap().1),
        ("session", session),
        ("decision", "approve"),
    ];
    let answer = browser.submit("/oauth/authorize", &fields).await;
    assert_eq!((answer.status, answer.location), (400, None));
}

async fn section_4_2_the_referrer_reveals_nothing_to_other_sites(control: TestControl) {
    control.person("Ada").await;
    let mut browser = control.signed_in("Ada").await;
    let page = browser.open(&authorize(&[])).await;
    assert_eq!(page.headers["referrer-policy"], "same-origin");
    assert!(!page.text.contains("<img") && !page.text.contains("href=\"http"));
    let answer = press(&mut browser, &page, "approve").await;
    assert_eq!(answer.headers["referrer-policy"], "no-referrer");
    assert_eq!(answer.headers["cache-control"], "no-store");
    assert_eq!(answer.text, "");
}

async fn section_4_3_tokens_never_travel_through_the_browser(control: TestControl) {
    control.person("Ada").await;
    let mut browser = control.signed_in("Ada").await;
    for (name, value, expected) in [
        ("response_type", "token", "unsupported_response_type"),
        ("response_type", "code token", "unsupported_response_type"),
        ("response_mode", "fragment", "invalid_request"),
    ] {
        let answer = browser.open(&authorize(&[(name, value)])).await;
        assert_eq!(
            at_callback(&answer).take("error").as_deref(),
            Some(expected)
        );
    }
    // A bearer in the query is ignored as well.
    let token = super::access_token(&mut browser, &control).await;
    let path = format!("/api/whoami?access_token={token}");
    assert_eq!(control.browser().open(&path).await.status, 401);
}

/// Mix-up: RFC 9207, in successful and failed answers. [`at_callback`] checks `iss`.
async fn section_4_4_every_answer_names_its_issuer(control: TestControl) {
    control.person("Ada").await;
    let mut browser = control.signed_in("Ada").await;
    for decision in ["approve", "deny"] {
        let page = browser.open(&authorize(&[])).await;
        at_callback(&press(&mut browser, &page, decision).await);
    }
    for change in [
        ("scope", ""),
        ("resource", "https://other.example"),
        ("prompt", "none"),
    ] {
        let answer = browser.open(&authorize(&[change])).await;
        let mut callback = at_callback(&answer);
        assert!(callback.take("error").is_some());
        assert_eq!(callback.take("state").as_deref(), Some("xyz ä&"));
    }
    let answer = browser
        .open(&authorize(&[("scope", ""), ("state", "")]))
        .await;
    assert_eq!(at_callback(&answer).take("state"), None);
}

/// A code that an attacker injects into the client's own session is bound to another challenge.
async fn section_4_5_an_injected_code_is_refused(control: TestControl) {
    const OF_THE_THIEF: &str = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
    control.person("Ada").await;
    let mut browser = control.signed_in("Ada").await;
    let stolen = code(&mut browser, &[]).await;
    let answer = redeem(&control, &stolen, &[("code_verifier", OF_THE_THIEF)]).await;
    assert_eq!(error(&answer), "invalid_grant");
}

async fn section_4_7_another_site_cannot_approve(control: TestControl) {
    control.person("Ada").await;
    let mut browser = control.signed_in("Ada").await;
    let page = browser.open(&authorize(&[])).await;
    let request = page
        .between("name=\"request\" value=\"", "\"")
        .replace("&#38;", "&");
    let session = page.between("name=\"session\" value=\"", "\"");
    let fields = [
        ("request", request.as_str()),
        ("session", session),
        ("decision", "approve"),
    ];
    for headers in [
        &[][..],
        &[("origin", "https://evil.example")],
        &[("origin", "null")],
        &[("sec-fetch-site", "cross-site"), ("origin", BASE_URL)],
        &[("sec-fetch-site", "same-site")],
    ] {
        for path in ["/oauth/authorize", "/device", "/device/approve"] {
            let answer = browser.submit_from(path, &fields, headers).await;
            assert_eq!(answer.status, 403, "{path} {headers:?}");
        }
    }
    // The address alone never approves the request.
    let path = format!("{}&decision=approve", authorize(&[]));
    assert_eq!(browser.open(&path).await.status, 200);
}

async fn section_4_8_pkce_cannot_be_bypassed(control: TestControl) {
    control.person("Ada").await;
    let mut browser = control.signed_in("Ada").await;
    for changes in [
        &[("code_challenge", ""), ("code_challenge_method", "")][..],
        &[("code_challenge", "")],
        &[("code_challenge_method", "")],
        &[("code_challenge_method", "plain")],
        &[
            ("code_challenge", super::VERIFIER),
            ("code_challenge_method", "plain"),
        ],
    ] {
        let answer = browser.open(&authorize(changes)).await;
        let error = at_callback(&answer).take("error");
        assert_eq!(error.as_deref(), Some("invalid_request"), "{changes:?}");
    }
    let given = code(&mut browser, &[]).await;
    for verifier in ["", super::CHALLENGE] {
        let answer = redeem(&control, &given, &[("code_verifier", verifier)]).await;
        assert_eq!(answer.status, 400);
    }
}

async fn section_4_11_there_is_no_open_redirect(control: TestControl) {
    control.person("Ada").await;
    // The sign-in returns to one of our paths only.
    for next in ["//evil.example", "https://evil.example/", "/\\evil.example"] {
        let mut browser = control.browser();
        let fields = [
            ("email", "ada@example.com"),
            ("password", crate::support::PASSWORD),
            ("next", next),
        ];
        let answer = browser.submit("/login", &fields).await;
        assert_eq!(answer.location.as_deref(), Some("/"), "{next}");
    }
    // An invalid code in a device's link is not carried along.
    let answer = control
        .browser()
        .open("/device?user_code=//evil.example")
        .await;
    assert_eq!(answer.location.as_deref(), Some("/login?next=/device"));
}

async fn section_4_12_a_form_is_never_sent_on(control: TestControl) {
    control.person("Ada").await;
    let mut browser = control.browser();
    let answer = browser.sign_in("Ada", crate::support::PASSWORD).await;
    assert_eq!(answer.status, 303);
    let page = browser.open(&authorize(&[])).await;
    let answer = press(&mut browser, &page, "approve").await;
    assert_eq!(answer.status, 303);
    assert!(answer.location.unwrap().starts_with(CALLBACK));
    // Browsers apply the page's form policy to the redirect, so the page allows exactly that
    // target.
    for (callback, expected) in [
        (CALLBACK, "form-action 'self' https:;"),
        (LOOPBACK, "form-action 'self' http: https:;"),
    ] {
        let page = browser
            .open(&authorize(&[("redirect_uri", callback)]))
            .await;
        let policy = page.headers["content-security-policy"].to_str().unwrap();
        assert!(policy.contains(expected), "{policy}");
    }
}

/// A public client cannot prove that it was approved before, so approval is requested each time.
async fn section_4_14_there_is_no_approval_without_a_person(control: TestControl) {
    control.person("Ada").await;
    let silent = authorize(&[("prompt", "none")]);
    let answer = control.browser().open(&silent).await;
    let error_code = at_callback(&answer).take("error");
    assert_eq!(error_code.as_deref(), Some("login_required"));
    let mut browser = control.signed_in("Ada").await;
    for _ in 0..2 {
        let answer = browser.open(&silent).await;
        let mut callback = at_callback(&answer);
        assert_eq!(callback.take("error").as_deref(), Some("consent_required"));
        assert_eq!(callback.take("code"), None);
        super::access_token(&mut browser, &control).await;
    }
    let answer = browser.send(Method::HEAD, &authorize(&[]), None, &[]).await;
    assert_eq!(answer.location, None);
}

async fn section_4_16_no_page_is_put_into_another(control: TestControl) {
    control.person("Ada").await;
    let mut browser = control.signed_in("Ada").await;
    for path in [
        authorize(&[]),
        authorize(&[("client_id", "x")]),
        "/device".to_owned(),
    ] {
        let page = browser.open(&path).await;
        let policy = page.headers["content-security-policy"].to_str().unwrap();
        assert!(
            policy.contains("frame-ancestors 'none'"),
            "{path}: {policy}"
        );
        assert!(policy.contains("default-src 'none'") && !policy.contains("unsafe"));
        assert!(!page.text.contains("<script"));
    }
}
