//! The relay's metrics and their handles.

use daemon::metrics::{Kind, Metric, metric};
use metrics::{Counter, Gauge, counter, gauge};

/// All metrics. `docs/metrics.md` is generated from this.
pub(crate) const METRICS: &[Metric] = &[
    acme::EXPIRY_METRIC,
    acme::FAILURE_METRIC,
    acme::ORDERS_METRIC,
    metric(ALLOCATIONS, Kind::Gauge, &[], "Current allocations."),
    metric(ALLOCATIONS_MADE, Kind::Counter, &[], "Created allocations."),
    metric(
        CONNECTIONS,
        Kind::Gauge,
        &[("transport", &["tcp", "tls"])],
        "Connections of clients.",
    ),
    metric(
        CONNECTIONS_REFUSED,
        Kind::Counter,
        &[("reason", &["full", "source", "handshake"])],
        "Connections that were closed immediately: the limit of all connections or of one source \
         was reached, or the TLS handshake failed.",
    ),
    metric(
        PEER_CONNECTIONS,
        Kind::Gauge,
        &[],
        "Connections to peers (RFC 6062), including those that are being opened or wait for their \
         clients.",
    ),
    metric(
        PEER_CONNECTIONS_MADE,
        Kind::Counter,
        &[("by", &["client", "peer"])],
        "Connections to peers that were opened, by the side that opened them.",
    ),
    metric(
        PEER_CONNECTIONS_FAILED,
        Kind::Counter,
        &[("reason", &["unreachable", "unclaimed"])],
        "Connections to peers that failed: the peer could not be reached, or the client did not \
         use the connection within 30 seconds.",
    ),
    metric(
        RELAYED,
        Kind::Counter,
        &[],
        "Bytes of relayed data, in both directions together.",
    ),
    metric(
        DROPPED,
        Kind::Counter,
        &[],
        "Packets that were dropped: without an allocation, to or from a peer without a permission, \
         or malformed.",
    ),
    metric(
        THROTTLED,
        Kind::Counter,
        &[],
        "Bytes of data in packets that were dropped because a limit of bytes per second was \
         reached. Connections to peers wait instead.",
    ),
    metric(
        REFUSED,
        Kind::Counter,
        &[],
        "Requests with credentials that were refused: wrong, expired, too long, or not allowed. \
         The first request of a client, which asks for realm and nonce, is not counted.",
    ),
    metric(
        REVOKED,
        Kind::Counter,
        &[],
        "Allocations that ended because their credentials were revoked or suspended.",
    ),
    metric(
        LINK_CONNECTED,
        Kind::Gauge,
        &[],
        "1 while connected to the platform. Only with `turn.control_plane`, like the metrics \
         below.",
    ),
    metric(
        LINK_SAVED,
        Kind::Gauge,
        &[],
        "0 while the state of the platform cannot be written to `turn.control_plane.data_dir`.",
    ),
    metric(
        LINK_VERSION,
        Kind::Gauge,
        &[],
        "Version of the state received from the platform.",
    ),
    metric(
        REPORTS_WAITING,
        Kind::Gauge,
        &[],
        "Records of usage waiting to be sent to the platform.",
    ),
];

const ALLOCATIONS: &str = "svc_turn_allocations";
const ALLOCATIONS_MADE: &str = "svc_turn_allocations_total";
const CONNECTIONS: &str = "svc_turn_connections";
const CONNECTIONS_REFUSED: &str = "svc_turn_connections_refused_total";
const PEER_CONNECTIONS: &str = "svc_turn_peer_connections";
const PEER_CONNECTIONS_MADE: &str = "svc_turn_peer_connections_total";
const PEER_CONNECTIONS_FAILED: &str = "svc_turn_peer_connections_failed_total";
const THROTTLED: &str = "svc_turn_throttled_bytes_total";
const RELAYED: &str = "svc_turn_relayed_bytes_total";
const DROPPED: &str = "svc_turn_dropped_packets_total";
const REFUSED: &str = "svc_turn_refused_requests_total";
const REVOKED: &str = "svc_turn_revoked_allocations_total";
const LINK_CONNECTED: &str = "svc_turn_control_plane_connected";
const LINK_SAVED: &str = "svc_turn_control_plane_state_saved";
const LINK_VERSION: &str = "svc_turn_control_plane_version";
const REPORTS_WAITING: &str = "svc_turn_control_plane_reports_waiting";

