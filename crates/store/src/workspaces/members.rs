//! Members of a workspace and their roles.

use jiff::Timestamp;
use types::id::{UserId, WorkspaceId};

use crate::database::changes::Change;
use crate::database::connection::{Conn, Tx};
use crate::database::page::{Order, Page, Paging, like_pattern, sort_columns};
use crate::database::row::{record, words};
use crate::database::sql::{sorted, sql, statements};
use crate::error::Error;

record! {
    /// A member, with the personal data that other members may see.
    pub struct Member from "members" {
        /// The user.
        pub id: UserId,
        /// Display name.
        pub name: String,
        /// Email address.
        pub email: String,
        /// Role of the member.
        pub role: Role,
        /// Status of the membership.
        pub status: Status,
        /// Time of the invitation; none for the creator of the workspace.
        pub invited_at: Option<Timestamp>,
        /// Time when the member joined.
        pub joined_at: Timestamp,
    }
}

record! {
    /// A membership that a group of an OpenID provider gave.
    pub struct GroupMembership from "members" {
        /// The workspace.
        pub workspace_id: WorkspaceId,
        /// Role of the member.
        pub role: Role,
    }
}

words! {
    /// Role of a member, from most to least permissions.
    pub enum Role {
        /// Everything. A workspace always has one.
        Owner = "owner",
        /// Everything except changes to owners.
        Admin = "admin",
        /// Works with the projects.
        Member = "member",
        /// Can only read.
        Viewer = "viewer",
    }
}

words! {
    /// Status of a membership.
    pub enum Status {
        /// The membership is active.
        Active = "active",
        /// An administrator of the workspace has suspended it.
        Suspended = "suspended",
    }
}

sort_columns! {
    /// Columns by which members are sorted.
    pub enum Sort {
        /// Age of the account.
        Id = "id",
        /// Name.
        Name = "u.name",
        /// Email address.
        Email = "u.email_key",
        /// Role.
        Role = "m.role",
    }
}

macro_rules! columns {
    () => {
        "u.id, u.name, u.email, m.role, m.status, m.invited_at, m.joined_at"
    };
}

statements! {
    INSERT = "INSERT INTO members (workspace_id, user_id, role, status, invited_at, joined_at) \
        VALUES ($1, $2, $3, 'active', $4, $5)";
    ONE = concat!("SELECT ", columns!(), " FROM members m JOIN users u ON u.id = m.user_id \
        WHERE m.workspace_id = $1 AND m.user_id = $2");
    COUNT = "SELECT COUNT(*) AS n FROM members m JOIN users u ON u.id = m.user_id \
        WHERE m.workspace_id = $1 AND u.search LIKE $2 ESCAPE '!'";
    COUNT_ALL = "SELECT COUNT(*) AS n FROM members WHERE workspace_id = $1";
    OWNERS = "SELECT COUNT(*) AS n FROM members WHERE workspace_id = $1 AND role = 'owner' AND status = 'active'";
    FIRST_OWNERS = concat!("SELECT ", columns!(), " FROM members m JOIN users u ON u.id = m.user_id \
        WHERE m.workspace_id = $1 AND m.role = 'owner' AND m.status = 'active' ORDER BY u.id LIMIT $2");
    // The last active owner cannot be changed. Callers hold the workspace's lock.
    SET_ROLE = "UPDATE members SET role = $3, by_group = FALSE WHERE workspace_id = $1 AND user_id = $2 \
        AND ($3 = 'owner' OR role <> 'owner' OR EXISTS (SELECT 1 FROM members o WHERE o.workspace_id = $1 \
        AND o.user_id <> $2 AND o.role = 'owner' AND o.status = 'active'))";
    INSERT_BY_GROUP = "INSERT INTO members (workspace_id, user_id, role, status, invited_at, joined_at, by_group) \
        VALUES ($1, $2, $3, 'active', NULL, $4, TRUE)";
    BY_GROUP = "SELECT workspace_id, role FROM members WHERE user_id = $1 AND by_group ORDER BY workspace_id";
    SET_ROLE_BY_GROUP = "UPDATE members SET role = $3 WHERE workspace_id = $1 AND user_id = $2 AND by_group";
    // The row of a suspended member stays, or the next group would add an active one.
    DELETE_BY_GROUP = "DELETE FROM members WHERE workspace_id = $1 AND user_id = $2 AND by_group \
        AND status = 'active'";
    SET_STATUS = "UPDATE members SET status = $3 WHERE workspace_id = $1 AND user_id = $2 \
        AND ($3 = 'active' OR role <> 'owner' OR EXISTS (SELECT 1 FROM members o WHERE o.workspace_id = $1 \
        AND o.user_id <> $2 AND o.role = 'owner' AND o.status = 'active'))";
    DELETE = "DELETE FROM members WHERE workspace_id = $1 AND user_id = $2 \
        AND (role <> 'owner' OR EXISTS (SELECT 1 FROM members o WHERE o.workspace_id = $1 \
        AND o.user_id <> $2 AND o.role = 'owner' AND o.status = 'active'))";
}

pub(crate) const LIST: &str = concat!(
    "SELECT ",
    columns!(),
    " FROM members m JOIN users u ON u.id = m.user_id \
     WHERE m.workspace_id = $1 AND u.search LIKE $2 ESCAPE '!' \
     ORDER BY {sort} LIMIT $3 OFFSET $4"
);

