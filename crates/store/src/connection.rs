//! Transactions and reading connections of either database.

use std::ops::{Deref, DerefMut};

use sqlx::pool::PoolConnection;
use sqlx::{PgConnection, Postgres, Sqlite, SqliteConnection, Transaction};

use crate::error::Error;

/// A connection that can be read from; what every reading function takes.
pub struct Conn {
    kind: Kind,
    /// Plans of the queries so far, once they are recorded.
    plans: Option<Vec<String>>,
}

enum Kind {
    SqliteRead(PoolConnection<Sqlite>),
    SqliteWrite(Transaction<'static, Sqlite>),
    PostgresRead(PoolConnection<Postgres>),
    PostgresWrite(Transaction<'static, Postgres>),
}

/// The driver's connection.
pub(crate) enum Db<'c> {
    Sqlite(&'c mut SqliteConnection),
    Postgres(&'c mut PgConnection),
}

impl Conn {
    pub(crate) fn db(&mut self) -> Db<'_> {
        match &mut self.kind {
            Kind::SqliteRead(connection) => Db::Sqlite(connection),
            Kind::SqliteWrite(transaction) => Db::Sqlite(transaction),
            Kind::PostgresRead(connection) => Db::Postgres(connection),
            Kind::PostgresWrite(transaction) => Db::Postgres(transaction),
        }
    }

    /// From now on asks the database, before each query that reads, how it means to run it. For
    /// tests and benchmarks that hold queries to their indexes.
    pub fn record_plans(&mut self) {
        self.plans = Some(Vec::new());
    }

    /// The lines of the plans that were recorded, in the database's own words.
    pub fn plans(&self) -> &[String] {
        self.plans.as_deref().unwrap_or_default()
    }

    pub(crate) fn records_plans(&self) -> bool {
        self.plans.is_some()
    }

    pub(crate) fn record_plan(&mut self, lines: Vec<String>) {
        if let Some(plans) = &mut self.plans {
            plans.extend(lines);
        }
    }
}

/// A connection for reading. Each statement sees what is committed when it begins.
pub struct Read(Conn);

/// A write transaction. Dropped without [`Tx::commit`], nothing of it happened.
///
/// On SQLite there is one at a time, from its beginning; on PostgreSQL they run side by side and
/// each statement sees what others committed before it (READ COMMITTED). So whoever reads,
/// decides and then writes either lets one conditional statement do all three, or takes the lock
/// of the workspace first ([`crate::workspaces::lock`]).
pub struct Tx(Conn);

impl Tx {
    /// Makes everything of this transaction durable and visible at once.
    ///
    /// # Errors
    /// When the database fails here, whether it was committed is not known on PostgreSQL: the
    /// caller asks again under the same idempotency key.
    pub async fn commit(self) -> Result<(), Error> {
        match self.0.kind {
            Kind::SqliteWrite(transaction) => transaction.commit().await?,
            Kind::PostgresWrite(transaction) => transaction.commit().await?,
            // A `Tx` is only ever made of a transaction.
            Kind::SqliteRead(_) | Kind::PostgresRead(_) => {}
        }
        Ok(())
    }
}

impl From<PoolConnection<Sqlite>> for Read {
    fn from(connection: PoolConnection<Sqlite>) -> Self {
        Self(Conn {
            kind: Kind::SqliteRead(connection),
            plans: None,
        })
    }
}

impl From<PoolConnection<Postgres>> for Read {
    fn from(connection: PoolConnection<Postgres>) -> Self {
        Self(Conn {
            kind: Kind::PostgresRead(connection),
            plans: None,
        })
    }
}

impl From<Transaction<'static, Sqlite>> for Tx {
    fn from(transaction: Transaction<'static, Sqlite>) -> Self {
        Self(Conn {
            kind: Kind::SqliteWrite(transaction),
            plans: None,
        })
    }
}

impl From<Transaction<'static, Postgres>> for Tx {
    fn from(transaction: Transaction<'static, Postgres>) -> Self {
        Self(Conn {
            kind: Kind::PostgresWrite(transaction),
            plans: None,
        })
    }
}

impl Deref for Read {
    type Target = Conn;

    fn deref(&self) -> &Conn {
        &self.0
    }
}

impl DerefMut for Read {
    fn deref_mut(&mut self) -> &mut Conn {
        &mut self.0
    }
}

impl Deref for Tx {
    type Target = Conn;

    fn deref(&self) -> &Conn {
        &self.0
    }
}

impl DerefMut for Tx {
    fn deref_mut(&mut self) -> &mut Conn {
        &mut self.0
    }
}
