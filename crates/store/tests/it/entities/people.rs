//! People, sessions, links, workspaces, members, invitations.

use std::collections::BTreeSet;

use store::links::{self, Link};
use store::passkeys::{self, Passkey};
use store::pending_sign_ins::{self, PendingSignIn};
use store::sessions::{self, Session};
use store::{Conflict, Order, Paging, PasswordHash, SealedBytes, used_challenges, users};

use crate::database::{Database, both, commit};
use crate::world::{Person, at, hash, id, new_user};

pub(super) fn session(person: Person, cookie: u8) -> Session {
    Session {
        id: id!(SessionId),
        hash: hash(cookie),
        user_id: person.user,
        proved_at: at(0),
        user_agent: Some("browser".to_owned()),
        ip: None,
        second_factor_at: None,
        created_at: at(0),
        rotated_at: at(0),
        last_seen_at: at(0),
        expires_at: at(100),
        permissions: Some(vec!["account.projects.read-only".to_owned()]),
        resources: Some(serde_json::json!({"tunnels": {"projects": ["p"]}})),
    }
}

both! {
    an_address_belongs_to_one_person_in_any_case,
    changes_of_a_user_are_read_back,
    an_outside_identity_is_one_persons,
    a_totp_step_and_a_recovery_code_work_once,
    a_passkey_is_used_with_a_growing_counter,
    a_session_lives_until_its_end_and_rotates_once,
    a_provider_finds_the_sessions_that_it_started,
    a_challenge_is_used_once_and_expires,
    a_link_works_once_for_its_purpose_until_its_end,
    a_pending_sign_in_is_taken_once_before_it_expires,
    the_newest_link_that_works_is_the_pending_one,
}

async fn an_address_belongs_to_one_person_in_any_case(database: Database) {
    let ann = Person::new(&database, "Ann").await;
    let mut read = database.store.read().await.unwrap();
    let found = users::by_email(&mut read, "ANN@example.COM")
        .await
        .unwrap()
        .unwrap();
    assert_eq!(
        (found.id, found.email.as_str()),
        (ann.user, "Ann@Example.com")
    );
    assert_eq!(
        users::by_email(&mut read, "bob@example.com").await.unwrap(),
        None
    );

    let mut tx = database.begin().await;
    let refused = users::insert(&mut tx, &new_user(id!(UserId), "aNN"))
        .await
        .unwrap_err();
    assert_eq!(refused.conflict(), Some(Conflict::EmailTaken));
}

async fn changes_of_a_user_are_read_back(database: Database) {
    let ann = Person::new(&database, "Ann").await.user;
    let password = PasswordHash("phc".to_owned());
    commit!(database, |tx| async {
        assert!(users::set_name(tx, ann, "Änne", at(1)).await.unwrap());
        assert!(
            users::set_email(tx, ann, "Änne", "A@b.example", false, at(2))
                .await
                .unwrap()
        );
        assert!(
            !users::verify_email(tx, ann, "old@b.example", at(3))
                .await
                .unwrap()
        );
        assert!(
            users::verify_email(tx, ann, "a@B.example", at(3))
                .await
                .unwrap()
        );
        assert!(
            users::set_password(tx, ann, Some(&password), at(4))
                .await
                .unwrap()
        );
        assert!(
            users::set_role(tx, ann, users::Role::Admin, at(5))
                .await
                .unwrap()
        );
        assert!(
            !users::set_name(tx, id!(UserId), "Nobody", at(6))
                .await
                .unwrap()
        );
    });
    let mut read = database.store.read().await.unwrap();
    let user = users::by_id(&mut read, ann).await.unwrap().unwrap();
    assert_eq!(user.name, "Änne");
    assert_eq!(user.password_hash, Some(password));
    assert!(user.email_verified && user.role == users::Role::Admin);
    assert_eq!((user.created_at, user.updated_at), (at(0), at(5)));
    assert!(users::any_admin(&mut read).await.unwrap());
    assert!(!format!("{user:?}").contains("phc"), "a hash is printed");

    let paging = Paging::DEFAULT;
    for search in ["änne", "ÄNN", "b.EXAMPLE"] {
        let found = users::list(
            &mut read,
            Some(search),
            users::Sort::Name,
            Order::Asc,
            paging,
        );
        assert_eq!(found.await.unwrap().total, 1, "{search}");
    }
    // Characters with a meaning in patterns match literally.
    for search in ["%", "_", "!", "ann@"] {
        let found = users::list(
            &mut read,
            Some(search),
            users::Sort::Id,
            Order::Desc,
            paging,
        );
        assert_eq!(found.await.unwrap().total, 0, "{search}");
    }
}

