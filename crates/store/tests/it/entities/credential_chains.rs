//! Credentials that issued other credentials.

use store::credentials::{self, Credential};

use crate::database::{Database, both};
use crate::entities::access::pat;
use crate::world::{Person, at};

both! {
    a_chain_is_revoked_through_ended_credentials,
    a_purge_keeps_an_issuer_as_long_as_its_issued_credentials,
}

async fn a_chain_is_revoked_through_ended_credentials(database: Database) {
    let (ann, bob) = (
        Person::new(&database, "ann").await,
        Person::new(&database, "bob").await,
    );
    let by = |number, issuer: &Credential| Credential {
        issued_by: Some(issuer.id),
        root_id: Some(issuer.root()),
        ..pat(ann, number)
    };
    let first = pat(ann, 1);
    let second = by(2, &first);
    let third = by(3, &second);
    let (other, foreign) = (pat(ann, 4), pat(bob, 5));
    let mut tx = database.begin().await;
    for new in [&first, &second, &third, &other, &foreign] {
        credentials::insert(&mut tx, new).await.unwrap();
    }
    assert_eq!(
        credentials::root_of(&mut tx, third.id).await.unwrap(),
        Some(first.id)
    );
    let is_live = async |tx: &mut store::Tx, of: &Credential| {
        let found = credentials::by_id(tx, of.id).await.unwrap().unwrap();
        found.is_live(at(3))
    };
    assert!(
        credentials::lock_issuer(&mut tx, ann.user, second.id, at(1))
            .await
            .unwrap()
    );
    assert!(
        credentials::revoke(&mut tx, ann.user, second.id, at(1))
            .await
            .unwrap()
    );
    assert!(
        !credentials::lock_issuer(&mut tx, ann.user, second.id, at(1))
            .await
            .unwrap()
    );
    assert!(is_live(&mut tx, &third).await);
    // Credentials of other users are not affected.
    assert_eq!(
        credentials::revoke_chain(&mut tx, bob.user, first.id, at(2))
            .await
            .unwrap(),
        []
    );
    let mut revoked = credentials::revoke_chain(&mut tx, ann.user, first.id, at(2))
        .await
        .unwrap();
    revoked.sort();
    let mut wanted = vec![first.id, third.id];
    wanted.sort();
    assert_eq!(revoked, wanted);
    for (of, live) in [
        (&first, false),
        (&second, false),
        (&third, false),
        (&other, true),
        (&foreign, true),
    ] {
        assert_eq!(is_live(&mut tx, of).await, live, "{}", of.name);
    }
}

/// A chain is revoked along its issuers, so an ended one stays in the middle of it.
async fn a_purge_keeps_an_issuer_as_long_as_its_issued_credentials(database: Database) {
    let ann = Person::new(&database, "ann").await;
    let first = pat(ann, 1);
    let second = Credential {
        issued_by: Some(first.id),
        root_id: Some(first.id),
        ..pat(ann, 2)
    };
    let mut tx = database.begin().await;
    for new in [&first, &second] {
        credentials::insert(&mut tx, new).await.unwrap();
    }
    credentials::revoke(&mut tx, ann.user, first.id, at(1))
        .await
        .unwrap();
    assert_eq!(
        credentials::purge(&mut tx, at(1), 9, at(2)).await.unwrap(),
        0
    );
    credentials::revoke(&mut tx, ann.user, second.id, at(2))
        .await
        .unwrap();
    for _ in [&second, &first] {
        assert_eq!(
            credentials::purge(&mut tx, at(2), 9, at(3)).await.unwrap(),
            1
        );
    }
    assert!(
        credentials::by_id(&mut tx, first.id)
            .await
            .unwrap()
            .is_none()
    );
}
