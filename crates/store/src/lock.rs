//! Locks between transactions, of one process or of several.
//!
//! On PostgreSQL they are advisory locks that end with the transaction, so a process that dies
//! holds none. On SQLite a write transaction keeps every other writer out already.

use crate::connection::{Db, Tx, within};
use crate::error::Error;

/// What only one transaction at a time does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lock {
    /// Deciding who is an operator.
    Operators,
    /// Forgetting what is past its time.
    Purge,
}

impl Lock {
    /// Waits until no other transaction holds it; held until this one ends.
    pub async fn take(self, tx: &mut Tx) -> Result<(), Error> {
        let deadline = tx.deadline();
        if let Db::Postgres(connection) = tx.db()? {
            let lock = sqlx::query("SELECT pg_advisory_xact_lock($1)").bind(self.key());
            let locked = within(deadline, lock.execute(connection)).await;
            tx.after(locked)?;
        }
        Ok(())
    }

    /// Takes it if nobody holds it; false when somebody does.
    pub async fn try_take(self, tx: &mut Tx) -> Result<bool, Error> {
        let deadline = tx.deadline();
        match tx.db()? {
            Db::Postgres(connection) => {
                let lock = sqlx::query_scalar("SELECT pg_try_advisory_xact_lock($1)");
                let lock = lock.bind(self.key()).fetch_one(connection);
                let taken = within(deadline, lock).await;
                tx.after(taken)
            }
            Db::Sqlite(_) => Ok(true),
        }
    }

    /// Any numbers, the same in every version of this program and none of them migrations'.
    const fn key(self) -> i64 {
        match self {
            Self::Operators => 0x7376_635f_6f70_6572,
            Self::Purge => 0x7376_635f_7075_7267,
        }
    }
}
