//! Metrics of the platform. [`table`] lists all of them.
//!
//! No label has a value that users control. The route label is the template of the path, never the
//! path itself.

mod table;
mod watch;

use axum::extract::{MatchedPath, Request};
use axum::middleware::Next;
use axum::response::Response;
use daemon::metrics::describe;
use http::{Method, StatusCode};
use jiff::SignedDuration;
use metrics::{counter, gauge, histogram};
use tokio::time::Instant;

pub(crate) use self::watch::watch;
use crate::runtime::jobs::ExpiringRows;

/// Registers the metrics. Call it after the recorder was installed.
pub(crate) fn begin() {
    describe(table::METRICS);
    gauge!(table::BUILD_INFO, "version" => env!("CARGO_PKG_VERSION")).set(1.0);
}

/// Counts every request, with its outcome and duration.
pub(crate) async fn count_request(request: Request, next: Next) -> Response {
    let route = request.extensions().get::<MatchedPath>();
    let route = route.map_or_else(|| "none".to_owned(), |route| route.as_str().to_owned());
    let method = method_label(request.method());
    let began = Instant::now();
    let response = next.run(request).await;
    let status = class(response.status());
    histogram!(table::REQUEST_SECONDS, "route" => route.clone()).record(began.elapsed());
    let labels = [
        ("route", route),
        ("method", method.to_owned()),
        ("status", status.to_owned()),
    ];
    counter!(table::REQUESTS, &labels).increment(1);
    response
}

/// Outcome of a step of a sign-in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SignIn {
    /// The sign-in is complete.
    Ok,
    /// The password is right, and the second factor is still required.
    SecondFactorPending,
    /// Wrong credentials of any kind.
    Wrong,
    /// Too many attempts.
    TooSoon,
    /// Internal failure.
    Failed,
}

/// Counts a sign-in attempt.
pub(crate) fn signed_in(outcome: SignIn) {
    let outcome = match outcome {
        SignIn::Ok => "ok",
        SignIn::SecondFactorPending => "half_way",
        SignIn::Wrong => "wrong",
        SignIn::TooSoon => "too_soon",
        SignIn::Failed => "failed",
    };
    counter!(table::SIGN_INS, "outcome" => outcome).increment(1);
}

/// Counts an issued token or credential. The kind is one of the table's.
pub(crate) fn minted(kind: &'static str) {
    counter!(table::MINTED, "kind" => kind).increment(1);
}

/// Counts a connection that a limit refused. The limit is one of the table's.
pub(crate) fn connection_refused(limit: &'static str) {
    counter!(table::REFUSED_CONNECTIONS, "limit" => limit).increment(1);
}

/// Counts links that started, or ended.
pub(crate) fn links(change: i8) {
    gauge!(table::LINKS).increment(f64::from(change));
}

/// Records the delay of a change that was sent.
pub(crate) fn link_lag(lag: SignedDuration) {
    histogram!(table::LINK_LAG).record(lag.as_secs_f64().max(0.0));
}

/// Counts a request of an engine with a wrong secret.
pub(crate) fn link_refused() {
    counter!(table::LINK_REFUSALS).increment(1);
}

/// Counts an engine that received the whole state.
pub(crate) fn link_snapshot() {
    counter!(table::LINK_SNAPSHOTS).increment(1);
}

/// Counts a batch of reports. The outcome is one of the table's.
pub(crate) fn report(outcome: &'static str) {
    counter!(table::REPORTS, "outcome" => outcome).increment(1);
}

/// Counts the records of a batch. The kind is one of the table's.
pub(crate) fn report_records(kind: &'static str, records: u64) {
    counter!(table::REPORT_RECORDS, "kind" => kind).increment(records);
}

/// Counts logs and events that were removed because their project has too many.
pub(crate) fn records_removed(rows: u64) {
    counter!(table::RECORDS_REMOVED).increment(rows);
}

/// Counts deleted rows.
pub(crate) fn purged(kind: ExpiringRows, rows: u64) {
    counter!(table::PURGED, "kind" => kind.as_str()).increment(rows);
}

/// Records the time by which our clock is ahead of the database's.
pub(crate) fn clock_skew(ahead: SignedDuration) {
    gauge!(table::CLOCK_SKEW).set(ahead.as_secs_f64());
}

/// Records the time since the oldest row of a kind expired.
pub(crate) fn purge_overdue(kind: ExpiringRows, overdue: SignedDuration) {
    gauge!(table::PURGE_OVERDUE, "kind" => kind.as_str()).set(overdue.as_secs_f64());
}

/// Counts subscriptions that were renewed.
pub(crate) fn renewed(periods: u64) {
    counter!(table::RENEWED).increment(periods);
}

/// Counts an attempt of a webhook's delivery. The outcome is one of the table's.
pub(crate) fn webhook_sent(outcome: &'static str) {
    counter!(table::WEBHOOK_ATTEMPTS, "outcome" => outcome).increment(1);
}

/// Counts an event that was skipped because too many wait for the webhook.
pub(crate) fn webhook_event_dropped() {
    counter!(table::WEBHOOK_DROPPED).increment(1);
}

/// Counts a job that failed.
pub(crate) fn job_failed() {
    counter!(table::JOB_FAILURES).increment(1);
}

fn method_label(method: &Method) -> &'static str {
    const METHODS: [(Method, &str); 7] = [
        (Method::GET, "GET"),
        (Method::HEAD, "HEAD"),
        (Method::POST, "POST"),
        (Method::PUT, "PUT"),
        (Method::PATCH, "PATCH"),
        (Method::DELETE, "DELETE"),
        (Method::OPTIONS, "OPTIONS"),
    ];
    let known = METHODS.iter().find(|(known, _)| known == method);
    known.map_or("other", |(_, name)| name)
}

fn class(status: StatusCode) -> &'static str {
    match status.as_u16() {
        100..=199 => "1xx",
        200..=299 => "2xx",
        300..=399 => "3xx",
        400..=499 => "4xx",
        _ => "5xx",
    }
}

#[cfg(test)]
mod tests;
