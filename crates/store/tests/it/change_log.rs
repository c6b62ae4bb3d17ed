//! Resuming the log of changes, waiting for it, and batches that count once.

use std::collections::BTreeSet;
use std::time::Duration;

use store::changes::{self, Version};
use store::{engines, revoked_tokens, users};

use crate::database::{Database, both, commit};
use crate::world::{at, id, new_user, next};

both! {
    a_resumed_reader_never_misses_a_commit,
    a_position_is_known_until_it_is_purged,
    listeners_are_woken,
    changes_of_another_process_are_notified,
    a_batch_of_reports_counts_once,
}

/// Parallel writers, and a reader that resumes from its position. Whatever the order of the
/// commits, it has read every change in the end.
async fn a_resumed_reader_never_misses_a_commit(database: Database) {
    const WRITERS: usize = 6;
    const EACH: usize = 25;
    let writers: Vec<_> = (0..WRITERS)
        .map(|writer| {
            let store = database.store.clone();
            tokio::spawn(async move {
                for number in 0..EACH {
                    let mut tx = store.begin().await.unwrap();
                    let jti = format!("tok_{writer}_{number}");
                    assert!(
                        revoked_tokens::revoke(&mut tx, &jti, at(9), at(1))
                            .await
                            .unwrap()
                    );
                    // Some work between the log entry and the commit.
                    tokio::task::yield_now().await;
                    tx.commit().await.unwrap();
                }
            })
        })
        .collect();
    let mut wakes = database.store.wakes();
    let (mut seen, mut version) = (BTreeSet::new(), 0);
    while seen.len() < WRITERS * EACH {
        wakes.borrow_and_update();
        let mut read = database.store.snapshot().await.unwrap();
        let head = changes::head(&mut read).await.unwrap();
        let news = changes::since(&mut read, version, 1000).await.unwrap();
        drop(read);
        assert!(news.len() <= usize::try_from(head.version - version).unwrap());
        seen.extend(news.into_iter().map(|change| change.key));
        assert_eq!(seen.len(), usize::try_from(head.version).unwrap());
        version = head.version;
        if seen.len() < WRITERS * EACH {
            wakes.changed().await.unwrap();
        }
    }
    for writer in writers {
        writer.await.unwrap();
    }
}

async fn a_position_is_known_until_it_is_purged(database: Database) {
    let place = async || {
        let mut read = database.store.read().await.unwrap();
        changes::head(&mut read).await.unwrap()
    };
    let is_kept = async |at: &Version| {
        let mut read = database.store.read().await.unwrap();
        changes::is_in_log(&mut read, at).await.unwrap()
    };
    let mut places = vec![place().await];
    for seconds in 1..=3 {
        let jti = format!("tok_{seconds}");
        commit!(database, |tx| revoked_tokens::revoke(
            tx,
            &jti,
            at(9),
            at(seconds)
        ))
        .unwrap();
        places.push(place().await);
    }
    let marks: BTreeSet<_> = places.iter().map(|place| &place.mark).collect();
    assert_eq!(marks.len(), 4);
    // Position zero is not an entry. A reader at that position starts again.
    assert!(!is_kept(&places[0]).await);
    for place in &places[1..] {
        assert!(is_kept(place).await);
    }
    // Another history reached the same number, or none as high.
    let other = Version {
        mark: "another".to_owned(),
        ..places[2].clone()
    };
    assert!(!is_kept(&other).await);
    let future = Version {
        version: 9,
        ..places[3].clone()
    };
    assert!(!is_kept(&future).await);
    assert_eq!(
        commit!(database, |tx| changes::purge(tx, at(2), 10)).unwrap(),
        2
    );
    assert!(!is_kept(&places[1]).await && !is_kept(&places[2]).await);
    assert!(is_kept(&places[3]).await);
    assert_eq!(
        commit!(database, |tx| changes::purge(tx, at(3), 10)).unwrap(),
        1
    );
    // The end of the log is known without that entry.
    assert!(is_kept(&places[3]).await);
}

async fn listeners_are_woken(database: Database) {
    let mut wakes = database.store.wakes();
    commit!(database, |tx| users::insert(
        tx,
        &new_user(id!(UserId), "cid")
    ))
    .unwrap();
    assert!(!wakes.has_changed().unwrap());
    commit!(database, |tx| revoked_tokens::revoke(
        tx,
        "tok_1",
        at(9),
        at(1)
    ))
    .unwrap();
    tokio::time::timeout(WAIT_LIMIT, wakes.changed())
        .await
        .unwrap()
        .unwrap();
}

async fn changes_of_another_process_are_notified(database: Database) {
    if database.is_sqlite() {
        // There are no notifications, so the waiting task polls the head.
        let listening = tokio::time::timeout(Duration::from_millis(10), database.store.listen());
        assert!(listening.await.is_err());
        return;
    }
    let other = database.open_again().await.unwrap();
    let mut wakes = database.store.wakes();
    let listener = tokio::spawn({
        let store = database.store.clone();
        async move { store.listen().await }
    });
    // It listens for notifications.
    tokio::time::timeout(WAIT_LIMIT, wakes.changed())
        .await
        .unwrap()
        .unwrap();
    let mut tx = other.begin().await.unwrap();
    assert!(
        revoked_tokens::revoke(&mut tx, "tok_1", at(9), at(1))
            .await
            .unwrap()
    );
    tx.commit().await.unwrap();
    tokio::time::timeout(WAIT_LIMIT, wakes.changed())
        .await
        .unwrap()
        .unwrap();
    listener.abort();
}

async fn a_batch_of_reports_counts_once(database: Database) {
    let arrives = async |cluster: &str, sequence| {
        commit!(database, |tx| engines::record_batch(
            tx,
            cluster,
            "r",
            sequence,
            at(next_second())
        ))
        .unwrap()
    };
    assert!(arrives("c", 1).await);
    assert!(!arrives("c", 1).await);
    assert!(arrives("c", 2).await);
    assert!(!arrives("c", 1).await);
    // The same name in another cluster is independent.
    assert!(arrives("d", 1).await);
    let mut read = database.store.read().await.unwrap();
    assert_eq!(engines::through(&mut read, "c", "r").await.unwrap(), 2);
    assert_eq!(engines::through(&mut read, "c", "s").await.unwrap(), 0);
    assert_eq!(
        engines::reporters(&mut read, "c", 10).await.unwrap().len(),
        1
    );
    drop(read);

    let of = serde_json::json!([{"source": "files", "names": ["h.example"]}]);
    for (reporter, is_known) in [("r", true), ("s", false)] {
        let is_set = commit!(database, |tx| engines::set_certificates(
            tx,
            ("c", reporter),
            &of,
            at(9)
        ));
        assert_eq!(is_set.unwrap(), is_known, "{reporter}");
    }
    let mut read = database.store.read().await.unwrap();
    let mut found = async |since| {
        let found = engines::certificates(&mut read, "c", at(since), 10).await;
        found.unwrap()
    };
    let recent = found(8).await;
    assert_eq!(recent.len(), 1);
    assert_eq!(
        (&recent[0].certificates, recent[0].certificates_at),
        (&of, at(9))
    );
    assert_eq!(found(9).await, []);
}

fn next_second() -> i64 {
    i64::try_from(next()).unwrap()
}

/// Time limit for immediate events on a busy machine.
const WAIT_LIMIT: Duration = Duration::from_mins(1);
