//! Searching logs through their index finds the same rows as reading every row.

use std::collections::BTreeMap;

use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::TestRunner;
use sqlx::{AssertSqlSafe, Connection as _, PgConnection, SqliteConnection};
use store::logs::{self, List, Log};
use store::{Conn, MAX_SEARCH_TOTAL, Order, Paging, Period, Store, fold_case};
use types::id::LogId;

use crate::database::{Database, both};
use crate::entities::records::{log, logs_of};
use crate::world::{Person, at};

both! {
    a_search_finds_the_same_rows_as_a_full_scan,
    a_search_with_many_hits_reads_them_in_order,
    a_search_is_served_by_its_index,
    purged_rows_are_removed_from_the_index,
}

/// So many that a list needs the index.
const MANY: i64 = 12_000;

/// Rows that a search has to skip, one every ten seconds, written by the database itself.
async fn fill(database: &Database, person: Person, text: &str) {
    fill_from(database, person, text, 0).await;
}

async fn fill_from(database: &Database, person: Person, text: &str, first: i64) {
    let text = format!(
        "INSERT INTO logs (id, workspace_id, project_id, stream_id, outcome, search, summary, created_at, \
         expires_at) WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {MANY}) \
         SELECT {}, '{}', '{}', '{}' || i, 'connected', '{text}' || i, '{{\"pad\":\"{}\"}}', {} + 10000000 * CAST(i AS BIGINT), {} FROM n",
        id_of(&format!("i + {first}"), database.is_sqlite()),
        person.workspace,
        person.project,
        person.project.as_str(),
        // As long as real summaries, because PostgreSQL reads a small table as a whole.
        "x".repeat(1000),
        at(0).as_microsecond(),
        at(500).as_microsecond(),
    );
    database.raw(&text).await;
    index(database).await;
    database.raw("ANALYZE").await;
}

/// An id with this number, as the database writes it.
pub(crate) fn id_of(number: &str, is_sqlite: bool) -> String {
    if is_sqlite {
        format!("printf('log_%026d', {number})")
    } else {
        format!("'log_' || lpad(CAST({number} AS TEXT), 26, '0')")
    }
}

async fn index(database: &Database) {
    let mut tx = database.begin().await;
    logs::index(&mut tx, 1_000_000).await.unwrap();
    tx.commit().await.unwrap();
}

async fn add(database: &Database, log: &Log, text: &str) {
    let mut tx = database.begin().await;
    assert!(logs::insert(&mut tx, log, text).await.unwrap());
    tx.commit().await.unwrap();
}

async fn found(store: &Store, list: List<'_>) -> (u64, Vec<LogId>) {
    let mut read = store.read().await.unwrap();
    let page = logs::list(&mut read, list).await.unwrap();
    (page.total, page.items.iter().map(|log| log.id).collect())
}

/// Values of a strategy, the same in every run.
fn some<T: std::fmt::Debug>(strategy: &impl Strategy<Value = T>, count: usize) -> Vec<T> {
    let mut runner = TestRunner::deterministic();
    let mut one = || strategy.new_tree(&mut runner).unwrap().current();
    (0..count).map(|_| one()).collect()
}

#[expect(
    clippy::too_many_lines,
    reason = "a test tells one story from start to end"
)]
async fn a_search_finds_the_same_rows_as_a_full_scan(database: Database) {
    let (ann, bob) = (
        Person::new(&database, "ann").await,
        Person::new(&database, "bob").await,
    );
    fill(&database, ann, "a-7.t.example.com /fill/").await;
    fill_from(&database, bob, "a-7.t.example.com /fill/", MANY).await;
    let texts = some(&"[abABz01 ./%_!\\\\'\"*()äÄßéİ你好🦀]{0,24}", 150);
    let mut rows: BTreeMap<LogId, (Log, String)> = BTreeMap::new();
    for (n, text) in (0_i64..).zip(&texts) {
        // Many rows at one time, of two projects, and not ordered by time.
        let person = if n % 5 == 0 { bob } else { ann };
        let log = log(person, (n * 7919) % 40 * 3000, None);
        add(&database, &log, text).await;
        if person.project == ann.project {
            rows.insert(log.id, (log, fold_case(text)));
        }
        // Rows that are not yet indexed are found as well.
        if n == 100 {
            index(&database).await;
        }
    }
    let mut searches: Vec<String> = [
        "%%%",
        "___",
        "\\\\\\",
        "'''",
        "\"\"\"",
        "a%b",
        "AB ",
        "nothing at all",
    ]
    .map(str::to_owned)
    .into();
    for text in &texts {
        let characters: Vec<char> = text.chars().collect();
        let start = searches.len() % 5;
        let length = 3 + searches.len() % 4;
        if let Some(piece) = characters.get(start..start + length) {
            let piece: String = piece.iter().collect();
            searches.push(if length == 4 {
                piece.to_uppercase()
            } else {
                piece
            });
        }
    }
    let period = Period {
        start: Some(at(10_000)),
        end: Some(at(90_000)),
    };
    let mut hits = 0;
    for search in &searches {
        let needle = fold_case(search);
        for order in [Order::Asc, Order::Desc] {
            for period in [Period::default(), period] {
                let mut expected: Vec<_> = rows
                    .values()
                    .filter(|(log, text)| {
                        text.contains(&needle)
                            && period.start.is_none_or(|start| log.created_at >= start)
                            && period.end.is_none_or(|end| log.created_at < end)
                    })
                    .map(|(log, _)| (log.created_at, log.id))
                    .collect();
                expected.sort_unstable();
                if order == Order::Desc {
                    expected.reverse();
                }
                hits += expected.len();
                let list = List {
                    search: Some(search),
                    period,
                    order,
                    paging: Paging::new(1, 100).unwrap(),
                    ..logs_of(ann)
                };
                let all: Vec<_> = expected.iter().map(|(_, id)| *id).collect();
                let count = expected.len() as u64;
                assert_eq!(
                    found(&database.store, list).await,
                    (count, all.clone()),
                    "{search:?}"
                );
                if let Some(middle) = all.get(all.len() / 2) {
                    let rest = &all[all.len() / 2 + 1..];
                    let list = List {
                        after: Some(*middle),
                        ..list
                    };
                    assert_eq!(found(&database.store, list).await.1, rest, "{search:?}");
                }
            }
        }
    }
    assert!(hits > 200, "{hits}");
    let list = List {
        search: Some("%%%%"),
        paging: Paging::new(2, 100).unwrap(),
        ..logs_of(ann)
    };
    assert_eq!(
        found(&database.store, list).await,
        (0, vec![]),
        "no second page"
    );
}

