//! Deliveries from the event to success or failure.

use std::sync::Arc;

use control::webhooks::{DISABLED_AFTER, MAX_WAITING, RETRIES, deliver_due, on_event};
use daemon::shutdown::Shutdown;
use http::Method;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use types::event::EventType;
use types::id::DeliveryId;

use super::{EVENTS, World, event, sections};
use crate::operation::jobs::{DAY, purge_counts};
use crate::support::receiver::{ReceivedRequest, Receiver, Reply, hanging};
use crate::support::{TestControl, both, next};

both! {
    an_event_becomes_one_delivery_per_subscriber,
    failed_deliveries_are_retried_and_then_abandoned,
    a_finished_delivery_is_kept_for_a_month,
    abandoned_deliveries_can_be_retried_manually,
    a_delivery_is_tried_so_often_and_no_more,
    an_endpoint_that_fails_for_days_or_returns_410_is_disabled,
    waiting_deliveries_are_removed_with_their_webhook,
    an_address_is_checked_when_it_is_connected_to,
    redirects_are_not_followed_and_answers_are_truncated,
    the_running_task_delivers,
    an_endpoint_that_hangs_leaves_slots_for_others,
}

/// Each event creates one delivery per enabled endpoint that subscribed to its type. A repeated
/// report creates none, and neither does an event without webhook type.
async fn an_event_becomes_one_delivery_per_subscriber(control: TestControl) {
    let world = World::new(control).await;
    let (all, _) = world.add(&world.receiver.url()).await;
    let (some, _) = world.add(&world.receiver.url()).await;
    let (none, _) = world.add(&world.receiver.url()).await;
    let patch = json!({"events": ["client.deleted"]});
    world
        .call(Method::PATCH, &some, Some(patch))
        .await
        .expect(200);
    let patch = json!({"status": "disabled"});
    world
        .call(Method::PATCH, &none, Some(patch))
        .await
        .expect(200);
    let stranger = world.control.person("eve").await;
    let foreign = world.control.project(&stranger).await;
    for (kind, made) in [
        (EventType::TunnelCreated, 1),
        (EventType::ClientDeleted, 2),
        (EventType::TunnelUpdated, 0),
        (EventType::StateInitial, 0),
    ] {
        let event = world.event(kind);
        assert_eq!(world.report(&event).await, made, "{kind}");
        assert_eq!(world.report(&event).await, 0, "{kind}");
    }
    let theirs = event(foreign.id, EventType::TunnelCreated, world.control.now());
    assert_eq!(world.report(&theirs).await, 0);
    let mut nobodys = world.event(EventType::TunnelCreated);
    nobodys.project_id = None;
    assert_eq!(world.report(&nobodys).await, 0);
    world.deliver().await;
    assert_eq!(world.receiver.wait_for(3).await.len(), 3);
    assert_eq!(world.deliveries(&all).await.len(), 2);
    assert_eq!(world.deliveries(&some).await.len(), 1);
    assert_eq!(world.deliveries(&none).await.len(), 0);
    for (query, found) in [
        ("?eventType=client.deleted", 1),
        ("?status=succeeded", 2),
        ("?status=failed", 0),
        ("?start=2026-01-01T00:00:01Z", 0),
        ("?end=2026-01-01T00:00:01Z&order=asc&pageSize=1", 1),
    ] {
        let list = world.get(&format!("{all}/deliveries{query}")).await;
        assert_eq!(
            list["deliveries"].as_array().unwrap().len(),
            found,
            "{query}"
        );
    }
    let refused = world
        .call(Method::GET, &format!("{all}/deliveries?start=x"), None)
        .await;
    assert_eq!(refused.refused(400).1.as_deref(), Some("start"));
    // A delivery belongs to its webhook.
    let id = world.deliveries(&some).await[0]["id"]
        .as_str()
        .unwrap()
        .to_owned();
    let path = format!("{all}/deliveries/{id}");
    world.call(Method::GET, &path, None).await.refused(404);
}

