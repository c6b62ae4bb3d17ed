//! Another name, another mail address, and signing out everywhere.

use http::StatusCode;
use serde_json::json;

use crate::support::{Browser, PASSWORD, TestControl, both};

both! {
    a_new_address_is_effective_once_its_link_is_opened,
    an_address_with_letters_beyond_ascii_is_an_address,
    a_change_of_address_needs_a_recent_proof,
    the_link_works_only_for_its_user,
    a_link_works_once_and_for_an_hour,
    an_address_in_use_is_neither_revealed_nor_taken,
    an_unconfirmed_address_is_confirmed_by_its_own_link,
    a_name_is_changed,
    signing_out_everywhere_ends_every_session,
    a_mailbox_gets_few_mails_about_a_change,
}

async fn ask(browser: &mut Browser<'_>, email: &str) -> crate::support::Answer {
    browser.submit("/account/email", &[("email", email)]).await
}

/// The path of the link in the newest mail.
async fn link(control: &TestControl) -> String {
    let mails = control.mails().await;
    let mail = mails
        .iter()
        .rev()
        .find(|mail| mail.contains("/account/email/"))
        .unwrap();
    let start = mail.find("/account/email/").unwrap();
    mail[start..].lines().next().unwrap().to_owned()
}

async fn a_new_address_is_effective_once_its_link_is_opened(control: TestControl) {
    control.person("Ada").await;
    let mut browser = control.signed_in("Ada").await;
    let asked = ask(&mut browser, "New@example.com").await;
    assert_eq!(asked.location.as_deref(), Some("/account?done=email-sent"));
    let user = browser.open("/api/user").await.json();
    assert_eq!(user["email"], "ada@example.com");
    assert_eq!(user["pendingEmail"], "new@example.com");
    let mails = control.mails().await;
    assert!(
        mails[0].contains("\r\nTo: new@example.com\r\n"),
        "{}",
        mails[0]
    );
    let path = link(&control).await;
    // Opening the link changes nothing, because mail scanners open links as well.
    let page = browser.open(&path).await;
    assert!(page.text.contains("new@example.com"), "{}", page.text);
    let user = browser.open("/api/user").await.json();
    assert_eq!(user["email"], "ada@example.com");
    control.clock.advance(1);
    let done = browser.submit(&path, &[]).await;
    assert_eq!(done.location.as_deref(), Some("/account?done=email"));
    let user = browser.open("/api/user").await.json();
    assert_eq!(
        (&user["email"], &user["emailVerified"]),
        (&json!("new@example.com"), &json!(true))
    );
    assert_eq!(user.get("pendingEmail"), None);
    let mails = control.mails().await;
    let notice = mails.last().unwrap();
    assert!(notice.contains("\r\nTo: ada@example.com\r\n"), "{notice}");
    assert!(notice.contains("new@example.com"), "{notice}");
    let old = control.browser().sign_in("Ada", PASSWORD).await;
    assert_eq!(old.status, StatusCode::UNAUTHORIZED);
    let new = control.browser().sign_in("New", PASSWORD).await;
    assert_eq!(new.status, StatusCode::SEE_OTHER);
}

/// RFC 6531: the mail names the address in UTF-8. Its user signs in with it in any case.
async fn an_address_with_letters_beyond_ascii_is_an_address(control: TestControl) {
    control.person("Ada").await;
    let mut browser = control.signed_in("Ada").await;
    let asked = ask(&mut browser, "J\u{d6}RG.\u{674e}@example.com").await;
    assert_eq!(asked.location.as_deref(), Some("/account?done=email-sent"));
    let mails = control.mails().await;
    let address = "j\u{f6}rg.\u{674e}@example.com";
    assert!(
        mails[0].contains(&format!("\r\nTo: {address}\r\n")),
        "{}",
        mails[0]
    );
    let path = link(&control).await;
    control.clock.advance(1);
    let done = browser.submit(&path, &[]).await;
    assert_eq!(done.location.as_deref(), Some("/account?done=email"));
    let user = browser.open("/api/user").await.json();
    assert_eq!(user["email"], address);
    for typed in [address, "J\u{d6}rg.\u{674e}@Example.com"] {
        let fields = [("email", typed), ("password", PASSWORD)];
        let answer = control.browser().submit("/login", &fields).await;
        assert_eq!(answer.status, StatusCode::SEE_OTHER, "{typed}");
    }
    // Another spelling of the same letters is not an address.
    let asked = ask(&mut browser, "jo\u{308}rg@example.com").await;
    assert_eq!(asked.status, StatusCode::UNPROCESSABLE_ENTITY);
}

