//! Passkeys, with a test authenticator that can also misbehave. The pages are tested in a browser
//! in `passkeys_chromium`.

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD as BASE64URL;
use http::StatusCode;
use serde_json::Value;
use store::users::Status;
use types::id::UserId;

use crate::authenticator::{AssertionResponse, Authenticator, Key, UP, UV};
use crate::support::{Answer, BASE_URL, Browser, PASSWORD, TestControl, both};

both! {
    a_passkey_is_a_second_factor_once_it_is_there,
    a_passkey_with_user_verification_signs_in_without_a_password,
    a_challenge_is_answered_once_in_time_by_its_session,
    a_response_without_a_request_of_our_pages_is_refused,
    a_passkey_of_another_user_is_refused,
    a_copied_authenticator_is_noticed,
    passkeys_are_not_tried_in_bulk,
    adding_and_removing_take_a_recent_proof,
    a_registration_that_is_bent_is_refused,
}

const STEP: &str = "/login/second-factor/passkey";
const SIGN_IN: &str = "/login/passkey";

/// The challenge of the options at `path`.
async fn challenge(browser: &mut Browser<'_>, path: &str) -> Vec<u8> {
    let options = options(browser, path).await;
    BASE64URL
        .decode(options["challenge"].as_str().unwrap())
        .unwrap()
}

async fn options(browser: &mut Browser<'_>, path: &str) -> Value {
    let answer = browser.submit(&format!("{path}/options"), &[]).await;
    assert_eq!(answer.status, StatusCode::OK, "{}", answer.text);
    assert_eq!(answer.headers["cache-control"], "no-store");
    answer.json()
}

async fn register(browser: &mut Browser<'_>, device: &Authenticator) -> Answer {
    let challenge = challenge(browser, "/account/passkeys").await;
    let client_data = device.client_data("webauthn.create", &challenge);
    send_registration(browser, &client_data, &device.attestation()).await
}

async fn send_registration(
    browser: &mut Browser<'_>,
    client_data: &[u8],
    attestation: &[u8],
) -> Answer {
    let (client_data, attestation) = (BASE64URL.encode(client_data), BASE64URL.encode(attestation));
    let fields = [
        ("name", "Laptop"),
        ("clientData", &client_data),
        ("attestation", &attestation),
    ];
    browser.submit("/account/passkeys", &fields).await
}

/// Sends the response of an authenticator.
async fn send(
    browser: &mut Browser<'_>,
    path: &str,
    device: &Authenticator,
    shown: &AssertionResponse,
    user: Option<UserId>,
) -> Answer {
    let handle = user.map(|user| user.to_string()).unwrap_or_default();
    let pieces = [
        ("credentialId", device.credential_id.as_slice()),
        ("clientData", &shown.client_data),
        ("authenticatorData", &shown.authenticator_data),
        ("signature", &shown.signature),
        ("userHandle", handle.as_bytes()),
    ]
    .map(|(name, bytes)| (name, BASE64URL.encode(bytes)));
    let mut fields: Vec<(&str, &str)> = pieces
        .iter()
        .map(|(name, text)| (*name, text.as_str()))
        .collect();
    fields.push(("next", "/account?x=1"));
    browser.submit(path, &fields).await
}

/// Requests a challenge and answers it.
async fn answer(
    browser: &mut Browser<'_>,
    path: &str,
    device: &mut Authenticator,
    user: Option<UserId>,
) -> Answer {
    let challenge = challenge(browser, path).await;
    device.sign_count += 1;
    let shown = device.show(&challenge);
    send(browser, path, device, &shown, user).await
}

async fn half_way(control: &TestControl) -> Browser<'_> {
    let mut browser = control.browser();
    let answer = browser.sign_in("Ada", PASSWORD).await;
    let on = answer.location.as_deref();
    assert_eq!(on, Some("/login/second-factor?next=/"));
    browser
}

