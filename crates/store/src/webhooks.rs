//! Webhook endpoints of projects.

use jiff::Timestamp;
use types::id::{ProjectId, UserId, WebhookId};

use crate::connection::{Conn, Tx};
use crate::error::Error;
use crate::page::{Order, Page, Paging, fold, pattern};
use crate::row::{record, words};
use crate::secret::SealedBytes;
use crate::sql::{sorted, sql, statements};

record! {
    /// A webhook endpoint.
    pub struct Webhook from "webhooks" {
        /// Id.
        pub id: WebhookId,
        /// The project whose events it gets.
        pub project_id: ProjectId,
        /// Name.
        pub name: String,
        /// What its owner wrote about it.
        pub description: Option<String>,
        /// `webhook_endpoint`.
        pub destination_type: String,
        /// Whether it gets any.
        pub status: Status,
        /// Types of events that it gets.
        pub events: Vec<String>,
        /// Where they go.
        pub url: String,
        /// Signing secret. It signs, so it cannot be a hash.
        pub sealed_secret: SealedBytes,
        /// The one before, while it still signs too.
        pub previous_sealed_secret: Option<SealedBytes>,
        /// Until when.
        pub previous_secret_expires_at: Option<Timestamp>,
        /// When the secret was last replaced.
        pub secret_rotated_at: Option<Timestamp>,
        /// Since when every attempt has failed.
        pub failing_since: Option<Timestamp>,
        /// Who made it.
        pub created_by: UserId,
        /// When.
        pub created_at: Timestamp,
        /// When it last changed.
        pub updated_at: Timestamp,
    }
}

words! {
    /// Whether a webhook gets events.
    pub enum Status {
        /// Yes.
        Enabled = "enabled",
        /// No.
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

/// With a column and a direction where it says `{sort}`.
pub(crate) const LIST: &str = concat!(
    "SELECT ",
    columns!(),
    " FROM webhooks WHERE project_id = $1 AND deleted_at IS NULL \
     AND search LIKE $2 ESCAPE '!' AND (CAST($3 AS TEXT) IS NULL OR status = $3) \
     ORDER BY {sort} LIMIT $4 OFFSET $5"
);

/// Columns by which webhooks are sorted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sort {
    /// Age.
    #[default]
    Id,
    /// Name.
    Name,
    /// Status.
    Status,
    /// When it last changed.
    UpdatedAt,
}

impl Sort {
    pub(crate) const ALL: [Self; 4] = [Self::Id, Self::Name, Self::Status, Self::UpdatedAt];

    pub(crate) fn column(self) -> &'static str {
        match self {
            Self::Id => "id",
            Self::Name => "name",
            Self::Status => "status",
            Self::UpdatedAt => "updated_at",
        }
    }
}

/// What a list asks for.
#[derive(Clone, Copy, Debug)]
pub struct List<'a> {
    /// The project, which the caller may see.
    pub project: ProjectId,
    /// Part of a name or address, in any case.
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

/// Keeps every other transaction that asks for the same lock, or changes this webhook, out until this
/// one ends: before anything is done with its deliveries. An event that makes a new one waits for
/// nobody.
pub async fn lock(tx: &mut Tx, id: WebhookId) -> Result<(), Error> {
    tx.lock(LOCK, id.as_str()).await
}

/// PostgreSQL's alone. Not `FOR UPDATE`, which would keep out new deliveries, too.
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
        .bind(format!("{} {}", fold(&webhook.name), fold(&webhook.url)))
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

/// The webhooks of a project that get events.
pub async fn enabled(conn: &mut Conn, project: ProjectId) -> Result<Vec<Webhook>, Error> {
    sql(ENABLED).bind(project).all(conn).await
}

/// One page of a project's webhooks.
pub async fn list(conn: &mut Conn, list: List<'_>) -> Result<Page<Webhook>, Error> {
    let pattern = pattern(list.search);
    let status = list.status.map(Status::as_str);
    let total = sql(COUNT)
        .bind(list.project)
        .bind(&pattern)
        .bind(status)
        .count(conn)
        .await?;
    let items = sql(sorted(LIST, list.sort.column(), list.order))
        .bind(list.project)
        .bind(&pattern)
        .bind(status)
        .bind(list.paging.limit())
        .bind(list.paging.offset())
        .all(conn)
        .await?;
    Ok(Page { items, total })
}

/// How many webhooks a project has.
pub async fn count(conn: &mut Conn, project: ProjectId) -> Result<u64, Error> {
    sql(COUNT)
        .bind(project)
        .bind("%")
        .bind(None::<&str>)
        .count(conn)
        .await
}

/// Writes what its owner may change: name, description, status, events, address; and since when it
/// fails, which begins anew where it is enabled again.
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
        .bind(format!("{} {}", fold(&webhook.name), fold(&webhook.url)))
        .bind(webhook.failing_since)
        .changed(tx)
        .await
}

/// Replaces the signing secret; the present one signs too until `previous_expires_at`.
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

/// Notes that an attempt failed, unless those before it did too.
pub async fn note_failure(tx: &mut Tx, id: WebhookId, now: Timestamp) -> Result<(), Error> {
    sql(FAILING).bind(id).bind(now).execute(tx).await?;
    Ok(())
}

/// Notes that an attempt did not fail.
pub async fn note_success(tx: &mut Tx, id: WebhookId) -> Result<(), Error> {
    sql(WORKING).bind(id).execute(tx).await?;
    Ok(())
}

/// Disables a webhook that its owner did not. False when it is disabled or gone.
pub async fn disable(tx: &mut Tx, id: WebhookId, now: Timestamp) -> Result<bool, Error> {
    sql(DISABLE).bind(id).bind(now).changed(tx).await
}

/// Removes a webhook; its deliveries are cancelled with [`crate::deliveries::cancel`].
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

/// Removes all webhooks of a project; their deliveries are cancelled with
/// [`crate::deliveries::cancel_all`].
pub async fn delete_all(tx: &mut Tx, project: ProjectId, now: Timestamp) -> Result<u64, Error> {
    sql(DELETE_ALL).bind(project).bind(now).execute(tx).await
}

/// Forgets at most `limit` webhooks that were deleted by this time and have no deliveries any more.
/// Returns how many.
pub async fn purge(tx: &mut Tx, deleted_by: Timestamp, limit: u32) -> Result<u64, Error> {
    sql(PURGE).bind(deleted_by).bind(limit).execute(tx).await
}