/// Each wait of the schedule is at most a tenth longer. After the last attempt the delivery has
/// failed, and each attempt can be read.
async fn a_finished_delivery_is_kept_for_a_month(control: TestControl) {
    let world = World::new(control).await;
    let (path, _) = world.add(&world.receiver.url()).await;
    world.report(&world.event(EventType::TunnelCreated)).await;
    world.deliver().await;
    assert_eq!(world.deliveries(&path).await[0]["status"], "succeeded");
    world.control.clock.advance(30 * DAY - 1);
    purge_counts(&world.control).await;
    assert_eq!(world.deliveries(&path).await.len(), 1);
    world.control.clock.advance(1);
    let purged = purge_counts(&world.control).await;
    assert!(purged.contains(&("deliveries", 1)), "{purged:?}");
    assert_eq!(world.deliveries(&path).await.len(), 0);
}

async fn failed_deliveries_are_retried_and_then_abandoned(control: TestControl) {
    let world = World::new(control).await;
    let (path, _) = world.add(&world.receiver.url()).await;
    let refusals = (0..8).map(|_| Reply::Status(500, "", "sorry\0".to_owned()));
    world.receiver.reply(refusals);
    world.report(&world.event(EventType::TunnelCreated)).await;
    for (attempt, wait) in (1..).zip(RETRIES) {
        world.deliver().await;
        let delivery = world.deliveries(&path).await.remove(0);
        assert_eq!(delivery["status"], "retrying");
        assert_eq!(delivery["attemptCount"], attempt);
        assert_eq!(delivery["lastHttpStatus"], 500);
        let at: Timestamp = delivery["nextAttemptAt"].as_str().unwrap().parse().unwrap();
        let now = world.control.now();
        assert!(
            at >= now + wait && at <= now + wait * 11 / 10,
            "{attempt}: {at}"
        );
        // No attempt is made early.
        world.control.clock.set(at - SignedDuration::from_millis(2));
        world.deliver().await;
        assert_eq!(world.receiver.received().len(), attempt);
        world.control.clock.set(at + SignedDuration::from_millis(1));
    }
    world.deliver().await;
    let delivery = world.deliveries(&path).await.remove(0);
    assert_eq!(delivery["status"], "failed");
    assert_eq!(delivery["nextAttemptAt"], Value::Null);
    assert_ne!(delivery["failedAt"], Value::Null);
    let shown = world
        .get(&format!(
            "{path}/deliveries/{}",
            delivery["id"].as_str().unwrap()
        ))
        .await;
    let attempts = shown["attempts"].as_array().unwrap();
    assert_eq!(attempts.len(), 8);
    assert_eq!(attempts[7]["attemptNumber"], 8);
    assert_eq!(attempts[7]["errorCode"], "http_status");
    assert_eq!(attempts[7]["responseBody"], "sorry\u{fffd}");
    assert_eq!(shown["requestBody"]["type"], "tunnel.created");
    // All attempts have the same content and ids, and each is signed at its time.
    let received = world.receiver.received();
    assert!(received.iter().all(|one| one.body == received[0].body));
    for name in ["webhook-id", "svc-delivery-id"] {
        assert!(
            received
                .iter()
                .all(|one| one.header(name) == received[0].header(name))
        );
    }
    assert_ne!(
        received[0].header("webhook-timestamp"),
        received[7].header("webhook-timestamp")
    );
    world.control.clock.advance(100_000_000);
    world.deliver().await;
    assert_eq!(world.receiver.received().len(), 8);
}

