//! Several platforms that send from one database.

use control::webhooks::{deliver_due, on_event};
use jiff::{SignedDuration, Timestamp};
use serde_json::json;
use sqlx::{Connection as _, PgConnection};
use types::event::EventType;

use super::{EVENTS, World, event};
use crate::support::TestControl;
use crate::support::receiver::{Receiver, Reply};
use crate::tenants::webhooks::deliveries::written;

/// Endpoints return 410, and two platforms send to them. Statements do not deadlock, every answer
/// is recorded, and no endpoint is called again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_platforms_disable_gone_endpoints_without_a_deadlock() {
    let directory = tempfile::tempdir().unwrap();
    let ca_file = directory.path().join("receiver.pem");
    let receiver = Receiver::start(&ca_file).await;
    receiver.always(Reply::status(410));
    let url = crate::postgres::new_database().await;
    let first = TestControl::start_on(&written(&ca_file), Some(&url)).await;
    let second = first.second_process().await.unwrap();
    let person = first.person("ada").await;
    let mut paths = Vec::new();
    for _ in 0..2 {
        let project = first.project(&person).await;
        let path = format!("/api/projects/tunnels/{}/webhooks", project.id);
        for _ in 0..4 {
            let body = json!({"name": "a", "events": EVENTS, "config": {"url": receiver.url()}});
            let made = first.post(&path, &person.token, &body).await.expect(201);
            paths.push(format!("{path}/{}", made["id"].as_str().unwrap()));
        }
        let mut tx = first.app.store.begin().await.unwrap();
        for _ in 0..60 {
            let event = event(project.id, EventType::TunnelCreated, first.now());
            on_event(&mut tx, &event, first.now()).await.unwrap();
        }
        tx.commit().await.unwrap();
    }
    let (one, two) = tokio::join!(deliver_due(&first.app), deliver_due(&second.app));
    one.unwrap();
    two.unwrap();
    for path in &paths {
        let webhook = first.get(path, &person.token).await.expect(200);
        assert_eq!(webhook["status"], "disabled", "{path}");
    }
    let received = receiver.received().len();
    // Leases of unrecorded attempts would have ended.
    first.clock.advance(3600);
    second.clock.advance(3600);
    deliver_due(&first.app).await.unwrap();
    deliver_due(&second.app).await.unwrap();
    assert_eq!(receiver.received().len(), received);
    // The server counts the statements of ended connections.
    first.app.store.close().await;
    second.app.store.close().await;
    let mut connection = PgConnection::connect(&url).await.unwrap();
    let deadlocks: i64 = sqlx::query_scalar(
        "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()",
    )
    .fetch_one(&mut connection)
    .await
    .unwrap();
    assert_eq!(deadlocks, 0);
}

/// A platform whose clock is five minutes ahead takes no delivery that another one is sending.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_is_counted_by_the_clock_of_the_database() {
    let world = World::new(TestControl::postgres().await).await;
    let control = &world.control;
    control.clock.set(Timestamp::now());
    world.add(&world.receiver.url()).await;
    world.report(&world.event(EventType::TunnelCreated)).await;
    let now = control.now();
    let mut tx = control.app.store.begin().await.unwrap();
    let due = store::deliveries::due(&mut tx, now, (&[], &[]), 5)
        .await
        .unwrap();
    let ids: Vec<_> = due.iter().map(|due| due.id).collect();
    let until = now + SignedDuration::from_mins(1);
    let taken = store::deliveries::claim(&mut tx, now, until, &ids).await;
    assert_eq!(taken.unwrap().len(), 1);
    tx.commit().await.unwrap();
    control.clock.set(now + SignedDuration::from_mins(5));
    control
        .app
        .clock_skew
        .measure(&control.app.store, &*control.app.clock)
        .await
        .unwrap();
    world.deliver().await;
    assert_eq!(world.receiver.received().len(), 0);
}
