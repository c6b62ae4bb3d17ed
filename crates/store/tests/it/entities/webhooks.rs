//! Webhooks and their deliveries.

use std::collections::BTreeSet;

use store::deliveries::{self, Attempt, Delivery, NewDelivery, Outcome, Status};
use store::webhooks::{self, Webhook};
use store::{Order, Paging, Period, SealedBytes, Tx};

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
        sealed_secret: SealedBytes(vec![1]),
        previous_sealed_secret: None,
        previous_secret_expires_at: None,
        secret_rotated_at: None,
        failing_since: None,
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
    a_delivery_is_claimed_once_and_due_again_when_its_lease_ends,
    a_delivery_has_the_state_of_its_latest_attempt,
    abandoned_deliveries_can_be_retried_and_failed_ones_wait,
    a_webhook_that_fails_is_noted_and_disabled,
}

#[expect(
    clippy::too_many_lines,
    reason = "a test tells one story from start to end"
)]
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

    let new = SealedBytes(vec![2]);
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
        (new, Some(SealedBytes(vec![1])))
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
        let list = webhooks::List {
            project: ann.project,
            search: Some(search),
            status,
            sort: webhooks::Sort::Name,
            order: Order::Desc,
            paging: Paging::DEFAULT,
        };
        let list = webhooks::list(&mut tx, list).await.unwrap();
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

/// Claims at most this many of the due deliveries.
async fn claim(
    tx: &mut Tx,
    now: i64,
    lease_ends_at: i64,
    limit: u32,
) -> Result<Vec<Delivery>, store::Error> {
    let due = deliveries::due(tx, at(now), (&[], &[]), limit).await?;
    let ids: Vec<_> = due.iter().map(|due| due.id).collect();
    deliveries::claim(tx, at(now), at(lease_ends_at), &ids).await
}

async fn a_delivery_is_claimed_once_and_due_again_when_its_lease_ends(database: Database) {
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
                    let claimed = claim(&mut tx, 1, 60, 3).await.unwrap();
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

    // On PostgreSQL a claim that meets rows locked by another one can be empty while some are left.
    let mut tx = database.begin().await;
    all.extend(
        claim(&mut tx, 1, 60, 100)
            .await
            .unwrap()
            .iter()
            .map(|claimed| claimed.id),
    );
    assert_eq!(all.len(), 20);
    assert_eq!(claim(&mut tx, 59, 90, 100).await.unwrap().len(), 0);
    let again = claim(&mut tx, 60, 90, 100).await.unwrap();
    assert_eq!(
        (again.len(), again[0].attempts, again[0].status),
        (20, 2, Status::Delivering)
    );
}

#[expect(
    clippy::too_many_lines,
    reason = "a test tells one story from start to end"
)]
async fn a_delivery_has_the_state_of_its_latest_attempt(database: Database) {
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

    let late = claim(&mut tx, 0, 10, 1).await.unwrap().remove(0);
    let latest = claim(&mut tx, 10, 20, 1).await.unwrap().remove(0);
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
        response_body: Some("no".to_owned()),
        duration_ms: 3,
        created_at: at(10),
    };
    deliveries::add_attempt(&mut tx, &attempt).await.unwrap();
    assert!(
        deliveries::finish(&mut tx, &latest, Outcome::RetryAt(at(30)), at(11))
            .await
            .unwrap()
    );
    assert_eq!(claim(&mut tx, 29, 60, 1).await.unwrap(), []);
    let last = claim(&mut tx, 30, 60, 1).await.unwrap().remove(0);
    assert!(
        deliveries::finish(&mut tx, &last, Outcome::Succeeded, at(31))
            .await
            .unwrap()
    );
    assert_eq!(claim(&mut tx, 1000, 2000, 1).await.unwrap(), []);

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
    let list = |project, status, kind, start| deliveries::List {
        project,
        webhook: hook.id,
        status,
        kind,
        period: Period { start, end: None },
        order: Order::Desc,
        paging: Paging::DEFAULT,
    };
    for (status, kind, start, found) in [
        (None, None, None, 2),
        (None, Some("tunnel.created"), Some(at(0)), 2),
        (None, Some("tunnel.deleted"), None, 0),
        (None, None, Some(at(1)), 0),
        (Some(Status::Canceled), None, None, 1),
        (Some(Status::Failed), None, None, 0),
    ] {
        let list = list(ann.project, status, kind, start);
        let list = deliveries::list(&mut tx, list).await.unwrap();
        assert_eq!((list.total, list.items.len() as u64), (found, found));
    }
    let foreign = list(bob.project, None, None, None);
    let foreign = deliveries::list(&mut tx, foreign).await.unwrap();
    assert_eq!(foreign.total, 0);
    let latest = deliveries::latest_attempts(&mut tx, &[new.id]).await;
    assert_eq!(latest.unwrap().len(), 1);
    assert_eq!(deliveries::purge(&mut tx, at(39), 10).await.unwrap(), 1);
    assert!(
        deliveries::attempts(&mut tx, new.id)
            .await
            .unwrap()
            .is_empty()
    );
}