async fn abandoned_deliveries_can_be_retried_manually(control: TestControl) {
    let world = World::new(control).await;
    let (path, _) = world.add(&world.receiver.url()).await;
    world.report(&world.event(EventType::TunnelCreated)).await;
    let id = world.deliveries(&path).await[0]["id"]
        .as_str()
        .unwrap()
        .to_owned();
    let retry = format!("{path}/deliveries/{id}/retry");
    // It is being sent already.
    world.call(Method::POST, &retry, None).await.refused(409);
    for status in ["disabled", "enabled"] {
        let patch = json!({"status": status});
        world
            .call(Method::PATCH, &path, Some(patch))
            .await
            .expect(200);
        let delivery = world.deliveries(&path).await.remove(0);
        assert_eq!(delivery["status"], "canceled");
        if status == "disabled" {
            world.call(Method::POST, &retry, None).await.refused(409);
        }
    }
    let pending = world.call(Method::POST, &retry, None).await.expect(200);
    assert_eq!(pending["status"], "pending");
    assert_eq!(pending["attempts"], json!([]));
    world.deliver().await;
    let delivery = world.deliveries(&path).await.remove(0);
    assert_eq!(delivery["status"], "succeeded");
    assert_eq!(delivery["lastHttpStatus"], 204);
    // A successful delivery is not sent again.
    world.call(Method::POST, &retry, None).await.refused(409);
    let absent = format!("{path}/deliveries/dlv_01h455vb4pex5vsknk084sn02q/retry");
    world.call(Method::POST, &absent, None).await.refused(404);
    assert!(
        world
            .audit()
            .await
            .contains(&"webhook.delivery_retried".to_owned())
    );
}

async fn a_delivery_is_tried_so_often_and_no_more(control: TestControl) {
    let world = World::new(control).await;
    let (path, _) = world.add(&world.receiver.url()).await;
    world.receiver.always(Reply::status(500));
    world.report(&world.event(EventType::TunnelCreated)).await;
    let id = world.deliveries(&path).await[0]["id"].clone();
    let retry = format!("{path}/deliveries/{}/retry", id.as_str().unwrap());
    world
        .control
        .raw("UPDATE deliveries SET status = 'failed', attempts = 99")
        .await;
    world.call(Method::POST, &retry, None).await.expect(200);
    world.deliver().await;
    let delivery = world.deliveries(&path).await.remove(0);
    assert_eq!(
        (&delivery["status"], &delivery["attemptCount"]),
        (&json!("failed"), &json!(100))
    );
    let refused = world.call(Method::POST, &retry, None).await;
    assert_eq!(refused.refused(409).0, "conflict");
    assert_eq!(world.receiver.received().len(), 1);
}

/// Five days without success, or a 410.
async fn an_endpoint_that_fails_for_days_or_returns_410_is_disabled(control: TestControl) {
    let world = World::new(control).await;
    let (path, _) = world.add(&world.receiver.url()).await;
    let fail = async |status: u16| {
        world.receiver.always(Reply::status(status));
        world.report(&world.event(EventType::TunnelCreated)).await;
        world.deliver().await;
        world.get(&path).await
    };
    assert_eq!(fail(500).await["failingSince"], "2026-01-01T00:00:00.000Z");
    // One success restarts the five days.
    world.control.clock.advance(DISABLED_AFTER.as_secs() - 1);
    assert_eq!(fail(204).await["failingSince"], Value::Null);
    assert_ne!(fail(503).await["failingSince"], Value::Null);
    world.control.clock.advance(DISABLED_AFTER.as_secs() - 1);
    assert_eq!(fail(302).await["status"], "enabled");
    world.control.clock.advance(1);
    assert_eq!(fail(500).await["status"], "disabled");
    assert_eq!(
        world.report(&world.event(EventType::TunnelCreated)).await,
        0
    );
    let open = world
        .get(&format!("{path}/deliveries?status=retrying"))
        .await;
    assert_eq!(open["total"], 0);
    let patch = json!({"status": "enabled"});
    let enabled = world
        .call(Method::PATCH, &path, Some(patch))
        .await
        .expect(200);
    assert_eq!(enabled["failingSince"], Value::Null);
    assert_eq!(fail(410).await["status"], "disabled");
    let disabled = world.audit().await;
    let disabled = disabled
        .iter()
        .filter(|action| *action == "webhook.disabled");
    assert_eq!(disabled.count(), 2);
}

