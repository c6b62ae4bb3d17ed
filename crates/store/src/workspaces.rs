//! Workspaces: their subscription status and their membership.

pub mod invitations;
pub mod members;

use jiff::Timestamp;
use types::id::{UserId, WorkspaceId};

use crate::database::changes::Change;
use crate::database::connection::{Conn, Tx};
use crate::database::page::{Order, Page, Paging, fold_case, like_pattern, sort_columns};
use crate::database::row::{record, words};
use crate::database::sql::{sorted, sql, statements};
use crate::error::Error;

record! {
    /// A workspace.
    pub struct Workspace from "workspaces" {
        /// Id.
        pub id: WorkspaceId,
        /// Personal or team.
        pub kind: Type,
        /// Name.
        pub name: String,
        /// Status of the workspace.
        pub status: Status,
        /// Status of its subscription; none if there is none.
        pub subscription_status: Option<String>,
        /// True if the hosted pages have a payment method on file.
        pub has_payment_method: bool,
        /// Creation time.
        pub created_at: Timestamp,
        /// Time of the last change.
        pub updated_at: Timestamp,
    }
}

record! {
    /// A workspace as one of its members sees it.
    pub struct Membership from "workspaces of a member" {
        /// Id.
        pub id: WorkspaceId,
        /// Personal or team.
        pub kind: Type,
        /// Name.
        pub name: String,
        /// Status of the workspace.
        pub status: Status,
        /// Status of its subscription.
        pub subscription_status: Option<String>,
        /// True if the hosted pages have a payment method on file.
        pub has_payment_method: bool,
        /// Creation time.
        pub created_at: Timestamp,
        /// Time of the last change.
        pub updated_at: Timestamp,
        /// The member's role.
        pub member_role: members::Role,
        /// Status of the membership.
        pub member_status: members::Status,
        /// Time of the invitation; none for the creator.
        pub invited_at: Option<Timestamp>,
        /// Time when the member joined.
        pub joined_at: Timestamp,
    }
}

words! {
    /// Kinds of workspaces.
    pub enum Type {
        /// Created with its owner's account.
        Personal = "personal",
        /// Created for several members.
        Team = "team",
    }
}

words! {
    /// Status of a workspace.
    pub enum Status {
        /// The workspace can be used.
        Active = "active",
        /// An operator has suspended the workspace.
        Suspended = "suspended",
    }
}

sort_columns! {
    /// Columns by which operators sort workspaces.
    pub enum Sort {
        /// Age.
        Id = "id",
        /// Name.
        Name = "name",
    }
}

macro_rules! columns {
    () => {
        "id, kind, name, status, subscription_status, has_payment_method, created_at, updated_at"
    };
}

macro_rules! membership {
    ($where:literal) => {
        concat!(
            "SELECT w.id, w.kind, w.name, w.status, w.subscription_status, w.has_payment_method, \
             w.created_at, w.updated_at, m.role AS member_role, m.status AS member_status, \
             m.invited_at, m.joined_at FROM members m JOIN workspaces w ON w.id = m.workspace_id \
             WHERE m.user_id = $1 AND w.deleted_at IS NULL AND ",
            $where
        )
    };
}

statements! {
    INSERT = "INSERT INTO workspaces (id, kind, name, search, status, has_payment_method, created_at, updated_at) \
        VALUES ($1, $2, $3, $4, 'active', FALSE, $5, $5)";
    BY_ID = concat!("SELECT ", columns!(), " FROM workspaces WHERE id = $1 AND deleted_at IS NULL");
    OF_USER = membership!("m.status = 'active' ORDER BY w.id");
    OF_USER_ALL = membership!("m.status IN ('active', 'suspended') ORDER BY w.id");
    OF_USER_ONE = membership!("w.id = $2 AND m.status = 'active'");
    RENAME = "UPDATE workspaces SET name = $2, search = $3, updated_at = $4 WHERE id = $1 AND deleted_at IS NULL";
    SET_STATUS = "UPDATE workspaces SET status = $2, updated_at = $3 WHERE id = $1 AND deleted_at IS NULL";
    CHANGE_STATUS = "UPDATE workspaces SET status = $3, updated_at = $4 \
        WHERE id = $1 AND status = $2 AND deleted_at IS NULL";
    SET_BILLING = "UPDATE workspaces SET subscription_status = $2, has_payment_method = $3, updated_at = $4 \
        WHERE id = $1 AND deleted_at IS NULL";
    DELETE = "UPDATE workspaces SET deleted_at = $2, updated_at = $2 WHERE id = $1 AND deleted_at IS NULL \
        AND NOT EXISTS (SELECT 1 FROM projects WHERE workspace_id = $1 AND deleted_at IS NULL)";
    // Billing records are kept; members, invitations and idempotency keys are deleted as well.
    PURGE = "DELETE FROM workspaces WHERE id IN (SELECT id FROM workspaces w WHERE deleted_at <= $1 \
        AND NOT EXISTS (SELECT 1 FROM projects WHERE workspace_id = w.id) \
        AND NOT EXISTS (SELECT 1 FROM subscriptions WHERE workspace_id = w.id) \
        AND NOT EXISTS (SELECT 1 FROM credentials WHERE workspace_id = w.id) \
        ORDER BY deleted_at LIMIT $2)";
    COUNT = "SELECT COUNT(*) AS n FROM workspaces WHERE deleted_at IS NULL AND search LIKE $1 ESCAPE '!'";
}

