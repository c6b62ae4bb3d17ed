//! A new password by mail.

use http::StatusCode;

use crate::support::{BASE_URL, PASSWORD, TestControl, both};

both! {
    a_link_sets_a_new_password_once_and_signs_everybody_out,
    requesting_a_link_reveals_nothing,
    the_newest_link_is_the_only_one_and_it_ages,
    a_mailbox_gets_few_links,
    a_link_ends_the_wait_after_failed_sign_ins,
    a_link_works_once_for_parallel_uses,
    the_first_proof_of_an_address_removes_foreign_credentials,
}

const NEW: &str = "another long password";

/// The path of the link in a mail.
fn link(mail: &str) -> String {
    let start = mail.find(BASE_URL).map(|at| at + BASE_URL.len());
    let links: Vec<&str> = mail
        .split_whitespace()
        .filter_map(|word| word.strip_prefix(BASE_URL))
        .filter(|path| path.starts_with("/reset/"))
        .collect();
    assert!(start.is_some() && links.len() == 1, "{mail}");
    links[0].to_owned()
}

async fn request(control: &TestControl, email: &str) -> String {
    let answer = control
        .browser()
        .submit("/reset", &[("email", email)])
        .await;
    assert_eq!(answer.status, StatusCode::OK, "{}", answer.text);
    answer.text
}

async fn a_link_sets_a_new_password_once_and_signs_everybody_out(control: TestControl) {
    control.person("Ada").await;
    let mut before = control.signed_in("Ada").await;
    request(&control, "ADA@example.com").await;
    let mails = control.mails().await;
    assert_eq!(mails.len(), 1);
    assert!(
        mails[0].contains("\r\nTo: ada@example.com\r\n"),
        "{}",
        mails[0]
    );
    let path = link(&mails[0]);

    let mut browser = control.browser();
    let page = browser.open(&path).await;
    assert_eq!(page.status, StatusCode::OK);
    assert!(page.text.contains("ada@example.com"), "{}", page.text);
    let short = browser.submit(&path, &[("password", "short")]).await;
    assert_eq!(short.status, StatusCode::UNPROCESSABLE_ENTITY);
    let done = browser.submit(&path, &[("password", NEW)]).await;
    assert_eq!(done.location.as_deref(), Some("/login?reset=done"));
    assert_eq!(browser.cookie, None, "the link alone does not sign in");

    assert_eq!(before.open("/account").await.status, StatusCode::SEE_OTHER);
    assert_eq!(
        browser.sign_in("Ada", PASSWORD).await.status,
        StatusCode::UNAUTHORIZED
    );
    assert_eq!(
        browser.sign_in("Ada", NEW).await.status,
        StatusCode::SEE_OTHER
    );
    assert_eq!(browser.open(&path).await.status, StatusCode::NOT_FOUND);
    let again = browser
        .submit(&path, &[("password", "yet another password")])
        .await;
    assert_eq!(again.status, StatusCode::NOT_FOUND);
    assert_eq!(
        control.browser().sign_in("Ada", NEW).await.status,
        StatusCode::SEE_OTHER
    );
}

/// The page does not reveal whether an account exists.
async fn requesting_a_link_reveals_nothing(control: TestControl) {
    control.person("Ada").await;
    let known = request(&control, "ada@example.com").await;
    let unknown = request(&control, "nobody@example.com").await;
    assert_eq!(known, unknown);
    assert_eq!(control.mails().await.len(), 1);
}

async fn the_newest_link_is_the_only_one_and_it_ages(control: TestControl) {
    control.person("Ada").await;
    request(&control, "ada@example.com").await;
    let first = link(&control.mails().await[0]);
    control.clock.advance(1);
    request(&control, "ada@example.com").await;
    let second = link(&control.mails().await[1]);
    let mut browser = control.browser();
    assert_eq!(browser.open(&first).await.status, StatusCode::NOT_FOUND);
    assert_eq!(browser.open(&second).await.status, StatusCode::OK);
    control.clock.advance(3600);
    assert_eq!(browser.open(&second).await.status, StatusCode::NOT_FOUND);
    let late = browser.submit(&second, &[("password", NEW)]).await;
    assert_eq!(late.status, StatusCode::NOT_FOUND);
    assert_eq!(
        browser.sign_in("Ada", PASSWORD).await.status,
        StatusCode::SEE_OTHER
    );
}

