//! Query plans for large tables. A plan that scans a whole table fails here.

use store::projects::{self, List, ProjectSelection, Sort};
use store::{Conn, Order, Paging, Period, credentials, events, logs, sessions, users, workspaces};
use types::id::{ProjectId, StreamId, WorkspaceId};

use crate::database::{Database, both};
use crate::entities::records::{events_of, logs_of};
use crate::world::{Person, at, hash, id};

/// The lines of a plan that scan a whole table of more than a few rows.
fn full_scans(conn: &Conn) -> Vec<&String> {
    let scans = |line: &&String| {
        let sqlite = line.starts_with("SCAN ")
            && !line.contains(" USING ")
            && !line.contains("json_each")
            && !line.contains("counted")
            && !line.contains("searched")
            && !line.contains("CONSTANT ROW");
        sqlite || line.contains("Seq Scan on")
    };
    conn.plans().iter().filter(scans).collect()
}

/// Hundreds of thousands of rows, written by the database itself.
#[expect(
    clippy::too_many_lines,
    reason = "a test tells one story from start to end"
)]
async fn fill(database: &Database, person: Person) {
    let numbers = if database.is_sqlite() {
        "WITH RECURSIVE numbers (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM numbers WHERE i < 100000) "
    } else {
        "WITH numbers (i) AS (SELECT generate_series(1, 100000)) "
    };
    let sqlite = database.is_sqlite();
    let pad = |number: &str| {
        if sqlite {
            format!("printf('%026d', {number})")
        } else {
            format!("lpad(CAST({number} AS TEXT), 26, '0')")
        }
    };
    let (pad, parent) = (pad("i"), pad("i % 20000 + 1"));
    let Person {
        user,
        workspace,
        project,
    } = person;
    // Every hundredth row is the user's. The rest belong to many others.
    let owner =
        |own: &str| format!("CASE WHEN i % 100 = 0 THEN '{own}' ELSE 'other' || (i % 97) END");
    let logs = format!(
        "INSERT INTO logs (id, workspace_id, project_id, stream_id, tunnel_id, outcome, search, summary, created_at, expires_at) \
         {numbers} SELECT 'log_' || {pad}, '{workspace}', {}, 's' || i, 'tun_' || (i % 50), CASE WHEN i % 7 = 0 THEN 'denied' ELSE 'connected' END, \
         'host' || i, '{{}}', i * 1000, i * 1000 FROM numbers",
        owner(project.as_str())
    );
    let events = format!(
        "INSERT INTO events (id, kind, category, workspace_id, project_id, payload, created_at, expires_at) \
         {numbers} SELECT 'evt_' || {pad}, CASE WHEN i % 7 = 0 THEN 'a' ELSE 'b' END, 'lifecycle', '{workspace}', {}, '{{}}', i * 1000, i * 1000 FROM numbers",
        owner(project.as_str())
    );
    let people = format!(
        "INSERT INTO users (id, email, email_key, name, search, status, role, email_verified, created_at, updated_at) \
         {numbers} SELECT 'usr_' || {pad}, 'e' || i, 'e' || i, 'n', 'n', 'active', 'user', FALSE, 0, 0 FROM numbers WHERE i <= 20000"
    );
    let spaces = format!(
        "INSERT INTO workspaces (id, kind, name, search, status, has_payment_method, created_at, updated_at) \
         {numbers} SELECT 'wks_' || {pad}, 'team', 'n', 'n', 'active', FALSE, 0, 0 FROM numbers WHERE i <= 20000"
    );
    let members = format!(
        "INSERT INTO members (workspace_id, user_id, role, status, joined_at) \
         {numbers} SELECT 'wks_' || {pad}, 'usr_' || {pad}, 'owner', 'active', 0 FROM numbers WHERE i <= 20000"
    );
    let projects = format!(
        "INSERT INTO projects (id, workspace_id, endpoint, name, search, plan, provider, routing, deployment, status, settings, created_by, created_at, updated_at) \
         {numbers} SELECT 'prj_' || {pad}, CASE WHEN i % 100 = 0 THEN '{workspace}' ELSE 'wks_' || {parent} END, 'e' || i, 'name ' || i, 'name ' || i, \
         'basic', 'other', 'regional', 'shared', 'active', '{{}}', '{user}', 0, 0 FROM numbers"
    );
    let credentials = format!(
        "INSERT INTO credentials (id, user_id, kind, name, token_endpoint, created_at, updated_at) \
         {numbers} SELECT 'crd_' || {pad}, CASE WHEN i % 1000 = 0 THEN '{user}' ELSE 'usr_' || {parent} END, 'pat', 'n', 't' || i, i, i FROM numbers"
    );
    let blob = if sqlite {
        "CAST(i AS BLOB)"
    } else {
        "CAST(CAST(i AS TEXT) AS BYTEA)"
    };
    let sessions = format!(
        "INSERT INTO sessions (id, hash, user_id, created_at, rotated_at, last_seen_at, expires_at) \
         {numbers} SELECT 'ses_' || {pad}, {blob}, 'usr_' || {pad}, 0, 0, 0, 0 FROM numbers WHERE i <= 20000"
    );
    let revoked = format!(
        "INSERT INTO revoked_tokens (jti, expires_at, revoked_at) \
         {numbers} SELECT 'tok_' || i, 0, 0 FROM numbers WHERE i <= 20000"
    );
    for statement in [
        revoked,
        people,
        sessions,
        spaces,
        members,
        projects,
        credentials,
        logs,
        events,
    ] {
        database.raw(&statement).await;
    }
    database.raw("ANALYZE").await;
}

