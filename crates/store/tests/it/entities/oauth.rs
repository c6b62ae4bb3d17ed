//! OAuth codes and device grants: each works once, also for parallel requests.

use store::device_grants::{self, Approval, DeviceGrant, Status};
use store::oauth_codes::{self, Code, Redeemer};
use store::{Conflict, SecretHash};

use crate::database::{Database, both, commit};
use crate::world::{Person, at, hash, id};

both! {
    the_network_with_most_devices_loses_some,
    a_code_is_redeemed_once_by_its_client,
    an_expired_code_is_refused,
    a_device_is_decided_once_and_redeemed_once,
    a_device_that_polls_too_fast_has_to_wait_longer,
    two_devices_never_wait_under_one_code,
}

fn code(person: Person) -> Code {
    Code {
        hash: hash(1),
        client_id: "client".to_owned(),
        redirect_uri: "https://client.example/cb".to_owned(),
        challenge: hash(2),
        user_id: person.user,
        session_id: id!(SessionId),
        permissions: vec!["account.projects.read-only".to_owned()],
        resources: Some(serde_json::json!({"tunnels": {"projects": ["p"]}})),
        created_at: at(0),
        expires_at: at(300),
    }
}

fn redeemer<'a>(client_id: &'a str, redirect_uri: &'a str, challenge: u8) -> Redeemer<'a> {
    Redeemer {
        client_id,
        redirect_uri,
        challenge: hash(challenge),
    }
}

/// OA-3: the condition contains every part of the proof, and a request without one of them does not
/// use the code up.
async fn a_code_is_redeemed_once_by_its_client(database: Database) {
    let ann = Person::new(&database, "ann").await;
    let code = code(ann);
    commit!(database, |tx| oauth_codes::insert(tx, &code)).unwrap();
    let right = redeemer("client", "https://client.example/cb", 2);
    let credential = id!(CredentialId);
    let redeem = async |by, at_second| {
        commit!(database, |tx| oauth_codes::redeem(
            tx,
            hash(1),
            by,
            credential,
            at(at_second)
        ))
        .unwrap()
    };
    for wrong in [
        redeemer("other", "https://client.example/cb", 2),
        redeemer("client", "https://client.example/cb/", 2),
        redeemer("client", "https://client.example/cb", 3),
    ] {
        assert_eq!(redeem(wrong, 10).await, None, "{wrong:?}");
    }
    let mut read = database.store.read().await.unwrap();
    assert_eq!(
        oauth_codes::redeemed(&mut read, hash(1)).await.unwrap(),
        None
    );
    assert_eq!(redeem(right, 10).await, Some(code));
    assert_eq!(redeem(right, 10).await, None);
    let issued = oauth_codes::redeemed(&mut read, hash(1)).await.unwrap();
    let issued = issued.unwrap();
    assert_eq!(
        (issued.user_id, issued.credential_id),
        (ann.user, credential)
    );
}

async fn an_expired_code_is_refused(database: Database) {
    let ann = Person::new(&database, "ann").await;
    commit!(database, |tx| oauth_codes::insert(tx, &code(ann))).unwrap();
    let right = redeemer("client", "https://client.example/cb", 2);
    let mut tx = database.begin().await;
    let late = oauth_codes::redeem(&mut tx, hash(1), right, id!(CredentialId), at(300)).await;
    assert_eq!(late.unwrap(), None);
    assert_eq!(oauth_codes::purge(&mut tx, at(299), 10).await.unwrap(), 0);
    let just = oauth_codes::redeem(&mut tx, hash(1), right, id!(CredentialId), at(299)).await;
    assert!(just.unwrap().is_some());
    assert_eq!(oauth_codes::purge(&mut tx, at(300), 10).await.unwrap(), 1);
}

fn grant(device: u8, user_code: u8) -> DeviceGrant {
    DeviceGrant {
        hash: hash(device),
        user_code_hash: hash(user_code),
        client_id: "client".to_owned(),
        permissions: vec!["a".to_owned(), "b".to_owned()],
        resources: None,
        source: Some(serde_json::json!([{"key": "os", "value": "linux"}])),
        ip: "192.0.2.1".to_owned(),
        created_at: at(0),
        expires_at: at(600),
        interval_seconds: 5,
        status: Status::Pending,
        user_id: None,
        session_id: None,
    }
}

const USER_CODE: SecretHash = SecretHash([9; 32]);

