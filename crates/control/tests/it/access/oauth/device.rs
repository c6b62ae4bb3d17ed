//! OA-4: a device is approved by a user who has seen its details (RFC 8628).

use control::runtime::jobs::pass;
use serde_json::{Value, json};
use store::users::Status;
use tokio_util::sync::CancellationToken;

use super::{SCOPE, audit, changed, error, program, with_token};
use crate::support::{Answer, BASE_URL, Browser, TestControl, both};

both! {
    oa_4_a_person_types_the_code_looks_and_approves,
    oa_4_the_approval_page_shows_client_address_and_time,
    oa_4_a_denied_device_gets_no_token,
    oa_4_a_code_is_read_however_it_is_typed,
    oa_4_a_device_that_polls_too_often_is_slowed_down,
    oa_4_codes_end_after_ten_minutes,
    oa_4_an_approval_is_decided_once_and_redeemed_once,
    oa_4_codes_are_not_guessed,
    oa_4_the_screen_is_never_skipped,
    device_requests_are_validated,
    an_approval_ends_with_the_session_that_gave_it,
    device_requests_are_rate_limited,
    pending_devices_per_network_are_limited,
    pending_devices_are_limited,
}

/// A device requests a code.
async fn ask(control: &TestControl, changes: &[(&str, &str)]) -> Answer {
    let fields = [("client_id", "svc-cli"), ("scope", SCOPE)];
    program(
        control,
        "/oauth/device_authorization",
        &changed(&fields, changes),
    )
    .await
}

pub(super) async fn asked(control: &TestControl) -> (String, String) {
    let answer = ask(control, &[]).await.json();
    let text = |name: &str| answer[name].as_str().unwrap().to_owned();
    (text("device_code"), text("user_code"))
}

pub(super) async fn poll(control: &TestControl, device_code: &str) -> Answer {
    let fields = [
        ("grant_type", "urn:ietf:params:oauth:grant-type:device_code"),
        ("client_id", "svc-cli"),
        ("device_code", device_code),
    ];
    program(control, "/oauth/token", &fields).await
}

/// Enters a code.
pub(super) async fn type_in(browser: &mut Browser<'_>, user_code: &str) -> Answer {
    browser.submit("/device", &[("user_code", user_code)]).await
}

/// Presses a button of the approval page.
pub(super) async fn press(browser: &mut Browser<'_>, screen: &Answer, decision: &str) -> Answer {
    assert_eq!(screen.status, 200, "{}", screen.text);
    let fields = [
        (
            "user_code",
            screen.between("name=\"user_code\" value=\"", "\""),
        ),
        ("session", screen.between("name=\"session\" value=\"", "\"")),
        ("decision", decision),
    ];
    browser.submit("/device/approve", &fields).await
}

