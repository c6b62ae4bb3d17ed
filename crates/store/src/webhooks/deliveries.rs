//! Deliveries of events to webhooks, and their attempts.
//!
//! Transactions that change deliveries of a webhook lock in a fixed order: first the webhook
//! ([`crate::webhooks::lock`]), then its deliveries. A claim covers deliveries of many webhooks, so
//! it locks none of the webhooks and waits for no delivery: it skips locked deliveries, and other
//! transactions skip its deliveries. After claiming a delivery, the caller reads its webhook again
//! before sending.

use jiff::Timestamp;
use types::id::{AttemptId, DeliveryId, EventId, ProjectId, WebhookId};

use crate::database::connection::{Conn, Tx};
use crate::database::page::{Order, Page, Paging};
use crate::database::row::{record, words};
use crate::database::sql::{sorted, sql, statements};
use crate::database::timeline::Period;
use crate::error::Error;

record! {
    /// Delivery of one event to one webhook.
    pub struct Delivery from "deliveries" {
        /// Id; the same for all attempts.
        pub id: DeliveryId,
        /// The webhook.
        pub webhook_id: WebhookId,
        /// The project.
        pub project_id: ProjectId,
        /// The event.
        pub event_id: EventId,
        /// Event type.
        pub event_type: String,
        /// The body, with exactly the signed bytes.
        pub payload: String,
        /// Status.
        pub status: Status,
        /// Number of started attempts.
        pub attempts: i64,
        /// Time of the next attempt; during an attempt, the end of its lease.
        pub next_attempt_at: Timestamp,
        /// Creation time.
        pub created_at: Timestamp,
        /// Time of the last change.
        pub updated_at: Timestamp,
        /// Time of completion.
        pub completed_at: Option<Timestamp>,
    }
}

record! {
    /// One attempt of a delivery.
    pub struct Attempt from "delivery_attempts" {
        /// Id.
        pub id: AttemptId,
        /// The delivery.
        pub delivery_id: DeliveryId,
        /// `succeeded`, `failed`, `timeout` or `network_error`.
        pub status: String,
        /// Response status.
        pub http_status: Option<i64>,
        /// Error.
        pub error: Option<String>,
        /// Start of the response body.
        pub response_body: Option<String>,
        /// Duration.
        pub duration_ms: i64,
        /// Start time.
        pub created_at: Timestamp,
    }
}

record! {
    /// A delivery that is due.
    pub struct DueDelivery from "deliveries" {
        /// Id.
        pub id: DeliveryId,
        /// The webhook.
        pub webhook_id: WebhookId,
        /// The project.
        pub project_id: ProjectId,
    }
}