/// An attacker cannot fill another user's mailbox, and gets no hint about it.
async fn a_mailbox_gets_few_links(control: TestControl) {
    control.person("Ada").await;
    for _ in 0..10 {
        request(&control, "ada@example.com").await;
    }
    assert_eq!(control.mails().await.len(), 4);
}

async fn a_link_ends_the_wait_after_failed_sign_ins(control: TestControl) {
    control.person("Ada").await;
    let mut browser = control.browser();
    for _ in 0..6 {
        browser.sign_in("Ada", "wrong password").await;
    }
    request(&control, "ada@example.com").await;
    let path = link(&control.mails().await[0]);
    browser.submit(&path, &[("password", NEW)]).await;
    assert_eq!(
        browser.sign_in("Ada", NEW).await.status,
        StatusCode::SEE_OTHER
    );
}

/// Of two parallel uses of one link, one succeeds.
async fn a_link_works_once_for_parallel_uses(control: TestControl) {
    control.person("Ada").await;
    request(&control, "ada@example.com").await;
    let path = link(&control.mails().await[0]);
    let (mut left, mut right) = (control.browser(), control.browser());
    let fields = |password: &'static str| [("password", password)];
    let (of_left, of_right) = (fields("the left password"), fields("the right password"));
    let (one, two) = tokio::join!(left.submit(&path, &of_left), right.submit(&path, &of_right));
    let mut statuses = [one.status, two.status];
    statuses.sort_unstable();
    assert_eq!(statuses, [StatusCode::SEE_OTHER, StatusCode::NOT_FOUND]);
}

/// An attacker may have created the account and added a token, a passkey and a second factor. If
/// the address was confirmed before, all of it belongs to the owner and stays.
async fn the_first_proof_of_an_address_removes_foreign_credentials(control: TestControl) {
    for (name, was_proved) in [("Ada", true), ("Grace", false)] {
        let person = control.person(name).await;
        let email = format!("{}@example.com", name.to_lowercase());
        let now = control.now();
        let mut tx = control.app.store.begin().await.unwrap();
        store::users::set_email(&mut tx, person.user, name, &email, was_proved, now)
            .await
            .unwrap();
        let passkey = store::passkeys::Passkey {
            id: types::id::PasskeyId::new(1, [u8::from(was_proved); 10]),
            user_id: person.user,
            credential_id: name.as_bytes().to_vec(),
            public_key: vec![0],
            sign_count: 0,
            user_verified: true,
            name: "left behind".to_owned(),
            created_at: now,
            last_used_at: None,
        };
        store::passkeys::insert(&mut tx, &passkey).await.unwrap();
        let sealed = store::SealedBytes(vec![0]);
        store::users::begin_totp(&mut tx, person.user, &sealed, now)
            .await
            .unwrap();
        store::users::confirm_totp(&mut tx, person.user, &sealed, 1, now)
            .await
            .unwrap();
        tx.commit().await.unwrap();

        request(&control, &email).await;
        let path = link(control.mails().await.last().unwrap());
        control.browser().submit(&path, &[("password", NEW)]).await;
        let (status, on) = if was_proved {
            (200, "/login/second-factor?next=/")
        } else {
            (401, "/")
        };
        let answer = control.get("/api/whoami", &person.token).await;
        assert_eq!(answer.status, status, "{name}");
        let answer = control.browser().sign_in(name, NEW).await;
        assert_eq!(answer.location.as_deref(), Some(on));
        control.clock.advance(1);
    }
}
