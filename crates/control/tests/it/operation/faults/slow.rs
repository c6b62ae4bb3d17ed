//! Databases that are slow, silent, or locked by another process.

use std::sync::Arc;

use sqlx::{Connection as _, SqliteConnection};
use tokio::task::JoinSet;

use super::*;
use crate::postgres;
use crate::proxy::Proxy;

/// A platform with a database connection that the test controls.
async fn behind_a_line() -> (Arc<TestControl>, Proxy, Person) {
    let proxy = Proxy::start(&postgres::new_database().await).await;
    let control = TestControl::start_on(SHOP, Some(&proxy.url())).await;
    let person = customer(&control).await;
    (Arc::new(control), proxy, person)
}

/// Sends this many requests in parallel, each of which is answered in time. Returns the number of
/// successful ones.
async fn at_once(control: &Arc<TestControl>, person: &Person, count: usize) -> usize {
    let mut requests = JoinSet::new();
    for number in 0..count {
        let (control, person) = (Arc::clone(control), person.clone());
        requests.spawn(async move {
            if number % 2 == 0 {
                in_time(who(&control, &person)).await
            } else {
                in_time(list(&control, &person)).await
            }
        });
    }
    let answers = requests.join_all().await;
    let served = answers.iter().filter(|answer| answer.status == 200).count();
    for answer in answers.iter().filter(|answer| answer.status != 200) {
        assert_unavailable(answer);
    }
    served
}

/// More requests than connections, on a slow connection. None waits for another that waits for it,
/// all are answered, and they leave no trace.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_hundred_requests_on_a_slow_line_are_all_answered() {
    let (control, proxy, person) = behind_a_line().await;
    proxy.delay(Duration::from_millis(50));
    let served = at_once(&control, &person, 200).await;
    assert!(served >= 16, "{served}");
    proxy.delay(Duration::ZERO);
    assert_eq!(at_once(&control, &person, 32).await, 32);
}

/// The server becomes unreachable without any error. Waiting requests are released, and a new
/// server at the same address is used.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_silent_connection_blocks_no_request_and_no_pool_slot() {
    let (control, proxy, person) = behind_a_line().await;
    // Every slot of the pool is used by a reading or writing request when it happens.
    assert_eq!(at_once(&control, &person, 64).await, 64);
    let order = order(&control, &person).await;
    let mut waiting = JoinSet::new();
    for _ in 0..20 {
        let (control, person, order) = (Arc::clone(&control), person.clone(), order.clone());
        waiting.spawn(async move { in_time(create(&control, &person, &order)).await });
    }
    proxy.silence();
    at_once(&control, &person, 200).await;
    for answer in waiting.join_all().await {
        if answer.status != 201 {
            assert_unavailable(&answer);
        }
    }
    // Slots become free as the silent connections time out. By now all of them are.
    for _ in 0..4 {
        assert_eq!(at_once(&control, &person, 16).await, 16);
    }
    assert_eq!(create(&control, &person, &order).await.status, 201);
    assert_books(&control, &person, 1).await;
}

/// Another process writes for too long. Writers get an error with a retry time, and readers are not
/// affected.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sqlite_that_another_process_locks_is_read_and_not_written() {
    let control = Arc::new(TestControl::start(SHOP).await);
    let person = customer(&control).await;
    let order = order(&control, &person).await;
    let file = control.directory().join("data").join("platform.db");
    let mut holder = SqliteConnection::connect(&format!("sqlite://{}", file.display()))
        .await
        .unwrap();
    sqlx::query("BEGIN IMMEDIATE")
        .execute(&mut holder)
        .await
        .unwrap();
    let mut writers = JoinSet::new();
    for _ in 0..50 {
        let (control, person, order) = (Arc::clone(&control), person.clone(), order.clone());
        writers.spawn(async move { in_time(create(&control, &person, &order)).await });
    }
    assert_eq!(at_once(&control, &person, 50).await, 50);
    assert!(!writers.is_empty());
    for answer in writers.join_all().await {
        assert_unavailable(&answer);
    }
    sqlx::query("ROLLBACK").execute(&mut holder).await.unwrap();
    assert_eq!(create(&control, &person, &order).await.status, 201);
    assert_books(&control, &person, 1).await;
}
