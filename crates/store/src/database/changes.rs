//! The log of changes for engines, and the wake-up of its readers.
//!
//! The functions of this crate that change data for engines record it themselves ([`Tx::note`]), so
//! that no caller can forget to. [`Tx::commit`] writes the notes of a transaction as its last
//! statements, all under one version. It locks the row with the newest version until the end of the
//! transaction. Versions are therefore committed in order, and a reader that has read up to one
//! version never misses an earlier one.
//!
//! A note names the changed object, not the change: the state is read when it is sent
//! ([`crate::directory`]).

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use sqlx::postgres::PgListener;
use tokio::sync::watch;
use types::id::{CredentialId, ProjectId, UserId, WebttyServerId, WorkspaceId};

use crate::database::connection::{Conn, DriverConnection, Tx, within};
use crate::database::row::{record, words};
use crate::database::sql::{sql, statements};
use crate::error::{Bug, Error};

words! {
    /// Kind of a changed object.
    pub enum Kind {
        /// The keys that verify the platform's tokens.
        Keys = "keys",
        /// A project: its settings, its region, its ports, its existence.
        Project = "project",
        /// All projects of a workspace, because a property of the workspace applies to each.
        Workspace = "workspace",
        /// The members of a workspace that a project was moved to or from. They may have gained or
        /// lost access to the cluster of that project.
        Members = "members",
        /// A person, including memberships and credentials.
        Person = "person",
        /// A credential.
        Credential = "credential",
        /// A registered `WebTTY` server.
        WebttyServer = "webtty_server",
        /// A token or a session that was revoked before its expiry.
        Ended = "ended",
    }
}

record! {
    /// One changed object.
    #[derive(Eq, PartialOrd, Ord, Hash)]
    pub struct Change from "link_changes" {
        /// Its kind.
        pub kind: Kind,
        /// Its id; empty if there is only one.
        pub key: String,
    }
}

impl Change {
    pub(crate) fn keys() -> Self {
        Self::of(Kind::Keys, "")
    }

    pub(crate) fn project(id: ProjectId) -> Self {
        Self::of(Kind::Project, id.as_str())
    }

    pub(crate) fn workspace(id: WorkspaceId) -> Self {
        Self::of(Kind::Workspace, id.as_str())
    }

    pub(crate) fn members(id: WorkspaceId) -> Self {
        Self::of(Kind::Members, id.as_str())
    }

    pub(crate) fn person(id: UserId) -> Self {
        Self::of(Kind::Person, id.as_str())
    }

    pub(crate) fn credential(id: CredentialId) -> Self {
        Self::of(Kind::Credential, id.as_str())
    }

    pub(crate) fn webtty_server(id: WebttyServerId) -> Self {
        Self::of(Kind::WebttyServer, id.as_str())
    }

    pub(crate) fn ended(id: &str) -> Self {
        Self::of(Kind::Ended, id)
    }

    fn of(kind: Kind, key: &str) -> Self {
        Self {
            kind,
            key: key.to_owned(),
        }
    }
}

record! {
    /// A position in the log.
    #[derive(Eq, Hash)]
    pub struct Version from "link_head" {
        /// Counts the transactions that changed data for engines.
        pub version: i64,
        /// Random for each version: a restored database reaches the same numbers again, but never
        /// with the same marks.
        pub mark: String,
    }
}

statements! {
    HEAD = "SELECT version, mark FROM link_head WHERE id = 1";
    IS_KEPT = "SELECT COUNT(*) AS n FROM link_changes WHERE version = $1 AND mark = $2";
    SINCE = "SELECT DISTINCT kind, key FROM link_changes WHERE version > $1 LIMIT $2";
    OLDEST_SINCE = "SELECT MIN(at) AS n FROM link_changes WHERE version > $1";
    ADVANCE = "UPDATE link_head SET version = version + 1, mark = $1 WHERE id = 1 RETURNING version AS n";
    APPEND = "INSERT INTO link_changes (version, mark, kind, key, at) \
        SELECT CAST($1 AS BIGINT), CAST($2 AS TEXT), CAST($3 AS TEXT), value, CAST($5 AS BIGINT) \
        FROM EACH_OF($4)";
    // Deletes from the oldest version on, so that the log has no gaps.
    PURGE = "DELETE FROM link_changes WHERE version <= (SELECT MAX(version) FROM \
        (SELECT version FROM link_changes WHERE at <= $1 ORDER BY at LIMIT $2) AS old)";
}

