//! Credentials, signing keys, revoked tokens, the audit log.

use store::credentials::{self, Credential, Kind};
use store::sessions::{self, Session};
use store::signing_keys::{self, SigningKey, Status};
use store::{Conflict, Order, Paging, SealedBytes, audit, revoked_tokens, users};

use super::people::session;
use crate::database::{Database, both, commit};
use crate::world::{Person, at, hash, id};

pub(crate) fn pat(person: Person, secret: u8) -> Credential {
    Credential {
        id: id!(CredentialId),
        user_id: person.user,
        workspace_id: None,
        kind: Kind::Pat,
        name: "laptop".to_owned(),
        token_hash: Some(hash(secret)),
        token_endpoint: Some(format!("{secret:08x}")),
        public_key: None,
        certificate_fingerprint: None,
        certificate: None,
        issuer_fingerprint: None,
        permissions: Some(vec!["account.projects.read-only".to_owned()]),
        resources: Some(serde_json::json!({"tunnels": {"projects": ["p"]}})),
        created_at: at(0),
        updated_at: at(0),
        expires_at: Some(at(100)),
        revoked_at: None,
        last_used_at: None,
        last_used_ip: None,
        signing_key: Some("a".to_owned()),
        rotated_to: None,
        oauth_client: Some("client".to_owned()),
        issued_by: None,
        root_id: None,
    }
}

fn of(person: Person, paging: Paging) -> credentials::List<'static> {
    credentials::List {
        user: person.user,
        kind: None,
        active_at: None,
        ended_by: None,
        search: None,
        order: Order::Asc,
        paging,
    }
}

fn mtls(person: Person, fingerprint: u8) -> Credential {
    Credential {
        kind: Kind::Mtls,
        token_hash: None,
        token_endpoint: None,
        certificate_fingerprint: Some(vec![fingerprint; 32]),
        certificate: Some("pem".to_owned()),
        permissions: None,
        resources: None,
        expires_at: None,
        ..pat(person, 0)
    }
}

fn key(kid: &str, status: Status) -> SigningKey {
    SigningKey {
        kid: kid.to_owned(),
        algorithm: "EdDSA".to_owned(),
        sealed_private_key: SealedBytes(vec![1, 2, 3]),
        public_jwk: serde_json::json!({"kid": kid}),
        status,
        created_at: at(0),
        activated_at: None,
        retired_at: None,
    }
}

both! {
    a_credential_is_found_by_its_secret_or_certificate,
    a_certificate_and_a_token_endpoint_are_one_credentials,
    a_credential_is_rotated_once_with_an_overlap,
    registering_a_certificate_does_not_block_another_user,
    a_credential_is_revoked_and_engines_hear_of_it,
    one_key_signs_and_the_next_takes_over_once,
    a_token_is_revoked_until_it_would_have_ended,
    the_audit_log_is_read_by_its_tenant_and_never_changed,
    the_audit_log_purges_only_entries_before_its_horizon,
    the_last_use_is_the_newest_of_sessions_and_credentials,
}

async fn the_last_use_is_the_newest_of_sessions_and_credentials(database: Database) {
    let ann = Person::new(&database, "Ann").await;
    let bob = Person::new(&database, "Bob").await;
    let eve = Person::new(&database, "Eve").await;
    for (person, cookie, seen) in [(ann, 1, 3), (ann, 2, 7), (bob, 3, 4)] {
        let one = Session {
            last_seen_at: at(seen),
            ..session(person, cookie)
        };
        commit!(database, |tx| sessions::insert(tx, &one)).unwrap();
    }
    for (person, secret, used) in [(ann, 1, Some(at(5))), (bob, 2, Some(at(9))), (eve, 3, None)] {
        let one = Credential {
            last_used_at: used,
            ..pat(person, secret)
        };
        commit!(database, |tx| credentials::insert(tx, &one)).unwrap();
    }
    let mut read = database.store.read().await.unwrap();
    let people = [ann.user, bob.user, eve.user];
    let uses = users::last_uses(&mut read, &people).await.unwrap();
    let of = |person: Person| {
        let found = uses.iter().find(|last| last.user_id == person.user);
        found.map(|last| last.used_at)
    };
    assert_eq!(
        [of(ann), of(bob), of(eve)],
        [Some(at(7)), Some(at(9)), None]
    );
    let one = users::last_uses(&mut read, &[ann.user]).await.unwrap();
    assert_eq!(one.len(), 1);
}