async fn an_outside_identity_is_one_persons(database: Database) {
    let (ann, bob) = (
        Person::new(&database, "ann").await,
        Person::new(&database, "bob").await,
    );
    commit!(database, |tx| users::link_identity(
        tx,
        ann.user,
        "https://id",
        "1",
        at(0)
    ))
    .unwrap();
    let mut tx = database.begin().await;
    let refused = users::link_identity(&mut tx, bob.user, "https://id", "1", at(0)).await;
    assert_eq!(
        refused.unwrap_err().conflict(),
        Some(Conflict::IdentityTaken)
    );
    drop(tx);
    let mut read = database.store.read().await.unwrap();
    let found = users::by_identity(&mut read, "https://id", "1")
        .await
        .unwrap()
        .unwrap();
    assert_eq!(found.id, ann.user);
}

async fn a_totp_step_and_a_recovery_code_work_once(database: Database) {
    let ann = Person::new(&database, "ann").await.user;
    commit!(database, |tx| async {
        assert!(
            !users::use_totp_step(tx, ann, 1).await.unwrap(),
            "no secret yet"
        );
        assert!(
            !users::confirm_totp(tx, ann, &SealedBytes(vec![1]), 6, at(0))
                .await
                .unwrap(),
            "no secret yet"
        );
        users::begin_totp(tx, ann, &SealedBytes(vec![1]), at(0))
            .await
            .unwrap();
        for (secret, confirms) in [(vec![2], false), (vec![1], true), (vec![1], false)] {
            let secret = SealedBytes(secret);
            let confirmed = users::confirm_totp(tx, ann, &secret, 6, at(1)).await;
            assert_eq!(confirmed.unwrap(), confirms, "{secret:?}");
        }
        // An active secret is not replaced.
        let other = SealedBytes(vec![3]);
        assert!(!users::begin_totp(tx, ann, &other, at(1)).await.unwrap());
        assert!(users::use_totp_step(tx, ann, 7).await.unwrap());
        assert!(!users::use_totp_step(tx, ann, 7).await.unwrap());
        assert!(!users::use_totp_step(tx, ann, 6).await.unwrap());
        assert!(users::use_totp_step(tx, ann, 8).await.unwrap());

        users::set_recovery_codes(tx, ann, &[hash(1), hash(2)])
            .await
            .unwrap();
        assert!(
            users::use_recovery_code(tx, ann, hash(1), at(2))
                .await
                .unwrap()
        );
        assert!(
            !users::use_recovery_code(tx, ann, hash(1), at(2))
                .await
                .unwrap()
        );
        users::set_recovery_codes(tx, ann, &[hash(3)])
            .await
            .unwrap();
        assert!(
            !users::use_recovery_code(tx, ann, hash(2), at(2))
                .await
                .unwrap()
        );
    });
}

