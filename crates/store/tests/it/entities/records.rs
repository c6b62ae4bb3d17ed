//! Logs, events, usage.

use store::events::{self, Event};
use store::logs::{self, Log};
use store::usage::{self, TurnUsage, Usage};
use store::{Order, Paging, Period};
use types::id::TunnelId;

use crate::database::{Database, both};
use crate::entities::log_search::id_of;
use crate::world::{Person, at, id};

pub(crate) fn event(person: Person, seconds: i64) -> Event {
    Event {
        id: id!(EventId),
        kind: if seconds % 2 == 0 {
            "tunnel.created"
        } else {
            "tunnel.deleted"
        }
        .to_owned(),
        category: "lifecycle".to_owned(),
        workspace_id: person.workspace,
        project_id: person.project,
        cluster_id: Some("c".to_owned()),
        user_id: None,
        payload: serde_json::json!({"n": seconds}),
        created_at: at(seconds),
        expires_at: at(seconds + 1000),
    }
}

pub(crate) fn log(person: Person, seconds: i64, tunnel: Option<TunnelId>) -> Log {
    Log {
        id: id!(LogId),
        workspace_id: person.workspace,
        project_id: person.project,
        stream_id: format!("{:024x}", crate::world::next()),
        tunnel_id: tunnel,
        user_id: Some("u".to_owned()),
        outcome: if seconds % 2 == 0 {
            "connected"
        } else {
            "denied"
        }
        .to_owned(),
        summary: serde_json::json!({"n": seconds}),
        created_at: at(seconds),
        expires_at: at(seconds + 1000),
    }
}

pub(crate) fn events_of(person: Person) -> events::List<'static> {
    events::List {
        project: person.project,
        period: Period::default(),
        kind: None,
        after: None,
        order: Order::Asc,
        paging: Paging::DEFAULT,
    }
}

pub(crate) fn logs_of(person: Person) -> logs::List<'static> {
    logs::List {
        project: person.project,
        period: Period::default(),
        outcome: None,
        tunnel: None,
        stream: None,
        search: None,
        after: None,
        order: Order::Desc,
        paging: Paging::DEFAULT,
    }
}

both! {
    a_search_examines_a_limited_number_of_rows,
    a_total_is_exact_up_to_a_bound,
    a_cursor_visits_every_event_once_in_both_orders,
    events_are_chosen_by_time_and_type_and_forgotten_in_time,
    logs_are_stored_once_and_filtered,
    usage_adds_up_by_the_hour,
}

async fn a_cursor_visits_every_event_once_in_both_orders(database: Database) {
    let (ann, bob) = (
        Person::new(&database, "ann").await,
        Person::new(&database, "bob").await,
    );
    let mut tx = database.begin().await;
    // Many at the same time, ordered by id.
    let mut all: Vec<Event> = [1, 1, 1, 2, 0, 0, 3]
        .map(|second| event(ann, second))
        .into();
    for event in all.iter().chain([&event(bob, 1)]) {
        assert!(events::insert(&mut tx, event).await.unwrap());
        assert!(
            !events::insert(&mut tx, event).await.unwrap(),
            "reported again"
        );
    }
    all.sort_by_key(|event| (event.created_at, event.id));
    for order in [Order::Asc, Order::Desc] {
        let mut walked = Vec::new();
        let mut after = None;
        loop {
            let list = events::List {
                after,
                order,
                paging: Paging::new(1, 2).unwrap(),
                ..events_of(ann)
            };
            let page = events::list(&mut tx, list).await.unwrap();
            assert_eq!(page.total, (all.len() - walked.len()) as u64);
            let Some(last) = page.items.last() else { break };
            after = Some(last.id);
            walked.extend(page.items);
        }
        assert_eq!(walked, all);
        all.reverse();
    }
    let foreign = events::List {
        after: Some(all[0].id),
        ..events_of(bob)
    };
    assert!(
        events::list(&mut tx, foreign)
            .await
            .unwrap()
            .items
            .is_empty(),
        "another project's cursor"
    );
}