/// Ada, one of her browsers, and her passkey.
async fn ada(control: &TestControl) -> (UserId, Browser<'_>, Authenticator) {
    let ada = control.person("Ada").await.user;
    let mut browser = control.signed_in("Ada").await;
    let device = Authenticator::at(BASE_URL, Key::es256());
    let page = register(&mut browser, &device).await;
    assert_eq!(page.status, StatusCode::OK, "{}", page.text);
    assert_eq!(page.text.matches("<code>").count(), 8, "recovery codes");
    (ada, browser, device)
}

fn is_in(answer: &Answer) -> bool {
    if let Some(location) = answer.location.as_deref() {
        return location == "/account?x=1";
    }
    let is_refused = answer.status == StatusCode::UNAUTHORIZED;
    assert!(is_refused && answer.text.contains("role=\"alert\""));
    assert!(answer.text.contains("<title>Error: "));
    false
}

async fn a_passkey_is_a_second_factor_once_it_is_there(control: TestControl) {
    control.person("Ada").await;
    let mut other = control.signed_in("Ada").await;
    let mut browser = control.signed_in("Ada").await;
    let mut device = Authenticator::at(BASE_URL, Key::es256());
    device.flags = UP;
    let shown = options(&mut browser, "/account/passkeys").await;
    assert_eq!(shown["rp"]["id"], "svc.example");
    assert_eq!(shown["attestation"], "none");
    let page = register(&mut browser, &device).await;
    let code = page.between("<code>", "</code>").to_owned();
    assert_eq!(browser.open("/account").await.status, StatusCode::OK);
    let ended = other.open("/account").await;
    assert_eq!(
        ended.status,
        StatusCode::SEE_OTHER,
        "other sessions have ended"
    );

    let mut browser = half_way(&control).await;
    let page = browser.open("/login/second-factor").await;
    assert!(page.text.contains("Use a passkey"));
    let known = options(&mut browser, STEP).await;
    let id = BASE64URL.encode(&device.credential_id);
    assert_eq!(known["allowCredentials"][0]["id"], id.as_str());
    assert!(is_in(&answer(&mut browser, STEP, &mut device, None).await));
    let account = browser.open("/account").await;
    assert!(account.text.contains("Laptop") && account.text.contains("last used 2026-01-01"));

    // The recovery codes are for a lost passkey.
    let mut browser = half_way(&control).await;
    let fields = [("code", code.as_str())];
    let done = browser.submit("/login/second-factor", &fields).await;
    assert_eq!(done.location.as_deref(), Some("/"));
}

async fn a_passkey_with_user_verification_signs_in_without_a_password(control: TestControl) {
    let (ada, mut browser, mut device) = ada(&control).await;
    let mut anonymous = control.browser();
    let shown = options(&mut anonymous, SIGN_IN).await;
    assert_eq!(shown["allowCredentials"], serde_json::json!([]));
    assert_eq!(shown["userVerification"], "required");
    let done = answer(&mut anonymous, SIGN_IN, &mut device, Some(ada)).await;
    assert!(is_in(&done));
    assert_eq!(anonymous.open("/account").await.status, StatusCode::OK);

    let mut anonymous = control.browser();
    device.flags = UP;
    let refused = answer(&mut anonymous, SIGN_IN, &mut device, Some(ada)).await;
    assert!(!is_in(&refused), "it did not ask whose it is");
    device.flags = UP | UV;
    let refused = answer(&mut anonymous, SIGN_IN, &mut device, None).await;
    assert!(!is_in(&refused), "it does not say whose it is");

    // An authenticator without a PIN: a finder could set one, and still cannot sign in.
    let mut plain = Authenticator::at(BASE_URL, Key::es256());
    plain.credential_id = vec![9; 20];
    plain.flags = UP;
    let added = register(&mut browser, &plain).await;
    assert_eq!(added.location.as_deref(), Some("/account?done=passkey"));
    plain.flags = UP | UV;
    let found = answer(&mut anonymous, SIGN_IN, &mut plain, Some(ada)).await;
    assert!(!is_in(&found));
    let mut owner = half_way(&control).await;
    assert!(is_in(&answer(&mut owner, STEP, &mut plain, None).await));
    assert!(is_in(
        &answer(&mut anonymous, SIGN_IN, &mut plain, Some(ada)).await
    ));

    let mut tx = control.app.store.begin().await.unwrap();
    let now = control.app.now();
    store::users::set_status(&mut tx, ada, Status::Suspended, now)
        .await
        .unwrap();
    tx.commit().await.unwrap();
    let mut anonymous = control.browser();
    let refused = answer(&mut anonymous, SIGN_IN, &mut device, Some(ada)).await;
    assert!(!is_in(&refused), "suspended");
}

