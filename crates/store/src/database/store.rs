//! The database handle: opening, transactions, backup.

use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr as _;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use sqlx::postgres::{PgConnectOptions, PgListener};
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous};
use sqlx::{Connection as _, SqliteConnection, SqlitePool};
use tokio::fs::OpenOptions;
use tokio::sync::{Mutex, watch};
use tokio::time::Instant;

use crate::database::changes::ChangeWaker;
use crate::database::connection::{ReadConnection, Snapshot, Tx};
use crate::database::generation::UseLock;
use crate::database::lease::Lease;
use crate::database::lock::{Lock, WorkLock};
use crate::database::postgres::PostgresPool;
use crate::database::{generation, migrate, restore, statements};
use crate::error::{Bug, Error, Reason};

/// The database. Cheap to clone; all clones share its connections.
#[derive(Clone, Debug)]
pub struct Store {
    pools: Pools,
    wake: ChangeWaker,
}

/// Number of connections to the database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pool {
    /// Idle connections.
    pub idle: u32,
    /// Connections in use.
    pub used: u32,
}

#[derive(Clone, Debug)]
enum Pools {
    /// SQLite has one writer at a time. One connection with a fair queue is faster than several
    /// that poll for the lock.
    Sqlite {
        writer: SqlitePool,
        readers: SqlitePool,
        /// Held until the end, so that the file is not replaced meanwhile.
        use_lock: Arc<Mutex<Option<UseLock>>>,
    },
    Postgres(PostgresPool),
}

impl Store {
    /// Opens the database and migrates its schema, forwards only. Several processes may do this at
    /// the same time.
    ///
    /// `url` is `postgres://…` or `sqlite://<path>`; without one it is the SQLite file
    /// `platform.db` in `data_dir`, which is created if it does not exist.
    ///
    /// # Errors
    /// [`Bug::Schema`] if the schema was created by a newer version or differs from the released
    /// one.
    pub async fn open(url: Option<&str>, data_dir: &Path) -> Result<Self, Error> {
        let (store, _allowed) = Self::open_with(url, data_dir, None).await?;
        Ok(store)
    }

    /// [`Store::open`] with a limit on connections. If a PostgreSQL server allows fewer, its limit
    /// is returned and used.
    ///
    /// # Errors
    /// As [`Store::open`].
    pub async fn open_with(
        url: Option<&str>,
        data_dir: &Path,
        connections: Option<u32>,
    ) -> Result<(Self, Option<u32>), Error> {
        match Location::of(url, data_dir)? {
            Location::File(path) => {
                // One of the connections is the writer.
                let readers =
                    connections.map_or(SQLITE_READERS, |all| all.saturating_sub(1).max(1));
                Ok((Self::open_sqlite(&path, readers).await?, None))
            }
            Location::Server(options) => {
                let requested = connections.unwrap_or(POSTGRES_CONNECTIONS);
                let (pool, allowed) = PostgresPool::open(*options, requested).await?;
                migrate::postgres(&pool.pool).await?;
                let is_less = allowed < requested;
                Ok((
                    Self::over(Pools::Postgres(pool)),
                    is_less.then_some(allowed),
                ))
            }
        }
    }

    /// [`Store::backup`] without the migrations of an open: the schema stays unchanged, so a newer
    /// program can copy the database of a platform that is still running.
    ///
    /// # Errors
    /// As [`Store::backup`]; and [`Bug::Address`] if there is no database to copy.
    pub async fn backup_at(url: Option<&str>, data_dir: &Path, target: &Path) -> Result<(), Error> {
        let Location::File(path) = Location::of(url, data_dir)? else {
            return Err(only_embedded());
        };
        if !tokio::fs::try_exists(&path)
            .await
            .map_err(sqlx::Error::Io)?
        {
            let message = format!("no database exists at {}", path.display());
            return Err(Bug::Address(message).into());
        }
        let _use_lock = UseLock::of_reader(&path).await?;
        generation::check(&path).await?;
        let options = SqliteConnectOptions::new()
            .filename(path)
            .busy_timeout(BUSY_TIMEOUT);
        let connection = SqliteConnection::connect_with(&options).await?;
        copy(connection, target).await
    }

    /// Replaces the embedded database by a copy of a backup, or creates it, while no process has it
    /// open.
    ///
    /// # Errors
    /// [`Bug::File`]: the database is in use, or the file is not a backup that this version
    /// supports; nothing was changed. [`Bug::Address`] on PostgreSQL, which has its own tools.
    pub async fn restore_at(
        url: Option<&str>,
        data_dir: &Path,
        source: &Path,
    ) -> Result<(), Error> {
        match Location::of(url, data_dir)? {
            Location::File(path) => restore::restore(source, &path).await,
            Location::Server(_) => Err(only_embedded()),
        }
    }