async fn waiting_deliveries_are_removed_with_their_webhook(control: TestControl) {
    let world = World::new(control).await;
    let (path, _) = world.add(&world.receiver.url()).await;
    world.report(&world.event(EventType::TunnelCreated)).await;
    world.call(Method::DELETE, &path, None).await.expect(204);
    world.add(&world.receiver.url()).await;
    world.report(&world.event(EventType::TunnelCreated)).await;
    let project = format!("/api/projects/tunnels/{}", world.project.id);
    world
        .control
        .delete(&project, &world.person.token)
        .await
        .expect(204);
    assert_eq!(
        world.report(&world.event(EventType::TunnelDeleted)).await,
        0
    );
    world.deliver().await;
    assert_eq!(world.receiver.received().len(), 0);
}

/// An address that was allowed when it was saved is checked again with each attempt. Resolved
/// addresses are checked by the client (`webhooks::send`).
async fn an_address_is_checked_when_it_is_connected_to(control: TestControl) {
    let world = World::new(control).await;
    let port = world.receiver.address.port();
    let mut paths = Vec::new();
    for host in ["127.0.0.1", "localhost"] {
        let (path, _) = world.add(&format!("https://{host}:{port}/")).await;
        paths.push(path);
    }
    world.report(&world.event(EventType::TunnelCreated)).await;
    world.deliver().await;
    assert_eq!(world.receiver.wait_for(2).await.len(), 2);
    let World {
        control,
        receiver,
        person,
        project,
    } = world;
    control.clock.advance(1);
    // The networks are not allowed any more.
    let config = control::config::Config {
        webhooks: control::webhooks::WebhooksConfig::default(),
        ..control.app.config.clone()
    };
    let world = World {
        control: control.restarted_with(config).await,
        receiver,
        person,
        project,
    };
    world.report(&world.event(EventType::TunnelDeleted)).await;
    world.deliver().await;
    for path in paths {
        let delivery = world.deliveries(&path).await.remove(0);
        assert_eq!(delivery["status"], "retrying");
        let id = delivery["id"].as_str().unwrap();
        let shown = world.get(&format!("{path}/deliveries/{id}")).await;
        let attempt = &shown["attempts"][0];
        assert_eq!(attempt["status"], "network_error");
        assert_eq!(attempt["errorCode"], "refused_target");
    }
    assert_eq!(world.receiver.received().len(), 2);
}

async fn redirects_are_not_followed_and_answers_are_truncated(control: TestControl) {
    let world = World::new(control).await;
    let (path, _) = world.add(&world.receiver.url()).await;
    world.receiver.reply([
        Reply::Status(302, "location: /elsewhere\r\n", String::new()),
        Reply::Status(400, "", "ü".repeat(100_000)),
        Reply::Hangup,
    ]);
    for seconds in [0, 6, 331] {
        world.control.clock.advance(seconds);
        if seconds == 0 {
            world.report(&world.event(EventType::TunnelCreated)).await;
        }
        world.deliver().await;
    }
    assert_eq!(world.receiver.wait_for(3).await.len(), 3);
    let id = world.deliveries(&path).await[0]["id"]
        .as_str()
        .unwrap()
        .to_owned();
    let shown = world.get(&format!("{path}/deliveries/{id}")).await;
    let attempts = shown["attempts"].as_array().unwrap();
    assert_eq!(attempts[0]["httpStatus"], 302);
    assert_eq!(attempts[1]["responseBody"], "ü".repeat(512));
    assert_eq!(attempts[2]["errorCode"], "connection");
    assert_eq!(attempts[2]["httpStatus"], Value::Null);
    // The endpoint was not reached, so the next delivery waits for a moment.
    world.report(&world.event(EventType::TunnelDeleted)).await;
    world.deliver().await;
    assert_eq!(world.receiver.wait_for(4).await.len(), 4);
}

