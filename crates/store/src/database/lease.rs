//! Connections leased from the pools.

use std::time::Duration;

use sqlx::pool::PoolConnection;
use sqlx::{PgConnection, Postgres, Sqlite, SqliteConnection};
use tokio::runtime::Handle;
use tokio::time::timeout;

use crate::database::trust::PoolHealth;

/// A connection that returns to its pool when it is dropped, whatever its state: an open
/// transaction is rolled back, and a running statement is waited for.
///
/// It does two things that the driver does not do. It tracks transactions without querying the
/// database: the driver would count one that SQLite aborted (the disk was full) as open, and refuse
/// every later one. It also limits the time to return a connection. If a server no longer responds
/// (a cable, a firewall that dropped the connection), connections in use would otherwise occupy the
/// pool for the quarter of an hour of TCP's time-out, and block connections to its successor.
pub(crate) struct Lease {
    /// Taken when it is dropped.
    connection: Option<PooledConnection>,
    in_transaction: bool,
    /// True if the connection must not be reused.
    is_last: bool,
    trust: Option<PoolHealth>,
}

enum PooledConnection {
    Sqlite(PoolConnection<Sqlite>),
    Postgres(PoolConnection<Postgres>),
}

/// The driver's connection.
pub(crate) enum Db<'c> {
    Sqlite(&'c mut SqliteConnection),
    Postgres(&'c mut PgConnection),
}

impl Lease {
    pub(crate) fn sqlite(connection: PoolConnection<Sqlite>) -> Self {
        Self::new(PooledConnection::Sqlite(connection), None)
    }

    pub(crate) fn postgres(connection: PoolConnection<Postgres>, trust: &PoolHealth) -> Self {
        Self::new(PooledConnection::Postgres(connection), Some(trust.clone()))
    }

    fn new(connection: PooledConnection, trust: Option<PoolHealth>) -> Self {
        Self {
            connection: Some(connection),
            in_transaction: false,
            is_last: false,
            trust,
        }
    }

    /// The peer of the connection does not respond.
    pub(crate) fn was_dead(&self) {
        if let Some(trust) = &self.trust {
            trust.mark_dead();
        }
    }

    pub(crate) fn db(&mut self) -> Result<Db<'_>, sqlx::Error> {
        match &mut self.connection {
            Some(PooledConnection::Sqlite(connection)) => Ok(Db::Sqlite(connection)),
            Some(PooledConnection::Postgres(connection)) => Ok(Db::Postgres(connection)),
            None => Err(sqlx::Error::PoolClosed),
        }
    }

    pub(crate) fn is_postgres(&self) -> bool {
        matches!(self.connection, Some(PooledConnection::Postgres(_)))
    }

    pub(crate) fn in_transaction(&self) -> bool {
        self.in_transaction
    }

    /// Starts a transaction. On SQLite it is the only writer from here on.
    pub(crate) async fn begin(&mut self) -> Result<(), sqlx::Error> {
        // Set first, because this future may be dropped while it waits.
        self.in_transaction = true;
        let text = if self.is_postgres() {
            "BEGIN"
        } else {
            "BEGIN IMMEDIATE"
        };
        self.db()?.run(text).await
    }

    /// Starts a transaction that reads the data as of its first statement.
    pub(crate) async fn begin_snapshot(&mut self) -> Result<(), sqlx::Error> {
        self.in_transaction = true;
        let text = if self.is_postgres() {
            "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
        } else {
            "BEGIN DEFERRED"
        };
        self.db()?.run(text).await
    }

    pub(crate) async fn commit(&mut self) -> Result<(), sqlx::Error> {
        self.db()?.run("COMMIT").await?;
        self.in_transaction = false;
        Ok(())
    }

    /// Cancels [`Self::close_on_drop`].
    pub(crate) fn keep(&mut self) {
        self.is_last = false;
    }

    /// Closes the connection after this lease.
    pub(crate) fn close_on_drop(&mut self) {
        self.is_last = true;
    }
}

impl Db<'_> {
    async fn run(self, text: &'static str) -> Result<(), sqlx::Error> {
        match self {
            Self::Sqlite(connection) => {
                sqlx::raw_sql(text).execute(connection).await?;
            }
            Self::Postgres(connection) => {
                sqlx::raw_sql(text).execute(connection).await?;
            }
        }
        Ok(())
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let Some(connection) = self.connection.take() else {
            return;
        };
        // Without a runtime there is no way to wait, and no later user of the pool.
        let Ok(runtime) = Handle::try_current() else {
            match connection {
                PooledConnection::Sqlite(connection) => drop(connection.detach()),
                PooledConnection::Postgres(connection) => drop(connection.detach()),
            }
            return;
        };
        let (in_transaction, is_last) = (self.in_transaction, self.is_last);
        match connection {
            PooledConnection::Sqlite(connection) => {
                if in_transaction {
                    runtime.spawn(roll_back_sqlite(connection));
                }
                // Otherwise the pool gets it in its current state: pending work is local to this
                // machine, and will finish.
            }
            PooledConnection::Postgres(mut connection) if is_last => connection.close_on_drop(),
            PooledConnection::Postgres(connection) => {
                runtime.spawn(give_back_postgres(connection, in_transaction));
            }
        }
    }
}

async fn roll_back_sqlite(mut connection: PoolConnection<Sqlite>) {
    // An error means that no transaction is open, because SQLite has already aborted it.
    sqlx::raw_sql("ROLLBACK")
        .execute(&mut *connection)
        .await
        .ok();
}

async fn give_back_postgres(mut connection: PoolConnection<Postgres>, in_transaction: bool) {
    let back = async {
        if in_transaction {
            let rollback = sqlx::raw_sql("ROLLBACK");
            rollback.execute(&mut *connection).await?;
        }
        connection.return_to_pool().await;
        Ok::<_, sqlx::Error>(())
    };
    // A connection that does not return in time is closed, and frees its slot in the pool.
    if !matches!(timeout(RETURN_TIMEOUT, back).await, Ok(Ok(()))) {
        connection.close_on_drop();
    }
}

/// A working server ends a cancelled statement well within this time.
const RETURN_TIMEOUT: Duration = Duration::from_secs(5);
