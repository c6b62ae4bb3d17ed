//! Invitations into workspaces. Each works once, for whoever holds the link.

use jiff::Timestamp;
use types::id::{InvitationId, UserId, WorkspaceId};

use crate::connection::{Conn, Tx};
use crate::error::Error;
use crate::members::Role;
use crate::page::{Page, Paging};
use crate::row::record;
use crate::secret::SecretHash;
use crate::sql::{sql, statements};
use crate::users;

record! {
    /// An invitation.
    pub struct Invitation from "invitations" {
        /// Id.
        pub id: InvitationId,
        /// Into which workspace.
        pub workspace_id: WorkspaceId,
        /// The address that it was sent to.
        pub email: String,
        /// Role that it gives.
        pub role: Role,
        /// Who invited.
        pub invited_by: UserId,
        /// When.
        pub created_at: Timestamp,
        /// Until when it works.
        pub expires_at: Timestamp,
        /// When it was accepted.
        pub accepted_at: Option<Timestamp>,
        /// By whom.
        pub accepted_by: Option<UserId>,
        /// When it was taken back.
        pub revoked_at: Option<Timestamp>,
    }
}

/// An invitation to be.
#[derive(Clone, Debug)]
pub struct NewInvitation {
    /// Id, made by the caller.
    pub id: InvitationId,
    /// Into which workspace.
    pub workspace_id: WorkspaceId,
    /// The address that it is sent to.
    pub email: String,
    /// Role that it gives.
    pub role: Role,
    /// Hash of the secret in the link.
    pub hash: SecretHash,
    /// Who invites.
    pub invited_by: UserId,
    /// Until when it works.
    pub expires_at: Timestamp,
    /// Now.
    pub now: Timestamp,
}

macro_rules! columns {
    () => {
        "id, workspace_id, email, role, invited_by, created_at, expires_at, accepted_at, \
         accepted_by, revoked_at"
    };
}

statements! {
    INSERT = "INSERT INTO invitations (id, workspace_id, email, role, hash, invited_by, expires_at, created_at) \
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8)";
    LIVE = concat!("SELECT ", columns!(), " FROM invitations WHERE hash = $1 AND accepted_at IS NULL \
        AND revoked_at IS NULL AND expires_at > $2");
    ACCEPT = concat!("UPDATE invitations SET accepted_at = $3, accepted_by = $2 WHERE hash = $1 \
        AND accepted_at IS NULL AND revoked_at IS NULL AND expires_at > $3 RETURNING ", columns!());
    IS_ACCEPTED = "SELECT COUNT(*) AS n FROM invitations WHERE hash = $1 AND accepted_by IS NOT NULL";
    IS_ACCEPTED_BY = "SELECT COUNT(*) AS n FROM invitations WHERE hash = $1 AND accepted_by = $2";
    REVOKE = "UPDATE invitations SET revoked_at = $3 WHERE workspace_id = $1 AND id = $2 \
        AND accepted_at IS NULL AND revoked_at IS NULL";
    COUNT_OPEN_OF_WORKSPACE = "SELECT COUNT(*) AS n FROM invitations WHERE workspace_id = $1 AND accepted_at IS NULL \
        AND revoked_at IS NULL AND expires_at > $2";
    BY_ID = concat!("SELECT ", columns!(), " FROM invitations WHERE workspace_id = $1 AND id = $2");
    COUNT = "SELECT COUNT(*) AS n FROM invitations WHERE workspace_id = $1";
    COUNT_OPEN = "SELECT COUNT(*) AS n FROM invitations WHERE invited_by = $1 AND accepted_at IS NULL \
        AND revoked_at IS NULL AND expires_at > $2";
    COUNT_SINCE = "SELECT COUNT(*) AS n FROM invitations WHERE invited_by = $1 AND created_at > $2";
    LIST = concat!("SELECT ", columns!(), " FROM invitations WHERE workspace_id = $1 \
        ORDER BY id DESC LIMIT $2 OFFSET $3");
    PURGE = "DELETE FROM invitations WHERE id IN \
        (SELECT id FROM invitations WHERE expires_at <= $1 ORDER BY expires_at LIMIT $2)";
}