words! {
    /// Status of a delivery.
    pub enum Status {
        /// No attempt was made yet.
        Pending = "pending",
        /// A worker has claimed it.
        Delivering = "delivering",
        /// An attempt failed, and another one will follow.
        Retrying = "retrying",
        /// The receiver accepted it.
        Succeeded = "succeeded",
        /// All attempts failed.
        Failed = "failed",
        /// Its webhook was disabled or deleted.
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
    // The condition is repeated in the update: on PostgreSQL it is evaluated again for a row that a
    // concurrent claim locked, which then belongs to that claim.
    CLAIM = concat!("UPDATE deliveries SET status = 'delivering', attempts = attempts + 1, next_attempt_at = $2, \
        updated_at = $1 WHERE completed_at IS NULL AND next_attempt_at <= $1 AND id IN \
        (SELECT id FROM deliveries WHERE completed_at IS NULL AND next_attempt_at <= $1 AND id IN_LIST($3) \
        ORDER BY id SKIP_LOCKED) RETURNING ", columns!());
    DUE = "SELECT id, webhook_id, project_id FROM deliveries WHERE completed_at IS NULL AND next_attempt_at <= $1 \
        AND NOT (webhook_id IN_LIST($2)) AND NOT (project_id IN_LIST($3)) ORDER BY next_attempt_at LIMIT $4";
    // Only the latest attempt may write its outcome.
    FINISH = "UPDATE deliveries SET status = $3, next_attempt_at = $4, completed_at = $5, updated_at = $6 \
        WHERE id = $1 AND attempts = $2 AND status = 'delivering'";
    ADD_ATTEMPT = "INSERT INTO delivery_attempts (id, delivery_id, status, http_status, error, response_body, \
        duration_ms, created_at) VALUES ($1, $2, $3, $4, $5, $6, $7, $8)";
    ATTEMPTS = "SELECT id, delivery_id, status, http_status, error, response_body, duration_ms, created_at \
        FROM delivery_attempts WHERE delivery_id = $1 ORDER BY id LIMIT 100";
    // Ids sort by time, so the greatest id of a delivery is its latest attempt.
    LATEST_ATTEMPTS = "SELECT id, delivery_id, status, http_status, error, response_body, duration_ms, created_at \
        FROM delivery_attempts WHERE id IN \
        (SELECT MAX(id) FROM delivery_attempts WHERE delivery_id IN_LIST($1) GROUP BY delivery_id)";
    NEXT_DUE = "SELECT next_attempt_at AS n FROM deliveries WHERE completed_at IS NULL \
        ORDER BY next_attempt_at LIMIT 1";
    COUNT_OPEN = "SELECT COUNT(*) AS n FROM \
        (SELECT 1 FROM deliveries WHERE webhook_id = $1 AND completed_at IS NULL LIMIT $2) AS counted";
    // Deliveries in progress keep their lease.
    POSTPONE = "UPDATE deliveries SET next_attempt_at = $2 WHERE id IN \
        (SELECT id FROM deliveries WHERE webhook_id = $1 AND completed_at IS NULL \
        AND status <> 'delivering' AND next_attempt_at < $2 ORDER BY id SKIP_LOCKED)";
    RETRY = "UPDATE deliveries SET status = 'pending', completed_at = NULL, next_attempt_at = $3, updated_at = $3 \
        WHERE webhook_id = $1 AND id = $2 AND status IN ('failed', 'canceled')";
    CANCEL_ALL = "UPDATE deliveries SET status = 'canceled', completed_at = $2, updated_at = $2 \
        WHERE id IN (SELECT id FROM deliveries WHERE completed_at IS NULL AND webhook_id IN \
        (SELECT id FROM webhooks WHERE project_id = $1) ORDER BY id SKIP_LOCKED)";
    CANCEL = "UPDATE deliveries SET status = 'canceled', completed_at = $2, updated_at = $2 \
        WHERE id IN (SELECT id FROM deliveries WHERE webhook_id = $1 AND completed_at IS NULL \
        ORDER BY id SKIP_LOCKED)";
    BY_ID = concat!("SELECT ", columns!(), " FROM deliveries WHERE project_id = $1 AND webhook_id = $2 AND id = $3");
    PURGE = "DELETE FROM deliveries WHERE id IN (SELECT id FROM deliveries WHERE completed_at <= $1 \
        ORDER BY completed_at LIMIT $2)";
}

macro_rules! listed {
    () => {
        "FROM deliveries WHERE project_id = $1 AND webhook_id = $2 \
         AND (CAST($3 AS TEXT) IS NULL OR status = $3) AND (CAST($4 AS TEXT) IS NULL OR event_type = $4) \
         AND created_at >= $5 AND created_at < $6"
    };
}

pub(crate) const COUNT: &str = concat!("SELECT COUNT(*) AS n ", listed!());

/// `{sort}` is replaced by the direction.
pub(crate) const LIST: &str = concat!(
    "SELECT ",
    columns!(),
    " ",
    listed!(),
    " ORDER BY {sort} LIMIT $7 OFFSET $8"
);

/// Filter of a list.
#[derive(Clone, Copy, Debug)]
pub struct List<'a> {
    /// The project, which the caller has been authorised for.
    pub project: ProjectId,
    /// The webhook.
    pub webhook: WebhookId,
    /// Only those with this status.
    pub status: Option<Status>,
    /// Only events of this type.
    pub kind: Option<&'a str>,
    /// Only those created in this period.
    pub period: Period,
    /// Direction, by age.
    pub order: Order,
    /// Page.
    pub paging: Paging,
}

/// A new delivery, which is due immediately.
#[derive(Clone, Debug)]
pub struct NewDelivery {
    /// Id, generated by the caller.
    pub id: DeliveryId,
    /// The webhook.
    pub webhook_id: WebhookId,
    /// The project.
    pub project_id: ProjectId,
    /// The event; each webhook has one delivery of it.
    pub event_id: EventId,
    /// Event type.
    pub event_type: String,
    /// The body.
    pub payload: String,
    /// Current time.
    pub now: Timestamp,
}