async fn a_search_with_many_hits_reads_them_in_order(database: Database) {
    let ann = Person::new(&database, "ann").await;
    fill(&database, ann, "a-7.t.example.com /fill/").await;
    // Every hundredth row. An hour has only a few of them.
    for (search, step) in [("example.com /fill/", 1), ("00", 100), ("/fill/11", 0)] {
        for order in [Order::Asc, Order::Desc] {
            let mut walked = Vec::new();
            let mut after = None;
            let list = List {
                search: Some(search),
                order,
                after,
                paging: Paging::new(1, 100).unwrap(),
                ..logs_of(ann)
            };
            for page in 0..5 {
                let (total, ids) = found(&database.store, List { after, ..list }).await;
                if step == 1 {
                    assert_eq!(total, u64::from(MAX_SEARCH_TOTAL));
                    let paging = Paging::new(page + 1, 100).unwrap();
                    let by_number = found(&database.store, List { paging, ..list }).await;
                    assert_eq!(by_number, (total, ids.clone()), "page {page}");
                }
                after = ids.last().copied().or(after);
                walked.extend(ids);
            }
            let numbers: Vec<i64> = walked
                .iter()
                .map(|id| id.as_str().trim_start_matches("log_").parse().unwrap())
                .collect();
            let all =
                (1..=MANY).filter(|n| format!("a-7.t.example.com /fill/{n}").contains(search));
            let mut all: Vec<_> = all.collect();
            if order == Order::Desc {
                all.reverse();
            }
            all.truncate(500);
            assert_eq!(numbers, all, "{search} {order:?}");
        }
    }
    let list = List {
        search: Some("example"),
        paging: Paging::new(11, 100).unwrap(),
        ..logs_of(ann)
    };
    let beyond = found(&database.store, list).await;
    assert_eq!(
        beyond,
        (u64::from(MAX_SEARCH_TOTAL), vec![]),
        "pages end at the total"
    );
}

async fn a_search_is_served_by_its_index(database: Database) {
    let ann = Person::new(&database, "ann").await;
    fill(&database, ann, "a-7.t.example.com /fill/").await;
    let mut read = database.store.read().await.unwrap();
    read.record_plans();
    let conn: &mut Conn = &mut read;
    for search in ["fill/7777", "nothing"] {
        for order in [Order::Asc, Order::Desc] {
            let list = List {
                search: Some(search),
                order,
                ..logs_of(ann)
            };
            let page = logs::list(conn, list).await.unwrap();
            assert_eq!(page.total, u64::from(search != "nothing"));
        }
    }
    let index = if database.is_sqlite() {
        "SCAN logs_search VIRTUAL TABLE INDEX"
    } else {
        "Bitmap Index Scan on logs_search"
    };
    let served = conn.plans().iter().filter(|line| line.contains(index));
    assert_eq!(served.count(), 4, "{:#?}", conn.plans());
}

