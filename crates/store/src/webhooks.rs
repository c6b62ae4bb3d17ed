//! Webhook endpoints of projects.

pub mod deliveries;

use jiff::Timestamp;
use types::id::{ProjectId, UserId, WebhookId};

use crate::database::connection::{Conn, Tx};
use crate::database::page::{Order, Page, Paging, fold_case, like_pattern, sort_columns};
use crate::database::row::{record, words};
use crate::database::secret::SealedBytes;
use crate::database::sql::{sorted, sql, statements};
use crate::error::Error;

record! {
    /// A webhook endpoint.
    pub struct Webhook from "webhooks" {
        /// Id.
        pub id: WebhookId,
        /// The project whose events it receives.
        pub project_id: ProjectId,
        /// Name.
        pub name: String,
        /// Description by its owner.
        pub description: Option<String>,
        /// `webhook_endpoint`.
        pub destination_type: String,
        /// Status.
        pub status: Status,
        /// Event types that it receives.
        pub events: Vec<String>,
        /// Target address.
        pub url: String,
        /// Signing secret. It must be decryptable for signing, so it cannot be a hash.
        pub sealed_secret: SealedBytes,
        /// The previous secret, as long as it also signs.
        pub previous_sealed_secret: Option<SealedBytes>,
        /// Time until which it signs.
        pub previous_secret_expires_at: Option<Timestamp>,
        /// Time of the last rotation of the secret.
        pub secret_rotated_at: Option<Timestamp>,
        /// Start of the current series of failed attempts.
        pub failing_since: Option<Timestamp>,
        /// The user that created it.
        pub created_by: UserId,
        /// Creation time.
        pub created_at: Timestamp,
        /// Time of the last change.
        pub updated_at: Timestamp,
    }
}

words! {
    /// Status of a webhook.
    pub enum Status {
        /// It receives events.
        Enabled = "enabled",
        /// It receives no events.
        Disabled = "disabled",
    }
}

macro_rules! columns {
    () => {
        "id, project_id, name, description, destination_type, status, events, url, sealed_secret, \
         previous_sealed_secret, previous_secret_expires_at, secret_rotated_at, failing_since, \
         created_by, created_at, updated_at"
    };
}

statements! {
    INSERT = concat!("INSERT INTO webhooks (", columns!(), ", search) \
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17)");
    BY_ID = concat!("SELECT ", columns!(), " FROM webhooks WHERE project_id = $1 AND id = $2 AND deleted_at IS NULL");
    ENABLED = concat!("SELECT ", columns!(), " FROM webhooks WHERE project_id = $1 AND status = 'enabled' \
        AND deleted_at IS NULL ORDER BY id");
    UPDATE = "UPDATE webhooks SET name = $3, description = $4, status = $5, events = $6, url = $7, updated_at = $8, \
        search = $9, failing_since = $10 WHERE project_id = $1 AND id = $2 AND deleted_at IS NULL";
    ROTATE = "UPDATE webhooks SET previous_sealed_secret = sealed_secret, previous_secret_expires_at = $4, \
        sealed_secret = $3, secret_rotated_at = $5, updated_at = $5 \
        WHERE project_id = $1 AND id = $2 AND deleted_at IS NULL";
    FAILING = "UPDATE webhooks SET failing_since = COALESCE(failing_since, CAST($2 AS BIGINT)) WHERE id = $1";
    WORKING = "UPDATE webhooks SET failing_since = NULL WHERE id = $1 AND failing_since IS NOT NULL";
    DISABLE = "UPDATE webhooks SET status = 'disabled', updated_at = $2 \
        WHERE id = $1 AND status = 'enabled' AND deleted_at IS NULL";
    DELETE = "UPDATE webhooks SET deleted_at = $3, updated_at = $3 WHERE project_id = $1 AND id = $2 AND deleted_at IS NULL";
    DELETE_ALL = "UPDATE webhooks SET deleted_at = $2, updated_at = $2 WHERE project_id = $1 AND deleted_at IS NULL";
    PURGE = "DELETE FROM webhooks WHERE id IN (SELECT id FROM webhooks WHERE deleted_at <= $1 \
        AND NOT EXISTS (SELECT 1 FROM deliveries d WHERE d.webhook_id = webhooks.id) \
        ORDER BY deleted_at LIMIT $2)";
    COUNT = "SELECT COUNT(*) AS n FROM webhooks WHERE project_id = $1 AND deleted_at IS NULL \
        AND search LIKE $2 ESCAPE '!' AND (CAST($3 AS TEXT) IS NULL OR status = $3)";
}

/// `{sort}` is replaced by a column and a direction.
pub(crate) const LIST: &str = concat!(
    "SELECT ",
    columns!(),
    " FROM webhooks WHERE project_id = $1 AND deleted_at IS NULL \
     AND search LIKE $2 ESCAPE '!' AND (CAST($3 AS TEXT) IS NULL OR status = $3) \
     ORDER BY {sort} LIMIT $4 OFFSET $5"
);

sort_columns! {
    /// Columns by which webhooks are sorted.
    pub enum Sort {
        /// Age.
        Id = "id",
        /// Name.
        Name = "name",
        /// Status.
        Status = "status",
        /// Time of the last change.
        UpdatedAt = "updated_at",
    }
}

/// Filter of a list.
#[derive(Clone, Copy, Debug)]
pub struct List<'a> {
    /// The project, which the caller has been authorised for.
    pub project: ProjectId,
    /// Part of a name or address, ignoring case.
    pub search: Option<&'a str>,
    /// Only those with this status.
    pub status: Option<Status>,
    /// Column.
    pub sort: Sort,
    /// Direction.
    pub order: Order,
    /// Page.
    pub paging: Paging,
}

