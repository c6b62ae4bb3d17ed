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
/// A lease does two things that sqlx does not do. It tracks transactions without querying the
/// database: the driver would count one that SQLite aborted (the disk was full) as open, and refuse
/// every later one. It also limits the time to return a connection. If a server no longer responds
/// (cable unplugged, state lost in a firewall), connections in use would otherwise occupy the
/// pool until TCP's timeout of about 15 minutes, and prevent connections to a failover server.
pub(crate) struct Lease {
    /// `None` only while the lease is dropped.
    connection: Option<PooledConnection>,
    in_transaction: bool,
    /// True if the connection must not be reused.
    close_after_use: bool,
    health: Option<PoolHealth>,
}

enum PooledConnection {
    Sqlite(PoolConnection<Sqlite>),
    Postgres(PoolConnection<Postgres>),
}

/// The connection of the driver (sqlx), by database.
pub(crate) enum DriverConnection<'c> {
    Sqlite(&'c mut SqliteConnection),
    Postgres(&'c mut PgConnection),
}

impl Lease {
    pub(crate) fn sqlite(connection: PoolConnection<Sqlite>) -> Self {
        Self::new(PooledConnection::Sqlite(connection), None)
    }

    pub(crate) fn postgres(connection: PoolConnection<Postgres>, health: &PoolHealth) -> Self {
        Self::new(PooledConnection::Postgres(connection), Some(health.clone()))
    }

    fn new(connection: PooledConnection, health: Option<PoolHealth>) -> Self {
        Self {
            connection: Some(connection),
            in_transaction: false,
            close_after_use: false,
            health,
        }
    }

    /// Reports that the database server does not respond on this connection.
    pub(crate) fn report_dead(&self) {
        if let Some(health) = &self.health {
            health.mark_dead();
        }
    }

    pub(crate) fn db(&mut self) -> Result<DriverConnection<'_>, sqlx::Error> {
        match &mut self.connection {
            Some(PooledConnection::Sqlite(connection)) => Ok(DriverConnection::Sqlite(connection)),
            Some(PooledConnection::Postgres(connection)) => {
                Ok(DriverConnection::Postgres(connection))
            }
            None => Err(sqlx::Error::PoolClosed),
        }
    }

    pub(crate) fn is_postgres(&self) -> bool {
        matches!(self.connection, Some(PooledConnection::Postgres(_)))
    }

    pub(crate) fn in_transaction(&self) -> bool {
        self.in_transaction
    }

    /// Starts a transaction. On SQLite it takes the write lock immediately.
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

    /// Starts a transaction for reading. It sees a snapshot, taken at its first statement.
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
    pub(crate) fn cancel_close_on_drop(&mut self) {
        self.close_after_use = false;
    }

    /// Closes the connection after this lease.
    pub(crate) fn close_on_drop(&mut self) {
        self.close_after_use = true;
    }
}

impl DriverConnection<'_> {
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
        // Without a runtime a rollback cannot be awaited, and no task will use the pool again.
        let Ok(runtime) = Handle::try_current() else {
            match connection {
                PooledConnection::Sqlite(connection) => drop(connection.detach()),
                PooledConnection::Postgres(connection) => drop(connection.detach()),
            }
            return;
        };
        let (in_transaction, close_after_use) = (self.in_transaction, self.close_after_use);
        match connection {
            PooledConnection::Sqlite(connection) => {
                if in_transaction {
                    runtime.spawn(roll_back_sqlite(connection));
                }
                // Otherwise the pool gets it in its current state: pending work is local to this
                // machine, and will finish.
            }
            PooledConnection::Postgres(mut connection) if close_after_use => {
                connection.close_on_drop();
            }
            PooledConnection::Postgres(connection) => {
                runtime.spawn(return_postgres(connection, in_transaction));
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

async fn return_postgres(mut connection: PoolConnection<Postgres>, in_transaction: bool) {
    let returning = async {
        if in_transaction {
            let rollback = sqlx::raw_sql("ROLLBACK");
            rollback.execute(&mut *connection).await?;
        }
        connection.return_to_pool().await;
        Ok::<_, sqlx::Error>(())
    };
    // A connection that does not return in time is closed, and frees its slot in the pool.
    if !matches!(timeout(RETURN_TIMEOUT, returning).await, Ok(Ok(()))) {
        connection.close_on_drop();
    }
}

/// A working server ends a cancelled statement well within this time.
const RETURN_TIMEOUT: Duration = Duration::from_secs(5);
