//! Connections on loan from the pools.

use std::time::Duration;

use sqlx::pool::PoolConnection;
use sqlx::{PgConnection, Postgres, Sqlite, SqliteConnection};
use tokio::runtime::Handle;
use tokio::time::timeout;

use crate::trust::PoolHealth;

/// A connection that goes back to its pool when it is dropped, wherever its taker was by then: in
/// the middle of a transaction, which is rolled back, or in the middle of a statement, which is
/// waited for.
///
/// Two things are done here that the driver does not do. It keeps account of transactions without
/// asking the database: one that SQLite ended by itself (the disk was full) would be counted as
/// open, and every later one refused. And it waits without a bound for a connection that is given
/// back: a server that falls silent (a cable, a firewall that forgot us) would keep the places of
/// all connections that were in use, for the quarter of an hour that TCP goes on hoping, and
/// nobody could be served by its successor.
pub(crate) struct Lease {
    /// Taken when it is dropped.
    connection: Option<Pooled>,
    in_transaction: bool,
    /// Whether nobody gets the connection after this.
    is_last: bool,
    trust: Option<PoolHealth>,
}

enum Pooled {
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
        Self::new(Pooled::Sqlite(connection), None)
    }

    pub(crate) fn postgres(connection: PoolConnection<Postgres>, trust: &PoolHealth) -> Self {
        Self::new(Pooled::Postgres(connection), Some(trust.clone()))
    }

    fn new(connection: Pooled, trust: Option<PoolHealth>) -> Self {
        Self {
            connection: Some(connection),
            in_transaction: false,
            is_last: false,
            trust,
        }
    }

    /// It turned out that there was nobody at the other end.
    pub(crate) fn was_dead(&self) {
        if let Some(trust) = &self.trust {
            trust.mark_dead();
        }
    }

    pub(crate) fn db(&mut self) -> Result<Db<'_>, sqlx::Error> {
        match &mut self.connection {
            Some(Pooled::Sqlite(connection)) => Ok(Db::Sqlite(connection)),
            Some(Pooled::Postgres(connection)) => Ok(Db::Postgres(connection)),
            None => Err(sqlx::Error::PoolClosed),
        }
    }

    pub(crate) fn is_postgres(&self) -> bool {
        matches!(self.connection, Some(Pooled::Postgres(_)))
    }

    pub(crate) fn in_transaction(&self) -> bool {
        self.in_transaction
    }

    /// Begins a transaction; on SQLite it is the one writer from here on.
    pub(crate) async fn begin(&mut self) -> Result<(), sqlx::Error> {
        // First, as it may be dropped while it waits.
        self.in_transaction = true;
        let text = if self.is_postgres() {
            "BEGIN"
        } else {
            "BEGIN IMMEDIATE"
        };
        self.db()?.run(text).await
    }

    /// Begins a transaction that reads what was committed at its first statement, and nothing
    /// later.
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

    /// Takes [`Self::close_on_drop`] back.
    pub(crate) fn keep(&mut self) {
        self.is_last = false;
    }

    /// Makes this the end of the connection.
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
        // Without a runtime nobody could wait, and nobody will ask for a connection either.
        let Ok(runtime) = Handle::try_current() else {
            match connection {
                Pooled::Sqlite(connection) => drop(connection.detach()),
                Pooled::Postgres(connection) => drop(connection.detach()),
            }
            return;
        };
        let (in_transaction, is_last) = (self.in_transaction, self.is_last);
        match connection {
            Pooled::Sqlite(connection) => {
                if in_transaction {
                    runtime.spawn(roll_back_sqlite(connection));
                }
                // Otherwise the pool takes it as it is: what it may still be at work on is on
                // this machine, and comes to an end.
            }
            Pooled::Postgres(mut connection) if is_last => connection.close_on_drop(),
            Pooled::Postgres(connection) => {
                runtime.spawn(give_back_postgres(connection, in_transaction));
            }
        }
    }
}

async fn roll_back_sqlite(mut connection: PoolConnection<Sqlite>) {
    // An error says that no transaction is open: SQLite has ended it by itself.
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
    // A connection that is not back in time is closed, and its place is free.
    if !matches!(timeout(RETURN_TIMEOUT, back).await, Ok(Ok(()))) {
        connection.close_on_drop();
    }
}

/// A server that lives ends a statement that nobody waits for well within this.
const RETURN_TIMEOUT: Duration = Duration::from_secs(5);