/// Outcome of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The receiver accepted the delivery.
    Succeeded,
    /// Another attempt will follow at this time.
    RetryAt(Timestamp),
    /// No further attempt follows.
    Failed,
}

/// Adds a delivery. False if the webhook already has one for this event.
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

/// The due deliveries, longest overdue first, at most `limit`, except those of the given webhooks.
pub async fn due(
    conn: &mut Conn,
    now: Timestamp,
    (webhooks, projects): (&[WebhookId], &[ProjectId]),
    limit: u32,
) -> Result<Vec<DueDelivery>, Error> {
    sql(DUE)
        .bind(now)
        .bind(webhooks)
        .bind(projects)
        .bind(limit)
        .all(conn)
        .await
}

/// Claims the due deliveries among `ids`, exclusively until `lease_ends_at`. Claims of
/// a crashed process become due again at that time.
pub async fn claim(
    tx: &mut Tx,
    now: Timestamp,
    lease_ends_at: Timestamp,
    ids: &[DeliveryId],
) -> Result<Vec<Delivery>, Error> {
    sql(CLAIM)
        .bind(now)
        .bind(lease_ends_at)
        .bind(ids)
        .all(tx)
        .await
}

/// Records the outcome of the attempt of a claimed delivery. False if another claim followed it.
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

/// Records an attempt.
pub async fn add_attempt(tx: &mut Tx, attempt: &Attempt) -> Result<(), Error> {
    sql(ADD_ATTEMPT)
        .bind(attempt.id)
        .bind(attempt.delivery_id)
        .bind(&attempt.status)
        .bind(attempt.http_status)
        .bind(attempt.error.as_ref())
        .bind(attempt.response_body.as_ref())
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

/// The latest attempt of each of these deliveries, if it has one.
pub async fn latest_attempts(
    conn: &mut Conn,
    deliveries: &[DeliveryId],
) -> Result<Vec<Attempt>, Error> {
    sql(LATEST_ATTEMPTS).bind(deliveries).all(conn).await
}

/// The time when the next delivery is due, or when the next lease ends.
pub async fn next_due(conn: &mut Conn) -> Result<Option<Timestamp>, Error> {
    sql(NEXT_DUE).time(conn).await
}

/// Number of unfinished deliveries to a webhook, counted up to `most`.
pub async fn count_open(conn: &mut Conn, webhook: WebhookId, most: u32) -> Result<u64, Error> {
    sql(COUNT_OPEN).bind(webhook).bind(most).count(conn).await
}

/// Postpones the deliveries of a webhook that would be due earlier until this time.
pub async fn postpone(tx: &mut Tx, webhook: WebhookId, until: Timestamp) -> Result<u64, Error> {
    sql(POSTPONE).bind(webhook).bind(until).execute(tx).await
}

/// Makes a failed delivery due again for one more attempt. False if it has not failed.
pub async fn retry(
    tx: &mut Tx,
    webhook: WebhookId,
    id: DeliveryId,
    now: Timestamp,
) -> Result<bool, Error> {
    sql(RETRY)
        .bind(webhook)
        .bind(id)
        .bind(now)
        .changed(tx)
        .await
}

/// Cancels the open deliveries of all webhooks of a project. Returns their number.
pub async fn cancel_all(tx: &mut Tx, project: ProjectId, now: Timestamp) -> Result<u64, Error> {
    sql(CANCEL_ALL).bind(project).bind(now).execute(tx).await
}

/// Cancels the open deliveries of a webhook. Returns their number.
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

/// One page of the deliveries to a project's webhook.
pub async fn list(conn: &mut Conn, list: List<'_>) -> Result<Page<Delivery>, Error> {
    let status = list.status.map(Status::as_str);
    let start = list.period.start.unwrap_or(Timestamp::MIN);
    let end = list.period.end.unwrap_or(Timestamp::MAX);
    sql(sorted(LIST, "id", list.order))
        .bind(list.project)
        .bind(list.webhook)
        .bind(status)
        .bind(list.kind)
        .bind(start)
        .bind(end)
        .page(COUNT, conn, list.paging)
        .await
}

/// Deletes at most `limit` deliveries that were completed by this time. Returns their number.
pub async fn purge(tx: &mut Tx, ended_by: Timestamp, limit: u32) -> Result<u64, Error> {
    sql(PURGE).bind(ended_by).bind(limit).execute(tx).await
}