async fn a_passkey_is_used_with_a_growing_counter(database: Database) {
    let (ann, bob) = (
        Person::new(&database, "ann").await,
        Person::new(&database, "bob").await,
    );
    let passkey = Passkey {
        id: id!(PasskeyId),
        user_id: ann.user,
        credential_id: vec![1, 2],
        public_key: vec![3],
        sign_count: 0,
        user_verified: false,
        name: "laptop".to_owned(),
        created_at: at(0),
        last_used_at: None,
    };
    commit!(database, |tx| async {
        passkeys::insert(tx, &passkey).await.unwrap();
        assert_eq!(
            passkeys::by_credential(tx, &[1, 2]).await.unwrap(),
            Some(passkey.clone())
        );
        assert!(
            passkeys::record_use(tx, passkey.id, 0, false, at(1))
                .await
                .unwrap(),
            "has no counter"
        );
        assert!(
            passkeys::record_use(tx, passkey.id, 5, false, at(1))
                .await
                .unwrap()
        );
        assert!(
            !passkeys::record_use(tx, passkey.id, 5, false, at(1))
                .await
                .unwrap()
        );
        assert!(
            !passkeys::record_use(tx, passkey.id, 0, false, at(1))
                .await
                .unwrap()
        );
        assert!(!passkeys::delete(tx, bob.user, passkey.id).await.unwrap());
    });
    let mut tx = database.begin().await;
    let again = Passkey {
        id: id!(PasskeyId),
        user_id: bob.user,
        ..passkey
    };
    let refused = passkeys::insert(&mut tx, &again).await.unwrap_err();
    assert_eq!(refused.conflict(), Some(Conflict::PasskeyTaken));
    drop(tx);
    let mut tx = database.begin().await;
    assert_eq!(passkeys::count(&mut tx, ann.user).await.unwrap(), 1);
    for (counter, verified) in [(6, true), (7, false)] {
        assert!(
            passkeys::record_use(&mut tx, passkey.id, counter, verified, at(2))
                .await
                .unwrap()
        );
        let kept = passkeys::of_user(&mut tx, ann.user).await.unwrap();
        assert!(kept[0].user_verified, "the verification is kept");
    }
    assert!(
        passkeys::delete(&mut tx, ann.user, passkey.id)
            .await
            .unwrap()
    );
    assert!(
        passkeys::of_user(&mut tx, ann.user)
            .await
            .unwrap()
            .is_empty()
    );
}

async fn a_session_lives_until_its_end_and_rotates_once(database: Database) {
    let ann = Person::new(&database, "ann").await;
    let first = session(ann, 1);
    commit!(database, |tx| sessions::insert(tx, &first)).unwrap();
    let mut tx = database.begin().await;
    assert_eq!(
        sessions::live(&mut tx, hash(1), at(99)).await.unwrap(),
        Some(first.clone())
    );
    assert_eq!(
        sessions::live(&mut tx, hash(1), at(100)).await.unwrap(),
        None
    );
    assert_eq!(sessions::live(&mut tx, hash(2), at(1)).await.unwrap(), None);
    let end = at(200);
    assert!(
        sessions::rotate(&mut tx, hash(1), hash(2), at(50), end)
            .await
            .unwrap()
    );
    assert!(
        !sessions::rotate(&mut tx, hash(1), hash(4), at(50), end)
            .await
            .unwrap()
    );
    assert!(
        sessions::record_proof(&mut tx, first.id, at(50))
            .await
            .unwrap()
    );
    assert!(
        sessions::second_factor(&mut tx, first.id, at(51))
            .await
            .unwrap()
    );
    assert!(
        sessions::record_use(&mut tx, first.id, at(52))
            .await
            .unwrap()
    );
    assert!(
        !sessions::record_use(&mut tx, first.id, at(51))
            .await
            .unwrap(),
        "clocks can jump back"
    );
    let now = sessions::live(&mut tx, hash(2), at(199))
        .await
        .unwrap()
        .unwrap();
    assert_eq!(
        (now.id, now.second_factor_at, now.proved_at, now.expires_at),
        (first.id, Some(at(51)), at(51), end)
    );

    for cookie in [5, 6] {
        sessions::insert(&mut tx, &session(ann, cookie))
            .await
            .unwrap();
    }
    assert_eq!(
        sessions::of_user(&mut tx, ann.user, at(60))
            .await
            .unwrap()
            .len(),
        3
    );
    assert!(sessions::end(&mut tx, hash(5), at(9)).await.unwrap());
    assert_eq!(
        sessions::end_all(&mut tx, ann.user, Some(first.id), at(9))
            .await
            .unwrap(),
        1
    );
    assert_eq!(sessions::purge(&mut tx, at(199), 100).await.unwrap(), 0);
    assert_eq!(sessions::purge(&mut tx, at(200), 100).await.unwrap(), 1);
}

