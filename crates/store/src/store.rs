//! Opening a database, transactions, backup.

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

use crate::changes::Wake;
use crate::connection::{ReadConnection, Snapshot, Tx};
use crate::error::{Bug, Error, Reason};
use crate::generation::UseLock;
use crate::lease::Lease;
use crate::lock::{Lock, WorkLock};
use crate::postgres::PostgresPool;
use crate::{generation, migrate, restore, statements};

/// The database. Cheap to clone; all clones share its connections.
#[derive(Clone, Debug)]
pub struct Store {
    pools: Pools,
    wake: Wake,
}

/// Connections to the database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pool {
    /// Open, and waiting for work.
    pub idle: u32,
    /// At work.
    pub used: u32,
}

#[derive(Clone, Debug)]
enum Pools {
    /// SQLite has one writer at a time. One connection that everybody queues for in order is
    /// fairer and faster than several that poll for the lock.
    Sqlite {
        writer: SqlitePool,
        readers: SqlitePool,
        /// Until the end, so that nobody replaces the file meanwhile.
        use_lock: Arc<Mutex<Option<UseLock>>>,
    },
    Postgres(PostgresPool),
}

impl Store {
    /// Opens the database and brings its schema up to date, forwards only. Several processes may
    /// do this at once.
    ///
    /// `url` is `postgres://…` or `sqlite://<path>`; without one it is the SQLite file
    /// `platform.db` in `data_dir`, which is made if it is not there.
    ///
    /// # Errors
    /// [`Bug::Schema`] when the schema was made by a newer version or is not what was shipped.
    pub async fn open(url: Option<&str>, data_dir: &Path) -> Result<Self, Error> {
        let (store, _allowed) = Self::open_with(url, data_dir, None).await?;
        Ok(store)
    }

    /// [`Store::open`] with at most so many connections. How many a PostgreSQL server allows comes
    /// with it where that is less than what is asked for: there are no more then.
    ///
    /// # Errors
    /// As [`Store::open`].
    pub async fn open_with(
        url: Option<&str>,
        data_dir: &Path,
        connections: Option<u32>,
    ) -> Result<(Self, Option<u32>), Error> {
        match Place::of(url, data_dir)? {
            Place::File(path) => {
                // One of them writes.
                let readers =
                    connections.map_or(SQLITE_READERS, |all| all.saturating_sub(1).max(1));
                Ok((Self::open_sqlite(&path, readers).await?, None))
            }
            Place::Server(options) => {
                let wanted = connections.unwrap_or(POSTGRES_CONNECTIONS);
                let (pool, allowed) = PostgresPool::open(*options, wanted).await?;
                migrate::postgres(&pool.pool).await?;
                let is_less = allowed < wanted;
                Ok((
                    Self::over(Pools::Postgres(pool)),
                    is_less.then_some(allowed),
                ))
            }
        }
    }

