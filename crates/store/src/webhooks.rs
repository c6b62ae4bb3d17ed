//! Webhook endpoints of projects.

use jiff::Timestamp;
use types::id::{ProjectId, UserId, WebhookId};

use crate::connection::{Conn, Tx};
use crate::error::Error;
use crate::page::{Paged, Paging, fold, pattern};
use crate::row::{record, words};
use crate::secret::Sealed;
use crate::sql::{sql, statements};

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
        pub sealed_secret: Sealed,
        /// The one before, while it still signs too.
        pub previous_sealed_secret: Option<Sealed>,
        /// Until when.
        pub previous_secret_expires_at: Option<Timestamp>,
        /// When the secret was last replaced.
        pub secret_rotated_at: Option<Timestamp>,
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
         previous_sealed_secret, previous_secret_expires_at, secret_rotated_at, created_by, \
         created_at, updated_at"
    };
}

statements! {
    INSERT = concat!("INSERT INTO webhooks (", columns!(), ", search) \
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16)");
    BY_ID = concat!("SELECT ", columns!(), " FROM webhooks WHERE project_id = $1 AND id = $2 AND deleted_at IS NULL");
    ENABLED = concat!("SELECT ", columns!(), " FROM webhooks WHERE project_id = $1 AND status = 'enabled' \
        AND deleted_at IS NULL ORDER BY id");
    UPDATE = "UPDATE webhooks SET name = $3, description = $4, status = $5, events = $6, url = $7, updated_at = $8, \
        search = $9 WHERE project_id = $1 AND id = $2 AND deleted_at IS NULL";
    ROTATE = "UPDATE webhooks SET previous_sealed_secret = sealed_secret, previous_secret_expires_at = $4, \
        sealed_secret = $3, secret_rotated_at = $5, updated_at = $5 \
        WHERE project_id = $1 AND id = $2 AND deleted_at IS NULL";
    DELETE = "UPDATE webhooks SET deleted_at = $3, updated_at = $3 WHERE project_id = $1 AND id = $2 AND deleted_at IS NULL";
    COUNT = "SELECT COUNT(*) AS n FROM webhooks WHERE project_id = $1 AND deleted_at IS NULL \
        AND search LIKE $2 ESCAPE '!' AND (CAST($3 AS TEXT) IS NULL OR status = $3)";
    LIST = concat!("SELECT ", columns!(), " FROM webhooks WHERE project_id = $1 AND deleted_at IS NULL \
        AND search LIKE $2 ESCAPE '!' AND (CAST($3 AS TEXT) IS NULL OR status = $3) ORDER BY id LIMIT $4 OFFSET $5");
}

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

/// The webhooks of a project, oldest first. `search` looks into names and addresses.
pub async fn list(
    conn: &mut Conn,
    project: ProjectId,
    search: Option<&str>,
    status: Option<Status>,
    paging: Paging,
) -> Result<Paged<Webhook>, Error> {
    let pattern = pattern(search);
    let status = status.map(Status::as_str);
    let total = sql(COUNT)
        .bind(project)
        .bind(&pattern)
        .bind(status)
        .count(conn)
        .await?;
    let items = sql(LIST)
        .bind(project)
        .bind(&pattern)
        .bind(status)
        .bind(paging.limit())
        .bind(paging.offset())
        .all(conn)
        .await?;
    Ok(Paged { items, total })
}

/// Writes what its owner may change: name, description, status, events, address.
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
        .changed(tx)
        .await
}

/// Replaces the signing secret; the present one signs too until `previous_expires_at`.
pub async fn rotate_secret(
    tx: &mut Tx,
    project: ProjectId,
    id: WebhookId,
    secret: &Sealed,
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
