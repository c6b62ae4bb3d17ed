//! Creations whose line to the database breaks at any message, and many of the same at once.

use std::sync::Arc;

use tokio::task::JoinSet;

use super::*;
use crate::postgres;
use crate::proxy::Proxy;

/// CP-4a: for every message of a creation, the line breaks before the server hears of it, or
/// after it has done it and before we hear that. The same request asked again makes one project
/// of it, charged once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cp_4a_a_creation_whose_line_breaks_anywhere_is_all_or_nothing() {
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
        assert!(cuts > 15, "a creation has more messages than {cuts}");
    }
}

/// CP-4a: sixteen posts of one order at once, on either database, while some of them are let go
/// of by their callers.
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
                        // Its caller hangs up some time on the way.
                        let patience = Duration::from_millis(number * 3);
                        tokio::time::timeout(patience, post).await.ok()
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