async fn a_challenge_is_answered_once_in_time_by_its_session(control: TestControl) {
    let (ada, mut browser, mut device) = ada(&control).await;
    let mut anonymous = control.browser();
    let first = challenge(&mut anonymous, SIGN_IN).await;
    device.sign_count = 5;
    let shown = device.show(&first);
    let mut thief = control.browser();
    options(&mut thief, SIGN_IN).await;
    let stolen = send(&mut thief, SIGN_IN, &device, &shown, Some(ada)).await;
    assert!(!is_in(&stolen), "another browser");
    let mut bare = control.browser();
    let bare = send(&mut bare, SIGN_IN, &device, &shown, Some(ada)).await;
    assert_eq!(bare.location.as_deref(), Some("/login?next=/account?x=1"));
    assert!(is_in(
        &send(&mut anonymous, SIGN_IN, &device, &shown, Some(ada)).await
    ));
    device.sign_count = 6;
    let again = device.show(&first);
    let replayed = send(&mut anonymous, SIGN_IN, &device, &again, Some(ada)).await;
    assert!(!is_in(&replayed), "once");

    for (wait, good) in [(299, true), (300, false)] {
        let late = challenge(&mut anonymous, SIGN_IN).await;
        device.sign_count += 1;
        let shown = device.show(&late);
        control.clock.advance(wait);
        let came = send(&mut anonymous, SIGN_IN, &device, &shown, Some(ada)).await;
        assert_eq!(is_in(&came), good, "{wait}");
    }

    // A challenge for one purpose, or of one session, is not valid for another.
    let mut one = half_way(&control).await;
    let mut two = half_way(&control).await;
    let of_one = challenge(&mut one, STEP).await;
    let confirm = challenge(&mut browser, "/account/confirm/passkey").await;
    for given in [of_one, confirm, first, b"short".to_vec(), vec![0; 56]] {
        device.sign_count += 1;
        let shown = device.show(&given);
        assert!(!is_in(&send(&mut two, STEP, &device, &shown, None).await));
        control.clock.advance(60);
    }
}

async fn a_response_without_a_request_of_our_pages_is_refused(control: TestControl) {
    let (ada, _, mut device) = ada(&control).await;
    let mut anonymous = control.browser();
    for bend in ["origin", "host", "purpose", "presence", "signature"] {
        let given = challenge(&mut anonymous, SIGN_IN).await;
        device.sign_count += 1;
        let (origin, host, flags) = (device.origin.clone(), device.rp_id.clone(), device.flags);
        let mut purpose = "webauthn.get";
        match bend {
            "origin" => "https://evil.example".clone_into(&mut device.origin),
            "host" => "example".clone_into(&mut device.rp_id),
            "purpose" => purpose = "webauthn.create",
            "presence" => device.flags = UV,
            _ => {}
        }
        let client_data = device.client_data(purpose, &given);
        let mut shown = device.sign(client_data, device.authenticator_data(device.flags));
        if bend == "signature" {
            shown.signature[10] ^= 1;
        }
        let refused = send(&mut anonymous, SIGN_IN, &device, &shown, Some(ada)).await;
        assert!(!is_in(&refused), "{bend}");
        (device.origin, device.rp_id, device.flags) = (origin, host, flags);
    }
    control.clock.advance(60);
    assert!(is_in(
        &answer(&mut anonymous, SIGN_IN, &mut device, Some(ada)).await
    ));
}

