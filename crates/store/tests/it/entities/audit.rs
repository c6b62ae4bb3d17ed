//! Filters of the audit log.

use jiff::Timestamp;
use store::audit::{self, Entry, Filter, FilterActor, Scope};
use store::{Conn, Paging, Period};
use types::id::{AuditId, UserId, unix_millis};

use crate::database::{Database, both, commit};
use crate::world::{Person, at};

both! {
    the_audit_log_is_filtered_within_its_scope,
    a_filtered_audit_log_has_pages,
    filters_of_the_audit_log_read_an_index,
}

/// An entry of the second `number`, about an object.
fn entry(of: Person, number: u8, actor: Option<UserId>, action: &str, target: &str) -> Entry {
    let created_at = at(number.into());
    Entry {
        id: AuditId::new(unix_millis(created_at), [number; 10]),
        workspace_id: Some(of.workspace),
        actor_user_id: actor,
        actor_credential_id: None,
        action: action.to_owned(),
        target_kind: "project".to_owned(),
        target_id: target.to_owned(),
        details: serde_json::json!({"number": number}),
        ip: None,
        created_at,
    }
}

async fn write(database: &Database, entries: &[Entry]) {
    commit!(database, |tx| async {
        for entry in entries {
            audit::insert(tx, entry).await.unwrap();
        }
    });
}

fn within(start: Option<i64>, end: Option<i64>) -> Filter<'static> {
    let period = Period {
        start: start.map(at),
        end: end.map(at),
    };
    Filter {
        period,
        ..Filter::default()
    }
}

fn by_action(action: &'static str) -> Filter<'static> {
    Filter {
        action: Some(action),
        ..Filter::default()
    }
}

fn by_actor(actor: FilterActor) -> Filter<'static> {
    Filter {
        actor: Some(actor),
        ..Filter::default()
    }
}

fn by_target(target: &'static str) -> Filter<'static> {
    Filter {
        target: Some(target),
        ..Filter::default()
    }
}

/// The numbers of the matching entries, newest first.
async fn found(conn: &mut Conn, scope: Scope, filter: &Filter<'_>) -> Vec<u64> {
    let page = audit::list(conn, scope, filter, Paging::DEFAULT);
    let page = page.await.unwrap();
    let number = |entry: &Entry| entry.details["number"].as_u64().unwrap();
    let numbers: Vec<u64> = page.items.iter().map(number).collect();
    assert_eq!(page.total, u64::try_from(numbers.len()).unwrap());
    numbers
}

async fn the_audit_log_is_filtered_within_its_scope(database: Database) {
    let (ann, bob) = (
        Person::new(&database, "ann").await,
        Person::new(&database, "bob").await,
    );
    let entries = [
        entry(ann, 1, Some(ann.user), "project.created", "a"),
        entry(ann, 2, None, "project.suspended", "a"),
        entry(ann, 3, Some(bob.user), "project.created", "b"),
        entry(bob, 4, Some(ann.user), "project.created", "a"),
        entry(bob, 5, None, "project.deleted", "b"),
    ];
    write(&database, &entries).await;
    let (team, own) = (Scope::Workspace(ann.workspace), Scope::User(ann.user));
    let (all, by_bob) = (Scope::All, FilterActor::User(bob.user));
    let whole = Filter {
        action: Some("project.created"),
        actor: Some(by_bob),
        target: Some("b"),
        ..within(Some(3), Some(4))
    };
    let cases: &[(Scope, Filter<'_>, &[u64])] = &[
        (team, Filter::default(), &[3, 2, 1]),
        (team, by_action("project.created"), &[3, 1]),
        (team, by_action("project.deleted"), &[]),
        (team, by_actor(by_bob), &[3]),
        (team, by_actor(FilterActor::Platform), &[2]),
        (team, by_target("a"), &[2, 1]),
        // The start is included and the end is not.
        (team, within(Some(2), None), &[3, 2]),
        (team, within(None, Some(3)), &[2, 1]),
        (team, whole, &[3]),
        (own, by_target("a"), &[4, 1]),
        (own, within(Some(2), None), &[4]),
        (all, by_actor(FilterActor::Platform), &[5, 2]),
        (all, within(Some(3), Some(5)), &[4, 3]),
        (all, by_action("project.%"), &[]),
    ];
    let mut read = database.store.read().await.unwrap();
    for (scope, filter, expected) in cases {
        let numbers = found(&mut read, *scope, filter).await;
        assert_eq!(numbers, *expected, "{scope:?} {filter:?}");
    }
}

async fn a_filtered_audit_log_has_pages(database: Database) {
    let ann = Person::new(&database, "ann").await;
    let entries = [
        entry(ann, 1, None, "project.created", "a"),
        entry(ann, 2, None, "project.deleted", "a"),
        entry(ann, 3, None, "project.created", "b"),
    ];
    write(&database, &entries).await;
    let mut read = database.store.read().await.unwrap();
    let scope = Scope::Workspace(ann.workspace);
    let filter = by_action("project.created");
    for (number, item) in [(1, Some(&entries[2])), (2, Some(&entries[0])), (3, None)] {
        let paging = Paging::new(number, 1).unwrap();
        let page = audit::list(&mut read, scope, &filter, paging);
        let page = page.await.unwrap();
        assert_eq!((page.total, page.items.first()), (2, item));
    }
}

/// A filter that few entries match does not read the log of the whole installation.
async fn filters_of_the_audit_log_read_an_index(database: Database) {
    let numbers = if database.is_sqlite() {
        "WITH RECURSIVE numbers (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM numbers WHERE i < 20000)"
    } else {
        "WITH numbers (i) AS (SELECT generate_series(1, 20000))"
    };
    let insert = "INSERT INTO audit (id, action, target_kind, target_id, details, created_at)";
    database
        .raw(&format!(
            "{insert} {numbers} SELECT 'adt_' || i, 'a' || (i % 50), 'project', 't' || i, '{{}}', i \
             FROM numbers"
        ))
        .await;
    database.raw("ANALYZE").await;
    let start = Some(Timestamp::MAX);
    let mut read = database.store.read().await.unwrap();
    read.record_plans();
    for filter in [
        by_action("none"),
        by_target("none"),
        by_actor(FilterActor::User(UserId::new(0, [0; 10]))),
        Filter {
            period: Period { start, end: None },
            ..Filter::default()
        },
    ] {
        assert!(found(&mut read, Scope::All, &filter).await.is_empty());
    }
    let conn: &Conn = &read;
    let scans = |line: &&String| {
        (line.starts_with("SCAN audit") && !line.contains(" USING "))
            || line.contains("Seq Scan on")
    };
    let scans: Vec<_> = conn.plans().iter().filter(scans).collect();
    assert_eq!(scans, [] as [&String; 0], "{:#?}", conn.plans());
}
