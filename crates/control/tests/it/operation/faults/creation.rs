//! Creations whose database connection breaks at any message, and many parallel creations.

use std::sync::Arc;

use tokio::task::JoinSet;

use super::*;
use crate::postgres;
use crate::proxy::Proxy;

/// CP-4a: for every message of a creation, the connection breaks before the server receives it, or
/// after the server has executed it and before its answer. Repeating the request results in one
/// project, charged once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cp_4a_a_creation_with_a_broken_connection_is_all_or_nothing() {
    let proxy = Proxy::start(&postgres::new_database().await).await;
    let control = TestControl::start_on(SHOP, Some(&proxy.url())).await;
    let person = customer(&control).await;
    let mut made = 0;
    for after in [false, true] {
        let mut cuts = 0;
        for at in 1.. {
            let order = order(&control, &person).await;
            proxy.cut(at, after);
            let answer = in_time(create(&control, &person, &order)).await;
            let cut = proxy.mend();
            if answer.status != 201 {
                assert!(cut, "{answer:?}");
                assert_unavailable(&answer);
            }
            let again = in_time(create(&control, &person, &order)).await;
            assert_eq!(again.status, 201, "{again:?}");
            if answer.status == 201 {
                assert_eq!(again.json(), answer.json());
            }
            made += 1;
            assert_books(&control, &person, made).await;
            if !cut {
                break;
            }
            cuts += 1;
        }
        assert!(cuts > 15, "a creation sends more messages than {cuts}");
    }
}

/// CP-4a: sixteen parallel posts of one order, on either database, while some callers abort.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cp_4a_sixteen_posts_of_one_order_are_charged_once() {
    let address = postgres::new_database().await;
    for database in [None, Some(address.as_str())] {
        let control = Arc::new(TestControl::start_on(SHOP, database).await);
        let person = customer(&control).await;
        for round in 1..=4 {
            let order = order(&control, &person).await;
            let mut posts = JoinSet::new();
            for number in 0..16 {
                let (control, person, order) =
                    (Arc::clone(&control), person.clone(), order.clone());
                posts.spawn(async move {
                    let post = create(&control, &person, &order);
                    if number % 4 == round % 4 {
                        // Its caller disconnects at some point.
                        let time_limit = Duration::from_millis(number * 3);
                        tokio::time::timeout(time_limit, post).await.ok()
                    } else {
                        Some(post.await)
                    }
                });
            }
            let answers = posts.join_all().await;
            let mut answers = answers.into_iter().flatten();
            let first = answers.next().unwrap();
            assert_eq!(first.status, 201, "{first:?}");
            for answer in answers {
                assert_eq!(answer.json(), first.json());
            }
            assert_books(&control, &person, round).await;
        }
    }
}
