//! Replacement of the embedded database by a backup.
//!
//! If it is interrupted by a signal or a crash, the data directory contains the old database, or
//! the new one, or the new one beside a log of the old one. The last state is refused at start, and
//! repeating the same restore completes it.

use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::time::Duration;

use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{Connection as _, SqliteConnection};

use crate::database::generation;
use crate::database::generation::{UseLock, sibling_path, sync_directory};
use crate::database::migrate;
use crate::error::{Bug, Error};

/// Replaces the database by a copy of `source`, which is not changed.
///
/// # Errors
/// [`Bug::File`]: the database is in use, or `source` is not a backup of a platform that this
/// version supports. Nothing was changed in this case.
pub(crate) async fn restore(source: &Path, database: &Path) -> Result<(), Error> {
    let refused = |message: String| Err(Bug::File(message).into());
    if !source.is_file() {
        return refused(format!("file {} does not exist", source.display()));
    }
    if fs::canonicalize(source).ok() == fs::canonicalize(database).ok() {
        return refused(format!("{} is the database itself", source.display()));
    }
    if generation::has_log(source)? {
        return refused(format!(
            "{} has a write-ahead log next to it, so it is not a backup but a database in use",
            source.display()
        ));
    }
    let _use_lock = UseLock::of_restorer(database)?;
    let copy = sibling_path(database, ".restoring");
    copy_file(source, &copy).map_err(sqlx::Error::Io)?;
    let prepared = prepare(&copy).await;
    let new = match prepared {
        Ok(new) => new,
        Err(error) => {
            remove(&copy).ok();
            return Err(error);
        }
    };
    generation::own_as_directory(&copy);
    File::open(&copy)
        .and_then(|file| file.sync_all())
        .map_err(sqlx::Error::Io)?;
    if database.try_exists().map_err(sqlx::Error::Io)? {
        checkpoint(database).await?;
    }
    // A remaining log of the old database is then refused at the next start.
    let old = generation::read_generation(database)
        .await
        .unwrap_or_default();
    generation::record(database, &[old])?;
    let replaced = || {
        fs::rename(&copy, database)?;
        sync_directory(database)?;
        remove(&sibling_path(database, "-wal"))?;
        remove(&sibling_path(database, "-shm"))?;
        remove(&sibling_path(database, "-journal"))?;
        sync_directory(database)
    };
    replaced().map_err(sqlx::Error::Io)?;
    generation::record(database, &[new])
}

/// Checks a copy of a backup and sets a new generation.
async fn prepare(copy: &Path) -> Result<i32, Error> {
    let no_backup = |message: &str| Error::from(Bug::File(format!("not a backup: {message}")));
    let options = SqliteConnectOptions::new()
        .filename(copy)
        .foreign_keys(true);
    let opened = SqliteConnection::connect_with(&options).await;
    let mut connection = opened.map_err(|_| no_backup("not a SQLite database"))?;
    let checked = async {
        let found: Vec<String> = sqlx::query_scalar("PRAGMA integrity_check(1)")
            .fetch_all(&mut connection)
            .await
            .map_err(|_| no_backup("not a SQLite database, or damaged"))?;
        if found != ["ok"] {
            return Err(no_backup("it is damaged"));
        }
        let dangling = sqlx::query("PRAGMA foreign_key_check")
            .fetch_optional(&mut connection)
            .await?;
        if dangling.is_some() {
            return Err(no_backup("referenced rows are missing"));
        }
        migrate::check_sqlite(&mut connection).await?;
        // A single file, without a log beside it.
        sqlx::query("PRAGMA journal_mode = DELETE")
            .execute(&mut connection)
            .await?;
        let new = generation::draw()?;
        generation::set(&mut connection, new).await?;
        Ok(new)
    }
    .await;
    connection.close().await?;
    checked
}

/// Checkpoints the log of the old database, so that it is complete until it is replaced. A database
/// that cannot be opened any more has nothing to lose.
///
/// # Errors
/// Another process has it open: a version that took no lock, or another program.
async fn checkpoint(database: &Path) -> Result<(), Error> {
    if generation::check(database).await.is_err() {
        return Ok(());
    }
    let options = SqliteConnectOptions::new()
        .filename(database)
        .busy_timeout(BUSY_TIMEOUT);
    let Ok(mut connection) = SqliteConnection::connect_with(&options).await else {
        return Ok(());
    };
    // Leaving the WAL mode succeeds only if there are no other connections.
    let folded = sqlx::query("PRAGMA journal_mode = DELETE")
        .execute(&mut connection)
        .await;
    connection.close().await.ok();
    match folded.map_err(Error::from) {
        Err(error) if error.is_unavailable() => Err(generation::in_use(database)),
        _ => Ok(()),
    }
}

fn copy_file(source: &Path, target: &Path) -> io::Result<()> {
    use std::os::unix::fs::OpenOptionsExt as _;

    // Removes the leftovers of a killed restore.
    remove(target)?;
    remove(&sibling_path(target, "-wal"))?;
    remove(&sibling_path(target, "-journal"))?;
    let mut from = File::open(source)?;
    let mut to = File::options()
        .create_new(true)
        .write(true)
        .mode(0o600)
        .open(target)?;
    let copied = io::copy(&mut from, &mut to).map(|_| ());
    if copied.is_err() {
        remove(target).ok();
    }
    copied
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Short, because a process that uses the database does not close it soon.
const BUSY_TIMEOUT: Duration = Duration::from_millis(500);