async fn a_change_of_address_needs_a_recent_proof(control: TestControl) {
    control.person("Ada").await;
    let mut browser = control.signed_in("Ada").await;
    control.clock.advance(600);
    let answer = ask(&mut browser, "new@example.com").await;
    let first = Some("/account/confirm?next=/account");
    assert_eq!(answer.location.as_deref(), first);
    assert!(control.mails().await.is_empty());
    let proof = [("next", "/account"), ("password", PASSWORD)];
    browser.submit("/account/confirm", &proof).await;
    let answer = ask(&mut browser, "no address").await;
    assert_eq!(answer.status, StatusCode::UNPROCESSABLE_ENTITY);
    let nobody = ask(&mut control.browser(), "new@example.com").await;
    assert_eq!(nobody.location.as_deref(), Some("/login?next=/account"));
    assert!(control.mails().await.is_empty());
}

/// A reader of the new mailbox cannot confirm it for another user's account.
async fn the_link_works_only_for_its_user(control: TestControl) {
    control.person("Ada").await;
    control.person("Eve").await;
    let mut eve = control.signed_in("Eve").await;
    ask(&mut eve, "victim@example.com").await;
    let path = link(&control).await;
    let mut ada = control.signed_in("Ada").await;
    assert_eq!(ada.open(&path).await.status, StatusCode::NOT_FOUND);
    assert_eq!(ada.submit(&path, &[]).await.status, StatusCode::NOT_FOUND);
    let nobody = control.browser().submit(&path, &[]).await;
    assert_eq!(nobody.status, StatusCode::SEE_OTHER);
    assert!(nobody.location.unwrap().starts_with("/login?next="));
    // Attempts of other users do not use it up.
    assert_eq!(eve.submit(&path, &[]).await.status, StatusCode::SEE_OTHER);
}

async fn a_link_works_once_and_for_an_hour(control: TestControl) {
    control.person("Ada").await;
    let mut browser = control.signed_in("Ada").await;
    ask(&mut browser, "one@example.com").await;
    let first = link(&control).await;
    control.clock.advance(1);
    ask(&mut browser, "two@example.com").await;
    let second = link(&control).await;
    assert_eq!(browser.open(&first).await.status, StatusCode::NOT_FOUND);
    control.clock.advance(3600);
    assert_eq!(
        browser.submit(&second, &[]).await.status,
        StatusCode::NOT_FOUND
    );
    let proof = [("next", "/account"), ("password", PASSWORD)];
    browser.submit("/account/confirm", &proof).await;
    ask(&mut browser, "three@example.com").await;
    let third = link(&control).await;
    assert_eq!(
        browser.submit(&third, &[]).await.status,
        StatusCode::SEE_OTHER
    );
    assert_eq!(
        browser.submit(&third, &[]).await.status,
        StatusCode::NOT_FOUND
    );
}

async fn an_address_in_use_is_neither_revealed_nor_taken(control: TestControl) {
    control.person("Ada").await;
    control.person("Eve").await;
    let mut eve = control.signed_in("Eve").await;
    let free = ask(&mut eve, "free@example.com").await;
    control.clock.advance(1);
    let taken = ask(&mut eve, "Ada@example.com").await;
    assert_eq!((free.status, free.location), (taken.status, taken.location));
    let mails = control.mails().await;
    let mail = mails.last().unwrap();
    assert!(mail.contains("already belongs to an account"), "{mail}");
    assert!(!mail.contains("/account/email/"), "{mail}");
    // Another user registered the address in the meantime.
    control.clock.advance(1);
    ask(&mut eve, "grace@example.com").await;
    let path = link(&control).await;
    control.person("Grace").await;
    assert_eq!(eve.submit(&path, &[]).await.status, StatusCode::NOT_FOUND);
    let user = eve.open("/api/user").await.json();
    assert_eq!(user["email"], "eve@example.com");
}

