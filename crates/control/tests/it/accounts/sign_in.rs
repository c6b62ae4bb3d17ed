//! Sign-in, sign-out and the lifetime of sessions.

use http::{Method, StatusCode};
use serde_json::Value;
use store::users::{self, Status};

use crate::support::{BASE_URL, PASSWORD, TestControl, both};

both! {
    sessions_per_user_are_limited,
    a_person_signs_in_and_out,
    a_session_keeps_so_much_of_its_user_agent,
    signing_in_redirects_only_to_our_own_paths,
    failures_look_alike,
    suspension_ends_sessions,
    signing_in_replaces_the_cookie_and_ends_the_session_before,
    guessing_is_slowed_down_and_the_owner_is_not_locked_out,
    one_source_cannot_try_many_accounts,
    a_session_ends_when_unused_and_after_a_month_in_any_case,
    forms_of_other_sites_are_refused,
    a_session_calls_the_api_if_no_bearer_is_sent,
    a_session_writes_through_the_api_only_from_this_origin,
    a_person_sees_and_ends_other_sessions,
    a_user_cannot_end_another_users_session,
    a_new_password_needs_the_old_one_and_ends_other_sessions,
    sign_ins_are_in_the_audit,
}

async fn a_person_signs_in_and_out(control: TestControl) {
    control.person("Ada").await;
    let mut browser = control.browser();
    let front = browser.open("/").await;
    assert_eq!(front.location.as_deref(), Some("/login?next=/"));
    let asked = browser.open("/account").await;
    assert_eq!(asked.location.as_deref(), Some("/login?next=/account"));
    let answer = browser.sign_in("Ada", PASSWORD).await;
    assert_eq!(answer.status, StatusCode::SEE_OTHER);
    let cookie = answer.headers["set-cookie"].to_str().unwrap();
    assert!(
        cookie.starts_with("__Host-svc_session=") && cookie.contains("; HttpOnly"),
        "{cookie}"
    );
    let account = browser.open("/account").await;
    assert_eq!(account.status, StatusCode::OK);
    assert!(account.text.contains("ada@example.com"), "{}", account.text);

    let kept = browser.cookie.clone();
    let out = browser.submit("/logout", &[]).await;
    assert_eq!(out.location.as_deref(), Some("/login"));
    assert_eq!(browser.cookie, None);
    browser.cookie = kept;
    let after = browser.open("/account").await;
    assert_eq!(after.location.as_deref(), Some("/login?next=/account"));
}

async fn signing_in_redirects_only_to_our_own_paths(control: TestControl) {
    control.person("Ada").await;
    for (next, on) in [("/oauth/x?a=b", "/oauth/x?a=b"), ("//evil.example", "/")] {
        let fields = [
            ("email", "ada@example.com"),
            ("password", PASSWORD),
            ("next", next),
        ];
        let answer = control.browser().submit("/login", &fields).await;
        assert_eq!(answer.location.as_deref(), Some(on));
    }
}

/// A wrong password, an unknown user and a suspended user give the same answer.
async fn failures_look_alike(control: TestControl) {
    control.person("Ada").await;
    let eve = control.person("Eve").await.user;
    let mut tx = control.app.store.begin().await.unwrap();
    let now = control.app.now();
    users::set_status(&mut tx, eve, Status::Suspended, now)
        .await
        .unwrap();
    tx.commit().await.unwrap();
    let mut pages = Vec::new();
    for (name, password) in [
        ("Ada", "wrong password"),
        ("Xyz", PASSWORD),
        ("Eve", PASSWORD),
    ] {
        let answer = control.browser().sign_in(name, password).await;
        assert_eq!(answer.status, StatusCode::UNAUTHORIZED);
        assert!(!answer.headers.contains_key("set-cookie"));
        let email = format!("{}@example.com", name.to_lowercase());
        pages.push(answer.text.replace(&email, "…"));
    }
    assert_eq!(pages[0], pages[1]);
    assert_eq!(pages[0], pages[2]);
}

