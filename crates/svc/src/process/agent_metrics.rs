//! Metrics of an agent, which its health listener serves.

use std::sync::atomic::{AtomicU32, Ordering};

use client::{Agent, Connection, agent::AgentStatus};
use daemon::metrics::{Kind, Metric, metric};
use metrics::{Counter, Gauge, counter, gauge};

const BUILD_INFO: &str = "svc_build_info";
const BYTES: &str = "svc_agent_bytes_total";
const RECONNECTS: &str = "svc_agent_reconnects_total";
const STREAMS: &str = "svc_agent_streams_total";
const STREAMS_ACTIVE: &str = "svc_agent_streams_active";
const TUNNELS: &str = "svc_agent_tunnels";

/// All metrics of an agent, sorted by name. `docs/metrics.md` is generated from it.
const METRICS: &[Metric] = &[
    metric(
        BYTES,
        Kind::Counter,
        &[("direction", &["in", "out"])],
        "Bytes from and to visitors, counted when a stream ends. Visitors of `svc dial` are the \
         local programs.",
    ),
    metric(
        RECONNECTS,
        Kind::Counter,
        &[],
        "Connections to engines that were restored after a loss.",
    ),
    metric(
        STREAMS_ACTIVE,
        Kind::Gauge,
        &[],
        "Streams of visitors in progress.",
    ),
    metric(
        STREAMS,
        Kind::Counter,
        &[("outcome", &["served", "failed"])],
        "Streams of visitors that have ended: normally, or because the service was not reached or \
         one side broke the stream off. A stream of an `http` tunnel carries requests one after \
         another, which the engine counts.",
    ),
    metric(TUNNELS, Kind::Gauge, &[], "Online tunnels."),
    metric(
        BUILD_INFO,
        Kind::Gauge,
        &[("version", &[env!("CARGO_PKG_VERSION")])],
        "Always 1; the label is the running version.",
    ),
];

/// Handles of the metrics. Without a recorder they have no effect.
#[derive(Clone, Debug)]
pub(crate) struct AgentMetrics {
    tunnels: Gauge,
    streams_active: Gauge,
    served: Counter,
    failed: Counter,
    bytes_in: Counter,
    bytes_out: Counter,
    reconnects: Counter,
}

impl AgentMetrics {
    /// Registers the metrics at the recorder of this process.
    pub(crate) fn new() -> Self {
        daemon::metrics::describe(METRICS);
        gauge!(BUILD_INFO, "version" => env!("CARGO_PKG_VERSION")).set(1.0);
        let registered = Self {
            tunnels: gauge!(TUNNELS),
            streams_active: gauge!(STREAMS_ACTIVE),
            served: counter!(STREAMS, "outcome" => "served"),
            failed: counter!(STREAMS, "outcome" => "failed"),
            bytes_in: counter!(BYTES, "direction" => "in"),
            bytes_out: counter!(BYTES, "direction" => "out"),
            reconnects: counter!(RECONNECTS),
        };
        registered.tunnels.set(0.0);
        registered.streams_active.set(0.0);
        registered
    }

    /// Sets the number of online tunnels.
    pub(crate) fn set_tunnels(&self, online: usize) {
        let online = u32::try_from(online).unwrap_or(u32::MAX);
        self.tunnels.set(online);
    }

    /// A counter for the streams of one tunnel or one connection.
    pub(crate) fn streams(&self) -> StreamCounter {
        StreamCounter {
            metrics: self.clone(),
            active: AtomicU32::new(0),
        }
    }

    /// Counts the reconnects of an agent until it ends.
    pub(crate) fn follow(&self, agent: &Agent) {
        let mut status = agent.status();
        let reconnects = self.reconnects.clone();
        tokio::spawn(async move {
            let mut connections = ConnectionHistory::default();
            loop {
                let client_id = match &*status.borrow_and_update() {
                    AgentStatus::Online { client_id, .. } => Some(client_id.clone()),
                    _ => None,
                };
                if connections.is_reconnect(client_id) {
                    reconnects.increment(1);
                }
                if status.changed().await.is_err() {
                    return;
                }
            }
        });
    }
}

/// Counts streams. Streams that are aborted report no end: they have failed when this is dropped.
#[derive(Debug)]
pub(crate) struct StreamCounter {
    metrics: AgentMetrics,
    active: AtomicU32,
}