async fn an_unconfirmed_address_is_confirmed_by_its_own_link(control: TestControl) {
    let ada = control.person("Ada").await.user;
    let mut tx = control.app.store.begin().await.unwrap();
    let now = control.app.now();
    store::users::set_email(&mut tx, ada, "Ada", "ada@example.com", false, now)
        .await
        .unwrap();
    tx.commit().await.unwrap();
    let mut browser = control.signed_in("Ada").await;
    assert!(
        browser
            .open("/account")
            .await
            .text
            .contains("not confirmed")
    );
    browser.submit("/account/email/confirm", &[]).await;
    let path = link(&control).await;
    assert_eq!(
        browser.submit(&path, &[]).await.status,
        StatusCode::SEE_OTHER
    );
    let user = browser.open("/api/user").await.json();
    assert_eq!(user["emailVerified"], true);
    assert_eq!(
        control.mails().await.len(),
        1,
        "nothing changed, so there is no notice"
    );
}

async fn a_name_is_changed(control: TestControl) {
    control.person("Ada").await;
    let mut browser = control.signed_in("Ada").await;
    let answer = browser
        .submit("/account/name", &[("name", " Ada Lovelace ")])
        .await;
    assert_eq!(answer.location.as_deref(), Some("/account?done=name"));
    assert_eq!(
        browser.open("/api/user").await.json()["name"],
        "Ada Lovelace"
    );
    let empty = browser.submit("/account/name", &[("name", " ")]).await;
    assert_eq!(empty.status, StatusCode::UNPROCESSABLE_ENTITY);
}

async fn signing_out_everywhere_ends_every_session(control: TestControl) {
    control.person("Ada").await;
    let mut other = control.signed_in("Ada").await;
    let mut browser = control.signed_in("Ada").await;
    let answer = browser.submit("/account/sessions/end", &[]).await;
    assert_eq!(answer.location.as_deref(), Some("/login"));
    assert_eq!(browser.cookie, None);
    assert_eq!(other.open("/account").await.status, StatusCode::SEE_OTHER);
}

/// Mails are limited per requesting user and per mailbox.
async fn a_mailbox_gets_few_mails_about_a_change(control: TestControl) {
    control.person("Ada").await;
    control.person("Eve").await;
    let (mut ada, mut eve) = (
        control.signed_in("Ada").await,
        control.signed_in("Eve").await,
    );
    for number in 0..4 {
        let asked = ask(&mut ada, &format!("new{number}@example.com")).await;
        assert_eq!(asked.location.as_deref(), Some("/account?done=email-sent"));
    }
    let refused = ask(&mut ada, "another@example.com").await;
    assert_eq!(
        refused.status,
        StatusCode::TOO_MANY_REQUESTS,
        "limit per user"
    );
    for name in ["Bob", "Carl", "Dora", "Emil"] {
        control.person(name).await;
        let mut browser = control.signed_in(name).await;
        ask(&mut browser, "victim@example.com").await;
    }
    let refused = ask(&mut eve, "victim@example.com").await;
    assert_eq!(
        refused.status,
        StatusCode::TOO_MANY_REQUESTS,
        "limit per address"
    );
    let mails = control.mails().await;
    let to_victim = mails.iter().filter(|mail| mail.contains("To: victim@"));
    assert_eq!((to_victim.count(), mails.len()), (4, 8));
    control.clock.advance(300);
    let asked = ask(&mut eve, "victim@example.com").await;
    assert_eq!(asked.location.as_deref(), Some("/account?done=email-sent"));
}
