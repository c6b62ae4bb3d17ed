//! Decisions that race with a change of their basis. On PostgreSQL, where writers wait for each
//! other within a transaction.

use http::Method;
use serde_json::json;
use store::members::Role;
use store::users::Status;
use store::{PasswordHash, members, projects, users, workspaces};
use types::id::UserId;

use crate::accounts::second_factor::Authenticator;
use crate::postgres;
use crate::support::{PASSWORD, TestControl};

/// Waits until a transaction waits for a lock of this database.
async fn wait_for_lock_waiter(control: &TestControl) {
    let url = control.app.config.database_url.as_ref().unwrap();
    postgres::wait_for_lock_waiter(url.expose()).await;
}

async fn password(control: &TestControl, of: UserId) -> Option<PasswordHash> {
    let mut read = control.app.store.read().await.unwrap();
    let user = users::by_id(&mut read, of).await.unwrap();
    user.unwrap().password_hash
}

/// Changing a password ends every session, so the old password cannot open one afterwards.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_password_that_changes_while_it_is_compared_opens_no_session() {
    let control = TestControl::postgres().await;
    let now = control.now();
    for (name, suspends) in [("Ada", false), ("Bob", true)] {
        let person = control.person(name).await.user;
        let before = password(&control, person).await;
        let other = Some(PasswordHash("another".to_owned()));
        let mut tx = control.app.store.begin().await.unwrap();
        let changed = if suspends {
            users::set_status(&mut tx, person, Status::Suspended, now).await
        } else {
            users::set_password(&mut tx, person, other.as_ref(), now).await
        };
        assert!(changed.unwrap());
        let changing = async {
            wait_for_lock_waiter(&control).await;
            tx.commit().await.unwrap();
        };
        let mut browser = control.browser();
        let (answer, ()) = tokio::join!(browser.sign_in(name, PASSWORD), changing);
        assert_eq!((answer.status, answer.location), (401, None));
        let kept = password(&control, person).await;
        assert!(
            kept == if suspends { before } else { other },
            "the old hash is not written back"
        );
    }
}

/// CP-5: a user without membership in the project's current workspace cannot delete it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_project_that_is_moved_while_it_is_deleted_is_kept() {
    let control = TestControl::postgres().await;
    let (ada, bob) = (control.person("Ada").await, control.person("Bob").await);
    let project = control.project(&ada).await;
    let mut tx = control.app.store.begin().await.unwrap();
    workspaces::lock(&mut tx, ada.workspace).await.unwrap();
    let (from, to) = (ada.workspace, bob.workspace);
    assert!(
        projects::transfer(&mut tx, project.id, from, to, control.now())
            .await
            .unwrap()
    );
    let moving = async {
        wait_for_lock_waiter(&control).await;
        tx.commit().await.unwrap();
    };
    let path = format!("/api/projects/tunnels/{}", project.id);
    let (answer, ()) = tokio::join!(control.delete(&path, &ada.token), moving);
    assert_eq!(answer.status, 404);
    assert_eq!(control.get(&path, &bob.token).await.status, 200);
}