/// Handles of the counters and gauges. The gauges are updated every second.
#[derive(Debug)]
pub(crate) struct TurnMetrics {
    pub(crate) allocations: Gauge,
    pub(crate) allocations_made: Counter,
    pub(crate) connections_tcp: Gauge,
    pub(crate) connections_tls: Gauge,
    pub(crate) refused_full: Counter,
    pub(crate) refused_source: Counter,
    pub(crate) refused_handshake: Counter,
    pub(crate) peer_connections: Gauge,
    pub(crate) dialled: Counter,
    pub(crate) accepted: Counter,
    pub(crate) unreachable: Counter,
    pub(crate) unclaimed: Counter,
    pub(crate) relayed: Counter,
    pub(crate) throttled: Counter,
    pub(crate) dropped: Counter,
    pub(crate) refused: Counter,
    pub(crate) revoked: Counter,
}

impl TurnMetrics {
    pub(crate) fn new() -> Self {
        daemon::metrics::describe(METRICS);
        Self {
            allocations: gauge!(ALLOCATIONS),
            allocations_made: counter!(ALLOCATIONS_MADE),
            connections_tcp: gauge!(CONNECTIONS, "transport" => "tcp"),
            connections_tls: gauge!(CONNECTIONS, "transport" => "tls"),
            refused_full: counter!(CONNECTIONS_REFUSED, "reason" => "full"),
            refused_source: counter!(CONNECTIONS_REFUSED, "reason" => "source"),
            refused_handshake: counter!(CONNECTIONS_REFUSED, "reason" => "handshake"),
            peer_connections: gauge!(PEER_CONNECTIONS),
            dialled: counter!(PEER_CONNECTIONS_MADE, "by" => "client"),
            accepted: counter!(PEER_CONNECTIONS_MADE, "by" => "peer"),
            unreachable: counter!(PEER_CONNECTIONS_FAILED, "reason" => "unreachable"),
            unclaimed: counter!(PEER_CONNECTIONS_FAILED, "reason" => "unclaimed"),
            relayed: counter!(RELAYED),
            throttled: counter!(THROTTLED),
            dropped: counter!(DROPPED),
            refused: counter!(REFUSED),
            revoked: counter!(REVOKED),
        }
    }
}

/// Updates the metrics of the link.
#[expect(clippy::cast_precision_loss, reason = "versions stay below 2^52")]
pub(crate) fn control_plane(link: &link::Status, reports: link::ReportCounts) {
    gauge!(LINK_CONNECTED).set(f64::from(u8::from(link.is_connected())));
    gauge!(LINK_SAVED).set(f64::from(u8::from(link.is_saved())));
    gauge!(LINK_VERSION).set(link.version() as f64);
    gauge!(REPORTS_WAITING).set(reports.waiting as f64);
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use daemon::documents::check_part;

    use super::*;

    /// With `BLESS=1` in the environment the test writes the table instead of comparing it.
    #[test]
    fn every_metric_is_documented_and_every_documented_one_exists() {
        let lines = [
            "<!-- table: made from crates/turn/src/metrics.rs -->\n",
            "<!-- end of the relay's table -->\n",
        ];
        let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/metrics.md");
        check_part(&page, lines, &daemon::metrics::markdown(METRICS)).unwrap();
    }

    /// <https://prometheus.io/docs/practices/naming/>
    #[test]
    fn names_follow_the_conventions() {
        for metric in METRICS {
            let name = metric.name;
            let is_shared = name.starts_with("svc_acme_");
            assert!(is_shared || name.starts_with("svc_turn_"), "{name}");
            assert_eq!(
                name.ends_with("_total"),
                metric.kind == Kind::Counter,
                "{name}"
            );
            assert!(metric.help.ends_with('.'), "{name}");
        }
    }
}