async fn a_credential_is_found_by_its_secret_or_certificate(database: Database) {
    let (ann, bob) = (
        Person::new(&database, "ann").await,
        Person::new(&database, "bob").await,
    );
    let (token, certificate) = (pat(ann, 1), mtls(ann, 2));
    let authority = Credential {
        certificate_fingerprint: None,
        issuer_fingerprint: Some(vec![3; 32]),
        ..mtls(ann, 3)
    };
    let mut tx = database.begin().await;
    for new in [&token, &certificate, &authority] {
        credentials::insert(&mut tx, new).await.unwrap();
    }
    assert_eq!(
        credentials::by_token(&mut tx, hash(1)).await.unwrap(),
        Some(token.clone())
    );
    assert_eq!(credentials::by_token(&mut tx, hash(2)).await.unwrap(), None);
    assert_eq!(
        credentials::by_token_endpoint(&mut tx, "00000001")
            .await
            .unwrap(),
        Some(token.clone())
    );
    assert_eq!(
        credentials::by_certificate(&mut tx, &[2; 32])
            .await
            .unwrap(),
        [certificate]
    );
    assert_eq!(
        credentials::by_issuer(&mut tx, &[3; 32]).await.unwrap(),
        [authority]
    );
    assert_eq!(
        credentials::by_id(&mut tx, token.id).await.unwrap(),
        Some(token.clone())
    );
    assert_eq!(
        credentials::of_user_by_id(&mut tx, bob.user, token.id)
            .await
            .unwrap(),
        None
    );
    assert_eq!(
        credentials::list(&mut tx, &of(bob, Paging::DEFAULT))
            .await
            .unwrap()
            .total,
        0
    );
    let page = credentials::list(&mut tx, &of(ann, Paging::new(2, 2).unwrap()))
        .await
        .unwrap();
    assert_eq!((page.total, page.items.len()), (3, 1));
    assert!(
        !format!("{token:?}").contains("01, 01"),
        "a hash is in the debug output"
    );
}

async fn a_certificate_and_a_token_endpoint_are_one_credentials(database: Database) {
    let ann = Person::new(&database, "ann").await;
    commit!(database, |tx| async {
        credentials::insert(tx, &pat(ann, 1)).await.unwrap();
        credentials::insert(tx, &mtls(ann, 2)).await.unwrap();
    });
    let same_endpoint = Credential {
        token_endpoint: Some("00000001".to_owned()),
        ..pat(ann, 5)
    };
    for (new, conflict) in [
        (mtls(ann, 2), Conflict::CertificateTaken),
        (same_endpoint, Conflict::TokenEndpointTaken),
    ] {
        let mut tx = database.begin().await;
        let refused = credentials::insert(&mut tx, &new).await.unwrap_err();
        assert_eq!(refused.conflict(), Some(conflict));
    }
}

/// Two users register one certificate, and each can register it once.
async fn registering_a_certificate_does_not_block_another_user(database: Database) {
    let (ann, bob) = (
        Person::new(&database, "ann").await,
        Person::new(&database, "bob").await,
    );
    let (first, second) = (mtls(ann, 2), mtls(bob, 2));
    commit!(database, |tx| async {
        credentials::insert(tx, &first).await.unwrap();
        credentials::insert(tx, &second).await.unwrap();
    });
    let mut tx = database.begin().await;
    let mut found = credentials::by_certificate(&mut tx, &[2; 32])
        .await
        .unwrap();
    found.sort_by_key(|credential| credential.id != first.id);
    assert_eq!(found, [first.clone(), second.clone()]);
    // Only the same user can register it again after its credential has ended.
    assert!(
        credentials::revoke(&mut tx, ann.user, first.id, at(1))
            .await
            .unwrap()
    );
    let again = mtls(ann, 2);
    credentials::insert(&mut tx, &again).await.unwrap();
    let found = credentials::by_certificate(&mut tx, &[2; 32])
        .await
        .unwrap();
    assert!(found.contains(&again) && found.contains(&second) && found.len() == 2);
}

