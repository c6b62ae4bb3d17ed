//! A database that is gone, slow, read-only, full or broken: the error names the cause, and the
//! store recovers without a restart.

use std::os::unix::fs::PermissionsExt as _;
use std::str::FromStr as _;

use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode};
use sqlx::{ConnectOptions as _, Connection as _, SqliteConnection};
use store::{Bug, Error, Reason, Store, users};
use tokio::io::AsyncWriteExt as _;

use crate::database::{Database, both, commit};
use crate::postgres::Server;
use crate::world::{Person, at, id, new_user};

fn reason(error: Error) -> Reason {
    match error {
        Error::Unavailable { reason, .. } => reason,
        other => panic!("{other:?}"),
    }
}

both! {
    uncommitted_changes_are_lost,
    a_row_that_cannot_be_read_is_named,
}

async fn uncommitted_changes_are_lost(database: Database) {
    let new = new_user(id!(UserId), "ann");
    let mut tx = database.begin().await;
    users::insert(&mut tx, &new).await.unwrap();
    drop(tx);
    let mut read = database.store.read().await.unwrap();
    assert_eq!(users::by_id(&mut read, new.id).await.unwrap(), None);
    drop(read);
    commit!(database, |tx| users::insert(tx, &new)).unwrap();
    let mut read = database.store.read().await.unwrap();
    assert!(users::by_id(&mut read, new.id).await.unwrap().is_some());
}

async fn a_row_that_cannot_be_read_is_named(database: Database) {
    let ann = Person::new(&database, "ann").await;
    database.raw("UPDATE users SET status = 'asleep'").await;
    let mut read = database.store.read().await.unwrap();
    let error = users::by_id(&mut read, ann.user).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        format!("users.status of row {}: unknown word for Status", ann.user)
    );
    assert!(matches!(error, Error::Bug(Bug::Row { .. })));
    database
        .raw("UPDATE users SET status = 'active', created_at = 9223372036854775807")
        .await;
    let error = users::by_id(&mut read, ann.user).await.unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with("users.created_at of row usr_"),
        "{error}"
    );
}

#[tokio::test]
async fn an_invalid_address_is_refused_without_repeating_it() {
    let directory = tempfile::tempdir().unwrap();
    for url in [
        "mysql://secret",
        "sqlite::memory:",
        "sqlite:",
        "postgres://user:secret@[bad",
        "",
    ] {
        let error = Store::open(Some(url), directory.path()).await.unwrap_err();
        assert!(
            matches!(error, Error::Bug(Bug::Address(_))),
            "{url}: {error:?}"
        );
        assert!(!format!("{error:?}").contains("secret"));
    }
}

