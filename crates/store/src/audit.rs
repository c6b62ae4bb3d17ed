//! The audit log: which actor issued, revoked or changed an object. Rows are never changed, which
//! the database enforces. Rows can be deleted only if they are older than the horizon, which only
//! [`purge`] moves, and only forward.

use jiff::Timestamp;
use types::id::{AuditId, CredentialId, UserId, WorkspaceId, unix_millis};

use crate::database::connection::{Conn, Tx};
use crate::database::page::{Page, Paging};
use crate::database::row::record;
use crate::database::sql::{Value, sql, statements};
use crate::database::timeline::Period;
use crate::error::Error;

record! {
    /// One entry.
    pub struct Entry from "audit" {
        /// Id.
        pub id: AuditId,
        /// The workspace that it concerns; none: a person, or the installation.
        pub workspace_id: Option<WorkspaceId>,
        /// The acting user; none: the platform itself.
        pub actor_user_id: Option<UserId>,
        /// The credential that was used; none: a browser session.
        pub actor_credential_id: Option<CredentialId>,
        /// The action, for example `credential.revoked`.
        pub action: String,
        /// Kind of the object.
        pub target_kind: String,
        /// Id of the object.
        pub target_id: String,
        /// Further details, a JSON object without secrets.
        pub details: serde_json::Value,
        /// Client address.
        pub ip: Option<String>,
        /// Time of the action.
        pub created_at: Timestamp,
    }
}

macro_rules! columns {
    () => {
        "id, workspace_id, actor_user_id, actor_credential_id, action, target_kind, target_id, \
         details, ip, created_at"
    };
}

statements! {
    INSERT = concat!("INSERT INTO audit (", columns!(), ") VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)");
    MOVE_HORIZON = "UPDATE audit_horizon SET kept_from = $1 WHERE kept_from < $1";
    PURGE = "DELETE FROM audit WHERE id IN \
        (SELECT id FROM audit WHERE created_at < $1 ORDER BY created_at LIMIT $2)";
}

/// The log that a list reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// The entries of a workspace.
    Workspace(WorkspaceId),
    /// The actions of a person.
    User(UserId),
    /// All entries, for operators.
    All,
}

/// The actor of the entries that a filter selects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FilterActor {
    /// A person.
    User(UserId),
    /// The platform itself, or an unknown visitor.
    Platform,
}

/// Conditions of a list. Without any, it has all entries of its scope.
#[derive(Clone, Copy, Debug, Default)]
pub struct Filter<'a> {
    /// Only this action.
    pub action: Option<&'a str>,
    /// Only actions of this actor.
    pub actor: Option<FilterActor>,
    /// Only changes of the object with this id.
    pub target: Option<&'a str>,
    /// Only entries of this period.
    pub period: Period,
}

/// Adds an entry, in the transaction of the action itself.
pub async fn insert(tx: &mut Tx, entry: &Entry) -> Result<(), Error> {
    sql(INSERT)
        .bind(entry.id)
        .bind(entry.workspace_id)
        .bind(entry.actor_user_id)
        .bind(entry.actor_credential_id)
        .bind(&entry.action)
        .bind(&entry.target_kind)
        .bind(&entry.target_id)
        .bind(&entry.details)
        .bind(entry.ip.as_ref())
        .bind(entry.created_at)
        .execute(tx)
        .await?;
    Ok(())
}

/// The actions of a person, newest first.
pub async fn of_user(conn: &mut Conn, user: UserId, paging: Paging) -> Result<Page<Entry>, Error> {
    list(conn, Scope::User(user), &Filter::default(), paging).await
}

/// All entries, newest first, for operators.
pub async fn list_all(conn: &mut Conn, paging: Paging) -> Result<Page<Entry>, Error> {
    list(conn, Scope::All, &Filter::default(), paging).await
}

/// The entries of a log that match a filter, newest first.
pub async fn list(
    conn: &mut Conn,
    scope: Scope,
    filter: &Filter<'_>,
    paging: Paging,
) -> Result<Page<Entry>, Error> {
    let Conditions { text, values } = Conditions::new(scope, filter);
    let count = sql(count_text(&text)).bind_all(&values);
    let total = count.count(conn).await?;
    let rows = sql(list_text(&text, values.len())).bind_all(&values);
    let items = rows.bind_page(paging).all(conn).await?;
    Ok(Page { items, total })
}