/// Notes an invitation that is about to be sent.
pub async fn insert(tx: &mut Tx, new: &NewInvitation) -> Result<(), Error> {
    sql(INSERT)
        .bind(new.id)
        .bind(new.workspace_id)
        .bind(&new.email)
        .bind(new.role)
        .bind(new.hash)
        .bind(new.invited_by)
        .bind(new.expires_at)
        .bind(new.now)
        .execute(tx)
        .await?;
    Ok(())
}

/// How many of a person's invitations work at `now`, and how many were sent since then, whatever became
/// of them. Until the transaction ends nobody else adds one who asks here first.
pub async fn count_of_inviter(
    tx: &mut Tx,
    inviter: UserId,
    since: Timestamp,
    now: Timestamp,
) -> Result<(u64, u64), Error> {
    users::lock(tx, inviter).await?;
    let open = sql(COUNT_OPEN).bind(inviter).bind(now).count(tx).await?;
    let sent = sql(COUNT_SINCE).bind(inviter).bind(since).count(tx).await?;
    Ok((open, sent))
}

/// The invitation of a link, if it still works; it is not used up.
pub async fn live(
    conn: &mut Conn,
    hash: SecretHash,
    now: Timestamp,
) -> Result<Option<Invitation>, Error> {
    sql(LIVE).bind(hash).bind(now).one(conn).await
}

/// Uses the invitation up; the caller then adds the member. `None` when it does not work (any
/// more): of two that try, one gets it.
pub async fn accept(
    tx: &mut Tx,
    hash: SecretHash,
    user: UserId,
    now: Timestamp,
) -> Result<Option<Invitation>, Error> {
    sql(ACCEPT).bind(hash).bind(user).bind(now).one(tx).await
}

/// Whether somebody has used the invitation of a link up.
pub async fn is_accepted(conn: &mut Conn, hash: SecretHash) -> Result<bool, Error> {
    Ok(sql(IS_ACCEPTED).bind(hash).count(conn).await? > 0)
}

/// Whether this person has used the invitation of a link up.
pub async fn is_accepted_by(
    conn: &mut Conn,
    hash: SecretHash,
    user: UserId,
) -> Result<bool, Error> {
    let count = sql(IS_ACCEPTED_BY)
        .bind(hash)
        .bind(user)
        .count(conn)
        .await?;
    Ok(count > 0)
}

/// How many invitations of a workspace wait for an answer.
pub async fn count_open(
    conn: &mut Conn,
    workspace: WorkspaceId,
    now: Timestamp,
) -> Result<u64, Error> {
    sql(COUNT_OPEN_OF_WORKSPACE)
        .bind(workspace)
        .bind(now)
        .count(conn)
        .await
}

/// An invitation of a workspace, whatever became of it.
pub async fn by_id(
    conn: &mut Conn,
    workspace: WorkspaceId,
    id: InvitationId,
) -> Result<Option<Invitation>, Error> {
    sql(BY_ID).bind(workspace).bind(id).one(conn).await
}

/// Takes an invitation back. False when there is none that is open.
pub async fn revoke(
    tx: &mut Tx,
    workspace: WorkspaceId,
    id: InvitationId,
    now: Timestamp,
) -> Result<bool, Error> {
    sql(REVOKE)
        .bind(workspace)
        .bind(id)
        .bind(now)
        .changed(tx)
        .await
}

/// The invitations of a workspace, newest first.
pub async fn list(
    conn: &mut Conn,
    workspace: WorkspaceId,
    paging: Paging,
) -> Result<Page<Invitation>, Error> {
    let total = sql(COUNT).bind(workspace).count(conn).await?;
    let items = sql(LIST)
        .bind(workspace)
        .bind(paging.limit())
        .bind(paging.offset())
        .all(conn)
        .await?;
    Ok(Page { items, total })
}

/// Forgets at most `limit` invitations that worked until then and no longer, whatever became of
/// them. Returns how many.
pub async fn purge(tx: &mut Tx, ended_by: Timestamp, limit: u32) -> Result<u64, Error> {
    sql(PURGE).bind(ended_by).bind(limit).execute(tx).await
}