async fn abandoned_deliveries_can_be_retried_and_failed_ones_wait(database: Database) {
    let ann = Person::new(&database, "ann").await;
    let hook = webhook(ann);
    let (one, two) = (delivery(&hook), delivery(&hook));
    let mut tx = database.begin().await;
    webhooks::insert(&mut tx, &hook).await.unwrap();
    assert_eq!(deliveries::next_due(&mut tx).await.unwrap(), None);
    for new in [&one, &two] {
        deliveries::insert(&mut tx, new).await.unwrap();
    }
    assert_eq!(deliveries::next_due(&mut tx).await.unwrap(), Some(at(0)));
    for (most, counted) in [(1, 1), (9, 2)] {
        let open = deliveries::count_open(&mut tx, hook.id, most).await;
        assert_eq!(open.unwrap(), counted);
    }
    let claimed = claim(&mut tx, 0, 10, 1).await.unwrap();
    let id = claimed[0].id;
    // A delivery in flight is not moved, because its time is the end of its lease.
    assert_eq!(
        deliveries::postpone(&mut tx, hook.id, at(30))
            .await
            .unwrap(),
        1
    );
    assert_eq!(deliveries::next_due(&mut tx).await.unwrap(), Some(at(10)));
    assert!(
        !deliveries::retry(&mut tx, hook.id, id, at(1))
            .await
            .unwrap()
    );
    deliveries::finish(&mut tx, &claimed[0], Outcome::Failed, at(1))
        .await
        .unwrap();
    assert!(
        deliveries::retry(&mut tx, hook.id, id, at(2))
            .await
            .unwrap()
    );
    assert_eq!(deliveries::next_due(&mut tx).await.unwrap(), Some(at(2)));
    assert_eq!(
        deliveries::cancel_all(&mut tx, ann.project, at(3))
            .await
            .unwrap(),
        2
    );
    assert_eq!(deliveries::next_due(&mut tx).await.unwrap(), None);
}

async fn a_webhook_that_fails_is_noted_and_disabled(database: Database) {
    let ann = Person::new(&database, "ann").await;
    let hook = webhook(ann);
    let mut tx = database.begin().await;
    webhooks::insert(&mut tx, &hook).await.unwrap();
    let failing = async |tx: &mut store::Tx| {
        let read = webhooks::by_id(tx, ann.project, hook.id).await.unwrap();
        read.unwrap().failing_since
    };
    for second in [1, 2] {
        webhooks::note_failure(&mut tx, hook.id, at(second))
            .await
            .unwrap();
    }
    assert_eq!(failing(&mut tx).await, Some(at(1)));
    webhooks::note_success(&mut tx, hook.id).await.unwrap();
    assert_eq!(failing(&mut tx).await, None);
    assert!(webhooks::disable(&mut tx, hook.id, at(3)).await.unwrap());
    assert!(!webhooks::disable(&mut tx, hook.id, at(3)).await.unwrap());
    assert_eq!(webhooks::count(&mut tx, ann.project).await.unwrap(), 1);
    assert_eq!(
        webhooks::delete_all(&mut tx, ann.project, at(4))
            .await
            .unwrap(),
        1
    );
    assert_eq!(webhooks::count(&mut tx, ann.project).await.unwrap(), 0);
}