/// CP-6: no member removes a stronger role, even if it was assigned a moment ago.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_admin_cannot_change_a_member_that_becomes_an_owner() {
    let control = TestControl::postgres().await;
    let [ada, bob, eve] = ["Ada", "Bob", "Eve"].map(|name| control.person(name));
    let (ada, bob, eve) = (ada.await, bob.await, eve.await);
    for method in [Method::PATCH, Method::DELETE] {
        let id = ada.workspace;
        let mut tx = control.app.store.begin().await.unwrap();
        for (person, role) in [(&bob, Role::Admin), (&eve, Role::Member)] {
            members::delete(&mut tx, id, person.user, control.now())
                .await
                .unwrap();
            members::insert(&mut tx, id, person.user, role, None, control.now())
                .await
                .unwrap();
        }
        tx.commit().await.unwrap();
        let mut tx = control.app.store.begin().await.unwrap();
        let now = control.now();
        assert!(
            members::set_role(&mut tx, id, eve.user, Role::Owner, now)
                .await
                .unwrap()
        );
        let promoting = async {
            wait_for_lock_waiter(&control).await;
            tx.commit().await.unwrap();
        };
        let path = format!("/api/workspaces/{id}/members/{}", eve.user);
        let body = (method == Method::PATCH).then(|| json!({"role": "viewer"}));
        let asking = control.send(method, &path, Some(&bob.token), body.as_ref());
        let (answer, ()) = tokio::join!(asking, promoting);
        assert_eq!(answer.status, 403);
        let mut read = control.app.store.read().await.unwrap();
        let member = members::by_user(&mut read, id, eve.user).await.unwrap();
        assert_eq!(member.unwrap().role, Role::Owner);
    }
}

/// CP-11: nothing is issued after a revocation of the whole chain, at any platform.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_credential_that_is_revoked_with_its_chain_issues_no_other() {
    let control = TestControl::postgres().await;
    let second = control.second_process().await.unwrap();
    let ada = control.person("Ada").await;
    let now = control.now();
    let id = {
        let hash = store::SecretHash(::credentials::digest(&ada.token));
        let mut read = control.app.store.read().await.unwrap();
        let found = store::credentials::by_token(&mut read, hash).await.unwrap();
        found.unwrap().id
    };
    let mut tx = control.app.store.begin().await.unwrap();
    let revoked = store::credentials::revoke_chain(&mut tx, ada.user, id, now)
        .await
        .unwrap();
    assert_eq!(revoked, [id]);
    let revoking = async {
        wait_for_lock_waiter(&control).await;
        tx.commit().await.unwrap();
    };
    let body = json!({"type": "pat", "name": "another"});
    let (answer, ()) = tokio::join!(second.post("/api/credentials", &ada.token, &body), revoking);
    assert_eq!(answer.status, 401);
    let mut read = control.app.store.read().await.unwrap();
    let good = store::credentials::List {
        user: ada.user,
        kind: None,
        active_at: Some(now),
        ended_by: None,
        search: None,
        order: store::Order::Asc,
        paging: store::Paging::DEFAULT,
    };
    let list = store::credentials::list(&mut read, &good).await.unwrap();
    assert_eq!(list.total, 0);
}

/// Two platforms of one installation start at the same time, both with `--create-admin`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_parallel_starts_one_creates_the_operator() {
    let first = TestControl::postgres().await;
    let second = first.second_process().await.unwrap();
    let email = "root@example.com";
    let (one, two) = tokio::join!(
        ::control::first_admin(&first.app, email),
        ::control::first_admin(&second.app, email),
    );
    let made = [one.unwrap(), two.unwrap()];
    assert_eq!(made.iter().flatten().count(), 1);
}