async fn a_provider_finds_the_sessions_that_it_started(database: Database) {
    let ann = Person::new(&database, "ann").await;
    let mut tx = database.begin().await;
    let identities = [
        None,
        Some(("https://a", "s", Some("1"))),
        Some(("https://a", "s", None)),
        Some(("https://b", "s", Some("1"))),
    ];
    let mut ids = Vec::new();
    for (cookie, identity) in (1..).zip(identities) {
        let new = session(ann, cookie);
        ids.push(new.id);
        sessions::insert(&mut tx, &new).await.unwrap();
        if let Some((issuer, subject, sid)) = identity {
            let is_set = sessions::set_provider(&mut tx, new.id, issuer, subject, sid).await;
            assert!(is_set.unwrap());
        }
    }
    let ids_of = |found: Vec<sessions::ProviderSession>| {
        let ids = found.iter().map(|one| one.id);
        ids.collect::<BTreeSet<_>>()
    };
    let of_subject = sessions::of_subject(&mut tx, "https://a", "s")
        .await
        .unwrap();
    assert_eq!(ids_of(of_subject), BTreeSet::from([ids[1], ids[2]]));
    let of_sid = sessions::of_sid(&mut tx, "https://a", "1").await.unwrap();
    assert_eq!(ids_of(of_sid), BTreeSet::from([ids[1]]));
    let other = sessions::of_sid(&mut tx, "https://c", "1").await.unwrap();
    assert_eq!(other, []);
    assert_eq!(sessions::provider(&mut tx, hash(1)).await.unwrap(), None);
    let found = sessions::provider(&mut tx, hash(4)).await.unwrap().unwrap();
    let sid = found.openid_sid.as_deref();
    assert_eq!(
        (found.openid_issuer.as_str(), sid),
        ("https://b", Some("1"))
    );
    assert_eq!(
        (found.user_id, found.openid_subject.as_str()),
        (ann.user, "s")
    );
}

async fn a_challenge_is_used_once_and_expires(database: Database) {
    let mut tx = database.begin().await;
    assert!(
        used_challenges::spend(&mut tx, hash(1), at(10))
            .await
            .unwrap()
    );
    assert!(
        !used_challenges::spend(&mut tx, hash(1), at(10))
            .await
            .unwrap()
    );
    assert!(
        used_challenges::spend(&mut tx, hash(2), at(11))
            .await
            .unwrap()
    );
    assert_eq!(
        used_challenges::purge(&mut tx, at(10), 100).await.unwrap(),
        1
    );
    assert!(
        !used_challenges::spend(&mut tx, hash(2), at(11))
            .await
            .unwrap()
    );
}

async fn a_link_works_once_for_its_purpose_until_its_end(database: Database) {
    let ann = Person::new(&database, "ann").await;
    let link = Link {
        user_id: ann.user,
        kind: links::Kind::PasswordReset,
        email: "ann@example.com".to_owned(),
        created_at: at(0),
        expires_at: at(100),
    };
    let kind = link.kind;
    let mut tx = database.begin().await;
    for secret in 1..=3 {
        links::insert(&mut tx, hash(secret), &link).await.unwrap();
    }
    let wrong = links::consume(&mut tx, hash(1), links::Kind::Email, at(1))
        .await
        .unwrap();
    assert_eq!(wrong, None);
    assert_eq!(
        links::consume(&mut tx, hash(1), kind, at(100))
            .await
            .unwrap(),
        None
    );
    assert_eq!(
        links::live(&mut tx, hash(1), kind, at(99)).await.unwrap(),
        Some(link.clone())
    );
    assert_eq!(
        links::consume(&mut tx, hash(1), kind, at(99))
            .await
            .unwrap(),
        Some(link)
    );
    assert_eq!(
        links::consume(&mut tx, hash(1), kind, at(99))
            .await
            .unwrap(),
        None
    );
    assert_eq!(
        links::revoke(&mut tx, ann.user, kind, at(2)).await.unwrap(),
        2
    );
    assert_eq!(
        links::consume(&mut tx, hash(2), kind, at(3)).await.unwrap(),
        None
    );
    assert_eq!(links::purge(&mut tx, at(100), 100).await.unwrap(), 3);
}