/// OA-4: from the code on one screen to the token on the other.
async fn oa_4_a_person_types_the_code_looks_and_approves(control: TestControl) {
    let ada = control.person("Ada").await.user;
    let answer = ask(&control, &[("resource", &format!("{BASE_URL}/"))]).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    assert_eq!(answer.headers["cache-control"], "no-store");
    let device_answer = answer.json();
    let user_code = device_answer["user_code"].as_str().unwrap();
    assert_eq!(
        device_answer["verification_uri"],
        format!("{BASE_URL}/device")
    );
    let complete = format!("/device?user_code={user_code}");
    assert_eq!(
        device_answer["verification_uri_complete"],
        format!("{BASE_URL}{complete}")
    );
    assert_eq!(
        (&device_answer["expires_in"], &device_answer["interval"]),
        (&json!(600), &json!(5))
    );
    let device_code = device_answer["device_code"].as_str().unwrap();
    assert_eq!(
        error(&poll(&control, device_code).await),
        "authorization_pending"
    );

    let mut browser = control.browser();
    let answer = browser.open(&complete).await;
    let login = format!("/login?next=/device?user_code={user_code}");
    assert_eq!(answer.location.as_deref(), Some(login.as_str()));
    let mut browser = control.signed_in("Ada").await;
    let form = browser.open(&complete).await;
    assert!(
        form.text.contains(&format!("value=\"{user_code}\"")),
        "{}",
        form.text
    );
    let screen = type_in(&mut browser, user_code).await;
    let done = press(&mut browser, &screen, "approve").await;
    assert!(done.text.contains("<h1>Approved</h1>"), "{}", done.text);

    control.clock.advance(5);
    let answer = poll(&control, device_code).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    assert_eq!(answer.headers["cache-control"], "no-store");
    let issued = answer.json();
    assert_eq!(issued["scope"], SCOPE);
    let token = issued["access_token"].as_str().unwrap();
    let claims = &::credentials::inspect(token).unwrap()["claims"];
    assert_eq!(
        (&claims["client_id"], &claims["aud"]),
        (&json!("svc-cli"), &json!(BASE_URL))
    );
    let who = with_token(&control, "/api/whoami", token).await.json();
    assert_eq!((&who["id"], &who["type"]), (&json!(ada), &json!("pat")));
    let done: Vec<_> = audit(&control)
        .await
        .into_iter()
        .map(|(action, _)| action)
        .collect();
    assert_eq!(done, ["oauth.approved", "oauth.token_issued"]);
}

/// OA-4: details with which a user can notice that it is not their own device.
async fn oa_4_the_approval_page_shows_client_address_and_time(control: TestControl) {
    control.person("Ada").await;
    let source = json!([
        {"key": "hostname", "value": "<i>laptop</i>", "label": "Host"},
        {"key": "os", "value": "linux"},
    ]);
    let source = source.to_string();
    let mut device = control.browser();
    device.ip = [198, 51, 100, 7];
    let fields = [
        ("client_id", "agent"),
        ("scope", SCOPE),
        ("svc_source", source.as_str()),
    ];
    let answer = device
        .submit_from("/oauth/device_authorization", &fields, &[])
        .await;
    let device_answer = answer.json();
    let user_code = device_answer["user_code"].as_str().unwrap();
    control.clock.advance(150);
    let mut browser = control.signed_in("Ada").await;
    let screen = type_in(&mut browser, user_code).await;
    for expected in [
        "Allow Agent &#60;b&#62; to access your account?",
        user_code,
        "2 minutes ago",
        "198.51.100.7",
        "not where you are now",
        "ada@example.com",
        "<dt>Host</dt><dd>&#60;i&#62;laptop&#60;/i&#62;</dd>",
        "<dt>os</dt><dd>linux</dd>",
        "List, select and resolve tunnel projects.",
        "Approve only what you started yourself",
        "value=\"approve\">Approve</button>",
        "value=\"deny\">Deny</button>",
    ] {
        assert!(
            screen.text.contains(expected),
            "{expected}: {}",
            screen.text
        );
    }
    browser.ip = device.ip;
    let screen = type_in(&mut browser, user_code).await;
    assert!(!screen.text.contains("not where you are now"));
}

async fn oa_4_a_denied_device_gets_no_token(control: TestControl) {
    control.person("Ada").await;
    let mut browser = control.signed_in("Ada").await;
    let (device_code, user_code) = asked(&control).await;
    let screen = type_in(&mut browser, &user_code).await;
    let done = press(&mut browser, &screen, "deny").await;
    assert!(done.text.contains("<h1>Denied</h1>"), "{}", done.text);
    assert_eq!(error(&poll(&control, &device_code).await), "access_denied");
    let again = press(&mut browser, &screen, "approve").await;
    assert_eq!(again.status, 404);
    assert_eq!(error(&poll(&control, &device_code).await), "access_denied");
}