async fn a_credential_is_rotated_once_with_an_overlap(database: Database) {
    let (ann, bob) = (
        Person::new(&database, "ann").await,
        Person::new(&database, "bob").await,
    );
    let (old, new) = (pat(ann, 1), pat(ann, 2));
    let endless = Credential {
        expires_at: None,
        ..pat(ann, 3)
    };
    let mut tx = database.begin().await;
    for credential in [&old, &new, &endless] {
        credentials::insert(&mut tx, credential).await.unwrap();
    }
    assert!(
        !credentials::rotate(&mut tx, bob.user, old.id, new.id, at(20), at(10))
            .await
            .unwrap()
    );
    assert!(
        !credentials::rotate(&mut tx, ann.user, old.id, new.id, at(120), at(100))
            .await
            .unwrap(),
        "over"
    );
    assert!(
        credentials::rotate(&mut tx, ann.user, old.id, new.id, at(20), at(10))
            .await
            .unwrap()
    );
    assert!(
        !credentials::rotate(&mut tx, ann.user, old.id, new.id, at(20), at(10))
            .await
            .unwrap()
    );
    let rotated = credentials::by_id(&mut tx, old.id).await.unwrap().unwrap();
    assert_eq!(
        (rotated.expires_at, rotated.rotated_to),
        (Some(at(20)), Some(new.id))
    );
    assert!(rotated.is_live(at(19)) && !rotated.is_live(at(20)));

    // An overlap ends with the credential. A credential without expiry gets one.
    assert!(
        credentials::rotate(&mut tx, ann.user, new.id, endless.id, at(500), at(10))
            .await
            .unwrap()
    );
    let kept = credentials::by_id(&mut tx, new.id).await.unwrap().unwrap();
    assert_eq!(kept.expires_at, Some(at(100)));
    assert!(
        credentials::rotate(&mut tx, ann.user, endless.id, old.id, at(30), at(10))
            .await
            .unwrap()
    );
    let ended = credentials::by_id(&mut tx, endless.id)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(ended.expires_at, Some(at(30)));
}

async fn a_credential_is_revoked_and_engines_hear_of_it(database: Database) {
    let (ann, bob) = (
        Person::new(&database, "ann").await,
        Person::new(&database, "bob").await,
    );
    let (first, second) = (pat(ann, 1), pat(ann, 2));
    let mut tx = database.begin().await;
    for credential in [&first, &second] {
        credentials::insert(&mut tx, credential).await.unwrap();
    }
    assert!(
        credentials::record_use(&mut tx, first.id, Some("192.0.2.1"), at(5))
            .await
            .unwrap()
    );
    assert!(
        !credentials::record_use(&mut tx, first.id, None, at(4))
            .await
            .unwrap()
    );
    assert!(
        !credentials::revoke(&mut tx, bob.user, first.id, at(6))
            .await
            .unwrap()
    );
    assert!(
        credentials::revoke(&mut tx, ann.user, first.id, at(6))
            .await
            .unwrap()
    );
    assert!(
        !credentials::revoke(&mut tx, ann.user, first.id, at(7))
            .await
            .unwrap()
    );
    let revoked = credentials::by_id(&mut tx, first.id).await.unwrap();
    let revoked = revoked.unwrap();
    assert_eq!(revoked.revoked_at, Some(at(6)));
    assert!(!revoked.is_live(at(6)));
    assert_eq!(
        credentials::revoke_all(&mut tx, ann.user, at(8))
            .await
            .unwrap(),
        1
    );
    assert_eq!(
        credentials::list(&mut tx, &of(ann, Paging::DEFAULT))
            .await
            .unwrap()
            .total,
        0
    );
}

async fn one_key_signs_and_the_next_takes_over_once(database: Database) {
    let ann = Person::new(&database, "ann").await;
    commit!(database, |tx| async {
        for new in [key("a", Status::Active), key("b", Status::Next)] {
            assert!(signing_keys::insert(tx, &new).await.unwrap());
        }
    });
    // Only one of several keys can be active or next.
    for status in [Status::Active, Status::Next] {
        let mut tx = database.begin().await;
        assert!(
            !signing_keys::insert(&mut tx, &key("c", status))
                .await
                .unwrap()
        );
    }
    let mut tx = database.begin().await;
    assert!(
        signing_keys::rotate(&mut tx, "a", "b", at(5))
            .await
            .unwrap()
    );
    assert!(
        !signing_keys::rotate(&mut tx, "a", "b", at(5))
            .await
            .unwrap()
    );
    let active = signing_keys::active(&mut tx).await.unwrap().unwrap();
    assert_eq!(
        (active.kid.as_str(), active.activated_at),
        ("b", Some(at(5)))
    );
    assert_eq!(active.sealed_private_key, SealedBytes(vec![1, 2, 3]));
    let all = signing_keys::all(&mut tx).await.unwrap();
    assert_eq!(all.len(), 2);
    let retired = all.iter().find(|key| key.kid == "a").unwrap();
    assert_eq!(retired.sealed_private_key, SealedBytes(Vec::new()));
    assert_eq!(signing_keys::purge(&mut tx, at(4), at(9)).await.unwrap(), 0);

    // A key is kept for valid tokens: one that it signed, or one from before signing keys were
    // recorded.
    let unnoted = Credential {
        signing_key: None,
        created_at: at(5),
        ..pat(ann, 2)
    };
    let others = [
        Credential {
            signing_key: Some("b".to_owned()),
            ..pat(ann, 3)
        },
        Credential {
            signing_key: None,
            created_at: at(6),
            ..pat(ann, 4)
        },
        mtls(ann, 5),
    ];
    for other in &others {
        credentials::insert(&mut tx, other).await.unwrap();
    }
    for holder in [pat(ann, 1), unnoted] {
        credentials::insert(&mut tx, &holder).await.unwrap();
        assert_eq!(
            signing_keys::purge(&mut tx, at(5), at(99)).await.unwrap(),
            0
        );
        credentials::revoke(&mut tx, ann.user, holder.id, at(9))
            .await
            .unwrap();
    }
    let ended = pat(ann, 6);
    credentials::insert(&mut tx, &ended).await.unwrap();
    assert_eq!(
        signing_keys::purge(&mut tx, at(5), at(100)).await.unwrap(),
        1
    );
}