/// Adds a member.
///
/// # Errors
/// [`crate::Conflict::AlreadyMember`].
pub async fn insert(
    tx: &mut Tx,
    workspace: WorkspaceId,
    user: UserId,
    role: Role,
    invited_at: Option<Timestamp>,
    now: Timestamp,
) -> Result<(), Error> {
    sql(INSERT)
        .bind(workspace)
        .bind(user)
        .bind(role)
        .bind(invited_at)
        .bind(now)
        .execute(tx)
        .await?;
    tx.note(Change::person(user), now);
    Ok(())
}

/// One member of a workspace.
pub async fn by_user(
    conn: &mut Conn,
    workspace: WorkspaceId,
    user: UserId,
) -> Result<Option<Member>, Error> {
    sql(ONE).bind(workspace).bind(user).one(conn).await
}

/// The members of a workspace. `search` matches names and addresses.
pub async fn list(
    conn: &mut Conn,
    workspace: WorkspaceId,
    search: Option<&str>,
    sort: Sort,
    order: Order,
    paging: Paging,
) -> Result<Page<Member>, Error> {
    let pattern = like_pattern(search);
    sql(sorted(LIST, sort.column(), order))
        .bind(workspace)
        .bind(&pattern)
        .page(COUNT, conn, paging)
        .await
}

/// Number of active owners of a workspace.
pub async fn owners(conn: &mut Conn, workspace: WorkspaceId) -> Result<u64, Error> {
    sql(OWNERS).bind(workspace).count(conn).await
}

/// The active owners of a workspace, at most `limit`: those with the oldest accounts.
pub async fn first_owners(
    conn: &mut Conn,
    workspace: WorkspaceId,
    limit: u32,
) -> Result<Vec<Member>, Error> {
    sql(FIRST_OWNERS)
        .bind(workspace)
        .bind(limit)
        .all(conn)
        .await
}

/// Adds a member whose role a group of an OpenID provider gives.
///
/// # Errors
/// [`crate::Conflict::AlreadyMember`].
pub async fn insert_by_group(
    tx: &mut Tx,
    workspace: WorkspaceId,
    user: UserId,
    role: Role,
    now: Timestamp,
) -> Result<(), Error> {
    sql(INSERT_BY_GROUP)
        .bind(workspace)
        .bind(user)
        .bind(role)
        .bind(now)
        .execute(tx)
        .await?;
    tx.note(Change::person(user), now);
    Ok(())
}

/// The memberships of a user that groups gave.
pub async fn by_group(conn: &mut Conn, user: UserId) -> Result<Vec<GroupMembership>, Error> {
    sql(BY_GROUP).bind(user).all(conn).await
}

/// Changes a role that a group gave. False if a person has changed it since.
pub async fn set_role_by_group(
    tx: &mut Tx,
    workspace: WorkspaceId,
    user: UserId,
    role: Role,
    now: Timestamp,
) -> Result<bool, Error> {
    crate::workspaces::lock(tx, workspace).await?;
    tx.note(Change::person(user), now);
    sql(SET_ROLE_BY_GROUP)
        .bind(workspace)
        .bind(user)
        .bind(role)
        .changed(tx)
        .await
}

/// Removes a member whose role a group gave. False if a person has changed it or suspended the
/// member since.
pub async fn delete_by_group(
    tx: &mut Tx,
    workspace: WorkspaceId,
    user: UserId,
    now: Timestamp,
) -> Result<bool, Error> {
    crate::workspaces::lock(tx, workspace).await?;
    tx.note(Change::person(user), now);
    sql(DELETE_BY_GROUP)
        .bind(workspace)
        .bind(user)
        .changed(tx)
        .await
}

/// Changes a member's role, which is no longer one that a group gives. False if there is no such
/// member, or if it is the last active owner.
pub async fn set_role(
    tx: &mut Tx,
    workspace: WorkspaceId,
    user: UserId,
    role: Role,
    now: Timestamp,
) -> Result<bool, Error> {
    crate::workspaces::lock(tx, workspace).await?;
    tx.note(Change::person(user), now);
    sql(SET_ROLE)
        .bind(workspace)
        .bind(user)
        .bind(role)
        .changed(tx)
        .await
}

/// Suspends or resumes a member. False as for [`set_role`].
pub async fn set_status(
    tx: &mut Tx,
    workspace: WorkspaceId,
    user: UserId,
    status: Status,
    now: Timestamp,
) -> Result<bool, Error> {
    crate::workspaces::lock(tx, workspace).await?;
    tx.note(Change::person(user), now);
    sql(SET_STATUS)
        .bind(workspace)
        .bind(user)
        .bind(status)
        .changed(tx)
        .await
}

/// Number of members of a workspace, in any status.
pub async fn count(conn: &mut Conn, workspace: WorkspaceId) -> Result<u64, Error> {
    let count: Option<i64> = sql(COUNT_ALL).bind(workspace).one(conn).await?;
    Ok(count
        .and_then(|count| u64::try_from(count).ok())
        .unwrap_or(0))
}

/// Removes a member. False as for [`set_role`].
pub async fn delete(
    tx: &mut Tx,
    workspace: WorkspaceId,
    user: UserId,
    now: Timestamp,
) -> Result<bool, Error> {
    crate::workspaces::lock(tx, workspace).await?;
    tx.note(Change::person(user), now);
    sql(DELETE).bind(workspace).bind(user).changed(tx).await
}
