//! Transactions and reading connections of either database.

use std::ops::{Deref, DerefMut};
use std::time::Duration;

use jiff::Timestamp;
use tokio::time::{Instant, timeout_at};

use crate::changes::{Change, Notes, Wake};
use crate::error::{Bug, Error, Reason};
pub(crate) use crate::lease::Db;
use crate::lease::Lease;

/// A connection that can be read from; what every reading function takes.
///
/// It is for one piece of work: all that is asked of it has to be answered within
/// [`Conn::LONGEST`], so that a database that has fallen silent holds nobody for longer.
pub struct Conn {
    lease: Lease,
    /// When whoever waits for an answer gives up.
    deadline: Instant,
    /// Whether the database has ended the transaction before its time.
    aborted: bool,
    /// Plans of the queries so far, once they are recorded.
    plans: Option<Vec<String>>,
}

impl Conn {
    /// How long one connection works for its taker: several times what the slowest request needs
    /// of a busy database, and still within the patience of a client.
    pub const LONGEST: Duration = Duration::from_secs(15);

    fn new(lease: Lease) -> Self {
        Self {
            lease,
            deadline: Instant::now() + Self::LONGEST,
            aborted: false,
            plans: None,
        }
    }

    /// When this connection is given up. The server's own limit on a statement does not help
    /// when it is the network that has fallen silent.
    pub(crate) fn deadline(&self) -> Instant {
        self.deadline
    }

    pub(crate) fn is_embedded(&self) -> bool {
        !self.lease.is_postgres()
    }

    /// # Errors
    /// [`Bug::Aborted`]: on SQLite a statement after the end of its transaction would be one of
    /// its own, and committed.
    pub(crate) fn db(&mut self) -> Result<Db<'_>, Error> {
        if self.aborted {
            return Err(Bug::Aborted.into());
        }
        Ok(self.lease.db()?)
    }

    /// What became of a statement; a failure may have been the end of the transaction.
    pub(crate) fn after<T>(&mut self, done: Result<T, Error>) -> Result<T, Error> {
        match &done {
            Err(Error::Unavailable { reason, .. }) => {
                self.aborted = self.lease.in_transaction();
                if matches!(reason, Reason::Connection | Reason::Silent) {
                    self.lease.was_dead();
                }
                // PostgreSQL keeps a session read-only that began so, whatever became of the
                // server since: the next change needs a session of its own. And who is silent
                // hears no rollback either.
                if matches!(reason, Reason::ReadOnly | Reason::Silent) {
                    self.lease.close_on_drop();
                }
            }
            Err(Error::Conflict(_) | Error::Bug(Bug::Statement(_))) => {
                self.aborted = self.lease.in_transaction() && self.lease.is_postgres();
            }
            Err(Error::Bug(_)) | Ok(_) => {}
        }
        done
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
pub struct ReadConnection(Conn);

impl ReadConnection {
    pub(crate) fn on(lease: Lease) -> Self {
        Self(Conn::new(lease))
    }
}

/// A connection for reading on which everything is as it was at the first statement, for whoever
/// reads a lot in many pages. It is to be read without long breaks: while it lasts, databases keep
/// what others change.
pub struct Snapshot(Conn);

impl Snapshot {
    pub(crate) async fn on(lease: Lease) -> Result<Self, Error> {
        let mut conn = Conn::new(lease);
        let begun = within(conn.deadline, conn.lease.begin_snapshot()).await;
        conn.after(begun)?;
        Ok(Self(conn))
    }

    /// The next page has [`Conn::LONGEST`] for itself.
    pub fn next_page(&mut self) {
        self.0.deadline = Instant::now() + Conn::LONGEST;
    }
}

/// A write transaction. Dropped without [`Tx::commit`], nothing of it happened.
///
/// On SQLite there is one at a time, from its beginning; on PostgreSQL they run side by side and
/// each statement sees what others committed before it (READ COMMITTED). So whoever reads,
/// decides and then writes either lets one conditional statement do all three, or takes the lock
/// of the workspace first ([`crate::workspaces::lock`]).
pub struct Tx {
    conn: Conn,
    /// What it changed for engines.
    notes: Notes,
    wake: Wake,
}

impl Tx {
    pub(crate) async fn on(lease: Lease, wake: Wake) -> Result<Self, Error> {
        let mut conn = Conn::new(lease);
        let begun = within(conn.deadline, conn.lease.begin()).await;
        conn.after(begun)?;
        Ok(Self {
            conn,
            notes: Notes::default(),
            wake,
        })
    }

    /// Locks the row that `statement` selects by `id`, on PostgreSQL: SQLite has no such words, and
    /// one writer alone.
    pub(crate) async fn lock(&mut self, statement: &'static str, id: &str) -> Result<(), Error> {
        let deadline = self.deadline();
        if let Db::Postgres(connection) = self.db()? {
            let lock = sqlx::query(statement).bind(id);
            let locked = within(deadline, lock.execute(connection)).await;
            self.after(locked)?;
        }
        Ok(())
    }

    /// Notes that something changed that engines know. What is committed is told; saying it once
    /// too often costs a line on the wire, forgetting it lets a revoked credential in.
    pub(crate) fn note(&mut self, change: Change, at: Timestamp) {
        self.notes.add(change, at);
    }

    /// Makes everything of this transaction durable and visible at once.
    ///
    /// # Errors
    /// When the database fails here, whether it was committed is not known on PostgreSQL: the
    /// caller asks again under the same idempotency key.
    pub async fn commit(mut self) -> Result<(), Error> {
        // PostgreSQL would answer to this with a rollback, and call it done.
        if self.conn.aborted {
            return Err(Bug::Aborted.into());
        }
        let notes = std::mem::take(&mut self.notes);
        let is_noted = !notes.is_empty();
        if is_noted {
            notes.write(&mut self).await?;
        }
        let done = within(self.conn.deadline, self.conn.lease.commit()).await;
        self.conn.after(done)?;
        if is_noted {
            self.wake.wake();
        }
        Ok(())
    }
}

/// What the database answers, if it does so in time.
pub(crate) async fn within<T>(
    deadline: Instant,
    answer: impl Future<Output = Result<T, sqlx::Error>>,
) -> Result<T, Error> {
    match timeout_at(deadline, answer).await {
        Ok(answer) => Ok(answer?),
        Err(_) => Err(Reason::Silent.into()),
    }
}

impl Deref for ReadConnection {
    type Target = Conn;

    fn deref(&self) -> &Conn {
        &self.0
    }
}

impl DerefMut for ReadConnection {
    fn deref_mut(&mut self) -> &mut Conn {
        &mut self.0
    }
}

impl Deref for Snapshot {
    type Target = Conn;

    fn deref(&self) -> &Conn {
        &self.0
    }
}

impl DerefMut for Snapshot {
    fn deref_mut(&mut self) -> &mut Conn {
        &mut self.0
    }
}

impl Deref for Tx {
    type Target = Conn;

    fn deref(&self) -> &Conn {
        &self.conn
    }
}

impl DerefMut for Tx {
    fn deref_mut(&mut self) -> &mut Conn {
        &mut self.conn
    }
}