async fn a_token_is_revoked_until_it_would_have_ended(database: Database) {
    let mut tx = database.begin().await;
    assert!(
        revoked_tokens::revoke(&mut tx, "j", at(10), at(0))
            .await
            .unwrap()
    );
    assert!(
        !revoked_tokens::revoke(&mut tx, "j", at(10), at(0))
            .await
            .unwrap()
    );
    assert!(revoked_tokens::is_revoked(&mut tx, "j").await.unwrap());
    assert!(!revoked_tokens::is_revoked(&mut tx, "k").await.unwrap());
    assert_eq!(revoked_tokens::purge(&mut tx, at(9), 100).await.unwrap(), 0);
    assert_eq!(
        revoked_tokens::purge(&mut tx, at(10), 100).await.unwrap(),
        1
    );
    assert!(!revoked_tokens::is_revoked(&mut tx, "j").await.unwrap());
}

async fn the_audit_log_is_read_by_its_tenant_and_never_changed(database: Database) {
    let (ann, bob) = (
        Person::new(&database, "ann").await,
        Person::new(&database, "bob").await,
    );
    let entry = |person: Person| audit::Entry {
        id: id!(AuditId),
        workspace_id: Some(person.workspace),
        actor_user_id: Some(person.user),
        actor_credential_id: None,
        action: "project.created".to_owned(),
        target_kind: "project".to_owned(),
        target_id: person.project.to_string(),
        details: serde_json::json!({"name": "x"}),
        ip: Some("192.0.2.1".to_owned()),
        created_at: at(1),
    };
    let entries = [entry(ann), entry(ann), entry(bob)];
    commit!(database, |tx| async {
        for entry in &entries {
            audit::insert(tx, entry).await.unwrap();
        }
    });
    let mut read = database.store.read().await.unwrap();
    let first = Paging::new(1, 1).unwrap();
    let page = audit::list(
        &mut read,
        audit::Scope::Workspace(ann.workspace),
        &audit::Filter::default(),
        first,
    )
    .await
    .unwrap();
    assert_eq!(
        (page.total, page.items),
        (2, vec![entries[1].clone()]),
        "newest first"
    );
    let page = audit::of_user(&mut read, bob.user, first).await.unwrap();
    assert_eq!((page.total, page.items), (1, vec![entries[2].clone()]));
    assert_eq!(
        audit::list_all(&mut read, Paging::DEFAULT)
            .await
            .unwrap()
            .total,
        3
    );
    drop(read);
    for statement in ["UPDATE audit SET action = 'x'", "DELETE FROM audit"] {
        assert!(database.try_raw(statement).await.is_err(), "{statement}");
    }
}

async fn the_audit_log_purges_only_entries_before_its_horizon(database: Database) {
    let entry = |second| audit::Entry {
        id: id!(AuditId),
        workspace_id: None,
        actor_user_id: None,
        actor_credential_id: None,
        action: "user.created".to_owned(),
        target_kind: "user".to_owned(),
        target_id: "x".to_owned(),
        details: serde_json::json!({}),
        ip: None,
        created_at: at(second),
    };
    commit!(database, |tx| async {
        for second in [1, 2, 3, 4] {
            audit::insert(tx, &entry(second)).await.unwrap();
        }
    });
    let purge = async |kept_from, limit| {
        commit!(database, |tx| audit::purge(tx, at(kept_from), limit)).unwrap()
    };
    assert_eq!(purge(3, 1).await, 1);
    assert_eq!(purge(3, 100).await, 1);
    assert_eq!(purge(2, 100).await, 0, "the horizon does not move back");
    let mut read = database.store.read().await.unwrap();
    let left = audit::list_all(&mut read, Paging::DEFAULT).await.unwrap();
    assert_eq!(left.total, 2);
    drop(read);
    assert!(database.try_raw("DELETE FROM audit").await.is_err());
}