async fn events_are_chosen_by_time_and_type_and_forgotten_in_time(database: Database) {
    let ann = Person::new(&database, "ann").await;
    let mut tx = database.begin().await;
    for second in 0..10 {
        events::insert(&mut tx, &event(ann, second)).await.unwrap();
    }
    let period = Period {
        start: Some(at(2)),
        end: Some(at(7)),
    };
    let list = events::List {
        period,
        ..events_of(ann)
    };
    let found = events::list(&mut tx, list).await.unwrap();
    assert_eq!((found.total, found.items[0].created_at), (5, at(2)));
    let list = events::List {
        kind: Some("tunnel.deleted"),
        ..list
    };
    assert_eq!(events::list(&mut tx, list).await.unwrap().total, 2);
    assert_eq!(events::purge(&mut tx, at(1004), 2).await.unwrap(), 2);
    assert_eq!(events::purge(&mut tx, at(1004), 100).await.unwrap(), 3);
    assert_eq!(events::purge(&mut tx, at(1004), 100).await.unwrap(), 0);
    assert_eq!(
        events::list(&mut tx, events_of(ann)).await.unwrap().items[0].created_at,
        at(5)
    );
}

#[expect(
    clippy::too_many_lines,
    reason = "a test tells one story from start to end"
)]
async fn logs_are_stored_once_and_filtered(database: Database) {
    let (ann, bob) = (
        Person::new(&database, "ann").await,
        Person::new(&database, "bob").await,
    );
    let tunnel: TunnelId = id!(TunnelId);
    let mut tx = database.begin().await;
    for second in 0..10 {
        let log = log(ann, second, (second < 3).then_some(tunnel));
        assert!(
            logs::insert(&mut tx, &log, &format!("Host/Path_{second}"))
                .await
                .unwrap()
        );
        let again = Log {
            id: id!(LogId),
            ..log
        };
        assert!(
            !logs::insert(&mut tx, &again, "").await.unwrap(),
            "reported again"
        );
    }
    assert_eq!(logs::list(&mut tx, logs_of(bob)).await.unwrap().total, 0);
    let all = logs::list(&mut tx, logs_of(ann)).await.unwrap();
    assert_eq!((all.total, all.items[0].created_at), (10, at(9)));
    for (number, size, here) in [(3, 4, 2), (2, 5, 5), (3, 5, 0), (100, 100, 0)] {
        let paging = Paging::new(number, size).unwrap();
        let page = logs::list(
            &mut tx,
            logs::List {
                paging,
                ..logs_of(ann)
            },
        );
        let page = page.await.unwrap();
        assert_eq!((page.total, page.items.len()), (10, here), "page {number}");
    }
    let total = async |tx: &mut store::Tx, list| logs::list(tx, list).await.unwrap().total;
    assert_eq!(
        total(
            &mut tx,
            logs::List {
                outcome: Some("denied"),
                ..logs_of(ann)
            }
        )
        .await,
        5
    );
    assert_eq!(
        total(
            &mut tx,
            logs::List {
                tunnel: Some(tunnel),
                ..logs_of(ann)
            }
        )
        .await,
        3
    );
    assert_eq!(
        total(
            &mut tx,
            logs::List {
                search: Some("PATH_7"),
                ..logs_of(ann)
            }
        )
        .await,
        1
    );
    assert_eq!(
        total(
            &mut tx,
            logs::List {
                search: Some("pathx7"),
                ..logs_of(ann)
            }
        )
        .await,
        0
    );
    let period = Period {
        start: Some(at(1)),
        end: None,
    };
    let list = logs::List {
        period,
        outcome: Some("connected"),
        tunnel: Some(tunnel),
        search: Some("host"),
        after: Some(all.items[0].id),
        ..logs_of(ann)
    };
    let found = logs::list(&mut tx, list).await.unwrap();
    assert_eq!((found.total, found.items[0].created_at), (1, at(2)));
    assert_eq!(logs::purge(&mut tx, at(1000), 100).await.unwrap(), 1);
    assert_eq!(total(&mut tx, logs_of(ann)).await, 9);
}

