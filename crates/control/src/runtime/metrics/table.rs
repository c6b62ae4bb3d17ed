//! The list of all metrics: name, type, labels, meaning. `docs/metrics.md` is generated from it.

use daemon::metrics::{Kind, Metric, metric};
use daemon::tls::{EXPIRY_METRIC, RELOADS_METRIC};
use store::QUERY_SECONDS;

use crate::runtime::jobs::ExpiringRows;

pub(super) const BUILD_INFO: &str = "svc_build_info";
pub(super) const CLOCK_SKEW: &str = "svc_platform_clock_skew_seconds";
pub(super) const CONNECTIONS: &str = "svc_platform_database_connections";
pub(super) const JOB_FAILURES: &str = "svc_platform_job_failures_total";
pub(super) const LINKS: &str = "svc_platform_engine_links";
pub(super) const LINK_LAG: &str = "svc_platform_link_lag_seconds";
pub(super) const LINK_REFUSALS: &str = "svc_platform_link_refusals_total";
pub(super) const LINK_SNAPSHOTS: &str = "svc_platform_link_snapshots_total";
pub(super) const REPORTS: &str = "svc_platform_reports_total";
pub(super) const REPORT_RECORDS: &str = "svc_platform_report_records_total";
pub(super) const MINTED: &str = "svc_platform_tokens_minted_total";
pub(super) const PURGE_OVERDUE: &str = "svc_platform_purge_overdue_seconds";
pub(super) const PURGED: &str = "svc_platform_purged_rows_total";
pub(super) const READY: &str = "svc_platform_ready";
pub(super) const RECORDS_REMOVED: &str = "svc_platform_records_removed_total";
pub(super) const REFUSED_CONNECTIONS: &str = "svc_platform_refused_connections_total";
pub(super) const RENEWED: &str = "svc_platform_renewals_total";
pub(super) const REQUESTS: &str = "svc_platform_requests_total";
pub(super) const REQUEST_SECONDS: &str = "svc_platform_request_seconds";
pub(super) const SIGN_INS: &str = "svc_platform_sign_ins_total";
pub(super) const WEBHOOK_ATTEMPTS: &str = "svc_platform_webhook_attempts_total";
pub(super) const WEBHOOK_DROPPED: &str = "svc_platform_webhook_events_dropped_total";

/// In the order of their names.
pub(super) const METRICS: &[Metric] = &[
    acme::EXPIRY_METRIC,
    acme::FAILURE_METRIC,
    acme::ORDERS_METRIC,
    metric(
        BUILD_INFO,
        Kind::Gauge,
        &[("version", &[env!("CARGO_PKG_VERSION")])],
        "Always 1; the label is the running version.",
    ),
    metric(
        EXPIRY_METRIC,
        Kind::Gauge,
        &[("name", &["svc.example.com"])],
        "When the active certificate expires, in seconds since 1970; only with `tls.cert_file`. The \
         label is its first name.",
    ),
    metric(
        RELOADS_METRIC,
        Kind::Counter,
        &[("outcome", &["ok", "error"])],
        "Reloads of the certificate's files: accepted, or refused while the old certificate stays \
         active.",
    ),
    metric(
        CLOCK_SKEW,
        Kind::Gauge,
        &[],
        "How far the clock is ahead of the database's, measured every minute; beyond 30 s in \
         either direction the platform is not ready. 0 with the embedded database.",
    ),
    metric(
        CONNECTIONS,
        Kind::Gauge,
        &[("state", &["idle", "used"])],
        "Connections to the database; if all are used, requests wait.",
    ),
    metric(
        QUERY_SECONDS,
        Kind::Histogram,
        &[("kind", &["read", "write"])],
        "Time of the database for a statement, without the wait for a connection.",
    ),
    metric(
        LINKS,
        Kind::Gauge,
        &[],
        "Engines connected to this process.",
    ),
    metric(
        JOB_FAILURES,
        Kind::Counter,
        &[],
        "Failed background jobs (cleanup, renewal, delivery bookkeeping); they are retried.",
    ),
    metric(
        LINK_LAG,
        Kind::Histogram,
        &[],
        "Delay from a change to its delivery to an engine.",
    ),
    metric(
        LINK_REFUSALS,
        Kind::Counter,
        &[],
        "Requests of engines without the secret of a cluster.",
    ),
    metric(
        LINK_SNAPSHOTS,
        Kind::Counter,
        &[],
        "Complete snapshots sent to engines: on their first link, or after a long absence.",
    ),
    metric(
        PURGE_OVERDUE,
        Kind::Gauge,
        &[("kind", ExpiringRows::WORDS)],
        "Time since the oldest row should have been removed; a purge runs every five minutes.",
    ),
    metric(
        PURGED,
        Kind::Counter,
        &[("kind", ExpiringRows::WORDS)],
        "Rows removed because their retention expired.",
    ),
    metric(
        READY,
        Kind::Gauge,
        &[],
        "1 while requests can be served: the database responds, there is a certificate, and the \
         process is not draining.",
    ),
    metric(
        RECORDS_REMOVED,
        Kind::Counter,
        &[],
        "Logs and events that were removed before their retention expired, because their project \
         reached its limit.",
    ),
    metric(
        REFUSED_CONNECTIONS,
        Kind::Counter,
        &[("limit", &["total", "source"])],
        "Connections that were closed immediately, because the process or their source had too \
         many.",
    ),
    metric(
        RENEWED,
        Kind::Counter,
        &[],
        "Renewed periods of subscriptions.",
    ),
    metric(
        REPORT_RECORDS,
        Kind::Counter,
        &[(
            "kind",
            &[
                "stream",
                "event",
                "usage",
                "turn_usage",
                "inventory",
                "session_ended",
                "credential_use",
                "certificate_order",
                "engine_certificates",
                "tunnel_closed",
                "left_out",
            ],
        )],
        "Records reported by engines; `left_out`: of projects that they do not serve.",
    ),
    metric(
        REPORTS,
        Kind::Counter,
        &[("outcome", &["ok", "repeated"])],
        "Batches of reports; a repeated one counts once.",
    ),
    metric(
        REQUEST_SECONDS,
        Kind::Histogram,
        &[("route", &[])],
        "Time from the head of a request to the head of its response. `route` is the template of \
         the path, as in the OpenAPI document, or `none`.",
    ),
    metric(
        REQUESTS,
        Kind::Counter,
        &[
            ("route", &[]),
            (
                "method",
                &[
                    "GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "other",
                ],
            ),
            ("status", &["1xx", "2xx", "3xx", "4xx", "5xx"]),
        ],
        "Answered requests.",
    ),
    metric(
        SIGN_INS,
        Kind::Counter,
        &[(
            "outcome",
            &["ok", "half_way", "wrong", "too_soon", "failed"],
        )],
        "Attempts to sign in: all proofs were correct, the second factor is still required, a \
         proof was wrong, too many attempts, an internal error.",
    ),
    metric(
        MINTED,
        Kind::Counter,
        &[("kind", &["auth", "pat", "app", "mtls"])],
        "Delegated tokens and credentials that were issued.",
    ),
    metric(
        WEBHOOK_ATTEMPTS,
        Kind::Counter,
        &[(
            "outcome",
            &["succeeded", "failed", "timeout", "network_error"],
        )],
        "Attempts to deliver an event to a webhook: answered with 2xx, answered otherwise, not \
         answered in time, endpoint not reached.",
    ),
    metric(
        WEBHOOK_DROPPED,
        Kind::Counter,
        &[],
        "Events that were dropped because too many were already waiting for the webhook.",
    ),
];