    fn over(pools: Pools) -> Self {
        Self {
            pools,
            wake: ChangeWaker::default(),
        }
    }

    async fn open_sqlite(path: &Path, most_readers: u32) -> Result<Self, Error> {
        let mut use_lock = UseLock::of_user(path).await?;
        make_private(path).await?;
        generation::check(path).await?;
        let options = SqliteConnectOptions::new()
            .filename(path)
            .create_if_missing(true)
            .journal_mode(SqliteJournalMode::Wal)
            // With a write-ahead log, a crash of the process loses no commit in any mode, but a
            // crash of the machine could. FULL syncs the log with each commit.
            .synchronous(SqliteSynchronous::Full)
            .foreign_keys(true)
            .busy_timeout(BUSY_TIMEOUT)
            .row_buffer_size(ROW_BUFFER)
            .statement_cache_capacity(STATEMENT_CACHE);
        enable_write_ahead_log(&options).await?;
        let writer = SqlitePoolOptions::new()
            .max_connections(1)
            .acquire_timeout(ACQUIRE_TIMEOUT)
            // A connection to a local file cannot break.
            .test_before_acquire(false)
            .connect_with(options.clone().optimize_on_close(true, ANALYSIS_LIMIT))
            .await?;
        migrate::sqlite(&writer).await?;
        if use_lock.is_exclusive() {
            generation::renew(&mut *writer.acquire().await?, path).await?;
            use_lock.share()?;
        }
        let readers = SqlitePoolOptions::new()
            .max_connections(most_readers)
            .acquire_timeout(ACQUIRE_TIMEOUT)
            .test_before_acquire(false)
            .connect_with(options.pragma("query_only", "ON"))
            .await?;
        Ok(Self::over(Pools::Sqlite {
            writer,
            readers,
            use_lock: Arc::new(Mutex::new(Some(use_lock))),
        }))
    }

    /// True if the database is a file on this machine.
    pub fn is_embedded(&self) -> bool {
        matches!(self.pools, Pools::Sqlite { .. })
    }

    /// Starts a write transaction. On SQLite it waits for the previous one to end.
    pub async fn begin(&self) -> Result<Tx, Error> {
        let lease = match &self.pools {
            Pools::Sqlite { writer, .. } => Lease::sqlite(writer.acquire().await?),
            Pools::Postgres(pool) => pool.acquire().await?,
        };
        Tx::begin(lease, self.wake.clone()).await
    }

    /// Takes a connection for reading.
    pub async fn read(&self) -> Result<ReadConnection, Error> {
        self.reader().await.map(ReadConnection::new)
    }

    /// Takes a connection for reading a consistent snapshot.
    pub async fn snapshot(&self) -> Result<Snapshot, Error> {
        Snapshot::begin(self.reader().await?).await
    }

    async fn reader(&self) -> Result<Lease, Error> {
        Ok(match &self.pools {
            Pools::Sqlite { readers, .. } => Lease::sqlite(readers.acquire().await?),
            Pools::Postgres(pool) => pool.acquire().await?,
        })
    }

    /// Takes a lock for a piece of work of many transactions, if it is free. It is held until the
    /// returned value is dropped. On SQLite every caller gets it, because writers are serialised
    /// anyway.
    pub async fn try_lock(&self, lock: Lock) -> Result<Option<WorkLock>, Error> {
        match &self.pools {
            Pools::Sqlite { .. } => Ok(Some(WorkLock::of_nobody())),
            Pools::Postgres(pool) => lock.try_hold(pool.acquire().await?).await,
        }
    }

    /// Notifies of new entries in the log of changes: see [`crate::database::changes`]. Changes of
    /// other processes are included while a task [`listens`](Self::listen); otherwise they arrive
    /// late or never.
    pub fn wakes(&self) -> watch::Receiver<()> {
        self.wake.subscribe()
    }

    /// Listens for commits of other processes on the database and forwards them to
    /// [`wakes`](Self::wakes). It returns when its connection ends. On SQLite it never returns,
    /// because there are no notifications.
    pub async fn listen(&self) -> Result<(), Error> {
        match &self.pools {
            Pools::Sqlite { .. } => std::future::pending().await,
            Pools::Postgres(pool) => {
                let listener = PgListener::connect_with(&pool.pool).await?;
                self.wake.forward(listener).await
            }
        }
    }

