//! The engine's metrics. [`table`] defines all of them. This module has the handles of those on the
//! data path, looked up once, and functions for the others.

mod family;
mod table;

use std::time::Duration;

use daemon::connections::ConnectionLimitError;
use metrics::{Counter, Gauge, Histogram, counter, gauge, histogram};

use self::family::Family;
use crate::agents::PoolStats;
use crate::edge::Outcome;
use crate::live::Counts;

/// Handles of the metrics on the data path.
pub(crate) struct EngineMetrics {
    pub(crate) bytes_in: Counter,
    pub(crate) bytes_out: Counter,
    pub(crate) visit_seconds: Histogram,
    pub(crate) first_byte_seconds: Histogram,
    pub(crate) agents_connected: Counter,
    stream_open_seconds: Histogram,
    clients: Gauge,
    tunnels: Gauge,
    watchers: Gauge,
    dropped_watchers: Counter,
    streams_active: Gauge,
    pool_idle: Gauge,
    pool_busy: Gauge,
    pool_lanes: Gauge,
    lane_streams: Gauge,
    buffered: Gauge,
    given_up: Counter,
    streams: Family<2>,
    edge_requests: Family<2>,
    proxy_headers: Family<1>,
    connections_refused: Family<1>,
    tls_handshakes: Family<1>,
    agents_refused: Family<1>,
    agents_gone: Family<1>,
}

/// Interval for updating gauges that are computed instead of tracked.
pub(crate) const REFRESH: Duration = Duration::from_secs(5);

impl EngineMetrics {
    pub(crate) fn new() -> Self {
        daemon::metrics::describe(table::METRICS);
        gauge!(table::BUILD_INFO, "version" => env!("CARGO_PKG_VERSION")).set(1.0);
        Self {
            bytes_in: counter!(table::BYTES, "direction" => "in"),
            bytes_out: counter!(table::BYTES, "direction" => "out"),
            visit_seconds: histogram!(table::VISIT_DURATION),
            first_byte_seconds: histogram!(table::TIME_TO_FIRST_BYTE),
            agents_connected: counter!(table::AGENTS_CONNECTED),
            stream_open_seconds: histogram!(table::STREAM_OPEN_DURATION),
            clients: gauge!(table::CLIENTS),
            tunnels: gauge!(table::TUNNELS),
            watchers: gauge!(table::WATCHERS),
            dropped_watchers: counter!(table::WATCHERS_DROPPED),
            streams_active: gauge!(table::STREAMS_ACTIVE),
            pool_idle: gauge!(table::POOL_CONNECTIONS, "state" => "idle"),
            pool_busy: gauge!(table::POOL_CONNECTIONS, "state" => "busy"),
            pool_lanes: gauge!(table::POOL_CONNECTIONS, "state" => "lane"),
            lane_streams: gauge!(table::LANE_STREAMS),
            buffered: gauge!(table::BUFFERED_BYTES),
            given_up: counter!(table::SLOW_STREAMS_GIVEN_UP),
            streams: Family::new(table::STREAMS),
            edge_requests: Family::new(table::EDGE_REQUESTS),
            proxy_headers: Family::new(table::PROXY_HEADERS),
            connections_refused: Family::new(table::CONNECTIONS_REFUSED),
            tls_handshakes: Family::new(table::TLS_HANDSHAKES),
            agents_refused: Family::new(table::AGENTS_REFUSED),
            agents_gone: Family::new(table::AGENTS_GONE),
        }
    }

    /// The histogram of the time that streams take to open; each agent keeps a copy.
    pub(crate) fn stream_open_seconds(&self) -> Histogram {
        self.stream_open_seconds.clone()
    }

    /// Counts a visit that has ended.
    pub(crate) fn visit_ended(
        &self,
        kind: &'static str,
        outcome: Outcome,
        status: Option<u16>,
        rule: &'static str,
    ) {
        self.streams.count([kind, outcome.as_str()]);
        if let Some(status) = status {
            let class = status_class(status);
            let rule = if rule.is_empty() { "none" } else { rule };
            self.edge_requests.count([class, rule]);
        }
    }

    /// Counts a connection of a trusted proxy by its PROXY protocol header.
    pub(crate) fn proxy_header(&self, outcome: ProxyHeader) {
        self.proxy_headers.count([outcome.as_str()]);
    }

    /// Counts a finished handshake.
    pub(crate) fn tls_handshake(&self, outcome: Handshake) {
        self.tls_handshakes.count([outcome.as_str()]);
    }

    /// Counts a connection that was closed unread.
    pub(crate) fn connection_refused(&self, exceeded: ConnectionLimitError) {
        self.connections_refused.count([match exceeded {
            ConnectionLimitError::Total => "total",
            ConnectionLimitError::Source => "source",
        }]);
    }

    /// Counts a control channel that was rejected with this code.
    pub(crate) fn agent_refused(&self, code: wire::ErrorCode) {
        self.agents_refused.count([refusal(code)]);
    }

    /// Counts a control channel that ended. The reason is one of the table's.
    pub(crate) fn agent_gone(&self, reason: &'static str) {
        self.agents_gone.count([reason]);
    }

