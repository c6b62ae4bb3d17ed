//! PostgreSQL killed and started again.

use super::*;
use crate::postgres::Server;

/// Requests of every kind are answered while the server is down, and again after it restarts.
/// Committed data is still there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_postgres_that_is_killed_and_restarted_is_used_again() {
    let mut server = Server::durable().await;
    let control = TestControl::start_on(SHOP, Some(&server.new_database().await)).await;
    let person = customer(&control).await;
    let before = order(&control, &person).await;
    let made = create(&control, &person, &before).await;
    assert_eq!(made.status, 201, "{made:?}");
    let during = order(&control, &person).await;

    // A transaction is open.
    let mut open = control.app.store.begin().await.unwrap();
    let read = control.app.store.read().await.unwrap();
    server.kill();
    store::workspaces::lock(&mut open, person.workspace)
        .await
        .unwrap_err();
    for _ in 0..2 {
        let (who, list, create) = tokio::join!(
            in_time(who(&control, &person)),
            in_time(list(&control, &person)),
            in_time(create(&control, &person, &during)),
        );
        for answer in [who, list, create] {
            assert_unavailable(&answer);
        }
    }
    // Requests that need no database are served.
    let document = control.get("/api/openapi.json", &person.token).await;
    assert_eq!(document.status, 200);
    drop((open, read));

    server.start_again();
    assert_eq!(in_time(who(&control, &person)).await.status, 200);
    assert_books(&control, &person, 1).await;
    let again = create(&control, &person, &before).await;
    assert_eq!(again.json(), made.json());
    assert_eq!(create(&control, &person, &during).await.status, 201);
    assert_books(&control, &person, 2).await;
}

/// Creations in flight when the server is killed: every answer that was sent remains true.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_postgres_that_is_killed_under_load_loses_no_answered_creation() {
    let mut server = Server::durable().await;
    let control = TestControl::start_on(SHOP, Some(&server.new_database().await)).await;
    let control = std::sync::Arc::new(control);
    // One customer each, because a confirmed creation makes other previews of its customer stale.
    let mut orders = Vec::new();
    for number in 0..ORDERS {
        let person = customer_named(&control, &format!("ann{number}")).await;
        let order = order(&control, &person).await;
        orders.push((person, order));
    }
    // This customer's creation waits for a lock, so that it is in flight when the server is killed.
    let mut open = control.app.store.begin().await.unwrap();
    let (waiting, _) = orders.last().unwrap();
    store::workspaces::lock(&mut open, waiting.workspace)
        .await
        .unwrap();
    let mut creators = tokio::task::JoinSet::new();
    let (answered, mut some) = tokio::sync::mpsc::unbounded_channel();
    for (person, order) in orders {
        let (control, answered) = (std::sync::Arc::clone(&control), answered.clone());
        creators.spawn(async move {
            let answer = in_time(create(&control, &person, &order)).await;
            answered.send(()).unwrap();
            (person, order, answer)
        });
    }
    // Some have been answered, others are in flight.
    for _ in 0..3 {
        some.recv().await.unwrap();
    }
    server.kill();
    let answers = creators.join_all().await;
    drop(open);
    server.start_again();
    let mut refused = 0;
    for (person, order, answer) in answers {
        let again = in_time(create(&control, &person, &order)).await;
        assert_eq!(again.status, 201, "{again:?}");
        if answer.status == 201 {
            assert_eq!(again.json(), answer.json());
        } else {
            assert_unavailable(&answer);
            refused += 1;
        }
        assert_account(&control, &person, 1).await;
    }
    assert!(refused > 0, "all creations were faster than the kill");
    assert_places(&control, ORDERS).await;
}

/// Enough that usually several are in flight when the server is killed.
const ORDERS: u64 = 24;
