//! Clock jumps: back an hour, forward a year, and to the start of the epoch.

use http::header::COOKIE;
use http::{Method, Request};
use jiff::{SignedDuration, Timestamp};

use super::*;
use crate::postgres;
use crate::support::START;

const HOUR: i64 = 3600;
const YEAR: i64 = 365 * 24 * HOUR;

async fn both() -> [TestControl; 2] {
    let address = postgres::new_database().await;
    [
        TestControl::start_on(SHOP, None).await,
        TestControl::start_on(SHOP, Some(&address)).await,
    ]
}

/// The status of a page that needs a session.
async fn account(control: &TestControl, cookie: &str) -> u16 {
    let request = Request::builder().method(Method::GET).uri("/api/whoami");
    let request = request
        .header(COOKIE, cookie)
        .body(axum::body::Body::empty());
    control.send_raw(request.unwrap()).await.status
}

/// Expired tokens stay expired, whatever times the clock has shown before. Tokens from the future
/// are refused.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_and_sessions_expire_by_the_current_time_only() {
    for control in both().await {
        let old = control.person("old").await;
        control.clock.advance(2 * HOUR);
        let new = control.person("new").await;
        let unseen = control.person("unseen").await;
        let session = control.session(&new).await;
        let minute = control
            .delegated(&new, json!({"permissions": null, "ttlSeconds": 60}))
            .await;
        let with = async |token: &str| control.get("/api/whoami", token).await.status;
        assert_eq!((with(&new.token).await, with(&minute).await), (200, 200));
        assert_eq!(account(&control, &session).await, 200);

        control.clock.advance(-HOUR);
        assert_eq!(with(&old.token).await, 200);
        // Issued an hour in the future, so its issuer has another clock or another key. A token
        // that was verified before the jump is known to be valid.
        assert_eq!(with(&unseen.token).await, 401);

        control.clock.advance(HOUR + YEAR);
        assert_eq!(with(&minute).await, 401);
        assert_eq!(account(&control, &session).await, 401);

        control.clock.advance(-YEAR);
        assert_eq!(with(&old.token).await, 200);
        assert_eq!(with(&new.token).await, 200);
        assert_eq!(with(&unseen.token).await, 200);
        // The jump did not add a second.
        control.clock.advance(60);
        assert_eq!(with(&minute).await, 401);
    }
}

/// CP-4a: an idempotency key stays valid across a clock jump, and is charged once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cp_4a_an_idempotency_key_survives_a_clock_jump() {
    for control in both().await {
        // Older than every jump back.
        let person = customer(&control).await;
        control.clock.advance(2 * HOUR);
        let order = order(&control, &person).await;
        let made = create(&control, &person, &order).await;
        assert_eq!(made.status, 201, "{made:?}");
        for jump in [-HOUR, 2 * HOUR, YEAR, -YEAR] {
            control.clock.advance(jump);
            let again = create(&control, &person, &order).await;
            assert_eq!((again.status, again.json()), (201, made.json()));
            assert_books(&control, &person, 1).await;
        }
    }
}

/// Ids contain the time. Lists by id remain complete: each row appears once, on some page, in a
/// stable order.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lists_keep_their_order_and_every_row() {
    for control in both().await {
        let person = customer(&control).await;
        control.clock.advance(2 * HOUR);
        let mut made = Vec::new();
        for jump in [0, -HOUR, 0, YEAR, -YEAR + HOUR, 0] {
            control.clock.advance(jump);
            let order = order(&control, &person).await;
            let project = create(&control, &person, &order).await;
            assert_eq!(project.status, 201, "{project:?}");
            made.push(project.json()["id"].as_str().unwrap().to_owned());
        }
        let mut listed = Vec::new();
        for page in 1..=made.len() {
            let path = format!("/api/projects/tunnels?pageSize=1&page={page}");
            let found = control.get(&path, &person.token).await.json();
            listed.push(found["projects"][0]["id"].as_str().unwrap().to_owned());
        }
        made.sort();
        assert_eq!(listed, made);
        let mut descending = Vec::new();
        let found = control
            .get("/api/projects/tunnels?order=desc", &person.token)
            .await;
        for project in found.json()["projects"].as_array().unwrap() {
            descending.push(project["id"].as_str().unwrap().to_owned());
        }
        descending.reverse();
        assert_eq!(descending, made);
    }
}

/// A clock without a battery, one that was set wrong, and one far ahead cause neither a panic nor
/// an internal error.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_time_of_day_causes_an_internal_error() {
    for control in both().await {
        let person = customer(&control).await;
        let project = control.project(&person).await;
        let session = control.session(&person).await;
        let order = order(&control, &person).await;
        let start: Timestamp = START.parse().unwrap();
        let day = SignedDuration::from_hours(24);
        for now in [
            Timestamp::UNIX_EPOCH,
            Timestamp::UNIX_EPOCH - day,
            start - day,
            start + SignedDuration::from_secs(YEAR),
            "2038-01-19T03:14:08Z".parse().unwrap(),
            "2106-02-07T06:28:16Z".parse().unwrap(),
            start,
        ] {
            control.clock.set(now);
            account(&control, &session).await;
            let base = format!("/api/projects/tunnels/{}", project.id);
            for path in [
                "/api/whoami".to_owned(),
                "/api/projects/tunnels".to_owned(),
                format!("/api/projects/tunnels/resolve/{}", project.endpoint),
                format!("{base}/logs"),
                format!("{base}/events"),
                format!("{base}/usage"),
                format!("{}/plan/config", creation_path(&person)),
            ] {
                let answer = control.get(&path, &person.token).await;
                assert!(answer.status < 500, "{path} at {now}: {answer:?}");
            }
            let answer = create(&control, &person, &order).await;
            assert!(answer.status < 500, "creation at {now}: {answer:?}");
        }
        assert_eq!(who(&control, &person).await.status, 200);
    }
}

/// A platform whose clock differs from the database's is not ready, and computes leases with the
/// database's clock.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wrong_clock_is_detected() {
    let control = TestControl::postgres().await;
    for (ahead, is_ready) in [
        (0, true),
        (3, true),
        (-3, true),
        (40, false),
        (-40, false),
        (0, true),
    ] {
        let set_at = Timestamp::now();
        let difference = SignedDuration::from_secs(ahead);
        control.clock.set(set_at + difference);
        control
            .app
            .clock_skew
            .measure(&control.app.store, &*control.app.clock)
            .await
            .unwrap();
        let measured_at = Timestamp::now();
        let answer = control.send(http::Method::GET, "/readyz", None, None).await;
        assert_eq!(answer.status == 200, is_ready, "{ahead}: {answer:?}");
        // The database read its clock at some time of the measurement, during which the clock of the
        // platform stood still.
        let second = SignedDuration::from_secs(1);
        let read_at = control.app.database_now();
        let possible = set_at - second..=measured_at + second;
        assert!(possible.contains(&read_at), "{ahead}: {read_at}");
        let measured = control.app.clock_skew.ahead();
        let took = measured_at.duration_since(set_at);
        let possible = difference - took - second..=difference + second;
        assert!(possible.contains(&measured), "{ahead}: {measured:?}");
    }
    // The embedded database uses the clock of its machine.
    let control = TestControl::start("").await;
    control
        .app
        .clock_skew
        .measure(&control.app.store, &*control.app.clock)
        .await
        .unwrap();
    assert!(control.app.clock_skew.ahead().is_zero());
}