impl StreamCounter {
    /// Counts the start or the end of a tunnel's stream.
    pub(crate) fn count(&self, stream: &Connection) {
        if stream.active {
            self.start();
        } else {
            let has_failed = stream.error.is_some();
            self.end(has_failed, stream.bytes_in, stream.bytes_out);
        }
    }

    /// Counts a stream that starts.
    pub(crate) fn start(&self) {
        self.active.fetch_add(1, Ordering::Relaxed);
        self.metrics.streams_active.increment(1.0);
    }

    /// Counts a stream that has ended, with its bytes from and to the visitor.
    pub(crate) fn end(&self, has_failed: bool, bytes_in: u64, bytes_out: u64) {
        let one_less = |active: u32| active.checked_sub(1);
        let order = Ordering::Relaxed;
        self.active.fetch_update(order, order, one_less).ok();
        let metrics = &self.metrics;
        metrics.streams_active.decrement(1.0);
        let outcome = if has_failed {
            &metrics.failed
        } else {
            &metrics.served
        };
        outcome.increment(1);
        metrics.bytes_in.increment(bytes_in);
        metrics.bytes_out.increment(bytes_out);
    }
}

impl Drop for StreamCounter {
    fn drop(&mut self) {
        for _ in 0..*self.active.get_mut() {
            self.end(true, 0, 0);
        }
    }
}

/// The connections of one agent, by its states. States that follow each other quickly may be
/// missing.
#[derive(Debug, Default)]
struct ConnectionHistory {
    /// Client id of the last connection.
    client_id: Option<String>,
    /// That connection was lost.
    lost: bool,
}

impl ConnectionHistory {
    /// True if this state is a connection after an earlier one. `None`: there is no connection.
    fn is_reconnect(&mut self, client_id: Option<String>) -> bool {
        if client_id.is_none() {
            self.lost = self.client_id.is_some();
            return false;
        }
        let was_lost = std::mem::take(&mut self.lost);
        let is_first = self.client_id.is_none();
        let is_other = self.client_id != client_id;
        self.client_id = client_id;
        !is_first && (was_lost || is_other)
    }
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
            "<!-- table: made from crates/svc/src/process/agent_metrics.rs -->\n",
            "<!-- end of the agent's table -->\n",
        ];
        let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/metrics.md");
        check_part(&page, lines, &daemon::metrics::markdown(METRICS)).unwrap();
    }

    /// <https://prometheus.io/docs/practices/naming/>
    #[test]
    fn names_follow_the_conventions() {
        assert!(METRICS.is_sorted_by_key(|metric| metric.name));
        for metric in METRICS {
            let name = metric.name;
            assert_eq!(
                name.ends_with("_total"),
                metric.kind == Kind::Counter,
                "{name}"
            );
            assert!(metric.help.ends_with('.'), "{name}");
        }
    }

    /// Agents abort the streams of a tunnel that is removed.
    #[test]
    fn an_aborted_stream_is_not_active_any_more() {
        let recorder = daemon::metrics::recorder().unwrap();
        let streams = AgentMetrics::new().streams();
        let value = |series: &str| -> f64 {
            let scrape = recorder.render();
            let mut lines = scrape.lines();
            let value = lines.find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
            value.unwrap().parse().unwrap()
        };
        let values = || {
            let failed = value("svc_agent_streams_total{outcome=\"failed\"}");
            [value("svc_agent_streams_active"), failed].map(|value| value.to_string())
        };
        for _ in 0..3 {
            streams.start();
        }
        streams.end(false, 5, 7);
        assert_eq!(values(), ["2", "0"]);
        drop(streams);
        assert_eq!(values(), ["0", "2"]);
    }

    #[test]
    fn only_connections_after_the_first_one_are_reconnects() {
        let mut connections = ConnectionHistory::default();
        let mut counts = |id: Option<&str>| connections.is_reconnect(id.map(str::to_owned));
        assert!(!counts(None));
        assert!(!counts(Some("cli_1")));
        assert!(!counts(Some("cli_1")));
        assert!(!counts(None));
        assert!(counts(Some("cli_1")));
        assert!(counts(Some("cli_2")));
    }
}