/// The end of the log.
pub async fn head(conn: &mut Conn) -> Result<Version, Error> {
    let head = sql(HEAD).one(conn).await?;
    head.ok_or_else(|| Bug::Schema("the change log has no head".to_owned()).into())
}

/// True if the position is in the log or is its end, so that no later change is missing.
pub async fn is_in_log(conn: &mut Conn, at: &Version) -> Result<bool, Error> {
    if head(conn).await? == *at {
        return Ok(true);
    }
    let kept = sql(IS_KEPT).bind(at.version).bind(&at.mark);
    Ok(kept.count(conn).await? > 0)
}

/// The objects that changed after this version, each once, at most `limit` of them.
pub async fn since(conn: &mut Conn, version: i64, limit: u32) -> Result<Vec<Change>, Error> {
    sql(SINCE).bind(version).bind(limit).all(conn).await
}

/// Time of the oldest change after this version, to measure the replication delay.
pub async fn oldest_since(conn: &mut Conn, version: i64) -> Result<Option<Timestamp>, Error> {
    sql(OLDEST_SINCE).bind(version).time(conn).await
}

/// Deletes about `limit` entries that are at least this old; whole versions, oldest first.
pub async fn purge(tx: &mut Tx, before: Timestamp, limit: u32) -> Result<u64, Error> {
    sql(PURGE).bind(before).bind(limit).execute(tx).await
}

/// The changes of a transaction so far.
#[derive(Debug, Default)]
pub(crate) struct Notes(BTreeMap<Change, Timestamp>);

impl Notes {
    pub(crate) fn add(&mut self, change: Change, at: Timestamp) {
        self.0.insert(change, at);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Writes them under the next version, and wakes the listeners when they are committed.
    pub(crate) async fn write(self, tx: &mut Tx) -> Result<(), Error> {
        let mut mark = [0; 8];
        aws_lc_rs::rand::fill(&mut mark)
            .map_err(|_| Bug::Statement(sqlx::Error::Protocol("no randomness".to_owned())))?;
        let mark = format!("{:016x}", u64::from_be_bytes(mark));
        let version: Option<i64> = sql(ADVANCE).bind(&mark).one(tx).await?;
        let Some(version) = version else {
            return Err(Bug::Schema("the change log has no head".to_owned()).into());
        };
        let mut kinds: BTreeMap<Kind, (Timestamp, Vec<String>)> = BTreeMap::new();
        for (change, at) in self.0 {
            let (latest, keys) = kinds.entry(change.kind).or_insert((at, Vec::new()));
            *latest = at.max(*latest);
            keys.push(change.key);
        }
        for (kind, (at, keys)) in kinds {
            sql(APPEND)
                .bind(version)
                .bind(&mark)
                .bind(kind)
                .bind(keys)
                .bind(at)
                .execute(tx)
                .await?;
        }
        let deadline = tx.deadline();
        if let DriverConnection::Postgres(connection) = tx.db()? {
            let notify = sqlx::query("SELECT pg_notify($1, '')").bind(CHANNEL);
            let notified = within(deadline, notify.execute(connection)).await;
            tx.handle_result(notified)?;
        }
        Ok(())
    }
}

/// Notifies of commits: of this process immediately, and of other processes as far as the database
/// supports notifications ([`crate::Store::listen`]). Readers that must not miss anything also have
/// to check the [`head`] from time to time.
#[derive(Clone, Debug)]
pub(crate) struct ChangeWaker(Arc<watch::Sender<()>>);

impl Default for ChangeWaker {
    fn default() -> Self {
        Self(Arc::new(watch::Sender::new(())))
    }
}

impl ChangeWaker {
    pub(crate) fn wake(&self) {
        self.0.send_replace(());
    }

    pub(crate) fn subscribe(&self) -> watch::Receiver<()> {
        self.0.subscribe()
    }

    /// Forwards the notifications of other processes, until the connection fails.
    pub(crate) async fn forward(&self, mut listener: PgListener) -> Result<(), Error> {
        listener.listen(CHANNEL).await?;
        // A notification may have been sent before the listener started.
        self.wake();
        loop {
            // `None`: the connection broke and was restored, and notifications in between are lost.
            let _told = listener.try_recv().await?;
            self.wake();
        }
    }
}

/// Name of the notifications on PostgreSQL.
const CHANNEL: &str = "svc_link_changes";
