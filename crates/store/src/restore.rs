//! Putting a backup in the place of the embedded database.
//!
//! However it ends, by a signal or with the machine, the data directory has the old database, or
//! the new one, or the new one beside a log of the old one, which no start accepts; then the same
//! restore again comes to its end.

use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::time::Duration;

use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{Connection as _, SqliteConnection};

use crate::error::{Bug, Error};
use crate::generation::{self, UseLock, beside, sync_directory};
use crate::migrate;

/// Replaces the database by a copy of `source`, which stays.
///
/// # Errors
/// [`Bug::File`]: the database is in use, or `source` is no backup of a platform that this version
/// can work with. Then nothing was changed.
pub(crate) async fn restore(source: &Path, database: &Path) -> Result<(), Error> {
    let refused = |message: String| Err(Bug::File(message).into());
    if !source.is_file() {
        return refused(format!("there is no file {}", source.display()));
    }
    if fs::canonicalize(source).ok() == fs::canonicalize(database).ok() {
        return refused(format!("{} is the database itself", source.display()));
    }
    if generation::has_log(source)? {
        return refused(format!(
            "{} has a write-ahead log beside it, so it is no backup but a database in use",
            source.display()
        ));
    }
    let _alone = UseLock::of_restorer(database)?;
    let copy = beside(database, ".restoring");
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
        fold(database).await?;
    }
    // Should a log be left, no start takes it for one of the new database.
    let old = generation::in_header(database).await.unwrap_or_default();
    generation::record(database, &[old])?;
    let replaced = || {
        fs::rename(&copy, database)?;
        sync_directory(database)?;
        remove(&beside(database, "-wal"))?;
        remove(&beside(database, "-shm"))?;
        remove(&beside(database, "-journal"))?;
        sync_directory(database)
    };
    replaced().map_err(sqlx::Error::Io)?;
    generation::record(database, &[new])
}

/// Checks a copy of a backup and gives it a generation of its own.
async fn prepare(copy: &Path) -> Result<i32, Error> {
    let no_backup = |message: &str| Error::from(Bug::File(format!("this is no backup: {message}")));
    let options = SqliteConnectOptions::new()
        .filename(copy)
        .foreign_keys(true);
    let opened = SqliteConnection::connect_with(&options).await;
    let mut connection = opened.map_err(|_| no_backup("it is no SQLite database"))?;
    let checked = async {
        let found: Vec<String> = sqlx::query_scalar("PRAGMA integrity_check(1)")
            .fetch_all(&mut connection)
            .await
            .map_err(|_| no_backup("it is no SQLite database, or a damaged one"))?;
        if found != ["ok"] {
            return Err(no_backup("it is damaged"));
        }
        let dangling = sqlx::query("PRAGMA foreign_key_check")
            .fetch_optional(&mut connection)
            .await?;
        if dangling.is_some() {
            return Err(no_backup("rows that others refer to are missing"));
        }
        migrate::check_sqlite(&mut connection).await?;
        // One file, with no log beside it.
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

/// Folds the log of the old database into it, so that it is whole until it is replaced. A database
/// that cannot be opened any more has nothing to lose.
///
/// # Errors
/// Somebody has it open: a version that took no lock, or another program.
async fn fold(database: &Path) -> Result<(), Error> {
    if generation::check(database).await.is_err() {
        return Ok(());
    }
    let options = SqliteConnectOptions::new()
        .filename(database)
        .busy_timeout(BUSY_TIMEOUT);
    let Ok(mut connection) = SqliteConnection::connect_with(&options).await else {
        return Ok(());
    };
    // It leaves the mode with a log only where nobody else is connected.
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

    // What a restore that was killed left.
    remove(target)?;
    remove(&beside(target, "-wal"))?;
    remove(&beside(target, "-journal"))?;
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

/// Whoever has a database open has it open for longer.
const BUSY_TIMEOUT: Duration = Duration::from_millis(500);