async fn a_passkey_of_another_user_is_refused(control: TestControl) {
    let (ada, _, mut device) = ada(&control).await;
    let grace = control.person("Grace").await.user;
    let mut browser = control.signed_in("Grace").await;
    let refused = register(&mut browser, &device).await;
    assert_eq!(refused.status, StatusCode::UNPROCESSABLE_ENTITY);
    assert!(refused.text.contains("already registered"));
    let mut own = Authenticator::at(BASE_URL, Key::es256());
    own.credential_id = vec![3; 8];
    assert_eq!(register(&mut browser, &own).await.status, StatusCode::OK);

    let mut half = half_way(&control).await;
    assert!(!is_in(&answer(&mut half, STEP, &mut own, None).await));
    own.credential_id.clone_from(&device.credential_id);
    assert!(
        !is_in(&answer(&mut half, STEP, &mut own, None).await),
        "her name, another key"
    );
    let mut anonymous = control.browser();
    let swapped = answer(&mut anonymous, SIGN_IN, &mut device, Some(grace)).await;
    assert!(!is_in(&swapped), "it names another user");
    let account = browser.open("/account").await.text;
    let of_grace = account.split("/account/passkeys/").nth(1).unwrap();
    let id = of_grace.split('/').next().unwrap();
    let mut ada_too = half;
    assert!(is_in(
        &answer(&mut ada_too, STEP, &mut device, Some(ada)).await
    ));
    let path = format!("/account/passkeys/{id}/remove");
    ada_too.submit(&path, &[]).await;
    assert!(
        browser.open("/account").await.text.contains(id),
        "Grace has her own passkey"
    );
}

async fn a_copied_authenticator_is_noticed(control: TestControl) {
    let (ada, _, mut device) = ada(&control).await;
    let mut anonymous = control.browser();
    device.sign_count = 9;
    assert!(is_in(
        &answer(&mut anonymous, SIGN_IN, &mut device, Some(ada)).await
    ));
    device.sign_count = 4;
    assert!(!is_in(
        &answer(&mut anonymous, SIGN_IN, &mut device, Some(ada)).await
    ));
}

async fn passkeys_are_not_tried_in_bulk(control: TestControl) {
    let (ada, _, mut device) = ada(&control).await;
    let mut anonymous = control.browser();
    "https://evil.example".clone_into(&mut device.origin);
    for _ in 0..6 {
        assert!(!is_in(
            &answer(&mut anonymous, SIGN_IN, &mut device, Some(ada)).await
        ));
    }
    BASE_URL.clone_into(&mut device.origin);
    let refused = answer(&mut anonymous, SIGN_IN, &mut device, Some(ada)).await;
    assert_eq!(refused.status, StatusCode::TOO_MANY_REQUESTS);
    assert!(refused.headers.contains_key("retry-after"));
    let mut half = half_way(&control).await;
    let refused = answer(&mut half, STEP, &mut device, None).await;
    assert_eq!(refused.status, StatusCode::TOO_MANY_REQUESTS);
}