async fn usage_adds_up_by_the_hour(database: Database) {
    let (ann, bob) = (
        Person::new(&database, "ann").await,
        Person::new(&database, "bob").await,
    );
    let one = Usage {
        streams: 1,
        failed_streams: 0,
        upstream_bytes: 10,
        downstream_bytes: 1 << 40,
    };
    let mut tx = database.begin().await;
    for at in [at(0), at(1), at(3600), at(7200)] {
        usage::add(&mut tx, ann.project, at, &one).await.unwrap();
    }
    let sum = usage::sum(&mut tx, ann.project, Period::default())
        .await
        .unwrap();
    assert_eq!(
        (sum.streams, sum.upstream_bytes, sum.downstream_bytes),
        (4, 40, 4 << 40)
    );
    let period = Period {
        start: Some(at(1)),
        end: Some(at(7200)),
    };
    assert_eq!(
        usage::sum(&mut tx, ann.project, period)
            .await
            .unwrap()
            .streams,
        2
    );
    let hours = usage::hours(&mut tx, ann.project, Period::default())
        .await
        .unwrap();
    let streams: Vec<_> = hours.iter().map(|hour| hour.counted.streams).collect();
    assert_eq!(streams, [2, 1, 1]);
    assert_eq!(hours[0].begins_at.as_second() % 3600, 0);
    assert_eq!(
        usage::sum(&mut tx, bob.project, Period::default())
            .await
            .unwrap(),
        Usage::default()
    );

    let one = TurnUsage {
        credentials: 1,
        allocations: 2,
        relayed_bytes: 3,
    };
    for at in [at(0), at(1)] {
        usage::add_turn(&mut tx, ann.project, at, &one)
            .await
            .unwrap();
    }
    let sum = usage::sum_turn(&mut tx, ann.project, Period::default())
        .await
        .unwrap();
    assert_eq!(
        sum,
        TurnUsage {
            credentials: 2,
            allocations: 4,
            relayed_bytes: 6
        }
    );
    assert_eq!(
        usage::turn_hours(&mut tx, ann.project, Period::default())
            .await
            .unwrap()
            .len(),
        1
    );
}

async fn a_search_examines_a_limited_number_of_rows(database: Database) {
    let ann = Person::new(&database, "ann").await;
    let mut tx = database.begin().await;
    for (second, text) in [(1, "needle old"), (1_000_000, "needle new")] {
        let log = log(ann, second, None);
        assert!(logs::insert(&mut tx, &log, text).await.unwrap());
    }
    tx.commit().await.unwrap();
    let found = async |search, order| {
        let mut read = database.store.read().await.unwrap();
        let list = logs::List {
            search: Some(search),
            order,
            ..logs_of(ann)
        };
        let found = logs::list(&mut read, list).await.unwrap();
        let times: Vec<_> = found.items.iter().map(|log| log.created_at).collect();
        (found.total, times)
    };
    let both = (2, vec![at(1_000_000), at(1)]);
    assert_eq!(found("ne", Order::Desc).await, both);
    // As many between the two as a search examines, minus one.
    let text = format!(
        "INSERT INTO logs (id, workspace_id, project_id, stream_id, outcome, search, summary, \
         created_at, expires_at) WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n \
         WHERE i < {}) SELECT 'x' || i, '{}', '{}', 'x' || i, 'connected', 'hay', '{{}}', \
         {} + i, {} FROM n",
        store::MAX_SCANNED_ROWS - 1,
        ann.workspace,
        ann.project,
        at(100).as_microsecond(),
        at(2_000_000).as_microsecond(),
    );
    database.raw(&text).await;
    assert_eq!(found("ne", Order::Desc).await, (1, vec![at(1_000_000)]));
    assert_eq!(found("ne", Order::Asc).await, (1, vec![at(1)]));
    // The index needs three characters.
    assert_eq!(found("needle", Order::Desc).await, both);
}

async fn a_total_is_exact_up_to_a_bound(database: Database) {
    let ann = Person::new(&database, "ann").await;
    let fill = async |from: u32, to: u32| {
        let text = format!(
            "INSERT INTO logs (id, workspace_id, project_id, stream_id, outcome, search, summary, \
             created_at, expires_at) WITH RECURSIVE n(i) AS (SELECT {from} UNION ALL SELECT i + 1 FROM n \
             WHERE i < {to}) SELECT {}, '{}', '{}', 'x' || i, 'connected', 'hay', '{{}}', {} + i, {} FROM n",
            id_of("i", database.is_sqlite()),
            ann.workspace,
            ann.project,
            at(100).as_microsecond(),
            at(2_000_000).as_microsecond(),
        );
        database.raw(&text).await;
    };
    let total = async || {
        let mut read = database.store.read().await.unwrap();
        let found = logs::list(&mut read, logs_of(ann)).await.unwrap();
        found.total
    };
    fill(1, 99_999).await;
    assert_eq!(total().await, 99_999);
    fill(100_000, 100_002).await;
    assert_eq!(total().await, 100_000);
}
