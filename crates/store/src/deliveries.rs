//! Deliveries of events to webhooks, and their attempts.
//!
//! Transactions that change deliveries of a webhook have one order: first the webhook
//! ([`crate::webhooks::lock`]), then its deliveries. A claim takes deliveries of many webhooks, so it
//! locks none of those and waits for no delivery: it leaves out what others are at, and they leave
//! out what it has. Whoever has claimed a delivery asks for its webhook before sending.

use jiff::Timestamp;
use types::id::{AttemptId, DeliveryId, EventId, ProjectId, WebhookId};

use crate::connection::{Conn, Tx};
use crate::error::Error;
use crate::page::{Order, Page, Paging};
use crate::row::{record, words};
use crate::sql::{sorted, sql, statements};
use crate::timeline::Period;

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
        /// The beginning of what was answered.
        pub response_body: Option<String>,
        /// How long it took.
        pub duration_ms: i64,
        /// When it began.
        pub created_at: Timestamp,
    }
}

record! {
    /// A delivery that is due.
    pub struct Due from "deliveries" {
        /// Id.
        pub id: DeliveryId,
        /// To which webhook.
        pub webhook_id: WebhookId,
        /// Of which project.
        pub project_id: ProjectId,
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
        (SELECT id FROM deliveries WHERE completed_at IS NULL AND next_attempt_at <= $1 AND id IN_LIST($3) \
        ORDER BY id SKIP_LOCKED) RETURNING ", columns!());
    DUE = "SELECT id, webhook_id, project_id FROM deliveries WHERE completed_at IS NULL AND next_attempt_at <= $1 \
        AND NOT (webhook_id IN_LIST($2)) AND NOT (project_id IN_LIST($3)) ORDER BY next_attempt_at LIMIT $4";
    // Only whoever made the latest attempt says how it ended.
    FINISH = "UPDATE deliveries SET status = $3, next_attempt_at = $4, completed_at = $5, updated_at = $6 \
        WHERE id = $1 AND attempts = $2 AND status = 'delivering'";
    ADD_ATTEMPT = "INSERT INTO delivery_attempts (id, delivery_id, status, http_status, error, response_body, \
        duration_ms, created_at) VALUES ($1, $2, $3, $4, $5, $6, $7, $8)";
    ATTEMPTS = "SELECT id, delivery_id, status, http_status, error, response_body, duration_ms, created_at \
        FROM delivery_attempts WHERE delivery_id = $1 ORDER BY id LIMIT 100";
    // Ids sort by time, so the greatest of a delivery is its latest.
    LATEST_ATTEMPTS = "SELECT id, delivery_id, status, http_status, error, response_body, duration_ms, created_at \
        FROM delivery_attempts WHERE id IN \
        (SELECT MAX(id) FROM delivery_attempts WHERE delivery_id IN_LIST($1) GROUP BY delivery_id)";
    NEXT_DUE = "SELECT next_attempt_at AS n FROM deliveries WHERE completed_at IS NULL \
        ORDER BY next_attempt_at LIMIT 1";
    COUNT_OPEN = "SELECT COUNT(*) AS n FROM \
        (SELECT 1 FROM deliveries WHERE webhook_id = $1 AND completed_at IS NULL LIMIT $2) AS counted";
    // What is under way keeps its lease.
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

/// With a direction where it says `{sort}`.
pub(crate) const LIST: &str = concat!(
    "SELECT ",
    columns!(),
    " ",
    listed!(),
    " ORDER BY {sort} LIMIT $7 OFFSET $8"
);

/// What a list asks for.
#[derive(Clone, Copy, Debug)]
pub struct List<'a> {
    /// The project, which the caller may see.
    pub project: ProjectId,
    /// The webhook.
    pub webhook: WebhookId,
    /// Only those with this status.
    pub status: Option<Status>,
    /// Only events of this type.
    pub kind: Option<&'a str>,
    /// Made from when until when.
    pub period: Period,
    /// By age.
    pub order: Order,
    /// Page.
    pub paging: Paging,
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

/// What is due, longest due first, at most `limit`, but for what belongs to these.
pub async fn due(
    conn: &mut Conn,
    now: Timestamp,
    (webhooks, projects): (&[WebhookId], &[ProjectId]),
    limit: u32,
) -> Result<Vec<Due>, Error> {
    sql(DUE)
        .bind(now)
        .bind(webhooks)
        .bind(projects)
        .bind(limit)
        .all(conn)
        .await
}

/// Takes those of these that are due, so that nobody else has them until `lease_ends_at`. What a
/// process that died had taken is due again then.
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

/// The latest attempt of each of these deliveries, of those that have one.
pub async fn latest_attempts(conn: &mut Conn, of: &[DeliveryId]) -> Result<Vec<Attempt>, Error> {
    sql(LATEST_ATTEMPTS).bind(of).all(conn).await
}

/// When the next delivery is due, or the lease of one ends that is under way.
pub async fn next_due(conn: &mut Conn) -> Result<Option<Timestamp>, Error> {
    let due: Option<i64> = sql(NEXT_DUE).one(conn).await?;
    Ok(due.and_then(|micros| Timestamp::from_microsecond(micros).ok()))
}

/// How many deliveries to a webhook have not ended, counted up to `most`.
pub async fn count_open(conn: &mut Conn, webhook: WebhookId, most: u32) -> Result<u64, Error> {
    sql(COUNT_OPEN).bind(webhook).bind(most).count(conn).await
}

/// Lets the deliveries of a webhook wait until then, where they were due before.
pub async fn postpone(tx: &mut Tx, webhook: WebhookId, until: Timestamp) -> Result<u64, Error> {
    sql(POSTPONE).bind(webhook).bind(until).execute(tx).await
}

/// Makes a delivery that was given up due again, once more. False when it was not given up.
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

/// Ends the open deliveries of all webhooks of a project. Returns how many.
pub async fn cancel_all(tx: &mut Tx, project: ProjectId, now: Timestamp) -> Result<u64, Error> {
    sql(CANCEL_ALL).bind(project).bind(now).execute(tx).await
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

/// One page of the deliveries to a project's webhook.
pub async fn list(conn: &mut Conn, list: List<'_>) -> Result<Page<Delivery>, Error> {
    let status = list.status.map(Status::as_str);
    let start = list.period.start.unwrap_or(Timestamp::MIN);
    let end = list.period.end.unwrap_or(Timestamp::MAX);
    let filtered = |text: String| {
        sql(text)
            .bind(list.project)
            .bind(list.webhook)
            .bind(status)
            .bind(list.kind)
            .bind(start)
            .bind(end)
    };
    let total = filtered(COUNT.to_owned()).count(conn).await?;
    let items = filtered(sorted(LIST, "id", list.order))
        .bind(list.paging.limit())
        .bind(list.paging.offset())
        .all(conn)
        .await?;
    Ok(Page { items, total })
}

/// Forgets at most `limit` deliveries that ended by this time. Returns how many.
pub async fn purge(tx: &mut Tx, ended_by: Timestamp, limit: u32) -> Result<u64, Error> {
    sql(PURGE).bind(ended_by).bind(limit).execute(tx).await
}