async fn adding_and_removing_take_a_recent_proof(control: TestControl) {
    let (user, mut browser, mut device) = ada(&control).await;
    let mut other = control.browser();
    assert!(is_in(
        &answer(&mut other, SIGN_IN, &mut device, Some(user)).await
    ));
    let account = browser.open("/account").await;
    let id = account.between("/account/passkeys/", "/remove").to_owned();
    let remove = format!("/account/passkeys/{id}/remove");
    control.clock.advance(600);
    let first = Some("/account/confirm?next=/account/passkeys/new");
    let new = browser.open("/account/passkeys/new").await;
    assert_eq!(new.location.as_deref(), first);
    for path in ["/account/passkeys/options", "/account/passkeys"] {
        assert_eq!(browser.submit(path, &[]).await.location.as_deref(), first);
    }
    let removed = browser.submit(&remove, &[]).await;
    let first = Some("/account/confirm?next=/account");
    assert_eq!(removed.location.as_deref(), first);

    let path = "/account/confirm/passkey";
    "https://evil.example".clone_into(&mut device.origin);
    assert!(!is_in(&answer(&mut browser, path, &mut device, None).await));
    BASE_URL.clone_into(&mut device.origin);
    assert!(is_in(&answer(&mut browser, path, &mut device, None).await));
    let new = browser.open("/account/passkeys/new").await;
    assert_eq!(new.status, StatusCode::OK);
    let removed = browser.submit(&remove, &[]).await;
    let done = Some("/account?done=passkey-off");
    assert_eq!(removed.location.as_deref(), done);
    assert_eq!(browser.open("/account").await.status, StatusCode::OK);
    let account_redirect = other.open("/account").await.location;
    assert_eq!(account_redirect.as_deref(), Some("/login?next=/account"));
    // After the last one is removed, the password is enough again.
    control.signed_in("Ada").await;
}

async fn a_registration_that_is_bent_is_refused(control: TestControl) {
    control.person("Ada").await;
    let mut browser = control.signed_in("Ada").await;
    let device = Authenticator::at(BASE_URL, Key::es256());
    let good = device.attestation();
    let mut elsewhere = Authenticator::at(BASE_URL, Key::es256());
    "https://evil.example".clone_into(&mut elsewhere.origin);
    let given = challenge(&mut browser, "/account/passkeys").await;
    let client_data = device.client_data("webauthn.create", &given);
    let foreign = elsewhere.client_data("webauthn.create", &given);
    let unasked = device.client_data("webauthn.create", b"a challenge of somebody else");
    for (client_data, attestation) in [
        (&client_data, &good[..good.len() - 1]),
        (&client_data, &good[..40]),
        (&client_data, &[]),
        (&foreign, &good),
        (&unasked, &good),
        (&Vec::new(), &good),
    ] {
        let refused = send_registration(&mut browser, client_data, attestation).await;
        assert_eq!(refused.status, StatusCode::UNPROCESSABLE_ENTITY);
        assert!(refused.text.contains("<title>Error: "));
    }
    let made = send_registration(&mut browser, &client_data, &good).await;
    assert_eq!(made.status, StatusCode::OK);
    let again = send_registration(&mut browser, &client_data, &good).await;
    assert_eq!(again.status, StatusCode::UNPROCESSABLE_ENTITY, "once");
}

/// Two are added in parallel, at two processes. One becomes the twentieth, and the other is
/// refused.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn passkeys_per_user_are_limited() {
    let control = TestControl::postgres().await;
    let second = control.second_process().await.unwrap();
    let (user, mut browser, _) = ada(&control).await;
    for number in 0..18_u8 {
        let passkey = store::passkeys::Passkey {
            id: types::id::PasskeyId::new(1, [number; 10]),
            user_id: user,
            credential_id: vec![number],
            public_key: vec![number],
            sign_count: 0,
            user_verified: false,
            name: "key".to_owned(),
            created_at: control.now(),
            last_used_at: None,
        };
        let mut tx = control.app.store.begin().await.unwrap();
        store::passkeys::insert(&mut tx, &passkey).await.unwrap();
        tx.commit().await.unwrap();
    }
    let mut other = second.browser();
    other.cookie = browser.cookie.clone();
    let devices = [100, 101].map(|number| {
        let mut device = Authenticator::at(BASE_URL, Key::es256());
        device.credential_id = vec![number; 16];
        device
    });
    let (one, two) = tokio::join!(
        register(&mut browser, &devices[0]),
        register(&mut other, &devices[1])
    );
    let mut statuses = [one.status, two.status];
    statuses.sort_unstable();
    assert_eq!(statuses, [303, 422], "{} {}", one.text, two.text);
    let mut read = control.app.store.read().await.unwrap();
    assert_eq!(store::passkeys::count(&mut read, user).await.unwrap(), 20);
}