/// A suspended user is signed out immediately, not at the end of the session.
async fn suspension_ends_sessions(control: TestControl) {
    let ada = control.person("Ada").await.user;
    let mut browser = control.signed_in("Ada").await;
    let mut tx = control.app.store.begin().await.unwrap();
    let now = control.app.now();
    users::set_status(&mut tx, ada, Status::Suspended, now)
        .await
        .unwrap();
    tx.commit().await.unwrap();
    assert_eq!(browser.open("/account").await.status, StatusCode::SEE_OTHER);
    assert_eq!(
        browser.open("/api/user").await.status,
        StatusCode::UNAUTHORIZED
    );
}

async fn signing_in_replaces_the_cookie_and_ends_the_session_before(control: TestControl) {
    control.person("Ada").await;
    let mut browser = control.signed_in("Ada").await;
    let mut planted = browser.clone();
    browser.sign_in("Ada", PASSWORD).await;
    assert_ne!(browser.cookie, planted.cookie);
    assert_eq!(browser.open("/account").await.status, StatusCode::OK);
    assert_eq!(planted.open("/account").await.status, StatusCode::SEE_OTHER);
}

async fn guessing_is_slowed_down_and_the_owner_is_not_locked_out(control: TestControl) {
    control.person("Ada").await;
    let mut browser = control.browser();
    for _ in 0..6 {
        let answer = browser.sign_in("Ada", "wrong password").await;
        assert_eq!(answer.status, StatusCode::UNAUTHORIZED);
    }
    let answer = browser.sign_in("Ada", PASSWORD).await;
    assert_eq!(answer.status, StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(answer.headers["retry-after"], "1");
    // Also from another address, since the limit applies to the account.
    let mut elsewhere = control.browser();
    elsewhere.ip = [198, 51, 100, 7];
    let answer = elsewhere.sign_in("ADA", PASSWORD).await;
    assert_eq!(answer.status, StatusCode::TOO_MANY_REQUESTS);
    control.clock.advance(1);
    assert_eq!(
        elsewhere.sign_in("Ada", PASSWORD).await.status,
        StatusCode::SEE_OTHER
    );
}

async fn one_source_cannot_try_many_accounts(control: TestControl) {
    let mut browser = control.browser();
    for number in 0..31 {
        let answer = browser
            .sign_in(&format!("user{number}"), "wrong password")
            .await;
        assert_eq!(answer.status, StatusCode::UNAUTHORIZED);
    }
    let answer = browser.sign_in("another", "wrong password").await;
    assert_eq!(answer.status, StatusCode::TOO_MANY_REQUESTS);
    browser.ip = [198, 51, 100, 7];
    let answer = browser.sign_in("another", "wrong password").await;
    assert_eq!(answer.status, StatusCode::UNAUTHORIZED);
}

async fn a_session_ends_when_unused_and_after_a_month_in_any_case(control: TestControl) {
    control.person("Ada").await;
    let mut idle = control.signed_in("Ada").await;
    let mut used = control.signed_in("Ada").await;
    for _ in 0..4 {
        control.clock.advance(7 * DAY - 1);
        assert_eq!(used.open("/account").await.status, StatusCode::OK);
    }
    assert_eq!(idle.open("/account").await.status, StatusCode::SEE_OTHER);
    control.clock.advance(2 * DAY + 4);
    assert_eq!(used.open("/account").await.status, StatusCode::SEE_OTHER);
}

/// Every change must come from one of our pages.
async fn forms_of_other_sites_are_refused(control: TestControl) {
    control.person("Ada").await;
    let mut browser = control.signed_in("Ada").await;
    let secret = "A".repeat(43);
    let paths = [
        "/login".to_owned(),
        "/login/second-factor".to_owned(),
        "/logout".to_owned(),
        "/reset".to_owned(),
        format!("/reset/{secret}"),
        format!("/invitations/{secret}"),
        "/account/name".to_owned(),
        "/account/email".to_owned(),
        "/account/email/confirm".to_owned(),
        format!("/account/email/{secret}"),
        "/account/sessions/end".to_owned(),
        "/account/password".to_owned(),
        "/account/sessions/ses_1/end".to_owned(),
        "/account/second-factor".to_owned(),
        "/account/second-factor/confirm".to_owned(),
        "/account/second-factor/remove".to_owned(),
    ];
    for path in &paths {
        for headers in [
            &[][..],
            &[
                ("sec-fetch-site", "cross-site"),
                ("origin", "https://evil.example"),
            ],
            &[
                ("sec-fetch-site", "same-site"),
                ("origin", "https://x.svc.example"),
            ],
            &[("origin", "null")],
        ] {
            let answer = browser.submit_from(path, &[], headers).await;
            assert_eq!(answer.status, StatusCode::FORBIDDEN, "{path} {headers:?}");
        }
    }
    assert_eq!(browser.open("/account").await.status, StatusCode::OK);
    assert!(control.mails().await.is_empty());
}

/// CP-13: the header has priority, and a valid cookie never replaces a bad bearer.
async fn a_session_calls_the_api_if_no_bearer_is_sent(control: TestControl) {
    let ada = control.person("Ada").await.user;
    let mut browser = control.signed_in("Ada").await;
    let answer = browser.open("/api/user").await;
    assert_eq!(answer.status, StatusCode::OK, "{}", answer.text);
    assert_eq!(answer.json()["id"], ada.as_str());
    for bad in ["Bearer x.y.z", "Bearer", "Basic YTpi"] {
        let answer = browser
            .send(Method::GET, "/api/user", None, &[("authorization", bad)])
            .await;
        assert_eq!(answer.status, StatusCode::UNAUTHORIZED, "{bad}");
    }
    browser.cookie = None;
    assert_eq!(
        browser.open("/api/user").await.status,
        StatusCode::UNAUTHORIZED
    );
}

async fn a_session_writes_through_the_api_only_from_this_origin(control: TestControl) {
    control.person("Ada").await;
    let mut browser = control.signed_in("Ada").await;
    let path = "/api/workspaces";
    for headers in [
        &[][..],
        &[("sec-fetch-site", "cross-site")],
        &[("origin", "https://evil.example")],
    ] {
        let body = Some(("application/json", r#"{"name":"x"}"#.to_owned()));
        let answer = browser.send(Method::POST, path, body, headers).await;
        assert_eq!(answer.status, StatusCode::FORBIDDEN, "{headers:?}");
    }
    let body = Some(("application/json", r#"{"name":"x"}"#.to_owned()));
    let answer = browser
        .send(Method::POST, path, body, &[("origin", BASE_URL)])
        .await;
    assert_eq!(answer.status, StatusCode::CREATED, "{}", answer.text);
}

async fn a_person_sees_and_ends_other_sessions(control: TestControl) {
    control.person("Ada").await;
    let mut other = control.signed_in("Ada").await;
    let mut browser = control.signed_in("Ada").await;
    let page = browser.open("/account").await;
    assert_eq!(page.text.matches("(this one)").count(), 1);
    let path = page.between("action=\"/account/sessions/", "\"");
    browser
        .submit(&format!("/account/sessions/{path}"), &[])
        .await;
    assert_eq!(other.open("/account").await.status, StatusCode::SEE_OTHER);
    assert_eq!(browser.open("/account").await.status, StatusCode::OK);
}

/// Another user's session is not found.
async fn a_user_cannot_end_another_users_session(control: TestControl) {
    let ada = control.person("Ada").await.user;
    control.person("Eve").await;
    let mut adas = control.signed_in("Ada").await;
    let mut eves = control.signed_in("Eve").await;
    let mut read = control.app.store.read().await.unwrap();
    let sessions = store::sessions::of_user(&mut read, ada, control.app.now())
        .await
        .unwrap();
    drop(read);
    let path = format!("/account/sessions/{}/end", sessions[0].id);
    eves.submit(&path, &[]).await;
    assert_eq!(adas.open("/account").await.status, StatusCode::OK);
}

async fn a_new_password_needs_the_old_one_and_ends_other_sessions(control: TestControl) {
    control.person("Ada").await;
    let mut other = control.signed_in("Ada").await;
    let mut browser = control.signed_in("Ada").await;
    let change = async |browser: &mut crate::support::Browser<'_>, current: &str, new: &str| {
        browser
            .submit("/account/password", &[("current", current), ("new", new)])
            .await
    };
    let wrong = change(&mut browser, "wrong password", "another long one").await;
    assert_eq!(wrong.status, StatusCode::UNAUTHORIZED);
    let short = change(&mut browser, PASSWORD, "short").await;
    assert_eq!(short.status, StatusCode::UNPROCESSABLE_ENTITY);
    assert_eq!(other.open("/account").await.status, StatusCode::OK);
    let before = browser.cookie.clone();
    let changed = change(&mut browser, PASSWORD, "another long one").await;
    assert_eq!(changed.location.as_deref(), Some("/account?done=password"));
    // The session continues with another cookie.
    assert_ne!(browser.cookie, before);
    let mut copied = control.browser();
    copied.cookie = before;
    assert_eq!(copied.open("/account").await.status, StatusCode::SEE_OTHER);
    assert_eq!(browser.open("/account").await.status, StatusCode::OK);
    assert_eq!(other.open("/account").await.status, StatusCode::SEE_OTHER);
    assert_eq!(
        other.sign_in("Ada", PASSWORD).await.status,
        StatusCode::UNAUTHORIZED
    );
    let answer = other.sign_in("Ada", "another long one").await;
    assert_eq!(answer.status, StatusCode::SEE_OTHER);
}

/// The audit log records user and address of sign-ins, and no secret.
async fn sign_ins_are_in_the_audit(control: TestControl) {
    let ada = control.person("Ada").await.user;
    control.clock.advance(1);
    control.signed_in("Ada").await;
    let mut read = control.app.store.read().await.unwrap();
    let paging = store::Paging::DEFAULT;
    let entries = store::audit::of_user(&mut read, ada, paging)
        .await
        .unwrap()
        .items;
    assert_eq!(entries[0].action, "user.signed_in");
    assert_eq!(entries[0].ip.as_deref(), Some("192.0.2.1"));
    assert_eq!(entries[0].details, Value::Object(serde_json::Map::new()));
}

const DAY: i64 = 24 * 3600;

/// Attempts are counted in the database, so a second process does not allow more of them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn password_attempts_are_counted_for_all_processes_together() {
    for [first, second] in TestControl::pairs("").await {
        first.person("Ada").await;
        for at in [&first, &second].into_iter().cycle().take(6) {
            let answer = at.browser().sign_in("Ada", "wrong password").await;
            assert_eq!(answer.status, StatusCode::UNAUTHORIZED);
        }
        for at in [&first, &second] {
            let answer = at.browser().sign_in("Ada", PASSWORD).await;
            assert_eq!(answer.status, StatusCode::TOO_MANY_REQUESTS);
        }
        first.clock.advance(1);
        let answer = second.browser().sign_in("Ada", PASSWORD).await;
        assert_eq!(answer.status, StatusCode::SEE_OTHER);
        // A success resets the count for all of them.
        let answer = first.browser().sign_in("Ada", PASSWORD).await;
        assert_eq!(answer.status, StatusCode::SEE_OTHER);
    }
}

/// A user who changes a stolen password can also revoke the credentials that were issued with it.
#[tokio::test]
async fn a_new_password_revokes_credentials_on_request() {
    let control = TestControl::start("").await;
    let ada = control.person("Ada").await;
    let mut browser = control.signed_in("Ada").await;
    let is_good = async || control.get("/api/whoami", &ada.token).await.status == 200;
    let fields = [("current", PASSWORD), ("new", "another long one")];
    browser.submit("/account/password", &fields).await;
    assert!(is_good().await);
    let fields = [
        ("current", "another long one"),
        ("new", PASSWORD),
        ("revoke", "yes"),
    ];
    browser.submit("/account/password", &fields).await;
    assert!(!is_good().await);
    let log = browser.open("/api/user/audit").await.json();
    let entries = log["entries"].as_array().unwrap();
    let revoked = entries
        .iter()
        .find(|entry| entry["action"] == "user.credentials_revoked");
    assert_eq!(revoked.unwrap()["details"]["count"], 1);
    let mails = control.mails().await;
    let is_notice = |mail: &&String| mail.contains("Subject: Your password was changed");
    assert_eq!(mails.iter().filter(is_notice).count(), 2);
}

/// A browser that was left open cannot issue credentials without expiry.
#[tokio::test]
async fn a_credential_without_expiry_needs_a_recent_proof() {
    let control = TestControl::start("").await;
    control.person("Ada").await;
    let mut browser = control.signed_in("Ada").await;
    let endless = serde_json::json!({"type": "pat", "name": "endless"});
    let path = "/api/credentials";
    let fresh = browser.api(Method::POST, path, endless.clone()).await;
    assert_eq!(fresh.status, StatusCode::CREATED);
    control.clock.advance(600);
    let refused = browser.api(Method::POST, path, endless.clone()).await;
    let wanted = ("proof_required".to_owned(), Some("expiresAt".to_owned()));
    assert_eq!(refused.refused(403), wanted);
    let ends =
        serde_json::json!({"type": "pat", "name": "ends", "expiresAt": "2026-02-01T00:00:00Z"});
    let issued = browser.api(Method::POST, path, ends).await;
    assert_eq!(issued.status, StatusCode::CREATED);
    let fields = [("next", "/account"), ("password", PASSWORD)];
    browser.submit("/account/confirm", &fields).await;
    let again = browser.api(Method::POST, path, endless).await;
    assert_eq!(again.status, StatusCode::CREATED);
}

/// A new session replaces the least recently used one.
async fn sessions_per_user_are_limited(control: TestControl) {
    let ada = control.person("Ada").await;
    let bob = control.person("Bob").await;
    let (first, of_bob) = (control.session(&ada).await, control.session(&bob).await);
    control.clock.advance(1);
    for _ in 0..60 {
        control.session(&ada).await;
    }
    let mut browser = control.signed_in("Ada").await;
    let mut read = control.app.store.read().await.unwrap();
    let left = store::sessions::of_user(&mut read, ada.user, control.now()).await;
    assert_eq!(left.unwrap().len(), 50);
    let left = store::sessions::of_user(&mut read, bob.user, control.now()).await;
    assert_eq!(left.unwrap().len(), 1);
    drop(read);
    assert_eq!(browser.open("/api/user").await.status, StatusCode::OK);
    for (cookie, status) in [(first, 401), (of_bob, 200)] {
        let request = http::Request::get("/api/user").header("cookie", &cookie);
        let request = request.body(axum::body::Body::empty()).unwrap();
        assert_eq!(control.send_raw(request).await.status, status);
    }
}

async fn a_session_keeps_so_much_of_its_user_agent(control: TestControl) {
    let ada = control.person("Ada").await;
    let fields = [("email", "ada@example.com"), ("password", PASSWORD)];
    for (sent, kept) in [(256, 256), (257, 256)] {
        let name = "u".repeat(sent);
        let headers = [
            ("sec-fetch-site", "same-origin"),
            ("origin", BASE_URL),
            ("user-agent", &name),
        ];
        let mut browser = control.browser();
        let answer = browser.submit_from("/login", &fields, &headers).await;
        assert_eq!(answer.location.as_deref(), Some("/"));
        let mut read = control.app.store.read().await.unwrap();
        let sessions = store::sessions::of_user(&mut read, ada.user, control.now()).await;
        let names = sessions.unwrap().into_iter().map(|one| one.user_agent);
        assert!(names.flatten().all(|name| name.len() == kept), "{sent}");
    }
}
