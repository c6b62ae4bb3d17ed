//! Assignment of write-ahead logs to SQLite files, and locks on files in use.
//!
//! SQLite replays any log that it finds beside a file. If a process was killed and the file was
//! then replaced, that log belongs to another database, and replaying it destroys the new one. Each
//! database therefore has a number in its header, the generation. Every backup gets another
//! generation, and so does a database whenever a single process opens it. A file beside the
//! database records the generation for which its log was written.

use std::fs::{self, File, TryLockError};
use std::io::{self, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{Connection as _, SqliteConnection};
use tokio::time::Instant;

use crate::error::{Bug, Error};

/// A lock on the use of a database file. Every process that has the file open holds a shared lock;
/// replacing the file needs an exclusive one. It ends with the process.
#[derive(Debug)]
pub(crate) struct UseLock {
    file: File,
    is_exclusive: bool,
}

impl UseLock {
    /// Takes the exclusive lock if the file is not in use, else a shared one.
    ///
    /// # Errors
    /// Another process has the exclusive lock for longer than a start takes: the file is being
    /// replaced.
    pub(crate) async fn of_user(database: &Path) -> Result<Self, Error> {
        let file = lock_file(database)?;
        Self::acquire(file).await
    }

    /// Takes the lock for a process that reads the database while the platform runs. It creates no
    /// file.
    pub(crate) async fn of_reader(database: &Path) -> Result<Option<Self>, Error> {
        match File::open(sibling_path(database, ".lock")) {
            Ok(file) => {
                let mut lock = Self::acquire(file).await?;
                lock.share()?;
                Ok(Some(lock))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(sqlx::Error::Io(error).into()),
        }
    }

    async fn acquire(file: File) -> Result<Self, Error> {
        let deadline = Instant::now() + WAIT_LIMIT;
        loop {
            match file.try_lock() {
                Ok(()) => {
                    return Ok(Self {
                        file,
                        is_exclusive: true,
                    });
                }
                Err(TryLockError::Error(error)) => return Err(sqlx::Error::Io(error).into()),
                Err(TryLockError::WouldBlock) => {}
            }
            match file.try_lock_shared() {
                Ok(()) => {
                    return Ok(Self {
                        file,
                        is_exclusive: false,
                    });
                }
                Err(TryLockError::Error(error)) => return Err(sqlx::Error::Io(error).into()),
                Err(TryLockError::WouldBlock) => {}
            }
            if Instant::now() >= deadline {
                return Err(being_replaced());
            }
            tokio::time::sleep(RETRY).await;
        }
    }

    /// Takes the exclusive lock.
    ///
    /// # Errors
    /// The file is in use.
    pub(crate) fn of_restorer(database: &Path) -> Result<Self, Error> {
        let file = lock_file(database)?;
        match file.try_lock() {
            Ok(()) => Ok(Self {
                file,
                is_exclusive: true,
            }),
            Err(TryLockError::WouldBlock) => Err(in_use(database)),
            Err(TryLockError::Error(error)) => Err(sqlx::Error::Io(error).into()),
        }
    }

    /// True if no other process has the file open.
    pub(crate) fn is_exclusive(&self) -> bool {
        self.is_exclusive
    }

    /// Changes the lock to a shared one.
    pub(crate) fn share(&mut self) -> Result<(), Error> {
        if self.is_exclusive {
            // The change is not atomic; a restore in between gets the exclusive lock.
            self.file.try_lock_shared().map_err(|error| match error {
                TryLockError::WouldBlock => being_replaced(),
                TryLockError::Error(error) => Error::from(sqlx::Error::Io(error)),
            })?;
            self.is_exclusive = false;
        }
        Ok(())
    }
}

/// Refuses a write-ahead log that was written for another database than the file beside it.
pub(crate) async fn check(database: &Path) -> Result<(), Error> {
    if !has_log(database)? {
        return Ok(());
    }
    let Some(known) = recorded(database)? else {
        // The log was written by a version that did not record generations.
        return Ok(());
    };
    if known.contains(&read_generation(database).await?) {
        return Ok(());
    }
    let message = format!(
        "{} belongs to another database than {}; `svc platform restore FILE` replaces both with a \
         backup",
        sibling_path(database, "-wal").display(),
        database.display()
    );
    Err(Bug::File(message).into())
}

/// Sets a new generation; called by the only user of the database, before anything else is written.
pub(crate) async fn renew(connection: &mut SqliteConnection, database: &Path) -> Result<(), Error> {
    let old: i32 = sqlx::query_scalar("PRAGMA user_version")
        .fetch_one(&mut *connection)
        .await?;
    let new = draw()?;
    // After a crash the header contains the old or the new generation. Both are valid for the log.
    record(database, &[old, new])?;
    set(connection, new).await?;
    let (is_busy, ..): (i64, i64, i64) = sqlx::query_as("PRAGMA wal_checkpoint(TRUNCATE)")
        .fetch_one(connection)
        .await?;
    if is_busy == 0 {
        record(database, &[new])?;
    }
    Ok(())
}

/// Writes a generation into a database.
pub(crate) async fn set(connection: &mut SqliteConnection, generation: i32) -> Result<(), Error> {
    let text = format!("PRAGMA user_version = {generation}");
    sqlx::raw_sql(sqlx::AssertSqlSafe(text))
        .execute(connection)
        .await?;
    Ok(())
}

/// Draws a random generation.
pub(crate) fn draw() -> Result<i32, Error> {
    let mut bytes = [0; 4];
    aws_lc_rs::rand::fill(&mut bytes)
        .map_err(|_| Bug::File("the operating system provides no random numbers".to_owned()))?;
    // 0 is the generation of databases that were never assigned one.
    Ok(match i32::from_be_bytes(bytes) {
        0 => 1,
        drawn => drawn,
    })
}

/// The generation of a database file without its log. It is read by SQLite, because closing any
/// descriptor of the file would release the locks of another store of this process (`fcntl(2)`).
///
/// During a checkpoint the header is written first, and new pages that it counts after it. Until
/// they are written, SQLite reports the file as damaged, so it is read again.
pub(crate) async fn read_generation(database: &Path) -> Result<i32, Error> {
    let deadline = Instant::now() + CHECKPOINT_LIMIT;
    loop {
        match read_header(database).await {
            Err(sqlx::Error::Database(error))
                if error.code().as_deref() == Some("11") && Instant::now() < deadline =>
            {
                tokio::time::sleep(READ_AGAIN).await;
            }
            read => return Ok(read?),
        }
    }
}

async fn read_header(database: &Path) -> Result<i32, sqlx::Error> {
    let options = SqliteConnectOptions::new()
        .filename(database)
        .read_only(true)
        .immutable(true);
    let mut connection = SqliteConnection::connect_with(&options).await?;
    let generation = sqlx::query_scalar("PRAGMA user_version")
        .fetch_one(&mut connection)
        .await;
    connection.close().await?;
    generation
}

/// Time limit for a checkpoint; one of the usual size is faster.
const CHECKPOINT_LIMIT: Duration = Duration::from_secs(1);
/// Delay between two reads of a header.
const READ_AGAIN: Duration = Duration::from_millis(10);

/// True if there is a non-empty write-ahead log.
pub(crate) fn has_log(database: &Path) -> Result<bool, Error> {
    match fs::metadata(sibling_path(database, "-wal")) {
        Ok(log) => Ok(log.len() > 0),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(sqlx::Error::Io(error).into()),
    }
}

/// Records the generations for which the log beside a database is written, durably and atomically.
pub(crate) fn record(database: &Path, generations: &[i32]) -> Result<(), Error> {
    let lines: Vec<_> = generations.iter().map(i32::to_string).collect();
    let lines = lines.join("\n");
    let path = sibling_path(database, ".generation");
    let unfinished = sibling_path(database, ".generation.new");
    let written = || {
        let mut file = File::create(&unfinished)?;
        file.write_all(lines.as_bytes())?;
        file.sync_all()?;
        own_as_directory(&unfinished);
        fs::rename(&unfinished, &path)?;
        sync_directory(database)
    };
    written().map_err(|error| sqlx::Error::Io(error).into())
}

fn recorded(database: &Path) -> Result<Option<Vec<i32>>, Error> {
    match fs::read_to_string(sibling_path(database, ".generation")) {
        // Unreadable text results in no generation, so that a log beside it is refused.
        Ok(text) => Ok(Some(
            text.lines().filter_map(|line| line.parse().ok()).collect(),
        )),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(sqlx::Error::Io(error).into()),
    }
}

/// A file whose name is that of the database with a suffix.
pub(crate) fn sibling_path(database: &Path, ending: &str) -> PathBuf {
    let mut name = database.as_os_str().to_owned();
    name.push(ending);
    name.into()
}

/// Makes new file names in the directory of the database durable.
pub(crate) fn sync_directory(database: &Path) -> io::Result<()> {
    let directory = database.parent().filter(|path| *path != Path::new(""));
    File::open(directory.unwrap_or(Path::new(".")))?.sync_all()
}

pub(crate) fn in_use(database: &Path) -> Error {
    let message = format!("{} is in use: stop the platform first", database.display());
    Bug::File(message).into()
}

fn being_replaced() -> Error {
    let message = "the database is being restored, or another process is upgrading its schema";
    Bug::File(message.to_owned()).into()
}

/// Read access is enough to lock a file, because the lock may be taken by another account than the
/// file's owner.
fn lock_file(database: &Path) -> Result<File, Error> {
    let path = sibling_path(database, ".lock");
    let opened = match File::open(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let made = File::options()
                .create(true)
                .truncate(false)
                .write(true)
                .open(&path);
            own_as_directory(&path);
            made
        }
        opened => opened,
    };
    opened.map_err(|error| sqlx::Error::Io(error).into())
}

/// Changes the owner of a file to that of its directory, because an operator may restore as root a
/// database that another account serves. A process without that right is either that account
/// already, or depends on the file's permissions.
pub(crate) fn own_as_directory(path: &Path) {
    let directory = path.parent().filter(|path| *path != Path::new(""));
    let Ok(owner) = fs::metadata(directory.unwrap_or(Path::new("."))) else {
        return;
    };
    std::os::unix::fs::chown(path, Some(owner.uid()), Some(owner.gid())).ok();
}

/// The same time for which SQLite waits for a writer. A start takes only milliseconds.
const WAIT_LIMIT: Duration = Duration::from_secs(5);
/// About the duration of a start.
const RETRY: Duration = Duration::from_millis(10);

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn generations_are_distinguished() {
        // The probability that two of so few are equal is one in two million.
        let drawn: HashSet<i32> = (0..64).map(|_| draw().unwrap()).collect();
        assert_eq!(drawn.len(), 64);
    }
}
