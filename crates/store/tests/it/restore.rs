//! Backups and their restoration.

use std::fs;
use std::path::{Path, PathBuf};

use store::{Bug, Error, Store, users};

use crate::database::{Database, commit};
use crate::world::{Person, id, new_user};

/// The refusal of a file of the embedded database.
#[track_caller]
fn refusal<T: std::fmt::Debug>(done: Result<T, Error>) -> String {
    match done.unwrap_err() {
        Error::Bug(Bug::File(message) | Bug::Schema(message)) => message,
        other => panic!("{other:?}"),
    }
}

async fn is_there(store: &Store, person: &Person) -> bool {
    let mut read = store.read().await.unwrap();
    let found = users::by_id(&mut read, person.user).await.unwrap();
    found.is_some()
}

fn directory(database: &Database) -> PathBuf {
    database.file().parent().unwrap().to_owned()
}

/// Copies the files that a killed process leaves.
fn killed(database: &Database) -> tempfile::TempDir {
    let left = tempfile::tempdir().unwrap();
    for entry in fs::read_dir(directory(database)).unwrap() {
        let path = entry.unwrap().path();
        // The next start creates it from the log.
        if !path.to_str().unwrap().ends_with("-shm") {
            fs::copy(&path, left.path().join(path.file_name().unwrap())).unwrap();
        }
    }
    let log = left.path().join("platform.db-wal");
    assert!(fs::metadata(log).unwrap().len() > 0);
    left
}

async fn restore(source: &Path, into: &Path) -> Result<(), Error> {
    Store::restore_at(None, into, source).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restored_database_equals_the_backup() {
    let database = Database::sqlite().await;
    let ann = Person::new(&database, "ann").await;
    let backup = directory(&database).join("backup.db");
    database.store.backup(&backup).await.unwrap();
    let bob = Person::new(&database, "bob").await;
    let left = killed(&database);
    for _ in 0..2 {
        restore(&backup, left.path()).await.unwrap();
        let names: Vec<_> = fs::read_dir(left.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .filter(|name| name.ends_with("-wal") || name.contains("restoring"))
            .collect();
        assert!(names.is_empty(), "{names:?}");
        let store = Store::open(None, left.path()).await.unwrap();
        assert!(is_there(&store, &ann).await);
        assert!(!is_there(&store, &bob).await);
        store.close().await;
    }
    // The same in a directory without a database.
    let empty = tempfile::tempdir().unwrap();
    restore(&backup, empty.path()).await.unwrap();
    let store = Store::open(None, empty.path()).await.unwrap();
    assert!(is_there(&store, &ann).await);
}

/// Only the database file is replaced, as by hand, and the log of the old one remains next to it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_log_of_another_database_is_refused() {
    let database = Database::sqlite().await;
    let ann = Person::new(&database, "ann").await;
    let backup = directory(&database).join("backup.db");
    database.store.backup(&backup).await.unwrap();
    let bob = Person::new(&database, "bob").await;
    let left = killed(&database);
    let file = left.path().join("platform.db");
    fs::copy(&backup, &file).unwrap();
    let log = fs::read(left.path().join("platform.db-wal")).unwrap();
    for _ in 0..2 {
        let message = refusal(Store::open(None, left.path()).await);
        assert!(message.contains("svc platform restore"), "{message}");
        let target = left.path().join("another.db");
        let copied = Store::backup_at(None, left.path(), &target).await;
        assert!(refusal(copied).contains("another database"));
    }
    // The check changed nothing.
    assert_eq!(fs::read(&file).unwrap(), fs::read(&backup).unwrap());
    assert_eq!(fs::read(left.path().join("platform.db-wal")).unwrap(), log);
    // It is not replayed over a new database either.
    fs::remove_file(&file).unwrap();
    refusal(Store::open(None, left.path()).await);
    restore(&backup, left.path()).await.unwrap();
    let store = Store::open(None, left.path()).await.unwrap();
    assert!(is_there(&store, &ann).await && !is_there(&store, &bob).await);
}

/// Data that is written and not yet checkpointed survives a crash, for any kind of start.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_log_of_the_same_database_is_replayed() {
    let database = Database::sqlite().await;
    let ann = Person::new(&database, "ann").await;
    // A parallel process does not reset the log.
    let beside = database.open_again().await.unwrap();
    let bob = Person::new(&database, "bob").await;
    let left = killed(&database);
    let store = Store::open(None, left.path()).await.unwrap();
    assert!(is_there(&store, &ann).await && is_there(&store, &bob).await);
    assert!(is_there(&beside, &bob).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_in_use_is_not_replaced() {
    let database = Database::sqlite().await;
    let ann = Person::new(&database, "ann").await;
    let backup = directory(&database).join("backup.db");
    database.store.backup(&backup).await.unwrap();
    let bob = Person::new(&database, "bob").await;
    let message = refusal(restore(&backup, &directory(&database)).await);
    assert!(message.contains("is in use"), "{message}");
    // Also if a version that takes no lock has it open.
    fs::remove_file(directory(&database).join("platform.db.lock")).unwrap();
    let message = refusal(restore(&backup, &directory(&database)).await);
    assert!(message.contains("is in use"), "{message}");
    assert!(is_there(&database.store, &bob).await && is_there(&database.store, &ann).await);
    database.store.close().await;
    restore(&backup, &directory(&database)).await.unwrap();
    let store = database.open_again().await.unwrap();
    assert!(!is_there(&store, &bob).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_a_complete_backup_of_a_platform_is_restored() {
    let database = Database::sqlite().await;
    let ann = Person::new(&database, "ann").await;
    let directory = directory(&database);
    let backup = directory.join("backup.db");
    database.store.backup(&backup).await.unwrap();
    let text = directory.join("text.db");
    fs::write(&text, "no database at all").unwrap();
    let damaged = directory.join("damaged.db");
    let mut bytes = fs::read(&backup).unwrap();
    let middle = bytes.len() / 2;
    for byte in &mut bytes[middle..middle + 8192] {
        *byte = 0xff;
    }
    fs::write(&damaged, &bytes).unwrap();
    let cut = directory.join("cut.db");
    fs::write(&cut, &fs::read(&backup).unwrap()[..middle]).unwrap();
    let empty = directory.join("empty.db");
    fs::write(&empty, "").unwrap();
    let another = Database::sqlite().await;
    another.store.close().await;
    another
        .raw("INSERT INTO schema_versions (version, name, checksum) VALUES (9999, 'later', x'00')")
        .await;
    let in_use = database.file();
    let target = tempfile::tempdir().unwrap();
    let store = Store::open(None, target.path()).await.unwrap();
    let mut tx = store.begin().await.unwrap();
    let bob = new_user(id!(UserId), "bob");
    users::insert(&mut tx, &bob).await.unwrap();
    tx.commit().await.unwrap();
    store.close().await;
    let missing = directory.join("missing.db");
    for bad in [
        &text,
        &damaged,
        &cut,
        &empty,
        &another.file(),
        &in_use,
        &missing,
        &target.path().join("platform.db"),
    ] {
        restore(bad, target.path()).await.unwrap_err();
        assert!(!target.path().join("platform.db.restoring").exists());
    }
    let store = Store::open(None, target.path()).await.unwrap();
    let mut read = store.read().await.unwrap();
    assert!(users::by_id(&mut read, bob.id).await.unwrap().is_some());
    drop(read);
    commit!(database, |tx| users::set_name(
        tx,
        ann.user,
        "still writable",
        crate::world::at(1)
    ))
    .unwrap();
}