/// A user opens an invitation link twice at the same time. Both answers confirm the membership.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn joining_twice_in_parallel_succeeds() {
    let control = TestControl::postgres().await;
    let ada = control.person("Ada").await;
    let team = control
        .post("/api/workspaces", &ada.token, &json!({"name": "Team"}))
        .await
        .expect(201);
    let path = format!(
        "/api/workspaces/{}/invitations",
        team["id"].as_str().unwrap()
    );
    for round in 0..4 {
        let name = format!("Bob{round}");
        control.person(&name).await;
        let body =
            json!({"email": format!("{}@example.com", name.to_lowercase()), "role": "member"});
        let sent = control.post(&path, &ada.token, &body).await.expect(201);
        let link = sent["url"].as_str().unwrap();
        let link = &link[link.find("/invitations/").unwrap()..];
        let (mut one, mut two) = (
            control.signed_in(&name).await,
            control.signed_in(&name).await,
        );
        let (one, two) = tokio::join!(one.submit(link, &[]), two.submit(link, &[]));
        for answer in [one, two] {
            assert_eq!(answer.location.as_deref(), Some("/welcome"), "{answer:?}");
        }
        // Also a third time, later.
        let again = control.signed_in(&name).await.submit(link, &[]).await;
        assert_eq!(again.location.as_deref(), Some("/welcome"), "{again:?}");
    }
    for round in 0..4 {
        let body = json!({"email": format!("new{round}@example.com"), "role": "member"});
        let sent = control.post(&path, &ada.token, &body).await.expect(201);
        let link = sent["url"].as_str().unwrap();
        let link = &link[link.find("/invitations/").unwrap()..];
        let form = [
            ("name", "New"),
            ("password", "a long one that nobody guesses"),
        ];
        let (mut one, mut two) = (control.browser(), control.browser());
        let (one, two) = tokio::join!(one.submit(link, &form), two.submit(link, &form));
        let is_in = |answer: &crate::support::Answer| {
            answer.location.as_deref() == Some("/welcome")
                || answer.text.contains("You have joined")
        };
        assert!(is_in(&one) && is_in(&two), "{one:?} {two:?}");
    }
}

/// Two parallel requests for recovery codes: the codes of one of them are valid.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn recovery_codes_that_are_generated_twice_are_valid_once() {
    let control = TestControl::postgres().await;
    let second = control.second_process().await.unwrap();
    let ada = control.person("Ada").await.user;
    let codes = [1, 2].map(|number| store::SecretHash([number; 32]));
    let mut tx = control.app.store.begin().await.unwrap();
    users::set_recovery_codes(&mut tx, ada, &codes[..1])
        .await
        .unwrap();
    let drawing = async {
        wait_for_lock_waiter(&control).await;
        tx.commit().await.unwrap();
    };
    let again = async {
        let mut tx = second.app.store.begin().await.unwrap();
        users::set_recovery_codes(&mut tx, ada, &codes[1..])
            .await
            .unwrap();
        tx.commit().await.unwrap();
    };
    tokio::join!(again, drawing);
    let mut tx = control.app.store.begin().await.unwrap();
    let now = control.now();
    for (code, is_valid) in codes.into_iter().zip([false, true]) {
        let used = users::use_recovery_code(&mut tx, ada, code, now).await;
        assert_eq!(used.unwrap(), is_valid);
    }
}

/// A set-up is restarted while it is confirmed. The page with recovery codes is correct, whichever
/// request was first.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_factor_is_enabled_if_its_recovery_codes_are_shown() {
    let control = TestControl::postgres().await;
    let second = control.second_process().await.unwrap();
    let (mut confirmed, mut replaced) = (0, 0);
    for round in 0..12 {
        let ada = control.person(&format!("Ada{round}")).await;
        let cookie = control.session(&ada).await;
        let (mut one, mut two) = (control.browser(), second.browser());
        (one.cookie, two.cookie) = (Some(cookie.clone()), Some(cookie));
        let page = one.submit("/account/second-factor", &[]).await;
        let app = Authenticator::scan(page.between("<code class=\"key\">", "</code>"));
        let code = app.code(&control);
        let fields = [("code", code.as_str())];
        let (shown, again) = tokio::join!(
            one.submit("/account/second-factor/confirm", &fields),
            two.submit("/account/second-factor", &[])
        );
        let mut read = control.app.store.read().await.unwrap();
        let user = users::by_id(&mut read, ada.user).await.unwrap().unwrap();
        let shows_codes = shown.status == 200 && shown.text.matches("<code>").count() == 8;
        assert_eq!(
            shows_codes,
            user.totp_confirmed_at.is_some(),
            "{}",
            shown.text
        );
        if shows_codes {
            confirmed += 1;
        } else {
            assert_eq!((shown.status, again.status), (422, 200));
            replaced += 1;
        }
    }
    assert_eq!(confirmed + replaced, 12);
}
