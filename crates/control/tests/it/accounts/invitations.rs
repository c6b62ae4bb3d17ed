//! Invitations: the information in their links, their number, and their revocation.

use http::{Method, StatusCode};
use serde_json::{Value, json};
use store::members::Role;
use store::users;

use crate::support::{PASSWORD, TestControl, both};
use crate::tenants::workspaces::{invite, join, team};

both! {
    a_copied_invitation_reveals_nothing_about_the_address,
    the_link_of_the_mail_confirms_the_address,
    a_copied_link_creates_no_account,
    a_workspace_has_a_bounded_number_of_members,
    invitations_per_user_are_limited,
    many_workspaces_do_not_fill_one_mailbox,
    an_admin_cannot_revoke_an_invitation_as_owner,
    a_personal_workspace_has_one_owner,
    names_contain_no_bidirectional_controls,
}

/// The inviter has the link as well. Its page is the same for an address with an account and for
/// one without.
async fn a_copied_invitation_reveals_nothing_about_the_address(control: TestControl) {
    control.person("Ada").await;
    control.person("Grace").await;
    let mut ada = control.signed_in("Ada").await;
    let id = team(&mut ada).await;
    let mut pages = Vec::new();
    for name in ["grace", "nobody"] {
        let email = format!("{name}@example.com");
        let path = invite(&mut ada, &id, &email, "viewer").await;
        // A missing proof, or one of another invitation, does not help either.
        for proof in ["", "?mail=", "?mail=AAAA"] {
            let page = control.browser().open(&format!("{path}{proof}")).await;
            assert_eq!(page.status, StatusCode::OK);
            let text = page.text.replace(&path, "PATH").replace(&email, "EMAIL");
            pages.push(text);
        }
    }
    pages.dedup();
    assert_eq!(pages.len(), 1);
}

/// Opened from the mail, the page states the next step, and the address is confirmed.
async fn the_link_of_the_mail_confirms_the_address(control: TestControl) {
    control.person("Ada").await;
    let grace = control.person("Grace").await;
    let mut ada = control.signed_in("Ada").await;
    let id = team(&mut ada).await;
    for email in ["grace@example.com", "new@example.com"] {
        invite(&mut ada, &id, email, "viewer").await;
    }
    let mails = control.mails().await;
    let link = |email: &str| {
        let to = format!("To: {email}\r\n");
        let mail = mails.iter().find(|mail| mail.contains(&to)).unwrap();
        let at = mail.find("/invitations/").unwrap();
        mail[at..].lines().next().unwrap().to_owned()
    };
    let page = control.browser().open(&link("grace@example.com")).await;
    assert!(page.text.contains("Sign in to join") && !page.text.contains("Choose a password"));
    let mut tx = control.app.store.begin().await.unwrap();
    let email = "grace@example.com";
    users::set_email(&mut tx, grace.user, "Grace", email, false, control.now())
        .await
        .unwrap();
    tx.commit().await.unwrap();
    let mut browser = control.signed_in("Grace").await;
    let joined = browser.submit(&link(email), &[]).await;
    assert_eq!(joined.location.as_deref(), Some("/welcome"));
    let user = browser.open("/api/user").await.json();
    assert_eq!(user["emailVerified"], true);

    let path = link("new@example.com");
    let mut new = control.browser();
    let page = new.open(&path).await;
    assert!(page.text.contains("Choose a password") && !page.text.contains("Sign in to join"));
    let fields = [("name", "New"), ("password", PASSWORD)];
    let joined = new.submit(&path, &fields).await;
    assert_eq!(joined.location.as_deref(), Some("/welcome"));
    assert_eq!(new.open("/api/user").await.json()["emailVerified"], true);
}

/// With a mail server, only the mail creates an account. No answer reveals to the holder of a
/// copied link, such as the inviter, whether the address has an account.
async fn a_copied_link_creates_no_account(control: TestControl) {
    let control = control
        .configured(json!({"mail": {"links_create_accounts": false}}))
        .await;
    control.person("Ada").await;
    control.person("Grace").await;
    let mut ada = control.signed_in("Ada").await;
    let id = team(&mut ada).await;
    let mut answers = Vec::new();
    for email in ["grace@example.com", "new@example.com"] {
        let path = invite(&mut ada, &id, email, "viewer").await;
        let shown = |text: &str| text.replace(&path, "PATH").replace(email, "EMAIL");
        let mut browser = control.browser();
        let page = browser.open(&path).await;
        assert!(!page.text.contains("name=\"name\""), "{}", page.text);
        // Some attempts must wait, which is the same for both.
        let mut texts = vec![shown(&page.text)];
        for fields in [
            &[("password", "wrong password")][..],
            &[("name", "Eve"), ("password", "another long password")],
        ] {
            for _ in 0..4 {
                let answer = browser.submit(&path, fields).await;
                texts.push(format!("{} {}", answer.status, shown(&answer.text)));
            }
        }
        answers.push(texts);
    }
    assert_eq!(answers[0], answers[1]);
    let mut read = control.app.store.read().await.unwrap();
    let made = users::by_email(&mut read, "new@example.com").await.unwrap();
    assert_eq!(made, None);
    drop(read);
    // The link in the mail does. A signed-in user joins with the copy.
    control.clock.advance(3600);
    let mails = control.mails().await;
    let mail = mails
        .iter()
        .find(|mail| mail.contains("To: new@example.com\r\n"))
        .unwrap();
    let at = mail.find("/invitations/").unwrap();
    let link = mail[at..].lines().next().unwrap().to_owned();
    let mut new = control.browser();
    let fields = [("name", "New"), ("password", PASSWORD)];
    let joined = new.submit(&link, &fields).await;
    assert_eq!(joined.location.as_deref(), Some("/welcome"));
    let mut grace = control.signed_in("Grace").await;
    let copy = invite(&mut ada, &id, "grace@example.com", "viewer").await;
    let joined = grace.submit(&copy, &[]).await;
    assert_eq!(joined.location.as_deref(), Some("/welcome"));
}