both! {
    no_query_of_a_request_reads_a_whole_table,
    lists_by_time_are_read_from_an_index_in_order,
    a_tenants_projects_are_found_among_many,
}

async fn no_query_of_a_request_reads_a_whole_table(database: Database) {
    let ann = Person::new(&database, "ann").await;
    fill(&database, ann).await;
    // Once like a database that grew since it was analysed, and once with its statistics.
    let again = database.open_again().await.unwrap();
    for store in [&database.store, &again] {
        let mut read = store.read().await.unwrap();
        read.record_plans();
        let conn: &mut Conn = &mut read;

        // Authentication and permissions.
        users::by_id(conn, ann.user).await.unwrap();
        users::by_email(conn, "ann@example.com").await.unwrap();
        sessions::live(conn, hash(1), at(0)).await.unwrap();
        credentials::by_token(conn, hash(1)).await.unwrap();
        credentials::by_token_endpoint(conn, "t7").await.unwrap();
        credentials::by_certificate(conn, &[1]).await.unwrap();
        store::callers::by_token(conn, hash(1), Some("j"))
            .await
            .unwrap();
        store::callers::by_credential(conn, id!(CredentialId), Some("j"))
            .await
            .unwrap();
        store::callers::by_session(conn, id!(SessionId), Some("j"))
            .await
            .unwrap();
        let list = credentials::List {
            user: ann.user,
            kind: None,
            active_at: Some(at(1)),
            ended_by: None,
            search: Some("a"),
            order: Order::Asc,
            paging: Paging::DEFAULT,
        };
        credentials::list(conn, &list).await.unwrap();
        workspaces::of_user(conn, ann.user).await.unwrap();
        projects::of_user_by_id(conn, ann.user, ann.project)
            .await
            .unwrap();
        assert!(
            projects::of_user_by_endpoint(conn, ann.user, "e7")
                .await
                .unwrap()
                .is_none()
        );
        assert_eq!(full_scans(conn), [] as [&String; 0], "{:#?}", conn.plans());
    }
}

async fn lists_by_time_are_read_from_an_index_in_order(database: Database) {
    let ann = Person::new(&database, "ann").await;
    fill(&database, ann).await;
    // Once like a database that grew since it was analysed, and once with its statistics.
    let again = database.open_again().await.unwrap();
    for store in [&database.store, &again] {
        let mut read = store.read().await.unwrap();
        read.record_plans();
        let conn: &mut Conn = &mut read;
        let period = Period {
            start: Some(jiff::Timestamp::UNIX_EPOCH),
            end: Some(at(0)),
        };
        for order in [Order::Asc, Order::Desc] {
            let all = events::List {
                order,
                ..events_of(ann)
            };
            let found = events::list(conn, all).await.unwrap();
            assert_eq!((found.total, found.items.len()), (1000, 20));
            for list in [
                logs::List {
                    order,
                    outcome: Some("none"),
                    ..logs_of(ann)
                },
                logs::List {
                    order,
                    tunnel: Some(id!(TunnelId)),
                    period,
                    ..logs_of(ann)
                },
                logs::List {
                    order,
                    stream: Some(StreamId([7; 12])),
                    ..logs_of(ann)
                },
                logs::List {
                    order,
                    search: Some("none"),
                    period,
                    ..logs_of(ann)
                },
                logs::List {
                    order,
                    after: Some(id!(LogId)),
                    ..logs_of(ann)
                },
            ] {
                assert_eq!(logs::list(conn, list).await.unwrap().items, []);
            }
            for list in [
                events::List {
                    order,
                    kind: Some("none"),
                    period,
                    ..events_of(ann)
                },
                events::List {
                    order,
                    after: Some(id!(EventId)),
                    ..events_of(ann)
                },
            ] {
                assert_eq!(events::list(conn, list).await.unwrap().items, []);
            }
        }
        assert_eq!(full_scans(conn), [] as [&String; 0], "{:#?}", conn.plans());
        if database.is_sqlite() {
            let sorted = conn
                .plans()
                .iter()
                .filter(|line| line.contains("TEMP B-TREE"))
                .count();
            assert_eq!(sorted, 0, "{:#?}", conn.plans());
        }
    }
}

async fn a_tenants_projects_are_found_among_many(database: Database) {
    let ann = Person::new(&database, "ann").await;
    fill(&database, ann).await;
    // Once like a database that grew since it was analysed, and once with its statistics.
    let again = database.open_again().await.unwrap();
    for store in [&database.store, &again] {
        let mut read = store.read().await.unwrap();
        read.record_plans();
        let conn: &mut Conn = &mut read;
        let (tenant, one): ([WorkspaceId; 1], [ProjectId; 1]) = ([ann.workspace], [ann.project]);
        for (selection, sort) in [
            (ProjectSelection::All, Sort::Name),
            (ProjectSelection::All, Sort::Id),
            (
                ProjectSelection::Only {
                    projects: &one,
                    workspaces: &[],
                },
                Sort::Id,
            ),
        ] {
            let list = List {
                workspaces: &tenant,
                selection,
                search: Some("ann"),
                sort,
                order: Order::Asc,
                paging: Paging::DEFAULT,
            };
            let found = projects::list(conn, list).await.unwrap();
            assert_eq!((found.total, found.items[0].id), (1, ann.project));
        }
        assert_eq!(full_scans(conn), [] as [&String; 0], "{:#?}", conn.plans());
    }
}
