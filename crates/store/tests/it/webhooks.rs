//! Webhooks and their deliveries.

use std::collections::BTreeSet;

use store::deliveries::{self, Attempt, NewDelivery, Outcome, Status};
use store::webhooks::{self, Webhook};
use store::{Paging, Sealed};

use crate::database::{Database, both, commit};
use crate::world::{Person, at, id};

fn webhook(person: Person) -> Webhook {
    Webhook {
        id: id!(WebhookId),
        project_id: person.project,
        name: "Chat".to_owned(),
        description: None,
        destination_type: "webhook_endpoint".to_owned(),
        status: webhooks::Status::Enabled,
        events: vec!["tunnel.created".to_owned()],
        url: "https://chat.example/in".to_owned(),
        sealed_secret: Sealed(vec![1]),
        previous_sealed_secret: None,
        previous_secret_expires_at: None,
        secret_rotated_at: None,
        created_by: person.user,
        created_at: at(0),
        updated_at: at(0),
    }
}

fn delivery(webhook: &Webhook) -> NewDelivery {
    NewDelivery {
        id: id!(DeliveryId),
        webhook_id: webhook.id,
        project_id: webhook.project_id,
        event_id: id!(EventId),
        event_type: "tunnel.created".to_owned(),
        payload: "{}".to_owned(),
        now: at(0),
    }
}

both! {
    a_webhook_is_its_projects_and_keeps_both_secrets_for_a_while,
    a_delivery_is_claimed_by_one_and_comes_back_when_its_lease_ends,
    a_delivery_ends_as_its_latest_attempt_says,
}

async fn a_webhook_is_its_projects_and_keeps_both_secrets_for_a_while(database: Database) {
    let (ann, bob) = (
        Person::new(&database, "ann").await,
        Person::new(&database, "bob").await,
    );
    let mut hook = webhook(ann);
    let mut tx = database.begin().await;
    webhooks::insert(&mut tx, &hook).await.unwrap();
    assert_eq!(
        webhooks::by_id(&mut tx, ann.project, hook.id)
            .await
            .unwrap(),
        Some(hook.clone())
    );
    assert_eq!(
        webhooks::by_id(&mut tx, bob.project, hook.id)
            .await
            .unwrap(),
        None
    );
    assert_eq!(
        webhooks::enabled(&mut tx, ann.project).await.unwrap(),
        [hook.clone()]
    );

    let new = Sealed(vec![2]);
    assert!(
        !webhooks::rotate_secret(&mut tx, bob.project, hook.id, &new, at(9), at(1))
            .await
            .unwrap()
    );
    assert!(
        webhooks::rotate_secret(&mut tx, ann.project, hook.id, &new, at(9), at(1))
            .await
            .unwrap()
    );
    hook.status = webhooks::Status::Disabled;
    "https://other.example/in".clone_into(&mut hook.url);
    assert!(webhooks::update(&mut tx, &hook).await.unwrap());
    let stored = webhooks::by_id(&mut tx, ann.project, hook.id)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(
        (stored.sealed_secret, stored.previous_sealed_secret),
        (new, Some(Sealed(vec![1])))
    );
    assert_eq!(stored.previous_secret_expires_at, Some(at(9)));
    assert!(
        webhooks::enabled(&mut tx, ann.project)
            .await
            .unwrap()
            .is_empty()
    );
    for (search, status, found) in [
        ("OTHER", None, 1),
        ("nothing", None, 0),
        ("", Some(webhooks::Status::Enabled), 0),
    ] {
        let list = webhooks::list(&mut tx, ann.project, Some(search), status, Paging::DEFAULT)
            .await
            .unwrap();
        assert_eq!((list.total, list.items.len() as u64), (found, found));
    }
    assert!(
        !webhooks::delete(&mut tx, bob.project, hook.id, at(2))
            .await
            .unwrap()
    );
    assert!(
        webhooks::delete(&mut tx, ann.project, hook.id, at(2))
            .await
            .unwrap()
    );
    assert_eq!(
        webhooks::by_id(&mut tx, ann.project, hook.id)
            .await
            .unwrap(),
        None
    );
}