/// The background task of a running platform sends deliveries, and ends with the platform.
/// Endpoints that never answer use only their share of the slots, however many deliveries wait for
/// them. Other endpoints of the project and other projects are served.
async fn an_endpoint_that_hangs_leaves_slots_for_others(control: TestControl) {
    let world = World::new(control).await;
    let asks_for =
        |event: &str, url: String| json!({"name": "a", "events": [event], "config": {"url": url}});
    let hangs = || asks_for("tunnel.created", world.receiver.hanging_url());
    let answers = || asks_for("client.created", world.receiver.url());
    let add = async |body| {
        world.call(Method::POST, "", Some(body)).await.expect(201);
    };
    add(hangs()).await;
    add(answers()).await;
    for _ in 0..70 {
        world.report(&world.event(EventType::TunnelCreated)).await;
    }
    world.report(&world.event(EventType::ClientCreated)).await;
    let app = Arc::clone(&world.control.app);
    let delivering = tokio::spawn(async move { deliver_due(&app).await });
    let all = world.receiver.wait_for(5).await;
    assert_eq!((all.len(), hanging(&all)), (5, 4), "one of five is served");
    delivering.abort();

    // Four endpoints, which together have as many slots as the project, and another project.
    for _ in 0..3 {
        add(hangs()).await;
    }
    let other = world.control.project(&world.person).await;
    let path = format!("/api/projects/tunnels/{}/webhooks", other.id);
    let token = Some(world.person.token.as_str());
    world
        .control
        .send(Method::POST, &path, token, Some(&answers()))
        .await
        .expect(201);
    for _ in 0..70 {
        world.report(&world.event(EventType::TunnelCreated)).await;
    }
    let theirs = event(other.id, EventType::ClientCreated, world.control.now());
    assert_eq!(world.report(&theirs).await, 1);
    let before = world.receiver.received().len();
    let app = Arc::clone(&world.control.app);
    let delivering = tokio::spawn(async move { deliver_due(&app).await });
    let served = |all: &[ReceivedRequest]| all.len() - hanging(all) > 0;
    let mut count = before + 1;
    let all = loop {
        let all = world.receiver.wait_for(count).await;
        if served(all.get(before..).unwrap_or_default()) {
            break all;
        }
        count = all.len() + 1;
    };
    // Deliveries that hang time out after a while and free their slots. The other project is served
    // long before all slots are used.
    let hung = hanging(all.get(before..).unwrap_or_default());
    assert!(hung <= 2 * 12, "{hung} were sent first");
    delivering.abort();
}

async fn the_running_task_delivers(control: TestControl) {
    let world = World::new(control).await;
    let (path, _) = world.add(&world.receiver.url()).await;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let shutdown = Shutdown::new(std::time::Duration::from_secs(5));
    let app = Arc::clone(&world.control.app);
    let running = control::start_on(app, listener, shutdown.clone())
        .await
        .unwrap();
    for count in 1..=3 {
        world.report(&world.event(EventType::TunnelCreated)).await;
        world.control.app.webhooks.wake();
        world.receiver.wait_for(count).await;
    }
    shutdown.request();
    // It waits until the deliveries in flight are recorded.
    running.wait_until_stopped().await;
    let control = World {
        control: world.control.restarted().await,
        ..world
    };
    let arrived = control
        .get(&format!("{path}/deliveries?status=succeeded"))
        .await;
    assert_eq!(arrived["total"], 3);
}

/// The configuration sections that allow webhooks to this receiver.
pub(super) fn written(ca_file: &std::path::Path) -> String {
    let sections = sections(ca_file);
    let written = sections.as_object().unwrap().iter();
    let written: Vec<_> = written
        .map(|(name, section)| format!("{name}: {section}\n"))
        .collect();
    written.concat()
}

