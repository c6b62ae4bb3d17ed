//! The second factor, used with an authenticator app.

use aws_lc_rs::hmac;
use http::{Method, StatusCode};

use crate::support::{Browser, PASSWORD, TestControl, both};

both! {
    a_password_alone_is_not_enough_with_a_second_factor,
    another_account_keeps_the_address,
    a_code_opens_one_session,
    a_recovery_code_works_once_and_in_any_spelling,
    codes_are_not_guessed_in_bulk,
    wrong_codes_cause_waits_in_every_process_and_a_mail,
    the_step_in_between_does_not_wait_for_long,
    turning_it_on_or_off_needs_a_recent_proof,
    an_active_second_factor_is_not_replaced,
    the_stored_secret_is_sealed,
}

/// An independent authenticator app, which uses the key from the page.
pub(crate) struct Authenticator(Vec<u8>);

impl Authenticator {
    pub(crate) fn scan(key: &str) -> Self {
        let mut bits = 0_u64;
        let mut held = 0;
        let mut bytes = Vec::new();
        for character in key.bytes().filter(|byte| *byte != b' ') {
            let value = match character {
                b'A'..=b'Z' => character - b'A',
                b'2'..=b'7' => character - b'2' + 26,
                other => panic!("{other} is not base32"),
            };
            bits = bits << 5 | u64::from(value);
            held += 5;
            if held >= 8 {
                held -= 8;
                bytes.push(u8::try_from(bits >> held & 255).unwrap());
            }
        }
        Self(bytes)
    }

    pub(crate) fn code(&self, control: &TestControl) -> String {
        let step = control.app.now().as_second() / 30;
        let key = hmac::Key::new(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, &self.0);
        let tag = hmac::sign(&key, &step.to_be_bytes());
        let tag = tag.as_ref();
        let at = usize::from(tag[19] & 15);
        let four = u32::from_be_bytes(tag[at..at + 4].try_into().unwrap());
        format!("{:06}", (four & 0x7fff_ffff) % 1_000_000)
    }
}

/// Enables the second factor. Returns the app and the recovery codes.
async fn turn_on(control: &TestControl, browser: &mut Browser<'_>) -> (Authenticator, Vec<String>) {
    let page = browser.submit("/account/second-factor", &[]).await;
    let app = Authenticator::scan(page.between("<code class=\"key\">", "</code>"));
    assert!(
        page.text
            .contains("otpauth://totp/svc.example:ada%40example.com?secret=")
    );
    let wrong = browser
        .submit("/account/second-factor/confirm", &[("code", "000000")])
        .await;
    assert_eq!(wrong.status, StatusCode::UNPROCESSABLE_ENTITY);
    let code = app.code(control);
    let page = browser
        .submit("/account/second-factor/confirm", &[("code", &code)])
        .await;
    assert_eq!(page.status, StatusCode::OK, "{}", page.text);
    let codes = page.text.split("<code>").skip(1);
    let codes: Vec<String> = codes
        .map(|rest| rest.split('<').next().unwrap().to_owned())
        .collect();
    assert_eq!(codes.len(), 8);
    control.clock.advance(30);
    (app, codes)
}

async fn half_way(control: &TestControl) -> Browser<'_> {
    let mut browser = control.browser();
    let answer = browser.sign_in("Ada", PASSWORD).await;
    let on = answer.location.as_deref();
    assert_eq!(on, Some("/login/second-factor?next=/"));
    browser
}

async fn a_password_alone_is_not_enough_with_a_second_factor(control: TestControl) {
    control.person("Ada").await;
    let mut stolen = control.signed_in("Ada").await;
    let mut browser = control.signed_in("Ada").await;
    let (app, _) = turn_on(&control, &mut browser).await;
    assert_eq!(
        browser.open("/account").await.status,
        StatusCode::OK,
        "this browser stays signed in"
    );
    assert_eq!(
        stolen.open("/account").await.status,
        StatusCode::SEE_OTHER,
        "other browsers are signed out"
    );

    let mut browser = half_way(&control).await;
    let planted = browser.cookie.clone();
    let account = browser.open("/account").await;
    let first = account.location.as_deref();
    assert_eq!(first, Some("/login/second-factor?next=/account"));
    assert_eq!(
        browser.open("/api/user").await.status,
        StatusCode::UNAUTHORIZED
    );
    let name = serde_json::json!({"name": "x"});
    let made = browser.api(Method::POST, "/api/workspaces", name).await;
    assert_eq!(made.status, StatusCode::UNAUTHORIZED);
    let off = browser.submit("/account/second-factor/remove", &[]).await;
    assert_eq!(
        off.location.as_deref(),
        Some("/login/second-factor?next=/account")
    );

    let code = app.code(&control);
    let wrong = browser
        .submit("/login/second-factor", &[("code", "000000")])
        .await;
    assert_eq!(wrong.status, StatusCode::UNAUTHORIZED);
    let done = browser
        .submit("/login/second-factor", &[("code", &code)])
        .await;
    assert_eq!(done.location.as_deref(), Some("/"));
    assert_ne!(browser.cookie, planted);
    assert_eq!(browser.open("/account").await.status, StatusCode::OK);
    browser.cookie = planted;
    assert_eq!(browser.open("/account").await.status, StatusCode::SEE_OTHER);
}