async fn purged_rows_are_removed_from_the_index(database: Database) {
    let ann = Person::new(&database, "ann").await;
    fill(&database, ann, "needle ").await;
    let kept = log(ann, 5_000, None);
    add(&database, &kept, "needle kept").await;
    index(&database).await;
    assert_eq!(indexed(&database).await, MANY + 1);
    let mut tx = database.begin().await;
    assert_eq!(
        logs::purge(&mut tx, at(600), 20_000).await.unwrap(),
        MANY.unsigned_abs()
    );
    tx.commit().await.unwrap();
    assert_eq!(indexed(&database).await, 1);
    // Their index slots are reused.
    fill(&database, ann, "hay ").await;
    let list = List {
        search: Some("needle"),
        ..logs_of(ann)
    };
    assert_eq!(found(&database.store, list).await, (1, vec![kept.id]));
    let list = List {
        search: Some("hay 77"),
        paging: Paging::new(1, 100).unwrap(),
        ..logs_of(ann)
    };
    assert_eq!(found(&database.store, list).await.0, 111);
}

/// Number of rows of the index. In PostgreSQL the index has no rows of its own.
async fn indexed(database: &Database) -> i64 {
    if let Some(url) = &database.url {
        let mut connection = PgConnection::connect(url).await.unwrap();
        let query = sqlx::query_scalar("SELECT COUNT(*) FROM logs");
        return query.fetch_one(&mut connection).await.unwrap();
    }
    let address = format!("sqlite://{}", database.file().display());
    let mut connection = SqliteConnection::connect(&address).await.unwrap();
    let query = sqlx::query_scalar("SELECT COUNT(*) FROM logs_search_docsize");
    query.fetch_one(&mut connection).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backup_contains_the_index() {
    let database = Database::sqlite().await;
    let ann = Person::new(&database, "ann").await;
    fill(&database, ann, "a-7.t.example.com /fill/").await;
    // A copy moves rows that are not in the order of the index.
    database
        .raw("DELETE FROM logs WHERE created_at % 20000000 = 0")
        .await;
    fill_again(&database, ann).await;
    let (copies, restored) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let copy = copies.path().join("copy.db");
    database.store.backup(&copy).await.unwrap();
    Store::restore_at(None, restored.path(), &copy)
        .await
        .unwrap();
    let restored_store = Store::open(None, restored.path()).await.unwrap();
    for search in ["/fill/7777", "/again/1233", "nothing"] {
        let list = List {
            search: Some(search),
            ..logs_of(ann)
        };
        let here = found(&database.store, list).await;
        assert_eq!(here.0, u64::from(search != "nothing"), "{search}");
        assert_eq!(found(&restored_store, list).await, here, "{search}");
    }
    restored_store.close().await;
}

async fn fill_again(database: &Database, person: Person) {
    let text = format!(
        "INSERT INTO logs (id, workspace_id, project_id, stream_id, outcome, search, summary, created_at, \
         expires_at) SELECT replace(id, 'log_0', 'log_1'), workspace_id, project_id, 'again' || stream_id, outcome, \
         replace(search, '/fill/', '/again/'), summary, created_at, expires_at FROM logs \
         WHERE project_id = '{}'",
        person.project
    );
    database.raw(&text).await;
    index(database).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_role_that_cannot_create_extensions_searches_without_the_index() {
    let url = crate::postgres::new_database().await;
    let mut connection = PgConnection::connect(&url).await.unwrap();
    let name: String = sqlx::query_scalar("SELECT current_database()::text")
        .fetch_one(&mut connection)
        .await
        .unwrap();
    let role = format!("plain_{name}");
    let text = format!("CREATE ROLE {role} LOGIN; GRANT ALL ON SCHEMA public TO {role}");
    sqlx::raw_sql(AssertSqlSafe(text))
        .execute(&mut connection)
        .await
        .unwrap();
    let url = url.replacen("svc@", &format!("{role}@"), 1);
    let database = Database::at(url).await;
    let count = "SELECT COUNT(*) FROM pg_class WHERE relname = 'logs_search'";
    let count: i64 = sqlx::query_scalar(count)
        .fetch_one(&mut connection)
        .await
        .unwrap();
    assert_eq!(count, 0);
    let ann = Person::new(&database, "ann").await;
    fill(&database, ann, "a-7.t.example.com /fill/").await;
    let list = List {
        search: Some("FILL/7777"),
        ..logs_of(ann)
    };
    assert_eq!(found(&database.store, list).await.0, 1);
}

/// An hour of a project in which all index slots but one are used.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_hour_has_a_limited_number_of_index_slots() {
    let database = Database::sqlite().await;
    let ann = Person::new(&database, "ann").await;
    fill(&database, ann, "a-7.t.example.com /fill/").await;
    let text = format!(
        "UPDATE logs SET search_key = search_key / 16777216 * 16777216 + 16777214 WHERE id = (SELECT id \
         FROM logs WHERE created_at / 3600000000 = {} ORDER BY search_key DESC LIMIT 1)",
        at(5_000).as_microsecond() / 3_600_000_000
    );
    database.raw(&text).await;
    let [last, beyond] = [5_001, 5_002].map(|second| log(ann, second, None));
    for row in [&last, &beyond] {
        add(&database, row, "needle").await;
        index(&database).await;
    }
    let list = List {
        search: Some("needle"),
        ..logs_of(ann)
    };
    assert_eq!(found(&database.store, list).await, (1, vec![last.id]));
}
