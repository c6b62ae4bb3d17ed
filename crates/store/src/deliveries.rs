//! Deliveries of events to webhooks, and their attempts.

use jiff::Timestamp;
use types::id::{AttemptId, DeliveryId, EventId, ProjectId, WebhookId};

use crate::connection::{Conn, Tx};
use crate::error::Error;
use crate::page::{Paged, Paging};
use crate::row::{record, words};
use crate::sql::{sql, statements};

record! {
    /// One event on its way to one webhook.
    pub struct Delivery from "deliveries" {
        /// Id; the same for all attempts.
        pub id: DeliveryId,
        /// To which webhook.
        pub webhook_id: WebhookId,
        /// Of which project.
        pub project_id: ProjectId,
        /// Which event.
        pub event_id: EventId,
        /// Its type.
        pub event_type: String,
        /// The body, byte for byte what is signed.
        pub payload: String,
        /// How it stands.
        pub status: Status,
        /// Attempts that were begun.
        pub attempts: i64,
        /// When it is due; while it is being delivered, when that is given up.
        pub next_attempt_at: Timestamp,
        /// When it was made.
        pub created_at: Timestamp,
        /// When it last changed.
        pub updated_at: Timestamp,
        /// When it ended.
        pub completed_at: Option<Timestamp>,
    }
}

record! {
    /// One attempt of a delivery.
    pub struct Attempt from "delivery_attempts" {
        /// Id.
        pub id: AttemptId,
        /// Of which delivery.
        pub delivery_id: DeliveryId,
        /// `succeeded`, `failed`, `timeout` or `network_error`.
        pub status: String,
        /// What was answered.
        pub http_status: Option<i64>,
        /// What went wrong.
        pub error: Option<String>,
        /// How long it took.
        pub duration_ms: i64,
        /// When it began.
        pub created_at: Timestamp,
    }
}

words! {
    /// How a delivery stands.
    pub enum Status {
        /// It was not tried yet.
        Pending = "pending",
        /// Somebody has it.
        Delivering = "delivering",
        /// It failed and will be tried again.
        Retrying = "retrying",
        /// It arrived.
        Succeeded = "succeeded",
        /// It was given up.
        Failed = "failed",
        /// Its webhook is gone.
        Canceled = "canceled",
    }
}

macro_rules! columns {
    () => {
        "id, webhook_id, project_id, event_id, event_type, payload, status, attempts, \
         next_attempt_at, created_at, updated_at, completed_at"
    };
}

statements! {
    INSERT = "INSERT INTO deliveries (id, webhook_id, project_id, event_id, event_type, payload, status, attempts, \
        next_attempt_at, created_at, updated_at) VALUES ($1, $2, $3, $4, $5, $6, 'pending', 0, $7, $7, $7) \
        ON CONFLICT (webhook_id, event_id) DO NOTHING";
    // The condition stands in the update too: on PostgreSQL it is judged again for a row that a
    // parallel claim held, and then that claim has it.
    CLAIM = concat!("UPDATE deliveries SET status = 'delivering', attempts = attempts + 1, next_attempt_at = $2, \
        updated_at = $1 WHERE completed_at IS NULL AND next_attempt_at <= $1 AND id IN \
        (SELECT id FROM deliveries WHERE completed_at IS NULL AND next_attempt_at <= $1 \
        ORDER BY next_attempt_at LIMIT $3) RETURNING ", columns!());
    // Only whoever made the latest attempt says how it ended.
    FINISH = "UPDATE deliveries SET status = $3, next_attempt_at = $4, completed_at = $5, updated_at = $6 \
        WHERE id = $1 AND attempts = $2 AND status = 'delivering'";
    ADD_ATTEMPT = "INSERT INTO delivery_attempts (id, delivery_id, status, http_status, error, duration_ms, created_at) \
        VALUES ($1, $2, $3, $4, $5, $6, $7)";
    ATTEMPTS = "SELECT id, delivery_id, status, http_status, error, duration_ms, created_at FROM delivery_attempts \
        WHERE delivery_id = $1 ORDER BY id LIMIT 100";
    CANCEL = "UPDATE deliveries SET status = 'canceled', completed_at = $2, updated_at = $2 \
        WHERE webhook_id = $1 AND completed_at IS NULL";
    BY_ID = concat!("SELECT ", columns!(), " FROM deliveries WHERE project_id = $1 AND webhook_id = $2 AND id = $3");
    COUNT = "SELECT COUNT(*) AS n FROM deliveries WHERE webhook_id = $2 AND project_id = $1 \
        AND (CAST($3 AS TEXT) IS NULL OR status = $3)";
    LIST = concat!("SELECT ", columns!(), " FROM deliveries WHERE webhook_id = $2 AND project_id = $1 \
        AND (CAST($3 AS TEXT) IS NULL OR status = $3) ORDER BY id DESC LIMIT $4 OFFSET $5");
    PURGE = "DELETE FROM deliveries WHERE id IN (SELECT id FROM deliveries WHERE completed_at <= $1 \
        ORDER BY completed_at LIMIT $2)";
}