/// The user signs in with another account, and continues at the same address.
async fn another_account_keeps_the_address(control: TestControl) {
    control.person("Ada").await;
    let mut browser = control.signed_in("Ada").await;
    turn_on(&control, &mut browser).await;
    let mut browser = half_way(&control).await;
    let path = "/edge/sign-in?host=a&state=b%25";
    let encoded = path.replace('%', "%25").replace('&', "%26");
    let step = browser
        .open(&format!("/login/second-factor?next={encoded}"))
        .await;
    let (_, form) = step.text.split_once("action=\"/logout\"").unwrap();
    let (_, form) = form.split_once("name=\"next\" value=\"").unwrap();
    let next = form.split('"').next().unwrap();
    let next = next.replace("&#38;", "&").replace("&amp;", "&");
    assert_eq!(next, path);
    let out = browser.submit("/logout", &[("next", &next)]).await;
    let login = format!("/login?next={encoded}");
    assert_eq!(out.location.as_deref(), Some(login.as_str()));
}

/// RFC 6238 section 5.2.
async fn a_code_opens_one_session(control: TestControl) {
    control.person("Ada").await;
    let mut browser = control.signed_in("Ada").await;
    let (app, _) = turn_on(&control, &mut browser).await;
    let code = app.code(&control);
    for status in [StatusCode::SEE_OTHER, StatusCode::UNAUTHORIZED] {
        let mut browser = half_way(&control).await;
        let answer = browser
            .submit("/login/second-factor", &[("code", &code)])
            .await;
        assert_eq!(answer.status, status);
    }
}

async fn a_recovery_code_works_once_and_in_any_spelling(control: TestControl) {
    control.person("Ada").await;
    let mut browser = control.signed_in("Ada").await;
    let (_, codes) = turn_on(&control, &mut browser).await;
    let typed = codes[3].to_uppercase().replace('-', " ");
    for status in [StatusCode::SEE_OTHER, StatusCode::UNAUTHORIZED] {
        let mut browser = half_way(&control).await;
        let answer = browser
            .submit("/login/second-factor", &[("code", &typed)])
            .await;
        assert_eq!(answer.status, status);
    }
}

async fn codes_are_not_guessed_in_bulk(control: TestControl) {
    control.person("Ada").await;
    let mut browser = control.signed_in("Ada").await;
    let (app, _) = turn_on(&control, &mut browser).await;
    let mut browser = half_way(&control).await;
    for _ in 0..6 {
        let answer = browser
            .submit("/login/second-factor", &[("code", "000000")])
            .await;
        assert_eq!(answer.status, StatusCode::UNAUTHORIZED);
    }
    // Another session of the same user must wait as well.
    let mut browser = half_way(&control).await;
    let code = app.code(&control);
    let answer = browser
        .submit("/login/second-factor", &[("code", &code)])
        .await;
    assert_eq!(answer.status, StatusCode::TOO_MANY_REQUESTS);
}

/// A client that guesses codes has the password. Waits grow for all processes together, and the
/// owner is notified.
async fn wrong_codes_cause_waits_in_every_process_and_a_mail(control: TestControl) {
    let ada = control.person("Ada").await;
    let mut browser = control.signed_in("Ada").await;
    turn_on(&control, &mut browser).await;
    let second = control.second_process().await.unwrap();
    for at in [&control, &second].into_iter().cycle().take(6) {
        let mut browser = half_way(at).await;
        let wrong = [("code", "000000")];
        let answer = browser.submit("/login/second-factor", &wrong).await;
        assert_eq!(answer.status, StatusCode::UNAUTHORIZED);
    }
    let mut waits = Vec::new();
    for _ in 0..9 {
        let mut browser = half_way(&second).await;
        let wrong = [("code", "000000")];
        let answer = browser.submit("/login/second-factor", &wrong).await;
        assert_eq!(answer.status, StatusCode::TOO_MANY_REQUESTS);
        let wait: i64 = answer.header("retry-after").parse().unwrap();
        waits.push(wait);
        control.clock.advance(wait);
        let mut browser = half_way(&control).await;
        let answer = browser.submit("/login/second-factor", &wrong).await;
        assert_eq!(answer.status, StatusCode::UNAUTHORIZED);
    }
    assert_eq!(waits, [60, 120, 240, 480, 960, 1920, 3840, 7680, 14400]);
    let path = "/api/user/audit?pageSize=100";
    let log = control.get(path, &ada.token).await.expect(200);
    let entries = log["entries"].as_array().unwrap();
    let failed = entries
        .iter()
        .filter(|entry| entry["action"] == "user.second_factor_failed");
    assert_eq!(failed.count(), 15);
    let mut mails = control.mails().await;
    mails.extend(second.mails().await);
    let is_told = |mail: &&String| mail.contains("Someone is trying to guess your second factor");
    assert_eq!(
        mails.iter().filter(is_told).count(),
        2,
        "the fifth, the tenth"
    );
}

