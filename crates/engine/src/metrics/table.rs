//! All metrics: name, type, labels, meaning. `docs/metrics.md` is generated from this.

use daemon::access_log::DROPPED_METRIC;
use daemon::metrics::{Kind, Metric, metric};
use daemon::tls::{DOMAIN_EXPIRY_METRIC, EXPIRY_METRIC, RELOADS_METRIC};

pub(super) const AGENTS_CONNECTED: &str = "svc_agents_connected_total";
pub(super) const AGENTS_GONE: &str = "svc_agents_gone_total";
pub(super) const AGENTS_REFUSED: &str = "svc_agents_refused_total";
pub(super) const BUILD_INFO: &str = "svc_build_info";
pub(super) const BYTES: &str = "svc_bytes_total";
pub(super) const CLIENTS: &str = "svc_clients";
pub(super) const CLUSTER_CONNECTED: &str = "svc_cluster_peer_connected";
pub(super) const CLUSTER_FORWARDS: &str = "svc_cluster_forwards_total";
pub(super) const CLUSTER_LEASE_AGE: &str = "svc_cluster_lease_age_seconds";
pub(super) const CLUSTER_NAMES: &str = "svc_cluster_names";
pub(super) const CLUSTER_SERVING: &str = "svc_cluster_serving";
pub(super) const CLUSTER_STORE: &str = "svc_cluster_store_seconds";
pub(super) const CONNECTIONS_REFUSED: &str = "svc_connections_refused_total";
pub(super) const CONTROL_PLANE_CHANGES: &str = "svc_control_plane_changes_total";
pub(super) const CONTROL_PLANE_CONNECTED: &str = "svc_control_plane_connected";
pub(super) const CONTROL_PLANE_REPORTS: &str = "svc_control_plane_reports_total";
pub(super) const CONTROL_PLANE_REPORTS_WAITING: &str = "svc_control_plane_reports_waiting";
pub(super) const CONTROL_PLANE_STATE_SAVED: &str = "svc_control_plane_state_saved";
pub(super) const CONTROL_PLANE_SILENCE: &str = "svc_control_plane_silence_seconds";
pub(super) const CONTROL_PLANE_SNAPSHOTS: &str = "svc_control_plane_snapshots_total";
pub(super) const CONTROL_PLANE_VERSION: &str = "svc_control_plane_version";
pub(super) const BUFFERED_BYTES: &str = "svc_buffered_bytes";
pub(super) const SLOW_STREAMS_GIVEN_UP: &str = "svc_slow_streams_given_up_total";
pub(super) const EDGE_REQUESTS: &str = "svc_edge_requests_total";
pub(super) const TIME_TO_FIRST_BYTE: &str = "svc_first_byte_seconds";
pub(super) const JWKS_REFRESHES: &str = "svc_jwks_refreshes_total";
pub(super) const LANE_STREAMS: &str = "svc_lane_streams";
pub(super) const POOL_CONNECTIONS: &str = "svc_pool_connections";
pub(super) const PROXY_HEADERS: &str = "svc_proxy_headers_total";
pub(super) const STREAMS: &str = "svc_streams_total";
pub(super) const STREAMS_ACTIVE: &str = "svc_streams_active";
pub(super) const STREAM_OPEN_DURATION: &str = "svc_stream_open_seconds";
pub(super) const STREAM_OPEN_FAILURES: &str = "svc_stream_open_failures_total";
pub(super) const TLS_HANDSHAKES: &str = "svc_tls_handshakes_total";
pub(super) const TUNNELS: &str = "svc_tunnels";
pub(super) const VISIT_DURATION: &str = "svc_visit_duration_seconds";
pub(super) const WATCHERS: &str = "svc_watchers";
pub(super) const WATCHERS_DROPPED: &str = "svc_watchers_dropped_total";