async fn oa_4_a_code_is_read_however_it_is_typed(control: TestControl) {
    control.person("Ada").await;
    let mut browser = control.signed_in("Ada").await;
    let (_, user_code) = asked(&control).await;
    for typed in [
        user_code.to_lowercase(),
        user_code.replace('-', ""),
        user_code.replace('-', " "),
    ] {
        let screen = type_in(&mut browser, &typed).await;
        assert_eq!(screen.status, 200, "{typed}");
        assert!(
            screen.text.contains(&user_code),
            "the page shows the same code as the device"
        );
    }
}

/// RFC 8628 section 3.5: the interval increases by five seconds permanently.
async fn oa_4_a_device_that_polls_too_often_is_slowed_down(control: TestControl) {
    let (device_code, _) = asked(&control).await;
    for (wait, expected) in [
        (0, "authorization_pending"),
        (4, "slow_down"),
        (9, "slow_down"),
        (15, "authorization_pending"),
        (14, "slow_down"),
        (20, "authorization_pending"),
    ] {
        control.clock.advance(wait);
        assert_eq!(
            error(&poll(&control, &device_code).await),
            expected,
            "{wait}"
        );
    }
}

async fn oa_4_codes_end_after_ten_minutes(control: TestControl) {
    control.person("Ada").await;
    let mut browser = control.signed_in("Ada").await;
    let (pending, user_code) = asked(&control).await;
    control.clock.advance(599);
    let screen = type_in(&mut browser, &user_code).await;
    control.clock.advance(1);
    assert_eq!(press(&mut browser, &screen, "approve").await.status, 404);
    assert_eq!(type_in(&mut browser, &user_code).await.status, 422);
    assert_eq!(error(&poll(&control, &pending).await), "expired_token");
    // This includes an approved device that did not poll in time.
    let (approved, user_code) = asked(&control).await;
    let screen = type_in(&mut browser, &user_code).await;
    press(&mut browser, &screen, "approve").await;
    control.clock.advance(600);
    assert_eq!(error(&poll(&control, &approved).await), "expired_token");
    control.clock.advance(3599);
    pass(&control.app, &CancellationToken::new()).await;
    assert_eq!(error(&poll(&control, &approved).await), "expired_token");
    control.clock.advance(1);
    pass(&control.app, &CancellationToken::new()).await;
    assert_eq!(
        error(&poll(&control, &approved).await),
        "invalid_grant",
        "it is deleted"
    );
}

/// OA-4: this holds for parallel requests.
async fn oa_4_an_approval_is_decided_once_and_redeemed_once(control: TestControl) {
    control.person("Ada").await;
    control.person("Eve").await;
    let (mut ada, mut eve) = (
        control.signed_in("Ada").await,
        control.signed_in("Eve").await,
    );
    let (device_code, user_code) = asked(&control).await;
    let screen = type_in(&mut ada, &user_code).await;
    let of_eve = type_in(&mut eve, &user_code).await;
    // An approval page that another session opened is shown again, and decides nothing.
    let again = press(&mut eve, &screen, "approve").await;
    assert!(again.text.contains("eve@example.com"), "{}", again.text);
    press(&mut ada, &screen, "approve").await;
    let late = press(&mut eve, &of_eve, "approve").await;
    assert_eq!(late.status, 404);
    let answers = tokio::join!(
        poll(&control, &device_code),
        poll(&control, &device_code),
        poll(&control, &device_code),
        poll(&control, &device_code),
    );
    let answers: [Answer; 4] = answers.into();
    let issued: Vec<_> = answers
        .iter()
        .filter(|answer| answer.status == 200)
        .collect();
    assert_eq!(issued.len(), 1);
    for refused in answers.iter().filter(|answer| answer.status != 200) {
        assert_eq!(error(refused), "invalid_grant");
    }
    let token = issued[0].json()["access_token"]
        .as_str()
        .unwrap()
        .to_owned();
    assert_eq!(
        with_token(&control, "/api/whoami", &token).await.status,
        200
    );
}