async fn the_step_in_between_does_not_wait_for_long(control: TestControl) {
    control.person("Ada").await;
    let mut browser = control.signed_in("Ada").await;
    let (app, _) = turn_on(&control, &mut browser).await;
    let mut browser = half_way(&control).await;
    control.clock.advance(600);
    let code = app.code(&control);
    let answer = browser
        .submit("/login/second-factor", &[("code", &code)])
        .await;
    assert_eq!(answer.location.as_deref(), Some("/login?next=/"));
}

async fn turning_it_on_or_off_needs_a_recent_proof(control: TestControl) {
    control.person("Ada").await;
    let mut browser = control.signed_in("Ada").await;
    let path = "/account/second-factor/remove";
    let first = Some("/account/confirm?next=/account");
    // A secret that was shown once cannot be confirmed by a later user of the browser.
    let page = browser.submit("/account/second-factor", &[]).await;
    let shown = Authenticator::scan(page.between("<code class=\"key\">", "</code>"));
    control.clock.advance(600);
    let code = shown.code(&control);
    let fields = [("code", code.as_str())];
    let on = browser
        .submit("/account/second-factor/confirm", &fields)
        .await;
    assert_eq!(on.location.as_deref(), first);
    let on = browser.submit("/account/second-factor", &[]).await;
    assert_eq!(on.location.as_deref(), first);
    let fields = [("next", "/account"), ("password", PASSWORD)];
    let proved = browser.submit("/account/confirm", &fields).await;
    assert_eq!(proved.location.as_deref(), Some("/account"));
    let (app, codes) = turn_on(&control, &mut browser).await;

    control.clock.advance(600);
    let off = browser.submit(path, &[]).await;
    assert_eq!(off.location.as_deref(), first);
    half_way(&control).await;
    for wrong in [("password", "wrong password"), ("code", "000000")] {
        let refused = browser.submit("/account/confirm", &[wrong]).await;
        assert_eq!(refused.status, StatusCode::UNAUTHORIZED);
        assert!(refused.text.contains("role=\"alert\""));
        let off = browser.submit(path, &[]).await;
        assert_eq!(off.location.as_deref(), first);
    }
    for right in [app.code(&control), codes[0].clone()] {
        control.clock.advance(600);
        let code = if right.len() == 6 {
            app.code(&control)
        } else {
            right
        };
        let proved = browser.submit("/account/confirm", &[("code", &code)]).await;
        assert_eq!(proved.location.as_deref(), Some("/account"));
        let again = browser.submit("/account/confirm", &[("code", &code)]).await;
        assert_eq!(again.status, StatusCode::UNAUTHORIZED, "a code works once");
    }
    let off = browser.submit(path, &[]).await;
    let done = Some("/account?done=second-factor-off");
    assert_eq!(off.location.as_deref(), done);
    control.signed_in("Ada").await;
}

/// A second set-up does not replace the active secret.
async fn an_active_second_factor_is_not_replaced(control: TestControl) {
    control.person("Ada").await;
    let mut browser = control.signed_in("Ada").await;
    let (app, _) = turn_on(&control, &mut browser).await;
    let again = browser.submit("/account/second-factor", &[]).await;
    assert_eq!(again.status, StatusCode::CONFLICT);
    let mut browser = half_way(&control).await;
    let code = app.code(&control);
    let answer = browser
        .submit("/login/second-factor", &[("code", &code)])
        .await;
    assert_eq!(answer.location.as_deref(), Some("/"));
}

/// The database alone does not reveal the secret.
async fn the_stored_secret_is_sealed(control: TestControl) {
    let ada = control.person("Ada").await.user;
    let mut browser = control.signed_in("Ada").await;
    let (app, _) = turn_on(&control, &mut browser).await;
    let mut read = control.app.store.read().await.unwrap();
    let user = store::users::by_id(&mut read, ada).await.unwrap().unwrap();
    let sealed = user.totp_secret.unwrap().0;
    assert_eq!(app.0.len(), 20);
    assert!(
        !sealed.windows(20).any(|window| window == app.0),
        "in clear"
    );
}
