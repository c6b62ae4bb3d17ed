//! Locks between transactions, of one process or of several.
//!
//! On PostgreSQL they are advisory locks that end with the transaction, or with the connection of a
//! longer piece of work, so a crashed process holds none. On SQLite a write transaction already
//! excludes all other writers.

use tokio::time::Instant;

use crate::database::connection::{Conn, DriverConnection, Tx, within};
use crate::database::lease::Lease;
use crate::error::Error;

/// Work that only one transaction at a time may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lock {
    /// Changing the set of operators.
    Operators,
    /// Taking down a host name, restoring it, or getting it as a custom domain: the later one sees
    /// the earlier one, so that engines get each takedown with every project that has the name.
    Hostnames,
    /// Purging expired rows.
    Purge,
}

/// A lock that is held over many transactions; dropping it releases it. A crashed process holds
/// none.
#[must_use]
pub struct WorkLock {
    connection: Option<Lease>,
}

impl WorkLock {
    pub(crate) fn of_nobody() -> Self {
        Self { connection: None }
    }

    /// Releases it immediately. A dropped lock ends with its connection, a moment later.
    pub async fn release(mut self) {
        let Some(mut lease) = self.connection.take() else {
            return;
        };
        let deadline = Instant::now() + Conn::TIME_LIMIT;
        let released = match lease.db() {
            Ok(DriverConnection::Postgres(connection)) => {
                let unlock = sqlx::raw_sql("SELECT pg_advisory_unlock_all()");
                within(deadline, unlock.execute(connection)).await.is_ok()
            }
            Ok(DriverConnection::Sqlite(_)) | Err(_) => false,
        };
        if released {
            lease.cancel_close_on_drop();
        }
    }
}

impl Lock {
    /// Waits until no other transaction holds it. It is held until this transaction ends.
    pub async fn take(self, tx: &mut Tx) -> Result<(), Error> {
        let deadline = tx.deadline();
        if let DriverConnection::Postgres(connection) = tx.db()? {
            let lock = sqlx::query("SELECT pg_advisory_xact_lock($1)").bind(self.key());
            let locked = within(deadline, lock.execute(connection)).await;
            tx.handle_result(locked)?;
        }
        Ok(())
    }

    /// Takes it on a separate connection if it is free, until that connection is closed.
    pub(crate) async fn try_hold(self, mut connection: Lease) -> Result<Option<WorkLock>, Error> {
        let deadline = Instant::now() + Conn::TIME_LIMIT;
        let locked = match connection.db()? {
            DriverConnection::Postgres(connection) => {
                let lock = sqlx::query_scalar("SELECT pg_try_advisory_lock($1)");
                let lock = lock.bind(self.key()).fetch_one(connection);
                within(deadline, lock).await
            }
            DriverConnection::Sqlite(_) => Ok(true),
        };
        // Also after an error: a connection that returns to the pool would keep a lock that it has.
        if !matches!(locked, Ok(false)) {
            connection.close_on_drop();
        }
        Ok(locked?.then_some(WorkLock {
            connection: Some(connection),
        }))
    }

    /// Arbitrary numbers, the same in every version of this program, and different from those of
    /// the migrations.
    const fn key(self) -> i64 {
        match self {
            Self::Operators => 0x7376_635f_6f70_6572,
            Self::Hostnames => 0x7376_635f_686f_7374,
            Self::Purge => 0x7376_635f_7075_7267,
        }
    }
}