    /// [`Store::backup`] without opening the database for more: its schema stays as it is, so a
    /// newer program can copy the database of a platform that is still running.
    ///
    /// # Errors
    /// As [`Store::backup`]; and [`Bug::Address`] where there is no database to copy.
    pub async fn backup_at(url: Option<&str>, data_dir: &Path, target: &Path) -> Result<(), Error> {
        let Place::File(path) = Place::of(url, data_dir)? else {
            return Err(only_embedded());
        };
        if !tokio::fs::try_exists(&path)
            .await
            .map_err(sqlx::Error::Io)?
        {
            let message = format!("there is no database at {}", path.display());
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

    /// Puts a copy of a backup in the place of the embedded database, or where none is yet, while
    /// no process has it open.
    ///
    /// # Errors
    /// [`Bug::File`]: the database is in use, or the file is no backup that this version can work
    /// with; nothing was changed. [`Bug::Address`] on PostgreSQL, which has tools of its own.
    pub async fn restore_at(
        url: Option<&str>,
        data_dir: &Path,
        source: &Path,
    ) -> Result<(), Error> {
        match Place::of(url, data_dir)? {
            Place::File(path) => restore::restore(source, &path).await,
            Place::Server(_) => Err(only_embedded()),
        }
    }

    fn over(pools: Pools) -> Self {
        Self {
            pools,
            wake: Wake::default(),
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
            // With a write-ahead log this loses nothing that was committed when the process dies,
            // but could when the machine does: FULL syncs the log with each commit.
            .synchronous(SqliteSynchronous::Full)
            .foreign_keys(true)
            .busy_timeout(BUSY_TIMEOUT)
            .statement_cache_capacity(STATEMENT_CACHE);
        turn_to_write_ahead(&options).await?;
        let writer = SqlitePoolOptions::new()
            .max_connections(1)
            .acquire_timeout(ACQUIRE_TIMEOUT)
            // There is no line between us and a file that could be cut.
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

    /// Whether the database is a file of this machine.
    pub fn is_embedded(&self) -> bool {
        matches!(self.pools, Pools::Sqlite { .. })
    }

    /// Begins a write transaction. On SQLite it waits for the one before it to end.
    pub async fn begin(&self) -> Result<Tx, Error> {
        let lease = match &self.pools {
            Pools::Sqlite { writer, .. } => Lease::sqlite(writer.acquire().await?),
            Pools::Postgres(pool) => pool.acquire().await?,
        };
        Tx::on(lease, self.wake.clone()).await
    }

    /// Takes a connection for reading.
    pub async fn read(&self) -> Result<ReadConnection, Error> {
        self.reader().await.map(ReadConnection::on)
    }

    /// Takes a connection for reading at which time stands still.
    pub async fn snapshot(&self) -> Result<Snapshot, Error> {
        Snapshot::on(self.reader().await?).await
    }

    async fn reader(&self) -> Result<Lease, Error> {
        Ok(match &self.pools {
            Pools::Sqlite { readers, .. } => Lease::sqlite(readers.acquire().await?),
            Pools::Postgres(pool) => pool.acquire().await?,
        })
    }

    /// Takes a lock for a piece of work of many transactions, if nobody has it. It is held until what
    /// is returned is dropped. On SQLite, where writers take turns anyway, everybody gets it.
    pub async fn try_lock(&self, lock: Lock) -> Result<Option<WorkLock>, Error> {
        match &self.pools {
            Pools::Sqlite { .. } => Ok(Some(WorkLock::of_nobody())),
            Pools::Postgres(pool) => lock.try_hold(pool.acquire().await?).await,
        }
    }

    /// Changes when the log of changes has grown: see [`crate::changes`]. Changes of other
    /// processes come this way while somebody [`listens`](Self::listen), and late or never
    /// otherwise.
    pub fn wakes(&self) -> watch::Receiver<()> {
        self.wake.subscribe()
    }

    /// Hears what other processes on the database commit and passes it on to
    /// [`wakes`](Self::wakes). Ends with the connection that it takes, and never on SQLite, where
    /// there is nothing to hear.
    pub async fn listen(&self) -> Result<(), Error> {
        match &self.pools {
            Pools::Sqlite { .. } => std::future::pending().await,
            Pools::Postgres(pool) => {
                let listener = PgListener::connect_with(&pool.pool).await?;
                self.wake.pass_on(listener).await
            }
        }
    }

    /// How many connections there are at this moment.
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

    /// Whether the database answers, for readiness checks.
    pub async fn ping(&self) -> Result<(), Error> {
        let mut read = self.read().await?;
        crate::sql::sql("SELECT CAST(1 AS BIGINT) AS n")
            .count(&mut read)
            .await?;
        Ok(())
    }

    /// The time of the database's clock; `None` where it is that of this machine.
    pub async fn time(&self) -> Result<Option<Timestamp>, Error> {
        if let Pools::Sqlite { .. } = &self.pools {
            return Ok(None);
        }
        let mut read = self.read().await?;
        let now = "SELECT CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000000 AS BIGINT) AS n";
        let micros: Option<i64> = crate::sql::sql(now).one(&mut read).await?;
        Ok(micros.and_then(|micros| Timestamp::from_microsecond(micros).ok()))
    }

    /// Writes a consistent copy of the embedded database to a file that is not there yet, while
    /// it is in use. [`Store::restore_at`] puts it in the place of a database.
    ///
    /// # Errors
    /// [`Bug::Address`] on PostgreSQL, which has tools of its own for this, and where `path`
    /// exists.
    pub async fn backup(&self, path: &Path) -> Result<(), Error> {
        let Pools::Sqlite { readers, .. } = &self.pools else {
            return Err(only_embedded());
        };
        copy(readers.acquire().await?.detach(), path).await
    }

    /// Closes every connection and waits for it; SQLite folds its log into the file.
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

    /// Lets the database read every statement of this crate without running any. Returns how many
    /// there are.
    pub async fn check_statements(&self) -> Result<usize, Error> {
        let every = statements::every(self.is_embedded());
        let count = every.len();
        let mut read = self.read().await?;
        for text in every {
            crate::sql::prepare(&mut read, text).await?;
        }
        Ok(count)
    }
}

/// Where a database is.
enum Place {
    /// The embedded one, in a file.
    File(PathBuf),
    /// `PostgreSQL`.
    Server(Box<PgConnectOptions>),
}

impl Place {
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
            // The address holds a password, so the error repeats none of it.
            let options = PgConnectOptions::from_str(url)
                .map_err(|_| Bug::Address("not a PostgreSQL address".to_owned()))?;
            return Ok(Self::Server(Box::new(options)));
        }
        Err(Bug::Address("expected postgres:// or sqlite://".to_owned()).into())
    }
}

/// Copies the database of `connection` to a file that is not there yet.
async fn copy(mut connection: SqliteConnection, path: &Path) -> Result<(), Error> {
    let target = path
        .to_str()
        .ok_or_else(|| Bug::Address("the backup's path is not UTF-8".to_owned()))?;
    // VACUUM INTO takes an empty file too, so this one can be private and new.
    private(OpenOptions::new().create_new(true).write(true), path)
        .await
        .map_err(|error| match error {
            sqlx::Error::Io(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                Bug::Address("the backup's file exists already".to_owned()).into()
            }
            other => Error::from(other),
        })?;
    let copied = async {
        // `query_only`, under which readers are, forbids VACUUM INTO too.
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
        // Half a backup is worse than none. If it cannot go either, the first error says why.
        tokio::fs::remove_file(path).await.ok();
    }
    copied?;
    Ok(())
}

/// Gives a backup a generation of its own, and makes it durable.
async fn mark_backup(path: &Path) -> Result<(), Error> {
    let options = SqliteConnectOptions::new()
        .filename(path)
        .synchronous(SqliteSynchronous::Full);
    let mut connection = SqliteConnection::connect_with(&options).await?;
    // One file, with no log beside it.
    sqlx::query("PRAGMA journal_mode = DELETE")
        .execute(&mut connection)
        .await?;
    generation::set(&mut connection, generation::draw()?).await?;
    connection.close().await?;
    Ok(generation::sync_directory(path).map_err(sqlx::Error::Io)?)
}

fn only_embedded() -> Error {
    let message = "only the embedded database is backed up and restored here; use pg_dump and \
                   pg_restore"
        .to_owned();
    Bug::Address(message).into()
}

/// Makes an empty database that only its owner can read, if there is none; SQLite gives its log
/// the same mode.
///
/// A file that is there is not opened, not even to look: to close any descriptor of it would end
/// the locks that another store of this process holds on it (`fcntl(2)`).
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

/// Opens and closes one connection, which leaves the file with a write-ahead log.
///
/// Of several that turn an empty file at once SQLite tells all but one that it is busy, at once:
/// each holds a lock for reading that the others would wait for, so it does not let them. They
/// try again until [`BUSY_TIMEOUT`] is over.
async fn turn_to_write_ahead(options: &SqliteConnectOptions) -> Result<(), Error> {
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

/// Opens or makes a file that only its owner can read.
async fn private(how: &mut OpenOptions, path: &Path) -> Result<(), sqlx::Error> {
    how.mode(0o600).open(path).await?;
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
/// How long SQLite waits for a writer of another process (`svc platform --create-admin` beside a
/// running platform). Our own writers queue for the one connection instead.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);
/// The work that another does meanwhile, to turn an empty file, takes about as long.
const TURN_RETRY: Duration = Duration::from_millis(10);
/// How long a caller waits for a connection before the answer is "busy": longer than any of our
/// transactions takes, shorter than the patience of an HTTP client.
pub(crate) const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(5);
/// Readers do not block each other, and more than the cores would only queue for them.
const SQLITE_READERS: u32 = 8;
/// PostgreSQL allows 100 connections by default; this leaves room for several platforms.
const POSTGRES_CONNECTIONS: u32 = 16;
/// Statements of this crate, with their sorted and filtered variants.
pub(crate) const STATEMENT_CACHE: usize = 512;
/// Rows that SQLite looks at per index when it refreshes its statistics; its manual's proposal.
const ANALYSIS_LIMIT: Option<u32> = Some(400);