#[tokio::test]
async fn a_missing_data_directory_is_a_connection_error() {
    let directory = tempfile::tempdir().unwrap();
    let error = Store::open(None, &directory.path().join("gone"))
        .await
        .unwrap_err();
    assert_eq!(reason(error), Reason::Connection);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_postgres_that_closes_our_connections_is_used_again() {
    let database = Database::postgres().await;
    let ann = Person::new(&database, "ann").await;
    let mut tx = database.begin().await;
    let mut read = database.store.read().await.unwrap();
    users::by_id(&mut tx, ann.user).await.unwrap();
    database
        .raw("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'svc' AND datname = current_database()")
        .await;
    let error = users::set_name(&mut tx, ann.user, "x", at(1))
        .await
        .unwrap_err();
    assert_eq!(reason(error), Reason::Connection);
    let error = users::by_id(&mut read, ann.user).await.unwrap_err();
    assert_eq!(reason(error), Reason::Connection);
    drop((tx, read));
    commit!(database, |tx| users::set_name(tx, ann.user, "y", at(1))).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_postgres_that_was_killed_is_used_again_with_all_committed_data() {
    let mut server = Server::durable().await;
    let url = server.new_database().await;
    let store = Store::open(Some(&url), std::path::Path::new(""))
        .await
        .unwrap();
    let ann = new_user(id!(UserId), "ann");
    let mut tx = store.begin().await.unwrap();
    users::insert(&mut tx, &ann).await.unwrap();
    tx.commit().await.unwrap();
    let bob = new_user(id!(UserId), "bob");
    let mut lost = store.begin().await.unwrap();
    users::insert(&mut lost, &bob).await.unwrap();
    server.kill();
    assert_eq!(reason(lost.commit().await.unwrap_err()), Reason::Connection);
    assert!(store.ping().await.unwrap_err().is_unavailable());
    server.start_again();
    let mut read = store.read().await.unwrap();
    assert!(users::by_id(&mut read, ann.id).await.unwrap().is_some());
    assert_eq!(users::by_id(&mut read, bob.id).await.unwrap(), None);
}

/// PostgreSQL answers the commit of a failed transaction with a rollback and no error.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failed_transaction_is_not_reported_as_committed() {
    let database = Database::postgres().await;
    let ann = new_user(id!(UserId), "ann");
    let mut tx = database.begin().await;
    users::insert(&mut tx, &ann).await.unwrap();
    let again = users::insert(&mut tx, &ann).await.unwrap_err();
    assert!(again.conflict().is_some() || matches!(again, Error::Bug(_)));
    let error = tx.commit().await.unwrap_err();
    assert!(matches!(error, Error::Bug(Bug::Aborted)), "{error:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_postgres_that_is_read_only_or_locked_reports_it() {
    let database = Database::postgres().await;
    let ann = Person::new(&database, "ann").await;
    let mut holder = database.begin().await;
    users::set_name(&mut holder, ann.user, "x", at(1))
        .await
        .unwrap();
    let mut other = database.begin().await;
    let error = users::set_name(&mut other, ann.user, "y", at(1))
        .await
        .unwrap_err();
    assert_eq!(reason(error), Reason::Busy, "it waited for the lock");
    drop((holder, other));

    database
        .raw("DO $$ BEGIN EXECUTE 'ALTER DATABASE ' || current_database() || ' SET default_transaction_read_only = on'; END $$")
        .await;
    let url = database.url.as_deref().unwrap();
    // A standby gives the same error. The schema exists, so the store is opened and read.
    let error = Store::open(Some(url), std::path::Path::new(""))
        .await
        .unwrap_err();
    assert_eq!(reason(error), Reason::ReadOnly);
}

#[tokio::test]
async fn a_missing_postgres_is_a_connection_error() {
    let directory = tempfile::tempdir().unwrap();
    let url = format!(
        "postgres://svc@localhost/x?host={}",
        directory.path().to_str().unwrap().replace('/', "%2F")
    );
    let error = Store::open(Some(&url), directory.path()).await.unwrap_err();
    assert_eq!(reason(error), Reason::Connection);
}

/// A separate connection to the same file, with an injected fault.
async fn faulty(
    database: &Database,
    pragma: Option<(&'static str, &'static str)>,
) -> SqliteConnection {
    let mut options = SqliteConnectOptions::from_str("sqlite://")
        .unwrap()
        .filename(database.file())
        .journal_mode(SqliteJournalMode::Wal)
        .busy_timeout(std::time::Duration::ZERO);
    if let Some((key, value)) = pragma {
        options = options.pragma(key, value);
    }
    options.connect().await.unwrap()
}

const INSERT: &str =
    "INSERT INTO used_challenges (hash, expires_at) VALUES (randomblob(1000000), 1)";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sqlite_that_is_full_read_only_or_busy_reports_it() {
    let database = Database::sqlite().await;
    let mut full = faulty(&database, Some(("max_page_count", "100"))).await;
    let error: Error = sqlx::query(INSERT)
        .execute(&mut full)
        .await
        .unwrap_err()
        .into();
    assert_eq!(reason(error), Reason::Full);
    full.close().await.unwrap();

    let mut read_only = faulty(&database, Some(("query_only", "ON"))).await;
    let error: Error = sqlx::query(INSERT)
        .execute(&mut read_only)
        .await
        .unwrap_err()
        .into();
    assert_eq!(reason(error), Reason::ReadOnly);
    read_only.close().await.unwrap();

    let held = database.begin().await;
    let mut busy = faulty(&database, None).await;
    let error: Error = sqlx::query("BEGIN IMMEDIATE")
        .execute(&mut busy)
        .await
        .unwrap_err()
        .into();
    assert_eq!(reason(error), Reason::Busy);
    busy.close().await.unwrap();
    drop(held);
    assert!(
        Person::new(&database, "ann")
            .await
            .user
            .as_str()
            .starts_with("usr_")
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_writer_waits_for_the_first_and_fails_as_busy() {
    let database = Database::sqlite().await;
    let held = database.begin().await;
    let Err(error) = database.store.begin().await else {
        panic!("two writers")
    };
    assert_eq!(reason(error), Reason::Busy);
    // Readers continue in the meantime.
    database.store.ping().await.unwrap();
    drop(held);
    drop(database.begin().await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backup_is_a_usable_database() {
    let database = Database::sqlite().await;
    let ann = Person::new(&database, "ann").await;
    let target = tempfile::tempdir().unwrap();
    let file = target.path().join("platform.db");

    // The copy is made during a transaction, and does not contain its uncommitted data.
    let mut tx = database.begin().await;
    let unfinished = new_user(id!(UserId), "bob");
    users::insert(&mut tx, &unfinished).await.unwrap();
    database.store.backup(&file).await.unwrap();
    tx.commit().await.unwrap();

    let error = database.store.backup(&file).await.unwrap_err();
    assert!(
        matches!(error, Error::Bug(Bug::Address(_))),
        "it would write over the first"
    );

    let wal = database.file().with_extension("db-wal");
    for private in [&file, &database.file(), &wal] {
        let mode = std::fs::metadata(private).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{}", private.display());
    }

    let restored = Store::open(None, target.path()).await.unwrap();
    let mut read = restored.read().await.unwrap();
    assert!(users::by_id(&mut read, ann.user).await.unwrap().is_some());
    assert_eq!(users::by_id(&mut read, unfinished.id).await.unwrap(), None);
    drop(read);
    let mut tx = restored.begin().await.unwrap();
    users::set_name(&mut tx, ann.user, "after", at(1))
        .await
        .unwrap();
    tx.commit().await.unwrap();
    database.store.ping().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backup_next_to_a_platform_does_not_change_its_schema() {
    let database = Database::sqlite().await;
    Person::new(&database, "ann").await;
    // A schema that this version does not recognise. Opening it as a store would fail.
    database
        .raw("INSERT INTO schema_versions (version, name, checksum) VALUES (9999, 'later', X'00')")
        .await;
    let target = tempfile::tempdir().unwrap();
    let file = target.path().join("copy.db");
    let data = database.file();
    let data = data.parent().unwrap();
    Store::backup_at(None, data, &file).await.unwrap();
    let taken = Store::backup_at(None, data, &file).await.unwrap_err();
    assert!(matches!(taken, Error::Bug(Bug::Address(_))));
    let mode = std::fs::metadata(&file).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);

    let nothing = target.path().join("none");
    let missing = Store::backup_at(None, &nothing, &target.path().join("x.db")).await;
    assert!(matches!(missing.unwrap_err(), Error::Bug(Bug::Address(_))));
    let server = Some("postgres://nobody@127.0.0.1:1/none");
    let server = Store::backup_at(server, data, &target.path().join("y.db")).await;
    assert!(matches!(server.unwrap_err(), Error::Bug(Bug::Address(_))));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backup_of_postgres_is_refused_in_favour_of_its_own_tools() {
    let database = Database::postgres().await;
    let target = tempfile::tempdir().unwrap();
    let error = database
        .store
        .backup(&target.path().join("x"))
        .await
        .unwrap_err();
    assert!(error.to_string().contains("pg_dump"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_backup_to_an_impossible_path_is_refused() {
    let database = Database::sqlite().await;
    let target = tempfile::tempdir().unwrap();
    let nowhere = target.path().join("gone").join("x");
    assert_eq!(
        reason(database.store.backup(&nowhere).await.unwrap_err()),
        Reason::Connection
    );
    // Existing files are never overwritten.
    let device = std::path::Path::new("/dev/full");
    let error = database.store.backup(device).await.unwrap_err();
    assert!(matches!(error, Error::Bug(Bug::Address(_))), "{error:?}");
    assert_eq!(std::fs::read_dir(target.path()).unwrap().count(), 0);
    database.store.ping().await.unwrap();
}

/// A database user with a connection limit. The store opens no more than that, and reuses
/// connections if other processes have some of them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_postgres_with_few_connections_serves_many_readers() {
    let database = Database::postgres().await;
    let url = database.url.clone().unwrap();
    let role = url
        .rsplit_once('/')
        .map(|(_, rest)| rest)
        .unwrap_or_default();
    let role = format!("few_{}", role.split('?').next().unwrap());
    database
        .raw(&format!(
            "CREATE ROLE {role} LOGIN CONNECTION LIMIT 6; \
             GRANT ALL ON ALL TABLES IN SCHEMA public TO {role}; \
             GRANT ALL ON SCHEMA public TO {role}"
        ))
        .await;
    let url = url.replacen("svc@", &format!("{role}@"), 1);
    let directory = tempfile::tempdir().unwrap();
    let (store, allowed) = Store::open_with(Some(&url), directory.path(), Some(20))
        .await
        .unwrap();
    assert_eq!(allowed, Some(6));
    let (second, allowed) = Store::open_with(Some(&url), directory.path(), Some(6))
        .await
        .unwrap();
    assert_eq!(allowed, None);
    second.close().await;
    // Other processes use the remaining connections.
    let mut others = Vec::new();
    loop {
        match sqlx::PgConnection::connect(&url).await {
            Ok(connection) => others.push(connection),
            Err(_) if others.len() >= 4 => break,
            // The server ends the sessions of the second store shortly after they were closed.
            Err(_) => {}
        }
    }
    let mut readers = tokio::task::JoinSet::new();
    for _ in 0..40 {
        let store = store.clone();
        readers.spawn(async move { store.ping().await.unwrap() });
    }
    readers.join_all().await;
    // Without a free connection, the start fails with that error. The server ends a session shortly
    // after its client closed it, so no connection is free only if other processes have all of
    // them.
    store.close().await;
    while others.len() < 6 {
        others.extend(sqlx::PgConnection::connect(&url).await);
    }
    let error = Store::open(Some(&url), directory.path()).await.unwrap_err();
    let source = std::error::Error::source(&error).unwrap().to_string();
    assert!(source.contains("too many connections"), "{source}");
}

/// A start reports why it cannot connect, and does not wait for permanent errors.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_start_without_a_database_reports_the_cause() {
    let directory = tempfile::tempdir().unwrap();
    let url = postgres_url().await;
    // A port that is bound but does not listen.
    let closed = tokio::net::TcpSocket::new_v4().unwrap();
    closed.bind(([127, 0, 0, 1], 0).into()).unwrap();
    let address = closed.local_addr().unwrap();
    for (url, why) in [
        (format!("postgres://svc@{address}/x"), "refused"),
        (url.replacen("svc@", "nobody_here@", 1), "does not exist"),
        (url.replace("/t", "/missing"), "does not exist"),
    ] {
        let error = Store::open(Some(&url), directory.path()).await.unwrap_err();
        let source = std::error::Error::source(&error).unwrap().to_string();
        assert!(source.contains(why), "{source}");
        assert!(!source.contains("timed out"), "{source}");
        assert_eq!(reason(error), Reason::Connection);
    }
}

/// A server that has no free slot and then stops responding: the error is the server's answer, not
/// the attempt that the deadline cut off.
#[tokio::test]
async fn a_start_reports_the_last_answer_of_a_server_that_stops_responding() {
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0))
        .await
        .unwrap();
    let url = format!(
        "postgres://svc@{}/t?sslmode=disable",
        listener.local_addr().unwrap()
    );
    let server = tokio::spawn(async move {
        let (mut first, _) = listener.accept().await.unwrap();
        let fields = b"SFATAL\0VFATAL\0C53300\0Mtoo many connections\0\0";
        first.write_u8(b'E').await.unwrap();
        first
            .write_u32(u32::try_from(fields.len()).unwrap() + 4)
            .await
            .unwrap();
        first.write_all(fields).await.unwrap();
        let silent = listener.accept().await.unwrap();
        std::future::pending::<()>().await;
        drop((first, silent));
    });
    let directory = tempfile::tempdir().unwrap();
    let error = Store::open(Some(&url), directory.path()).await.unwrap_err();
    let source = std::error::Error::source(&error)
        .map(ToString::to_string)
        .unwrap_or_default();
    assert!(source.contains("too many connections"), "{error:?}");
    server.abort();
}

async fn postgres_url() -> String {
    crate::postgres::new_database().await
}