/// RFC 8628 section 5.1: limits apply per user and per address. A valid code in between does not
/// reset them.
async fn oa_4_codes_are_not_guessed(control: TestControl) {
    control.person("Ada").await;
    control.person("Eve").await;
    let (_, user_code) = asked(&control).await;
    let mut browser = control.signed_in("Ada").await;
    for guess in 0..5 {
        assert_eq!(type_in(&mut browser, &user_code).await.status, 200);
        let answer = type_in(&mut browser, "BCDF-GHJK").await;
        assert_eq!(answer.status, 422, "{guess}");
        assert!(answer.text.contains("role=\"alert\""));
    }
    // Another session or another address of the same user changes nothing.
    let mut other = control.signed_in("Ada").await;
    other.ip = [203, 0, 113, 5];
    type_in(&mut browser, "BCDF-GHJK").await;
    for browser in [&mut browser, &mut other] {
        let answer = type_in(browser, &user_code).await;
        assert_eq!(answer.status, 429);
        assert!(answer.headers.contains_key("retry-after"));
        let answer = browser
            .submit("/device/approve", &[("user_code", &user_code)])
            .await;
        assert_eq!(answer.status, 404, "also from another session");
    }
    assert_eq!(
        type_in(&mut control.signed_in("Eve").await, &user_code)
            .await
            .status,
        200
    );
    control.clock.advance(60);
    assert_eq!(type_in(&mut browser, &user_code).await.status, 200);
}

/// RFC 8628 section 5.4: an address that contains the code approves nothing, and neither does a
/// form that did not come from the approval page.
async fn oa_4_the_screen_is_never_skipped(control: TestControl) {
    control.person("Ada").await;
    let (device_code, user_code) = asked(&control).await;
    let mut browser = control.signed_in("Ada").await;
    let page = browser
        .open(&format!("/device?user_code={user_code}&decision=approve"))
        .await;
    assert!(page.text.contains("action=\"/device\"") && !page.text.contains("approve\""));
    let fields = [("user_code", user_code.as_str()), ("decision", "approve")];
    let screen = browser.submit("/device/approve", &fields).await;
    assert!(
        screen
            .text
            .contains("Approve only what you started yourself"),
        "{}",
        screen.text
    );
    assert_eq!(
        error(&poll(&control, &device_code).await),
        "authorization_pending"
    );
    let answer = control.browser().submit("/device/approve", &fields).await;
    assert_eq!(answer.location.as_deref(), Some("/login?next=/device"));
}

async fn device_requests_are_validated(control: TestControl) {
    for (name, value, expected) in [
        ("client_id", "", "invalid_request"),
        ("client_id", "nobody", "invalid_client"),
        ("client_id", "rstream-cli", "invalid_client"),
        ("client_id", "web", "unauthorized_client"),
        ("client_secret", "s", "invalid_client"),
        ("scope", "", "invalid_scope"),
        ("scope", "openid", "invalid_scope"),
        ("scope", "openid offline_access", "invalid_scope"),
        ("resource", "https://other.example", "invalid_target"),
        ("svc_source", "[", "invalid_request"),
        ("svc_source", "[{\"key\":1}]", "invalid_request"),
    ] {
        let answer = ask(&control, &[(name, value)]).await;
        assert_eq!(error(&answer), expected, "{name}={value}");
    }
    let fields = [
        ("client_id", "svc-cli"),
        ("client_id", "svc-cli"),
        ("scope", SCOPE),
    ];
    let answer = program(&control, "/oauth/device_authorization", &fields).await;
    assert_eq!(error(&answer), "invalid_request");
    // A device code of another client is refused.
    let (device_code, _) = asked(&control).await;
    let fields = [
        ("grant_type", "urn:ietf:params:oauth:grant-type:device_code"),
        ("client_id", "agent"),
        ("device_code", device_code.as_str()),
    ];
    let answer = program(&control, "/oauth/token", &fields).await;
    assert_eq!(error(&answer), "invalid_grant");
    for (name, value, expected) in [
        ("client_id", "web", "unauthorized_client"),
        ("device_code", "", "invalid_request"),
        ("device_code", "short", "invalid_grant"),
    ] {
        let answer = program(
            &control,
            "/oauth/token",
            &changed(&fields, &[(name, value)]),
        )
        .await;
        assert_eq!(error(&answer), expected, "{name}={value}");
    }
}