/// Sorted by the names of the metrics, not of the constants.
pub(super) const METRICS: &[Metric] = &[
    metric(
        DROPPED_METRIC,
        Kind::Counter,
        &[],
        "Lines that the access log lost because its file was slow, full or missing.",
    ),
    acme::EXPIRY_METRIC,
    acme::FAILURE_METRIC,
    acme::ORDERS_METRIC,
    metric(
        AGENTS_CONNECTED,
        Kind::Counter,
        &[],
        "Control channels that were accepted.",
    ),
    metric(
        AGENTS_GONE,
        Kind::Counter,
        &[(
            "reason",
            &[
                "closed",
                "failed",
                "silent",
                "violation",
                "goodbye",
                "revoked",
                "stopping",
            ],
        )],
        "Control channels that ended: the connection was closed or failed, no heartbeat arrived \
         in time, the agent violated the protocol or sent a goodbye, its authorization ended, the \
         engine stopped.",
    ),
    metric(
        AGENTS_REFUSED,
        Kind::Counter,
        &[(
            "reason",
            &[
                "unauthorized",
                "version",
                "capacity",
                "stopping",
                "invalid",
                "other",
            ],
        )],
        "Control channels that were refused.",
    ),
    metric(
        BUFFERED_BYTES,
        Kind::Gauge,
        &[],
        "Bytes buffered for streams with slow readers, at most \
         `limits.max_buffered_bytes`.",
    ),
    metric(
        BUILD_INFO,
        Kind::Gauge,
        &[("version", &[env!("CARGO_PKG_VERSION")])],
        "Always 1; the label is the running version.",
    ),
    metric(
        BYTES,
        Kind::Counter,
        &[("direction", &["in", "out"])],
        "Bytes from and to visitors, counted when a visit ends.",
    ),
    metric(
        EXPIRY_METRIC,
        Kind::Gauge,
        &[("name", &["engine.example.com"])],
        "When the active certificate expires, in seconds since 1970. The label is its first name.",
    ),
    metric(
        RELOADS_METRIC,
        Kind::Counter,
        &[("outcome", &["ok", "error"])],
        "Reloads of the certificate's files: accepted, or refused while the old certificate stays \
         active.",
    ),
    metric(CLIENTS, Kind::Gauge, &[], "Connected agents."),
    metric(
        CLUSTER_FORWARDS,
        Kind::Counter,
        &[("peer", &["engine-2"]), ("direction", &["in", "out"])],
        "Streams of visitors that this engine forwarded to another engine of the cluster, or that \
         the other engine forwarded to this one.",
    ),
    metric(
        CLUSTER_LEASE_AGE,
        Kind::Gauge,
        &[],
        "Time since the engine last renewed its lease at the store of the cluster. Only in \
         engines of a cluster, like all metrics of this group.",
    ),
    metric(
        CLUSTER_NAMES,
        Kind::Gauge,
        &[("state", &["online", "held"])],
        "Names of the whole cluster, as this engine has read them: with an agent, or held for \
         their owner without one.",
    ),
    metric(
        CLUSTER_CONNECTED,
        Kind::Gauge,
        &[("peer", &["engine-2"])],
        "1 while this engine is connected to another engine of the cluster, 0 otherwise.",
    ),
    metric(
        CLUSTER_SERVING,
        Kind::Gauge,
        &[],
        "1 while the engine may serve its names; 0 before it has joined the cluster, and after \
         it had no contact with the store for nearly ten minutes.",
    ),
    metric(
        CLUSTER_STORE,
        Kind::Gauge,
        &[],
        "Time that the last successful request to the store of the cluster took.",
    ),
    metric(
        CONNECTIONS_REFUSED,
        Kind::Counter,
        &[("reason", &["total", "source"])],
        "Connections that were closed without reading them: the limit of all connections or of one \
         source was reached.",
    ),
    metric(
        CONTROL_PLANE_CHANGES,
        Kind::Counter,
        &[],
        "Changes received from the platform and applied.",
    ),
    metric(
        CONTROL_PLANE_CONNECTED,
        Kind::Gauge,
        &[],
        "1 while connected to the platform; while it is 0, the engine serves with the last known \
         state. Only in managed engines, like all metrics of this group.",
    ),
    metric(
        CONTROL_PLANE_REPORTS,
        Kind::Counter,
        &[("outcome", &["sent", "dropped"])],
        "Records of visits, events and usage: received by the platform, or dropped because the \
         buffer was full while the platform was unreachable.",
    ),
    metric(
        CONTROL_PLANE_REPORTS_WAITING,
        Kind::Gauge,
        &[],
        "Records waiting to be sent to the platform, in memory and on disk.",
    ),
    metric(
        CONTROL_PLANE_SILENCE,
        Kind::Gauge,
        &[],
        "Seconds since the last message from the platform.",
    ),
    metric(
        CONTROL_PLANE_SNAPSHOTS,
        Kind::Counter,
        &[],
        "Complete snapshots received from the platform.",
    ),
    metric(
        CONTROL_PLANE_STATE_SAVED,
        Kind::Gauge,
        &[],
        "0 while the state of the platform cannot be written to `control_plane.data_dir`. Writing \
         is retried; a stored state that lacks a revocation is deleted.",
    ),
    metric(
        CONTROL_PLANE_VERSION,
        Kind::Gauge,
        &[],
        "Version of the active state, assigned by the platform. If engines of one cluster show \
         different versions for long, one of them does not receive changes.",
    ),
    metric(
        dns::QUERIES_METRIC,
        Kind::Counter,
        &[(
            "result",
            &[
                "answer",
                "no_data",
                "no_name",
                "refused",
                "not_implemented",
                "malformed",
                "truncated",
                "limited",
            ],
        )],
        "Queries of DNS (`certs.acme.dns_responder`) by their response: records, a name without \
         such records or without any, no zone of this engine, another operation, a malformed \
         message, a request to use TCP, a source beyond its rate. The last ones are also counted as \
         truncated if there was a response.",
    ),
    metric(
        DOMAIN_EXPIRY_METRIC,
        Kind::Gauge,
        &[("domain", &["app.example.com"])],
        "When the certificate of each custom domain expires, in seconds since 1970; 0 without one. \
         After 10,000 names in the life of a process, further ones share `other`, with the earliest.",
    ),
    metric(
        EDGE_REQUESTS,
        Kind::Counter,
        &[
            ("status", &["1xx", "2xx", "3xx", "4xx", "5xx"]),
            ("rule", RULES),
        ],
        "Answered requests to published tunnels, by status class and the access rule that decided.",
    ),
    metric(
        TIME_TO_FIRST_BYTE,
        Kind::Histogram,
        &[],
        "Time from the head of a request to the first byte of the service's response.",
    ),
    metric(
        JWKS_REFRESHES,
        Kind::Counter,
        &[("outcome", &["ok", "error"])],
        "Fetches of the keys from `auth.jwt.jwks_url`; after a failure the known keys stay valid.",
    ),
    metric(
        LANE_STREAMS,
        Kind::Gauge,
        &[],
        "Streams on lanes, including idle ones that wait for the next request.",
    ),
    metric(
        POOL_CONNECTIONS,
        Kind::Gauge,
        &[("state", &["idle", "busy", "lane"])],
        "Open data connections of agents: idle, used by one stream, or a lane that many small \
         streams share.",
    ),
    metric(
        PROXY_HEADERS,
        Kind::Counter,
        &[("outcome", &["accepted", "absent", "malformed"])],
        "Connections from `edge.trusted_proxies`, by the PROXY header at their start.",
    ),
    metric(
        SLOW_STREAMS_GIVEN_UP,
        Kind::Counter,
        &[],
        "Streams aborted because their readers were slow and `limits.max_buffered_bytes`, or \
         the buffer of a lane, was full.",
    ),
    metric(
        STREAM_OPEN_FAILURES,
        Kind::Counter,
        &[(
            "reason",
            &["gone", "peer_gone", "deadline", "refused", "full"],
        )],
        "Streams that the agent did not open: it had disconnected, the engine of the cluster that \
         has it had disconnected, it timed out, refused, or had reached its limit of streams.",
    ),
    metric(
        STREAM_OPEN_DURATION,
        Kind::Histogram,
        &[],
        "Time to open a stream: 0 if an idle connection was available.",
    ),
    metric(
        STREAMS_ACTIVE,
        Kind::Gauge,
        &[],
        "Requests and connections of visitors in progress.",
    ),
    metric(
        STREAMS,
        Kind::Counter,
        &[
            ("kind", &["http", "tls", "tcp", "dial"]),
            ("outcome", &["served", "refused", "failed", "abandoned"]),
        ],
        "Requests and connections of visitors that have ended: completed by the service, refused \
         by the edge, failed (no complete response of the service, or no agent was online), \
         aborted by the visitor.",
    ),
    metric(
        TLS_HANDSHAKES,
        Kind::Counter,
        &[(
            "outcome",
            &[
                "ok",
                "failed",
                "no_hello",
                "timed_out",
                "crowded",
                "routed",
                "route_failed",
            ],
        )],
        "TLS handshakes: completed, failed, connections without a ClientHello, those that took too \
         long, those rejected because their source had too many in progress, those forwarded to the \
         server of a route, and those whose server could not be reached.",
    ),
    metric(TUNNELS, Kind::Gauge, &[], "Online tunnels."),
    metric(
        VISIT_DURATION,
        Kind::Histogram,
        &[],
        "Time from the head of a request, or the start of a connection, to its end.",
    ),
    metric(
        WATCHERS,
        Kind::Gauge,
        &[],
        "Watchers of live events (server-sent events and WebSockets).",
    ),
    metric(
        WATCHERS_DROPPED,
        Kind::Counter,
        &[],
        "Watchers that were closed because they were too slow.",
    ),
];

/// The rules that can decide a request; `none` if it ended before a decision.
const RULES: &[&str] = &[
    "none",
    "http",
    "host",
    "offline",
    "starting",
    "unknown",
    "uninformed",
    "loop",
    "public",
    "private",
    "edge",
    "suspended",
    "taken_down",
    "unenforceable",
    "trusted_ips",
    "rate_limit",
    "geo_ip",
    "tls_version",
    "public_access",
    "ambiguous",
    "challenge",
    "session",
    "cross_site",
    "certificate",
    "password",
    "query_credential",
    "token",
    "permission",
    "boundary",
    "path",
];