/// A delivery to be; it is due at once.
#[derive(Clone, Debug)]
pub struct NewDelivery {
    /// Id, made by the caller.
    pub id: DeliveryId,
    /// To which webhook.
    pub webhook_id: WebhookId,
    /// Of which project.
    pub project_id: ProjectId,
    /// Which event; one delivery of it per webhook.
    pub event_id: EventId,
    /// Its type.
    pub event_type: String,
    /// The body.
    pub payload: String,
    /// Now.
    pub now: Timestamp,
}

/// How an attempt ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It arrived.
    Succeeded,
    /// It will be tried again.
    RetryAt(Timestamp),
    /// It is given up.
    Failed,
}

/// Adds a delivery. False when the webhook has one of this event already.
pub async fn insert(tx: &mut Tx, new: &NewDelivery) -> Result<bool, Error> {
    sql(INSERT)
        .bind(new.id)
        .bind(new.webhook_id)
        .bind(new.project_id)
        .bind(new.event_id)
        .bind(&new.event_type)
        .bind(&new.payload)
        .bind(new.now)
        .changed(tx)
        .await
}

/// Takes what is due, at most `limit`, so that nobody else has it until `lease_ends_at`. What a
/// process that died had taken is due again then.
pub async fn claim(
    tx: &mut Tx,
    now: Timestamp,
    lease_ends_at: Timestamp,
    limit: u32,
) -> Result<Vec<Delivery>, Error> {
    sql(CLAIM)
        .bind(now)
        .bind(lease_ends_at)
        .bind(limit)
        .all(tx)
        .await
}

/// Writes how the attempt of a claimed delivery ended. False when another claim came after it.
pub async fn finish(
    tx: &mut Tx,
    claimed: &Delivery,
    outcome: Outcome,
    now: Timestamp,
) -> Result<bool, Error> {
    let (status, next, completed) = match outcome {
        Outcome::Succeeded => (Status::Succeeded, now, Some(now)),
        Outcome::RetryAt(at) => (Status::Retrying, at, None),
        Outcome::Failed => (Status::Failed, now, Some(now)),
    };
    sql(FINISH)
        .bind(claimed.id)
        .bind(claimed.attempts)
        .bind(status)
        .bind(next)
        .bind(completed)
        .bind(now)
        .changed(tx)
        .await
}

/// Writes an attempt down.
pub async fn add_attempt(tx: &mut Tx, attempt: &Attempt) -> Result<(), Error> {
    sql(ADD_ATTEMPT)
        .bind(attempt.id)
        .bind(attempt.delivery_id)
        .bind(&attempt.status)
        .bind(attempt.http_status)
        .bind(attempt.error.as_ref())
        .bind(attempt.duration_ms)
        .bind(attempt.created_at)
        .execute(tx)
        .await?;
    Ok(())
}

/// The attempts of a delivery, oldest first.
pub async fn attempts(conn: &mut Conn, id: DeliveryId) -> Result<Vec<Attempt>, Error> {
    sql(ATTEMPTS).bind(id).all(conn).await
}

/// Ends the open deliveries of a webhook. Returns how many.
pub async fn cancel(tx: &mut Tx, webhook: WebhookId, now: Timestamp) -> Result<u64, Error> {
    sql(CANCEL).bind(webhook).bind(now).execute(tx).await
}

/// One delivery to a project's webhook.
pub async fn by_id(
    conn: &mut Conn,
    project: ProjectId,
    webhook: WebhookId,
    id: DeliveryId,
) -> Result<Option<Delivery>, Error> {
    sql(BY_ID)
        .bind(project)
        .bind(webhook)
        .bind(id)
        .one(conn)
        .await
}

/// The deliveries to a project's webhook, newest first.
pub async fn list(
    conn: &mut Conn,
    project: ProjectId,
    webhook: WebhookId,
    status: Option<Status>,
    paging: Paging,
) -> Result<Paged<Delivery>, Error> {
    let status = status.map(Status::as_str);
    let total = sql(COUNT)
        .bind(project)
        .bind(webhook)
        .bind(status)
        .count(conn)
        .await?;
    let items = sql(LIST)
        .bind(project)
        .bind(webhook)
        .bind(status)
        .bind(paging.limit())
        .bind(paging.offset())
        .all(conn)
        .await?;
    Ok(Paged { items, total })
}

/// Forgets at most `limit` deliveries that ended by this time. Returns how many.
pub async fn purge(tx: &mut Tx, ended_by: Timestamp, limit: u32) -> Result<u64, Error> {
    sql(PURGE).bind(ended_by).bind(limit).execute(tx).await
}
