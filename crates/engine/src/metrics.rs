//! The engine's metrics, looked up once.

use std::time::Duration;

use metrics::{
    Counter, Gauge, Histogram, Unit, counter, describe_counter, describe_gauge, describe_histogram,
    gauge, histogram,
};

use crate::edge::record::Outcome;
use crate::live::Counts;

/// Handles of what is counted on the data path, and the names of the rest.
pub(crate) struct EngineMetrics {
    pub(crate) bytes_in: Counter,
    pub(crate) bytes_out: Counter,
    pub(crate) visit_seconds: Histogram,
    pub(crate) first_byte_seconds: Histogram,
    pub(crate) handshakes_timed_out: Counter,
    clients: Gauge,
    tunnels: Gauge,
    watchers: Gauge,
    dropped_watchers: Counter,
}

/// How often gauges that are counted, not tracked, are brought up to date.
pub(crate) const REFRESH: Duration = Duration::from_secs(5);

impl EngineMetrics {
    pub(crate) fn new() -> Self {
        describe();
        gauge!("svc_build_info", "version" => env!("CARGO_PKG_VERSION")).set(1.0);
        Self {
            bytes_in: counter!("svc_bytes_total", "direction" => "in"),
            bytes_out: counter!("svc_bytes_total", "direction" => "out"),
            visit_seconds: histogram!("svc_visit_duration_seconds"),
            first_byte_seconds: histogram!("svc_first_byte_seconds"),
            handshakes_timed_out: counter!("svc_tls_handshakes_timed_out_total"),
            clients: gauge!("svc_clients"),
            tunnels: gauge!("svc_tunnels"),
            watchers: gauge!("svc_watchers"),
            dropped_watchers: counter!("svc_watchers_dropped_total"),
        }
    }

    /// Counts a visit that has ended. Every label is one of a fixed few: no visitor can make more.
    pub(crate) fn visit_ended(
        &self,
        kind: &'static str,
        outcome: Outcome,
        status: Option<u16>,
        rule: &'static str,
    ) {
        counter!("svc_streams_total", "kind" => kind, "outcome" => outcome.as_str()).increment(1);
        if let Some(status) = status {
            let class = status_class(status);
            counter!("svc_edge_requests_total", "status" => class, "rule" => rule).increment(1);
        }
    }

    pub(crate) fn refresh(&self, counts: Counts) {
        self.clients.set(number(counts.clients));
        self.tunnels.set(number(counts.tunnels));
        self.watchers.set(number(counts.watchers));
        self.dropped_watchers.absolute(counts.dropped_watchers);
    }
}

impl std::fmt::Debug for EngineMetrics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EngineMetrics").finish_non_exhaustive()
    }
}

fn status_class(status: u16) -> &'static str {
    match status {
        100..=199 => "1xx",
        200..=299 => "2xx",
        300..=399 => "3xx",
        400..=499 => "4xx",
        _ => "5xx",
    }
}

fn number(count: usize) -> f64 {
    u32::try_from(count).map_or(f64::INFINITY, f64::from)
}

fn describe() {
    describe_gauge!("svc_build_info", "The version that runs, as a label.");
    describe_gauge!("svc_clients", "Agents that are connected.");
    describe_gauge!("svc_tunnels", "Tunnels that are online.");
    describe_gauge!("svc_watchers", "Watchers of live events.");
    describe_counter!(
        "svc_watchers_dropped_total",
        "Watchers closed because they were too slow."
    );
    describe_counter!(
        "svc_bytes_total",
        Unit::Bytes,
        "Bytes of visitors, by direction."
    );
    describe_counter!(
        "svc_streams_total",
        "Visits that have ended, by kind and outcome."
    );
    describe_counter!(
        "svc_edge_requests_total",
        "Answered requests to published tunnels, by class of status and deciding rule."
    );
    describe_histogram!(
        "svc_visit_duration_seconds",
        Unit::Seconds,
        "From the head of a request, or the start of a connection, to its end."
    );
    describe_histogram!(
        "svc_first_byte_seconds",
        Unit::Seconds,
        "From the head of a request to the head of the service's answer."
    );
    describe_counter!(
        "svc_tls_handshakes_timed_out_total",
        "Connections that did not complete their handshake in time."
    );
}