async fn a_pending_sign_in_is_taken_once_before_it_expires(database: Database) {
    let pending = |secret| PendingSignIn {
        hash: hash(secret),
        sealed: SealedBytes(vec![secret; 40]),
        created_at: at(0),
        expires_at: at(600),
    };
    let mut tx = database.begin().await;
    for secret in 1..=3 {
        pending_sign_ins::insert(&mut tx, &pending(secret))
            .await
            .unwrap();
    }
    let mut take = async |secret, second| {
        pending_sign_ins::consume(&mut tx, hash(secret), at(second))
            .await
            .unwrap()
    };
    assert_eq!(take(9, 1).await, None);
    assert_eq!(take(1, 600).await, None);
    assert_eq!(take(1, 599).await, Some(pending(1)));
    assert_eq!(take(1, 599).await, None);
    assert_eq!(
        pending_sign_ins::purge(&mut tx, at(599), 9).await.unwrap(),
        0
    );
    assert_eq!(
        pending_sign_ins::purge(&mut tx, at(600), 9).await.unwrap(),
        2
    );
    for secret in 10..20 {
        let mut new = pending(secret);
        new.created_at = at(secret.into());
        pending_sign_ins::insert(&mut tx, &new).await.unwrap();
    }
    // The newest are kept.
    assert_eq!(pending_sign_ins::trim(&mut tx, 4, 2).await.unwrap(), 2);
    assert_eq!(pending_sign_ins::trim(&mut tx, 4, 99).await.unwrap(), 4);
    assert_eq!(pending_sign_ins::trim(&mut tx, 4, 99).await.unwrap(), 0);
    for (secret, is_there) in [(10, false), (15, false), (16, true), (19, true)] {
        let found = pending_sign_ins::consume(&mut tx, hash(secret), at(1));
        assert_eq!(found.await.unwrap().is_some(), is_there, "{secret}");
    }
    assert!(!format!("{:?}", pending(7)).contains("7, 7"));
}

async fn the_newest_link_that_works_is_the_pending_one(database: Database) {
    let ann = Person::new(&database, "ann").await;
    let link = |email: &str, created| Link {
        user_id: ann.user,
        kind: links::Kind::Email,
        email: email.to_owned(),
        created_at: at(created),
        expires_at: at(100),
    };
    let (one, two) = (link("one@example.com", 0), link("two@example.com", 1));
    let mut tx = database.begin().await;
    links::insert(&mut tx, hash(1), &one).await.unwrap();
    links::insert(&mut tx, hash(2), &two).await.unwrap();
    let mut pending = async |kind, second| {
        links::pending(&mut tx, ann.user, kind, at(second))
            .await
            .unwrap()
    };
    assert_eq!(pending(links::Kind::Email, 2).await, Some(two));
    assert_eq!(pending(links::Kind::Email, 100).await, None);
    assert_eq!(pending(links::Kind::PasswordReset, 2).await, None);
    links::consume(&mut tx, hash(2), links::Kind::Email, at(3))
        .await
        .unwrap();
    let left = links::pending(&mut tx, ann.user, links::Kind::Email, at(3)).await;
    assert_eq!(left.unwrap(), Some(one));
}