async fn an_approval_ends_with_the_session_that_gave_it(control: TestControl) {
    let ada = control.person("Ada").await.user;
    let mut browser = control.signed_in("Ada").await;
    let (device_code, user_code) = asked(&control).await;
    let screen = type_in(&mut browser, &user_code).await;
    press(&mut browser, &screen, "approve").await;
    let now = control.app.now();
    let mut tx = control.app.store.begin().await.unwrap();
    store::users::set_status(&mut tx, ada, Status::Suspended, now)
        .await
        .unwrap();
    tx.commit().await.unwrap();
    assert_eq!(error(&poll(&control, &device_code).await), "invalid_grant");
    let list = browser
        .api(http::Method::GET, "/api/credentials", Value::Null)
        .await;
    assert_eq!(list.status, 401);
}

async fn device_requests_are_rate_limited(control: TestControl) {
    for _ in 0..31 {
        assert_eq!(ask(&control, &[]).await.status, 200);
    }
    let answer = ask(&control, &[]).await;
    assert_eq!(error(&answer), "temporarily_unavailable");
    assert_eq!(answer.headers["retry-after"], "1");
    let mut elsewhere = control.browser();
    elsewhere.ip = [198, 51, 100, 1];
    let fields = [("client_id", "svc-cli"), ("scope", SCOPE)];
    let answer = elsewhere
        .submit_from("/oauth/device_authorization", &fields, &[])
        .await;
    assert_eq!(answer.status, 200);
}

/// OA-4: pending codes are so few that guessing does not find one. Each host of a network polls as
/// often as allowed.
async fn pending_devices_per_network_are_limited(control: TestControl) {
    let fields = [("client_id", "svc-cli"), ("scope", SCOPE)];
    let ask = async |ip: [u8; 4]| {
        let mut device = control.browser();
        device.ip = ip;
        device
            .submit_from("/oauth/device_authorization", &fields, &[])
            .await
    };
    for number in 0..1000_u16 {
        let [_, host] = (number / 31).to_be_bytes();
        let answer = ask([203, 0, 113, host]).await;
        assert_eq!(answer.status, 200, "{number}: {}", answer.text);
    }
    let answer = ask([203, 0, 113, 200]).await;
    assert_eq!(error(&answer), "temporarily_unavailable");
    assert_eq!(ask([203, 0, 114, 200]).await.status, 200, "another network");
    control.clock.advance(600);
    assert_eq!(
        ask([203, 0, 113, 200]).await.status,
        200,
        "they are not pending any more"
    );
}

/// OA-4: when the limit of pending codes is reached, a hundred codes of the networks with the most
/// pending ones are removed.
async fn pending_devices_are_limited(control: TestControl) {
    asked(&control).await;
    let hash = if control.is_embedded() {
        "randomblob(32)"
    } else {
        "sha256(CAST(CAST(i AS TEXT) AS BYTEA))"
    };
    let text = format!(
        "INSERT INTO oauth_device_grants (hash, user_code_hash, client_id, permissions, ip, network, \
         created_at, expires_at, interval_seconds, status) \
         WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 99998) \
         SELECT {hash}, {hash}, client_id, permissions, ip, 'network ' || (i % 200), \
         created_at, expires_at, interval_seconds, status FROM n CROSS JOIN oauth_device_grants"
    );
    control.raw(&text).await;
    let waiting = async || {
        let mut read = control.app.store.read().await.unwrap();
        store::device_grants::count(&mut read, control.now())
            .await
            .unwrap()
    };
    assert_eq!(waiting().await, 99_999);
    asked(&control).await;
    assert_eq!(waiting().await, 100_000);
    asked(&control).await;
    assert_eq!(waiting().await, 99_901);
}