    /// Current number of connections.
    pub fn pool(&self) -> Pool {
        let (all, idle) = match &self.pools {
            Pools::Sqlite {
                writer, readers, ..
            } => (
                writer.size() + readers.size(),
                writer.num_idle() + readers.num_idle(),
            ),
            Pools::Postgres(pool) => (pool.pool.size(), pool.pool.num_idle()),
        };
        let idle = u32::try_from(idle).unwrap_or(u32::MAX).min(all);
        Pool {
            idle,
            used: all - idle,
        }
    }

    /// Checks that the database responds, for readiness checks.
    pub async fn ping(&self) -> Result<(), Error> {
        let mut read = self.read().await?;
        crate::database::sql::sql("SELECT CAST(1 AS BIGINT) AS n")
            .count(&mut read)
            .await?;
        Ok(())
    }

    /// The time of the database's clock; `None` if it is the clock of this machine.
    pub async fn time(&self) -> Result<Option<Timestamp>, Error> {
        if let Pools::Sqlite { .. } = &self.pools {
            return Ok(None);
        }
        let mut read = self.read().await?;
        let now = "SELECT CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000000 AS BIGINT) AS n";
        crate::database::sql::sql(now).time(&mut read).await
    }

    /// Writes a consistent copy of the embedded database to a new file, while the database is in
    /// use. [`Store::restore_at`] restores it.
    ///
    /// # Errors
    /// [`Bug::Address`] on PostgreSQL, which has its own tools for this, and if `path` exists.
    pub async fn backup(&self, path: &Path) -> Result<(), Error> {
        let Pools::Sqlite { readers, .. } = &self.pools else {
            return Err(only_embedded());
        };
        copy(readers.acquire().await?.detach(), path).await
    }

    /// Closes every connection and waits for it; SQLite checkpoints its log.
    pub async fn close(&self) {
        match &self.pools {
            Pools::Sqlite {
                writer,
                readers,
                use_lock,
            } => {
                readers.close().await;
                writer.close().await;
                use_lock.lock().await.take();
            }
            Pools::Postgres(pool) => pool.pool.close().await,
        }
    }

    /// Prepares every statement of this crate on the database, without running any. Returns their
    /// number.
    pub async fn check_statements(&self) -> Result<usize, Error> {
        let every = statements::every(self.is_embedded());
        let count = every.len();
        let mut read = self.read().await?;
        for text in every {
            crate::database::sql::prepare(&mut read, text).await?;
        }
        Ok(count)
    }
}

/// Location of a database.
enum Location {
    /// The embedded one, in a file.
    File(PathBuf),
    /// `PostgreSQL`.
    Server(Box<PgConnectOptions>),
}

impl Location {
    fn of(url: Option<&str>, data_dir: &Path) -> Result<Self, Error> {
        let Some(url) = url else {
            return Ok(Self::File(data_dir.join(FILE_NAME)));
        };
        if let Some(path) = url.strip_prefix("sqlite:") {
            let path = path.strip_prefix("//").unwrap_or(path);
            if path.is_empty() || path.starts_with(':') || path.contains('?') {
                let message = "expected sqlite://<path of a file>".to_owned();
                return Err(Bug::Address(message).into());
            }
            return Ok(Self::File(data_dir.join(path)));
        }
        if url.starts_with("postgres://") || url.starts_with("postgresql://") {
            // The address may contain a password, so the error does not repeat it.
            let options = PgConnectOptions::from_str(url)
                .map_err(|_| Bug::Address("not a PostgreSQL address".to_owned()))?;
            return Ok(Self::Server(Box::new(options)));
        }
        Err(Bug::Address("expected postgres:// or sqlite://".to_owned()).into())
    }
}

/// Copies the database of `connection` to a new file.
async fn copy(mut connection: SqliteConnection, path: &Path) -> Result<(), Error> {
    let target = path
        .to_str()
        .ok_or_else(|| Bug::Address("the backup's path is not UTF-8".to_owned()))?;
    // VACUUM INTO accepts an empty file as target, so the file can be created with private
    // permissions first.
    private(OpenOptions::new().create_new(true).write(true), path)
        .await
        .map_err(|error| match error {
            sqlx::Error::Io(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                Bug::Address("the backup's file exists already".to_owned()).into()
            }
            other => Error::from(other),
        })?;
    let copied = async {
        // `query_only`, which readers use, also forbids VACUUM INTO.
        sqlx::query("PRAGMA query_only = OFF")
            .execute(&mut connection)
            .await?;
        sqlx::query("VACUUM INTO $1")
            .bind(target)
            .execute(&mut connection)
            .await
            .map_err(Error::from)?;
        mark_backup(path).await
    };
    let copied = copied.await;
    sqlx::Connection::close(connection).await?;
    if copied.is_err() {
        // A partial backup is worse than none. If removing it fails as well, the first error
        // explains the cause.
        tokio::fs::remove_file(path).await.ok();
    }
    copied?;
    Ok(())
}