    /// Updates the metrics of the link to the platform.
    #[expect(
        clippy::unused_self,
        clippy::cast_precision_loss,
        reason = "there is a recorder where there are metrics; versions stay below 2^52"
    )]
    pub(crate) fn control_plane(&self, link: &link::Status, reports: link::ReportCounts) {
        gauge!(table::CONTROL_PLANE_CONNECTED).set(f64::from(u8::from(link.is_connected())));
        gauge!(table::CONTROL_PLANE_STATE_SAVED).set(f64::from(u8::from(link.is_saved())));
        gauge!(table::CONTROL_PLANE_SILENCE).set(link.last_message_at().elapsed().as_secs_f64());
        gauge!(table::CONTROL_PLANE_VERSION).set(link.version() as f64);
        counter!(table::CONTROL_PLANE_SNAPSHOTS).absolute(link.snapshots());
        counter!(table::CONTROL_PLANE_CHANGES).absolute(link.changes());
        gauge!(table::CONTROL_PLANE_REPORTS_WAITING).set(reports.waiting as f64);
        let count = |outcome: &'static str, records| {
            counter!(table::CONTROL_PLANE_REPORTS, "outcome" => outcome).absolute(records);
        };
        count("sent", reports.sent);
        count("dropped", reports.dropped);
    }

    pub(crate) fn refresh(&self, counts: Counts, now: Gauges) {
        self.clients.set(number(counts.clients));
        self.tunnels.set(number(counts.tunnels));
        self.watchers.set(number(counts.watchers));
        self.dropped_watchers.absolute(counts.dropped_watchers);
        self.streams_active.set(number(now.streams));
        self.buffered.set(number(transport::memory::buffered()));
        self.given_up.absolute(transport::memory::aborted_streams());
        self.pool_idle.set(number(now.pooled.idle));
        self.pool_busy.set(number(now.pooled.busy));
        self.pool_lanes.set(number(now.pooled.lanes));
        self.lane_streams.set(number(now.pooled.on_lanes));
    }
}

impl std::fmt::Debug for EngineMetrics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EngineMetrics").finish_non_exhaustive()
    }
}

/// Current values, summed over all workers.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Gauges {
    pub(crate) streams: usize,
    pub(crate) pooled: PoolStats,
}

/// Start of a connection from a trusted proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProxyHeader {
    Accepted,
    Absent,
    Malformed,
}

impl ProxyHeader {
    fn as_str(self) -> &'static str {
        match self {
            Self::Accepted => "accepted",
            Self::Absent => "absent",
            Self::Malformed => "malformed",
        }
    }
}

/// Result of a TLS handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Handshake {
    Completed,
    Failed,
    /// The first bytes were not a ClientHello, or there were none.
    NoHello,
    TimedOut,
    /// Its source had reached the limit of concurrent handshakes.
    Crowded,
    /// Another server of the operator (`tls.routes`) completes it.
    Routed,
    /// The other server could not be reached.
    RouteFailed,
}

impl Handshake {
    fn as_str(self) -> &'static str {
        match self {
            Self::Completed => "ok",
            Self::Failed => "failed",
            Self::NoHello => "no_hello",
            Self::TimedOut => "timed_out",
            Self::Crowded => "crowded",
            Self::Routed => "routed",
            Self::RouteFailed => "route_failed",
        }
    }
}

/// Counts a stream that no agent accepted. The reason is one of the table's.
pub(crate) fn stream_open_failed(reason: &'static str) {
    counter!(table::STREAM_OPEN_FAILURES, "reason" => reason).increment(1);
}

/// Counts a refresh of the key set.
pub(crate) fn jwks_refreshed(ok: bool) {
    let outcome = if ok { "ok" } else { "error" };
    counter!(table::JWKS_REFRESHES, "outcome" => outcome).increment(1);
}

/// Updates the metrics of the engine's membership in a cluster.
pub(crate) fn cluster(status: &etcd::Status) {
    let age = status.lease_age.unwrap_or_default();
    gauge!(table::CLUSTER_LEASE_AGE).set(age.as_secs_f64());
    gauge!(table::CLUSTER_NAMES, "state" => "online").set(number(status.names.online));
    gauge!(table::CLUSTER_NAMES, "state" => "held").set(number(status.names.held));
    gauge!(table::CLUSTER_SERVING).set(f64::from(u8::from(status.is_serving)));
    let latency = status.latency.unwrap_or_default();
    gauge!(table::CLUSTER_STORE).set(latency.as_secs_f64());
}

/// The number of streams that were forwarded to (`out`) or by (`in`) an engine of the cluster.
pub(crate) fn cluster_forwards(peer: &str, direction: &'static str) -> Counter {
    counter!(table::CLUSTER_FORWARDS, "peer" => peer.to_owned(), "direction" => direction)
}

/// Sets whether the connections to an engine of the cluster are open.
pub(crate) fn cluster_connected(peer: &str, is_connected: bool) {
    gauge!(table::CLUSTER_CONNECTED, "peer" => peer.to_owned())
        .set(f64::from(u8::from(is_connected)));
}

fn refusal(code: wire::ErrorCode) -> &'static str {
    use wire::ErrorCode as Code;
    match code {
        Code::Unauthorized => "unauthorized",
        Code::ProtocolVersionMissing
        | Code::ProtocolVersionInvalid
        | Code::ProtocolVersionIncompatible => "version",
        Code::CapacityExhausted => "capacity",
        Code::ServiceUnavailable => "stopping",
        Code::InvalidRequest => "invalid",
        _ => "other",
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

#[cfg(test)]
mod tests;