/// Blocks all other transactions that take the same lock or change this webhook until this one
/// ends. It is taken before any change of its deliveries. An event that adds a delivery does not
/// wait for it.
pub async fn lock(tx: &mut Tx, id: WebhookId) -> Result<(), Error> {
    tx.lock(LOCK, id.as_str()).await
}

/// Only for PostgreSQL. `FOR UPDATE` would also block new deliveries.
pub(crate) const LOCK: &str = "SELECT 1 FROM webhooks WHERE id = $1 FOR NO KEY UPDATE";

/// Adds a webhook.
pub async fn insert(tx: &mut Tx, webhook: &Webhook) -> Result<(), Error> {
    sql(INSERT)
        .bind(webhook.id)
        .bind(webhook.project_id)
        .bind(&webhook.name)
        .bind(webhook.description.as_ref())
        .bind(&webhook.destination_type)
        .bind(webhook.status)
        .bind(&serde_json::json!(webhook.events))
        .bind(&webhook.url)
        .bind(&webhook.sealed_secret)
        .bind(webhook.previous_sealed_secret.as_ref())
        .bind(webhook.previous_secret_expires_at)
        .bind(webhook.secret_rotated_at)
        .bind(webhook.failing_since)
        .bind(webhook.created_by)
        .bind(webhook.created_at)
        .bind(webhook.updated_at)
        .bind(format!(
            "{} {}",
            fold_case(&webhook.name),
            fold_case(&webhook.url)
        ))
        .execute(tx)
        .await?;
    Ok(())
}

/// One webhook of a project.
pub async fn by_id(
    conn: &mut Conn,
    project: ProjectId,
    id: WebhookId,
) -> Result<Option<Webhook>, Error> {
    sql(BY_ID).bind(project).bind(id).one(conn).await
}

/// The webhooks of a project that receive events.
pub async fn enabled(conn: &mut Conn, project: ProjectId) -> Result<Vec<Webhook>, Error> {
    sql(ENABLED).bind(project).all(conn).await
}

/// One page of a project's webhooks.
pub async fn list(conn: &mut Conn, list: List<'_>) -> Result<Page<Webhook>, Error> {
    let pattern = like_pattern(list.search);
    let status = list.status.map(Status::as_str);
    sql(sorted(LIST, list.sort.column(), list.order))
        .bind(list.project)
        .bind(&pattern)
        .bind(status)
        .page(COUNT, conn, list.paging)
        .await
}

/// Number of webhooks of a project.
pub async fn count(conn: &mut Conn, project: ProjectId) -> Result<u64, Error> {
    sql(COUNT)
        .bind(project)
        .bind("%")
        .bind(None::<&str>)
        .count(conn)
        .await
}

/// Writes the properties that its owner may change: name, description, status, events, address; and
/// the start of the failure series, which is reset when the webhook is enabled again.
pub async fn update(tx: &mut Tx, webhook: &Webhook) -> Result<bool, Error> {
    sql(UPDATE)
        .bind(webhook.project_id)
        .bind(webhook.id)
        .bind(&webhook.name)
        .bind(webhook.description.as_ref())
        .bind(webhook.status)
        .bind(&serde_json::json!(webhook.events))
        .bind(&webhook.url)
        .bind(webhook.updated_at)
        .bind(format!(
            "{} {}",
            fold_case(&webhook.name),
            fold_case(&webhook.url)
        ))
        .bind(webhook.failing_since)
        .changed(tx)
        .await
}

/// Replaces the signing secret; the current one also signs until `previous_expires_at`.
pub async fn rotate_secret(
    tx: &mut Tx,
    project: ProjectId,
    id: WebhookId,
    secret: &SealedBytes,
    previous_expires_at: Timestamp,
    now: Timestamp,
) -> Result<bool, Error> {
    sql(ROTATE)
        .bind(project)
        .bind(id)
        .bind(secret)
        .bind(previous_expires_at)
        .bind(now)
        .changed(tx)
        .await
}

/// Records a failed attempt as the start of a series, unless one has already started.
pub async fn note_failure(tx: &mut Tx, id: WebhookId, now: Timestamp) -> Result<(), Error> {
    sql(FAILING).bind(id).bind(now).execute(tx).await?;
    Ok(())
}

/// Records a successful attempt.
pub async fn note_success(tx: &mut Tx, id: WebhookId) -> Result<(), Error> {
    sql(WORKING).bind(id).execute(tx).await?;
    Ok(())
}

/// Disables an enabled webhook. False if it is already disabled or deleted.
pub async fn disable(tx: &mut Tx, id: WebhookId, now: Timestamp) -> Result<bool, Error> {
    sql(DISABLE).bind(id).bind(now).changed(tx).await
}

/// Deletes a webhook; its deliveries are cancelled with [`self::deliveries::cancel`].
pub async fn delete(
    tx: &mut Tx,
    project: ProjectId,
    id: WebhookId,
    now: Timestamp,
) -> Result<bool, Error> {
    sql(DELETE)
        .bind(project)
        .bind(id)
        .bind(now)
        .changed(tx)
        .await
}

/// Deletes all webhooks of a project; their deliveries are cancelled with
/// [`self::deliveries::cancel_all`].
pub async fn delete_all(tx: &mut Tx, project: ProjectId, now: Timestamp) -> Result<u64, Error> {
    sql(DELETE_ALL).bind(project).bind(now).execute(tx).await
}

/// Deletes at most `limit` webhooks that were deleted by this time and have no deliveries any more.
/// Returns their number.
pub async fn purge(tx: &mut Tx, deleted_by: Timestamp, limit: u32) -> Result<u64, Error> {
    sql(PURGE).bind(deleted_by).bind(limit).execute(tx).await
}