/// Sets a new generation in a backup, and makes it durable.
async fn mark_backup(path: &Path) -> Result<(), Error> {
    let options = SqliteConnectOptions::new()
        .filename(path)
        .synchronous(SqliteSynchronous::Full);
    let mut connection = SqliteConnection::connect_with(&options).await?;
    // A single file, without a log beside it.
    sqlx::query("PRAGMA journal_mode = DELETE")
        .execute(&mut connection)
        .await?;
    generation::set(&mut connection, generation::draw()?).await?;
    connection.close().await?;
    Ok(generation::sync_directory(path).map_err(sqlx::Error::Io)?)
}

fn only_embedded() -> Error {
    let message = "only the embedded SQLite database can be backed up and restored here; for \
                   PostgreSQL use pg_dump and pg_restore"
        .to_owned();
    Bug::Address(message).into()
}

/// Creates an empty database that only its owner can read, if there is none; SQLite gives its log
/// the same mode.
///
/// An existing file is not opened at all, because closing any descriptor of it would release the
/// locks of another store of this process (`fcntl(2)`).
async fn make_private(path: &Path) -> Result<(), sqlx::Error> {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::const_new(());
    let _turn = ONE_AT_A_TIME.lock().await;
    if tokio::fs::try_exists(path).await? {
        return Ok(());
    }
    match private(OpenOptions::new().create_new(true).write(true), path).await {
        // Another process was faster.
        Err(sqlx::Error::Io(error)) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        made => made,
    }
}

/// Opens and closes one connection, which switches the file to a write-ahead log.
///
/// If several processes switch an empty file at the same time, SQLite immediately reports to all
/// but one that it is busy: each holds a read lock that the others would wait for, so waiting would
/// be a deadlock. They retry until [`BUSY_TIMEOUT`] is over.
async fn enable_write_ahead_log(options: &SqliteConnectOptions) -> Result<(), Error> {
    let deadline = Instant::now() + BUSY_TIMEOUT;
    loop {
        let error = match SqliteConnection::connect_with(options).await {
            Ok(connection) => return Ok(connection.close().await?),
            Err(error) => Error::from(error),
        };
        let busy = matches!(
            error,
            Error::Unavailable {
                reason: Reason::Busy,
                ..
            }
        );
        if !busy || Instant::now() >= deadline {
            return Err(error);
        }
        tokio::time::sleep(TURN_RETRY).await;
    }
}

/// Opens or creates a file that only its owner can read.
async fn private(options: &mut OpenOptions, path: &Path) -> Result<(), sqlx::Error> {
    options.mode(0o600).open(path).await?;
    Ok(())
}

impl From<Reason> for Error {
    fn from(reason: Reason) -> Self {
        Self::Unavailable {
            reason,
            source: None,
        }
    }
}

/// The embedded database in the data directory.
const FILE_NAME: &str = "platform.db";
/// Maximum time that SQLite waits for a writer of another process (`svc platform --create-admin`
/// beside a running platform). Writers of this process queue for the single connection instead.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);
/// Rows that a connection's thread reads ahead of its query. With the library's default of 50, a
/// query of 100,000 rows changes between the two threads 2,000 times, which takes seconds on a busy
/// machine.
const ROW_BUFFER: usize = 256;
/// About the time that another process needs to switch an empty file.
const TURN_RETRY: Duration = Duration::from_millis(10);
/// Maximum time that a caller waits for a connection before the error "busy": longer than any
/// transaction of the platform takes, shorter than the time-out of an HTTP client.
pub(crate) const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(5);
/// Readers do not block each other, but more of them than cores would only wait for the CPU.
const SQLITE_READERS: u32 = 8;
/// PostgreSQL allows 100 connections by default; this leaves room for several platforms.
const POSTGRES_CONNECTIONS: u32 = 16;
/// Statements of this crate, with their sorted and filtered variants.
pub(crate) const STATEMENT_CACHE: usize = 512;
/// Number of rows that SQLite reads per index when it refreshes its statistics; the value that its
/// manual suggests.
const ANALYSIS_LIMIT: Option<u32> = Some(400);