async fn a_device_is_decided_once_and_redeemed_once(database: Database) {
    let ann = Person::new(&database, "ann").await;
    commit!(database, |tx| device_grants::insert(tx, &grant(1, 9), "")).unwrap();
    let mut tx = database.begin().await;
    let found = device_grants::pending(&mut tx, USER_CODE, at(599)).await;
    assert_eq!(found.unwrap(), Some(grant(1, 9)));
    let late = device_grants::pending(&mut tx, USER_CODE, at(600)).await;
    assert_eq!(late.unwrap(), None);
    assert_eq!(device_grants::count(&mut tx, at(599)).await.unwrap(), 1);
    assert_eq!(device_grants::count(&mut tx, at(600)).await.unwrap(), 0);
    let early = device_grants::redeem(&mut tx, hash(1), "client", id!(CredentialId), at(1)).await;
    assert_eq!(early.unwrap(), None, "not yet approved");
    let who = (ann.user, id!(SessionId));
    let permissions = ["a".to_owned()];
    let approval = Approval {
        permissions: &permissions,
        resources: Some(&serde_json::json!({"tunnels": {}})),
    };
    let too_late = device_grants::approve(&mut tx, USER_CODE, who, approval, at(600)).await;
    assert!(!too_late.unwrap());
    let approve = device_grants::approve(&mut tx, USER_CODE, who, approval, at(1)).await;
    assert!(approve.unwrap());
    let again = device_grants::approve(&mut tx, USER_CODE, who, approval, at(1)).await;
    assert!(!again.unwrap());
    assert!(
        !device_grants::deny(&mut tx, USER_CODE, who, at(1))
            .await
            .unwrap()
    );
    let other = device_grants::redeem(&mut tx, hash(1), "other", id!(CredentialId), at(2)).await;
    assert_eq!(other.unwrap(), None);
    let redeemed = device_grants::redeem(&mut tx, hash(1), "client", id!(CredentialId), at(2))
        .await
        .unwrap()
        .unwrap();
    assert_eq!(redeemed.permissions, permissions);
    assert_eq!(
        (redeemed.user_id, redeemed.session_id),
        (Some(who.0), Some(who.1))
    );
    let twice = device_grants::redeem(&mut tx, hash(1), "client", id!(CredentialId), at(2)).await;
    assert_eq!(twice.unwrap(), None);
}

async fn a_device_that_polls_too_fast_has_to_wait_longer(database: Database) {
    commit!(database, |tx| device_grants::insert(tx, &grant(1, 9), "")).unwrap();
    let mut tx = database.begin().await;
    for (second, in_time) in [
        (0, true),
        (4, false),
        (13, false),
        (28, true),
        (42, false),
        (62, true),
    ] {
        let polled = device_grants::poll(&mut tx, hash(1), 5, at(second)).await;
        assert_eq!(polled.unwrap(), in_time, "{second}");
    }
}

async fn two_devices_never_wait_under_one_code(database: Database) {
    let mut tx = database.begin().await;
    device_grants::insert(&mut tx, &grant(1, 9), "")
        .await
        .unwrap();
    let refused = device_grants::insert(&mut tx, &grant(2, 9), "").await;
    assert_eq!(
        refused.unwrap_err().conflict(),
        Some(Conflict::UserCodeTaken)
    );
}

async fn the_network_with_most_devices_loses_some(database: Database) {
    let mut tx = database.begin().await;
    for number in 1..=9 {
        let network = if number <= 5 {
            "192.0.2.0/24"
        } else {
            "2001:db8::/48"
        };
        device_grants::insert(&mut tx, &grant(number, number), network)
            .await
            .unwrap();
    }
    let left = async |tx: &mut store::Tx| {
        let mut left = Vec::new();
        for network in ["192.0.2.0/24", "2001:db8::/48"] {
            left.push(
                device_grants::count_of_network(tx, network, at(0))
                    .await
                    .unwrap(),
            );
        }
        left
    };
    assert_eq!(left(&mut tx).await, [5, 4]);
    assert_eq!(
        device_grants::make_room(&mut tx, at(0), 2).await.unwrap(),
        2
    );
    assert_eq!(left(&mut tx).await, [3, 4]);
    assert_eq!(
        device_grants::make_room(&mut tx, at(0), 10).await.unwrap(),
        4
    );
    assert_eq!(left(&mut tx).await, [3, 0]);
    // The lifetime of the others has ended.
    assert_eq!(
        device_grants::make_room(&mut tx, at(100_000), 10)
            .await
            .unwrap(),
        0
    );
}