async fn a_delivery_is_claimed_by_one_and_comes_back_when_its_lease_ends(database: Database) {
    let ann = Person::new(&database, "ann").await;
    let hook = webhook(ann);
    commit!(database, |tx| async {
        webhooks::insert(tx, &hook).await.unwrap();
        for _ in 0..20 {
            assert!(deliveries::insert(tx, &delivery(&hook)).await.unwrap());
        }
    });
    let claimers: Vec<_> = (0..4)
        .map(|_| {
            let store = database.store.clone();
            tokio::spawn(async move {
                let mut mine = Vec::new();
                loop {
                    let mut tx = store.begin().await.unwrap();
                    let claimed = deliveries::claim(&mut tx, at(1), at(60), 3).await.unwrap();
                    tx.commit().await.unwrap();
                    if claimed.is_empty() {
                        return mine;
                    }
                    mine.extend(claimed.into_iter().map(|delivery| delivery.id));
                }
            })
        })
        .collect();
    let mut all = Vec::new();
    for claimer in claimers {
        all.extend(claimer.await.unwrap());
    }
    assert_eq!(
        all.iter().collect::<BTreeSet<_>>().len(),
        all.len(),
        "claimed twice"
    );

    // On PostgreSQL a claim that meets another's rows can come back empty while some are left.
    let mut tx = database.begin().await;
    all.extend(
        deliveries::claim(&mut tx, at(1), at(60), 100)
            .await
            .unwrap()
            .iter()
            .map(|claimed| claimed.id),
    );
    assert_eq!(all.len(), 20);
    assert_eq!(
        deliveries::claim(&mut tx, at(59), at(90), 100)
            .await
            .unwrap()
            .len(),
        0
    );
    let again = deliveries::claim(&mut tx, at(60), at(90), 100)
        .await
        .unwrap();
    assert_eq!(
        (again.len(), again[0].attempts, again[0].status),
        (20, 2, Status::Delivering)
    );
}

async fn a_delivery_ends_as_its_latest_attempt_says(database: Database) {
    let (ann, bob) = (
        Person::new(&database, "ann").await,
        Person::new(&database, "bob").await,
    );
    let hook = webhook(ann);
    let new = delivery(&hook);
    let mut tx = database.begin().await;
    webhooks::insert(&mut tx, &hook).await.unwrap();
    assert!(deliveries::insert(&mut tx, &new).await.unwrap());
    let twice = NewDelivery {
        id: id!(DeliveryId),
        ..new.clone()
    };
    assert!(
        !deliveries::insert(&mut tx, &twice).await.unwrap(),
        "one delivery of an event"
    );

    let late = deliveries::claim(&mut tx, at(0), at(10), 1)
        .await
        .unwrap()
        .remove(0);
    let latest = deliveries::claim(&mut tx, at(10), at(20), 1)
        .await
        .unwrap()
        .remove(0);
    assert!(
        !deliveries::finish(&mut tx, &late, Outcome::Failed, at(11))
            .await
            .unwrap()
    );
    let attempt = Attempt {
        id: id!(AttemptId),
        delivery_id: new.id,
        status: "failed".to_owned(),
        http_status: Some(500),
        error: None,
        duration_ms: 3,
        created_at: at(10),
    };
    deliveries::add_attempt(&mut tx, &attempt).await.unwrap();
    assert!(
        deliveries::finish(&mut tx, &latest, Outcome::RetryAt(at(30)), at(11))
            .await
            .unwrap()
    );
    assert_eq!(
        deliveries::claim(&mut tx, at(29), at(60), 1).await.unwrap(),
        []
    );
    let last = deliveries::claim(&mut tx, at(30), at(60), 1)
        .await
        .unwrap()
        .remove(0);
    assert!(
        deliveries::finish(&mut tx, &last, Outcome::Succeeded, at(31))
            .await
            .unwrap()
    );
    assert_eq!(
        deliveries::claim(&mut tx, at(1000), at(2000), 1)
            .await
            .unwrap(),
        []
    );

    assert_eq!(
        deliveries::attempts(&mut tx, new.id).await.unwrap(),
        [attempt]
    );
    let stored = deliveries::by_id(&mut tx, ann.project, hook.id, new.id)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(
        (stored.status, stored.attempts, stored.completed_at),
        (Status::Succeeded, 3, Some(at(31)))
    );
    assert_eq!(
        deliveries::by_id(&mut tx, bob.project, hook.id, new.id)
            .await
            .unwrap(),
        None
    );

    deliveries::insert(&mut tx, &delivery(&hook)).await.unwrap();
    assert_eq!(
        deliveries::cancel(&mut tx, hook.id, at(40)).await.unwrap(),
        1
    );
    for (status, found) in [
        (None, 2),
        (Some(Status::Canceled), 1),
        (Some(Status::Failed), 0),
    ] {
        let list = deliveries::list(&mut tx, ann.project, hook.id, status, Paging::DEFAULT)
            .await
            .unwrap();
        assert_eq!(list.total, found);
    }
    let foreign = deliveries::list(&mut tx, bob.project, hook.id, None, Paging::DEFAULT)
        .await
        .unwrap();
    assert_eq!(foreign.total, 0);
    assert_eq!(deliveries::purge(&mut tx, at(39), 10).await.unwrap(), 1);
    assert!(
        deliveries::attempts(&mut tx, new.id)
            .await
            .unwrap()
            .is_empty()
    );
}