async fn a_workspace_has_a_bounded_number_of_members(control: TestControl) {
    let control = control
        .configured(json!({"limits": {"members_per_workspace": 2}}))
        .await;
    for name in ["Ada", "Grace", "Edith"] {
        control.person(name).await;
    }
    let mut ada = control.signed_in("Ada").await;
    let id = team(&mut ada).await;
    for (name, status) in [
        ("Grace", StatusCode::SEE_OTHER),
        ("Edith", StatusCode::CONFLICT),
    ] {
        let email = format!("{}@example.com", name.to_lowercase());
        let path = invite(&mut ada, &id, &email, "viewer").await;
        let mut browser = control.signed_in(name).await;
        let joined = browser.submit(&path, &[]).await;
        assert_eq!(joined.status, status, "{}", joined.text);
    }
}

/// A user has at most a hundred open invitations, and sends at most two hundred a day.
async fn invitations_per_user_are_limited(control: TestControl) {
    control.person("Ada").await;
    let mut ada = control.signed_in("Ada").await;
    let id = team(&mut ada).await;
    let path = format!("/api/workspaces/{id}/invitations");
    let body = |number: u32| json!({"email": format!("n{number}@example.com"), "role": "viewer"});
    let mut number = 0;
    for _ in 0..2 {
        for _ in 0..100 {
            number += 1;
            let sent = ada.api(Method::POST, &path, body(number)).await;
            let invitation = sent.expect(201)["invitation"]["id"].clone();
            if number <= 100 && number > 1 {
                continue;
            }
            // One is revoked immediately, so that the next one fits.
            let one = format!("{path}/{}", invitation.as_str().unwrap());
            let gone = ada.api(Method::DELETE, &one, Value::Null).await;
            assert_eq!(gone.status, StatusCode::NO_CONTENT);
        }
    }
    let many = ada.api(Method::POST, &path, body(201)).await;
    assert_eq!(many.refused(429).0, "too_many_requests");
    control.clock.advance(24 * 3600);
    let sent = ada.api(Method::POST, &path, body(202)).await;
    assert_eq!(sent.status, StatusCode::CREATED);
    let full = ada.api(Method::POST, &path, body(203)).await;
    assert_eq!(full.refused(409).0, "conflict");
}

/// CP-6: an invitation is revoked by members who may send one like it.
async fn an_admin_cannot_revoke_an_invitation_as_owner(control: TestControl) {
    control.person("Ada").await;
    let anna = control.person("Anna").await.user;
    let mut ada = control.signed_in("Ada").await;
    let id = team(&mut ada).await;
    join(&control, &id, anna, Role::Admin).await;
    let path = format!("/api/workspaces/{id}/invitations");
    let body = json!({"email": "o@example.com", "role": "owner"});
    let sent = ada.api(Method::POST, &path, body).await.expect(201);
    let one = format!("{path}/{}", sent["invitation"]["id"].as_str().unwrap());
    let mut anna = control.signed_in("Anna").await;
    let refused = anna.api(Method::DELETE, &one, Value::Null).await;
    assert_eq!(refused.status, StatusCode::FORBIDDEN);
    let gone = ada.api(Method::DELETE, &one, Value::Null).await;
    assert_eq!(gone.status, StatusCode::NO_CONTENT);
}

async fn a_personal_workspace_has_one_owner(control: TestControl) {
    let ada = control.person("Ada").await;
    let grace = control.person("Grace").await;
    control.join(&grace, ada.workspace, Role::Admin).await;
    let path = format!("/api/workspaces/{}", ada.workspace);
    let owner = json!({"role": "owner"});
    let member = format!("{path}/members/{}", grace.user);
    let refused = control
        .send(Method::PATCH, &member, Some(&ada.token), Some(&owner))
        .await;
    assert_eq!(refused.refused(409).0, "conflict");
    let body = json!({"email": "o@example.com", "role": "owner"});
    let refused = control
        .post(&format!("{path}/invitations"), &ada.token, &body)
        .await;
    assert_eq!(refused.refused(409).0, "conflict");
}

async fn names_contain_no_bidirectional_controls(control: TestControl) {
    let ada = control.person("Ada").await;
    for name in ["evil\u{202e}gpj", "a\u{200b}b", "a\u{2066}b"] {
        let body = json!({"name": name});
        let refused = control.post("/api/workspaces", &ada.token, &body).await;
        assert_eq!(refused.refused(400).1.as_deref(), Some("name"), "{name:?}");
    }
    let mut browser = control.signed_in("Ada").await;
    let fields = [("name", "Ada\u{202e}")];
    let refused = browser.submit("/account/name", &fields).await;
    assert_eq!(refused.status, StatusCode::UNPROCESSABLE_ENTITY);
}

/// The links are still returned, and mails are limited.
async fn many_workspaces_do_not_fill_one_mailbox(control: TestControl) {
    control.person("Ada").await;
    let mut ada = control.signed_in("Ada").await;
    for _ in 0..7 {
        let id = team(&mut ada).await;
        invite(&mut ada, &id, "grace@example.com", "viewer").await;
    }
    assert_eq!(control.mails().await.len(), 4);
    let id = team(&mut ada).await;
    invite(&mut ada, &id, "bob@example.com", "viewer").await;
    assert_eq!(control.mails().await.len(), 5, "another mailbox");
    control.clock.advance(3600);
    invite(&mut ada, &id, "grace@example.com", "viewer").await;
    assert_eq!(control.mails().await.len(), 6);
}
