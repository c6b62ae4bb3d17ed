//! Transactions and reading connections for both databases.

use std::ops::{Deref, DerefMut};
use std::time::Duration;

use jiff::Timestamp;
use tokio::time::{Instant, timeout_at};

use crate::database::changes::{Change, ChangeWaker, Notes};
pub(crate) use crate::database::lease::DriverConnection;
use crate::database::lease::Lease;
use crate::error::{Bug, Error, Reason};

/// A connection that can be read from; every reading function takes one.
///
/// It is for one operation, whose queries must all be answered within [`Conn::TIME_LIMIT`].
/// A database that no longer responds therefore blocks no caller for longer.
pub struct Conn {
    lease: Lease,
    /// Time limit of all queries.
    deadline: Instant,
    /// True if the database has aborted the transaction.
    aborted: bool,
    /// Query plans so far, if they are recorded.
    plans: Option<Vec<String>>,
}

impl Conn {
    /// Time limit for one piece of work: several times the duration of the slowest request on a
    /// busy database, and still shorter than clients wait.
    pub const TIME_LIMIT: Duration = Duration::from_secs(15);

    fn new(lease: Lease) -> Self {
        Self {
            lease,
            deadline: Instant::now() + Self::TIME_LIMIT,
            aborted: false,
            plans: None,
        }
    }

    /// Deadline of this connection. The server's own limit on a statement does not help if the
    /// network no longer responds.
    pub(crate) fn deadline(&self) -> Instant {
        self.deadline
    }

    pub(crate) fn is_embedded(&self) -> bool {
        !self.lease.is_postgres()
    }

    /// # Errors
    /// [`Bug::Aborted`]: on SQLite a statement after the end of its transaction would run in a
    /// transaction of its own, and be committed.
    pub(crate) fn db(&mut self) -> Result<DriverConnection<'_>, Error> {
        if self.aborted {
            return Err(Bug::Aborted.into());
        }
        Ok(self.lease.db()?)
    }

    /// Handles the result of a statement: a failure may have aborted the transaction.
    pub(crate) fn handle_result<T>(&mut self, done: Result<T, Error>) -> Result<T, Error> {
        match &done {
            Err(Error::Unavailable { reason, .. }) => {
                self.aborted = self.lease.in_transaction();
                if matches!(reason, Reason::Connection | Reason::Silent) {
                    self.lease.report_dead();
                }
                // A PostgreSQL session that started read-only stays so, even if the server is
                // writable again: the next change needs a new session. A server that does not
                // respond cannot execute a rollback either.
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

    /// From now on requests the query plan from the database before each reading query. For tests
    /// and benchmarks that check the use of indexes.
    pub fn record_plans(&mut self) {
        self.plans = Some(Vec::new());
    }

    /// The lines of the recorded plans, as the database prints them.
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

/// A connection for reading. Each statement sees the data that is committed when it starts.
pub struct ReadConnection(Conn);

impl ReadConnection {
    pub(crate) fn new(lease: Lease) -> Self {
        Self(Conn::new(lease))
    }
}

/// A connection for reading that sees the data as of the first statement, for callers that read a
/// lot in many pages. Read it without long breaks: during its lifetime, databases keep data that
/// other transactions replace.
pub struct Snapshot(Conn);

impl Snapshot {
    pub(crate) async fn begin(lease: Lease) -> Result<Self, Error> {
        let mut conn = Conn::new(lease);
        let started = within(conn.deadline, conn.lease.begin_snapshot()).await;
        conn.handle_result(started)?;
        Ok(Self(conn))
    }

    /// Restarts the time limit [`Conn::TIME_LIMIT`] for the next page.
    pub fn next_page(&mut self) {
        self.0.deadline = Instant::now() + Conn::TIME_LIMIT;
    }
}

/// A write transaction. Dropping it without [`Tx::commit`] rolls it back.
///
/// On SQLite only one exists at a time, from its start. On PostgreSQL they run concurrently, and
/// each statement sees the data that other transactions committed before it (READ COMMITTED). A
/// caller that reads, decides and then writes must therefore do all three in one conditional
/// statement, or first take the lock of the workspace ([`crate::workspaces::lock`]).
pub struct Tx {
    conn: Conn,
    /// The changes for engines.
    notes: Notes,
    wake: ChangeWaker,
}

impl Tx {
    pub(crate) async fn begin(lease: Lease, wake: ChangeWaker) -> Result<Self, Error> {
        let mut conn = Conn::new(lease);
        let started = within(conn.deadline, conn.lease.begin()).await;
        conn.handle_result(started)?;
        Ok(Self {
            conn,
            notes: Notes::default(),
            wake,
        })
    }

    /// Locks the row that `statement` selects by `id`, on PostgreSQL. SQLite has no such statement,
    /// and only one writer.
    pub(crate) async fn lock(&mut self, statement: &'static str, id: &str) -> Result<(), Error> {
        let deadline = self.deadline();
        if let DriverConnection::Postgres(connection) = self.db()? {
            let lock = sqlx::query(statement).bind(id);
            let locked = within(deadline, lock.execute(connection)).await;
            self.handle_result(locked)?;
        }
        Ok(())
    }

    /// Records a change of data for engines, which is sent after the commit. A superfluous note
    /// costs a line on the wire. A missing one lets a revoked credential work.
    pub(crate) fn note(&mut self, change: Change, at: Timestamp) {
        self.notes.add(change, at);
    }

    /// Makes the changes of this transaction durable and visible atomically.
    ///
    /// # Errors
    /// After an error of PostgreSQL it is unknown if the transaction was committed. The caller
    /// retries with the same idempotency key.
    pub async fn commit(mut self) -> Result<(), Error> {
        // PostgreSQL would respond to this commit with a rollback, and report success.
        if self.conn.aborted {
            return Err(Bug::Aborted.into());
        }
        let notes = std::mem::take(&mut self.notes);
        let is_noted = !notes.is_empty();
        if is_noted {
            notes.write(&mut self).await?;
        }
        let done = within(self.conn.deadline, self.conn.lease.commit()).await;
        self.conn.handle_result(done)?;
        if is_noted {
            self.wake.wake();
        }
        Ok(())
    }
}

/// Waits for the response of the database until the deadline.
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