pub(crate) const LIST: &str = concat!(
    "SELECT ",
    columns!(),
    " FROM workspaces WHERE deleted_at IS NULL AND search LIKE $1 ESCAPE '!' \
     ORDER BY {sort} LIMIT $2 OFFSET $3"
);

/// Adds a workspace without members.
pub async fn insert(
    tx: &mut Tx,
    id: WorkspaceId,
    kind: Type,
    name: &str,
    now: Timestamp,
) -> Result<(), Error> {
    sql(INSERT)
        .bind(id)
        .bind(kind)
        .bind(name)
        .bind(fold_case(name))
        .bind(now)
        .execute(tx)
        .await?;
    Ok(())
}

/// The workspace, without an access check: for background tasks and operators.
pub async fn by_id(conn: &mut Conn, id: WorkspaceId) -> Result<Option<Workspace>, Error> {
    sql(BY_ID).bind(id).one(conn).await
}

/// The workspaces that a person is an active member of, oldest first.
pub async fn of_user(conn: &mut Conn, user: UserId) -> Result<Vec<Membership>, Error> {
    sql(OF_USER).bind(user).all(conn).await
}

/// The same, including suspended memberships.
pub async fn of_user_in_any_status(
    conn: &mut Conn,
    user: UserId,
) -> Result<Vec<Membership>, Error> {
    sql(OF_USER_ALL).bind(user).all(conn).await
}

/// The workspace, if the person is an active member of it.
pub async fn of_user_by_id(
    conn: &mut Conn,
    user: UserId,
    id: WorkspaceId,
) -> Result<Option<Membership>, Error> {
    sql(OF_USER_ONE).bind(user).bind(id).one(conn).await
}

/// All workspaces, for operators.
pub async fn list(
    conn: &mut Conn,
    search: Option<&str>,
    sort: Sort,
    order: Order,
    paging: Paging,
) -> Result<Page<Workspace>, Error> {
    let pattern = like_pattern(search);
    sql(sorted(LIST, sort.column(), order))
        .bind(&pattern)
        .page(COUNT, conn, paging)
        .await
}

/// Blocks all other transactions that take the same lock until this one ends, so that decisions
/// based on data read after it are still correct when they are written: the last owner, the billing
/// status. On SQLite a write transaction does this for the whole database.
pub async fn lock(tx: &mut Tx, id: WorkspaceId) -> Result<(), Error> {
    tx.lock(LOCK, id.as_str()).await
}

/// Changes the name.
pub async fn rename(
    tx: &mut Tx,
    id: WorkspaceId,
    name: &str,
    now: Timestamp,
) -> Result<bool, Error> {
    sql(RENAME)
        .bind(id)
        .bind(name)
        .bind(fold_case(name))
        .bind(now)
        .changed(tx)
        .await
}

/// Suspends or resumes a workspace.
pub async fn set_status(
    tx: &mut Tx,
    id: WorkspaceId,
    status: Status,
    now: Timestamp,
) -> Result<bool, Error> {
    tx.note(Change::workspace(id), now);
    sql(SET_STATUS)
        .bind(id)
        .bind(status)
        .bind(now)
        .changed(tx)
        .await
}

/// Changes the status of a workspace. False if the current status is not the expected one.
pub async fn change_status(
    tx: &mut Tx,
    id: WorkspaceId,
    from: Status,
    to: Status,
    now: Timestamp,
) -> Result<bool, Error> {
    tx.note(Change::workspace(id), now);
    sql(CHANGE_STATUS)
        .bind(id)
        .bind(from)
        .bind(to)
        .bind(now)
        .changed(tx)
        .await
}

/// Records the billing status of a workspace.
pub async fn set_billing(
    tx: &mut Tx,
    id: WorkspaceId,
    subscription_status: Option<&str>,
    has_payment_method: bool,
    now: Timestamp,
) -> Result<bool, Error> {
    sql(SET_BILLING)
        .bind(id)
        .bind(subscription_status)
        .bind(has_payment_method)
        .bind(now)
        .changed(tx)
        .await
}

/// Deletes a workspace. False while it has projects. A concurrent creation or move of a project
/// either comes first, or finds no workspace: all three take the [`lock`].
pub async fn delete(tx: &mut Tx, id: WorkspaceId, now: Timestamp) -> Result<bool, Error> {
    lock(tx, id).await?;
    sql(DELETE).bind(id).bind(now).changed(tx).await
}

/// Deletes at most `limit` workspaces that were deleted by then, once their projects and
/// credentials are gone; those with payments are kept. Returns their number.
pub async fn purge(tx: &mut Tx, deleted_by: Timestamp, limit: u32) -> Result<u64, Error> {
    sql(PURGE).bind(deleted_by).bind(limit).execute(tx).await
}

/// Only for PostgreSQL: SQLite neither has nor needs such a statement. `FOR UPDATE` would also wait
/// for every transaction that only refers to the row, and two of those that then take the lock
/// would deadlock.
pub(crate) const LOCK: &str = "SELECT 1 FROM workspaces WHERE id = $1 FOR NO KEY UPDATE";