/// The statements of each combination of conditions.
pub(crate) fn every() -> Vec<String> {
    let user = UserId::new(0, [0; 10]);
    let scopes = [
        Scope::Workspace(WorkspaceId::new(0, [0; 10])),
        Scope::User(user),
        Scope::All,
    ];
    let actors = [
        None,
        Some(FilterActor::User(user)),
        Some(FilterActor::Platform),
    ];
    let mut every = Vec::new();
    for scope in scopes {
        for actor in actors {
            for bits in 0..16_u8 {
                let given = |bit: u8| bits & (1 << bit) != 0;
                let filter = Filter {
                    action: given(0).then_some("member.changed"),
                    actor,
                    target: given(1).then_some("usr"),
                    period: Period {
                        start: given(2).then_some(Timestamp::UNIX_EPOCH),
                        end: given(3).then_some(Timestamp::UNIX_EPOCH),
                    },
                };
                let Conditions { text, values } = Conditions::new(scope, &filter);
                every.extend([count_text(&text), list_text(&text, values.len())]);
            }
        }
    }
    every
}

/// The conditions of a statement, with their arguments.
#[derive(Default)]
struct Conditions {
    /// Empty, or a `WHERE` clause after a space.
    text: String,
    values: Vec<Value>,
}

impl Conditions {
    fn new(scope: Scope, filter: &Filter<'_>) -> Self {
        let mut conditions = Self::default();
        match scope {
            Scope::Workspace(id) => conditions.add("workspace_id = $n", id),
            Scope::User(id) => conditions.add("actor_user_id = $n", id),
            Scope::All => {}
        }
        match filter.actor {
            Some(FilterActor::User(id)) => conditions.add("actor_user_id = $n", id),
            Some(FilterActor::Platform) => conditions.add_text("actor_user_id IS NULL"),
            None => {}
        }
        if let Some(action) = filter.action {
            conditions.add("action = $n", action);
        }
        if let Some(target) = filter.target {
            conditions.add("target_id = $n", target);
        }
        // Ids begin with the millisecond of their entry. So an index that ends with the id also
        // finds the period, in the order of the list.
        if let Some(start) = filter.period.start {
            conditions.add("created_at >= $n", start);
            conditions.add("id >= $n", AuditId::new(unix_millis(start), [0; 10]));
        }
        if let Some(end) = filter.period.end {
            let next = unix_millis(end).saturating_add(1);
            conditions.add("created_at < $n", end);
            conditions.add("id < $n", AuditId::new(next, [0; 10]));
        }
        conditions
    }

    /// Adds a condition; `$n` in it is the value.
    fn add(&mut self, condition: &str, value: impl Into<Value>) {
        self.values.push(value.into());
        let placeholder = format!("${}", self.values.len());
        self.add_text(&condition.replace("$n", &placeholder));
    }

    fn add_text(&mut self, condition: &str) {
        let before = if self.text.is_empty() {
            " WHERE "
        } else {
            " AND "
        };
        self.text.push_str(before);
        self.text.push_str(condition);
    }
}

fn count_text(conditions: &str) -> String {
    format!("SELECT COUNT(*) AS n FROM audit{conditions}")
}

fn list_text(conditions: &str, arguments: usize) -> String {
    format!(
        "SELECT {} FROM audit{conditions} ORDER BY id DESC LIMIT ${} OFFSET ${}",
        columns!(),
        arguments + 1,
        arguments + 2
    )
}

/// Deletes at most `limit` entries from before `kept_from`, and moves the horizon so that no later
/// call can lower it. Returns their number.
pub async fn purge(tx: &mut Tx, kept_from: Timestamp, limit: u32) -> Result<u64, Error> {
    sql(MOVE_HORIZON).bind(kept_from).execute(tx).await?;
    sql(PURGE).bind(kept_from).bind(limit).execute(tx).await
}