/// Two processes on one database: each event is delivered once. A delivery that a crashed process
/// had claimed is delivered when its lease ends.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_processes_one_delivers() {
    let directory = tempfile::tempdir().unwrap();
    let ca_file = directory.path().join("receiver.pem");
    let receiver = Receiver::start(&ca_file).await;
    let mut arrived = 0;
    for [first, second] in TestControl::pairs(&written(&ca_file)).await {
        let person = first.person("ada").await;
        let project = first.project(&person).await;
        let path = format!("/api/projects/tunnels/{}/webhooks", project.id);
        let body = json!({"name": "a", "events": EVENTS, "config": {"url": receiver.url()}});
        first.post(&path, &person.token, &body).await.expect(201);
        let mut tx = first.app.store.begin().await.unwrap();
        for _ in 0..40 {
            let event = event(project.id, EventType::TunnelCreated, first.now());
            on_event(&mut tx, &event, first.now()).await.unwrap();
        }
        tx.commit().await.unwrap();
        // One process dies after claiming a delivery.
        let mut tx = second.app.store.begin().await.unwrap();
        let lease_ends_at = first.now() + SignedDuration::from_secs(60);
        let due = store::deliveries::due(&mut tx, first.now(), (&[], &[]), 5).await;
        let ids: Vec<_> = due.unwrap().iter().map(|due| due.id).collect();
        let taken = store::deliveries::claim(&mut tx, first.now(), lease_ends_at, &ids).await;
        assert_eq!(taken.unwrap().len(), 5);
        tx.commit().await.unwrap();
        let (one, two) = tokio::join!(deliver_due(&first.app), deliver_due(&second.app));
        one.unwrap();
        two.unwrap();
        // On PostgreSQL a claim that meets rows locked by another one can be empty while some are
        // left.
        deliver_due(&first.app).await.unwrap();
        assert_eq!(receiver.wait_for(arrived + 35).await.len(), arrived + 35);
        first.clock.advance(60);
        deliver_due(&second.app).await.unwrap();
        arrived += 40;
        let all = receiver.wait_for(arrived).await;
        let ids: std::collections::BTreeSet<_> =
            all.iter().map(|one| one.header("webhook-id")).collect();
        assert_eq!(
            (all.len(), ids.len()),
            (arrived, arrived),
            "one was delivered twice"
        );
    }
}

/// An unreachable endpoint does not fill the database. Deliveries beyond the limit are dropped.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiting_deliveries_are_limited() {
    let world = World::new(TestControl::start("").await).await;
    let (path, _) = world.add(&world.receiver.url()).await;
    let webhook_id = path[1..].parse().unwrap();
    let event = || world.event(EventType::TunnelCreated);
    for _ in 0..10 {
        let mut tx = world.control.app.store.begin().await.unwrap();
        for _ in 0..MAX_WAITING / 10 {
            let new = store::deliveries::NewDelivery {
                id: DeliveryId::new(next(), [7; 10]),
                webhook_id,
                project_id: world.project.id,
                event_id: event().id,
                event_type: "tunnel.created".to_owned(),
                payload: String::new(),
                now: world.control.now(),
            };
            store::deliveries::insert(&mut tx, &new).await.unwrap();
        }
        tx.commit().await.unwrap();
    }
    assert_eq!(world.report(&event()).await, 0);
    let mut tx = world.control.app.store.begin().await.unwrap();
    let (now, lease) = (world.control.now(), world.control.now());
    let due = store::deliveries::due(&mut tx, now, (&[], &[]), 1).await;
    let id = due.unwrap()[0].id;
    let taken = store::deliveries::claim(&mut tx, now, lease, &[id])
        .await
        .unwrap();
    let arrived = store::deliveries::Outcome::Succeeded;
    assert!(
        store::deliveries::finish(&mut tx, &taken[0], arrived, now)
            .await
            .unwrap()
    );
    tx.commit().await.unwrap();
    assert_eq!(world.report(&event()).await, 1);
}
