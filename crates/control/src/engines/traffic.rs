//! Visits in reports of engines, counted by the minute and by the hour.

use std::collections::BTreeMap;

use api::control::records::DURATION_BOUNDS;
use jiff::Timestamp;
use serde_json::Value;
use store::Tx;
use store::traffic::{self, BUCKETS, REST, Traffic, TrafficStep};
use types::id::ProjectId;

use super::streams::Stream;
use crate::logs::traffic::retention_of;
use crate::runtime::jobs::ago;

/// The counts of one visit.
pub(super) struct Visit {
    /// Name of its tunnel, or [`REST`].
    tunnel: String,
    created_at: Timestamp,
    counts: Traffic,
}

impl Visit {
    pub(super) fn of(stream: &Stream) -> Self {
        let name = stream.tunnel_name.as_ref();
        Self {
            tunnel: name.map_or_else(|| REST.to_owned(), ToString::to_string),
            created_at: stream.created_at,
            counts: counts(&stream.outcome, &stream.summary),
        }
    }
}

/// Sums of visits. They are sorted by project and time, so that two concurrent batches lock rows in
/// the same order.
pub(super) struct TrafficSums {
    sums: BTreeMap<(ProjectId, TrafficStep, Timestamp), BTreeMap<String, Traffic>>,
    now: Timestamp,
}

impl TrafficSums {
    pub(super) fn new(now: Timestamp) -> Self {
        Self {
            sums: BTreeMap::new(),
            now,
        }
    }

    /// Adds a visit to its minute and its hour, unless they are no longer kept.
    pub(super) fn add(&mut self, project: ProjectId, visit: &Visit) {
        for step in [TrafficStep::Minute, TrafficStep::Hour] {
            let start = step.start_of(visit.created_at);
            if start < ago(self.now, retention_of(step)) {
                continue;
            }
            let tunnels = self.sums.entry((project, step, start)).or_default();
            let sum = tunnels.entry(visit.tunnel.clone()).or_default();
            sum.merge(&visit.counts);
        }
    }

    pub(super) async fn store(self, tx: &mut Tx) -> Result<(), store::Error> {
        for ((project, step, start), tunnels) in self.sums {
            traffic::add(tx, project, (step, start), &tunnels).await?;
        }
        Ok(())
    }
}

/// Counts a visit with this summary. Members that are missing count as zero.
fn counts(outcome: &str, summary: &Value) -> Traffic {
    let status = summary.pointer("/response/http/status");
    let status = status.and_then(Value::as_u64);
    let bytes = |place: &str| {
        let bytes = summary.pointer(place).and_then(Value::as_u64);
        i64::try_from(bytes.unwrap_or_default()).map_or(MAX_BYTES, |bytes| bytes.min(MAX_BYTES))
    };
    let is_error = outcome == "failed" || status.is_some_and(|status| status >= 500);
    let mut durations = [0; BUCKETS];
    let duration = summary.pointer("/response/metrics/duration_ms");
    // Durations of connections give no information about a service.
    if let Some(duration) = duration.and_then(Value::as_f64)
        && status.is_some()
        && let Some(count) = durations.get_mut(bucket(duration))
    {
        *count = 1;
    }
    Traffic {
        requests: 1,
        errors: i64::from(is_error),
        denied: i64::from(outcome == "denied"),
        upstream_bytes: bytes("/response/metrics/upstream_bytes"),
        downstream_bytes: bytes("/response/metrics/downstream_bytes"),
        durations,
    }
}

/// Number of the bucket of a duration in milliseconds.
fn bucket(duration: f64) -> usize {
    let bounds = DURATION_BOUNDS.into_iter().map(f64::from);
    bounds.take_while(|bound| duration > *bound).count()
}

/// A tebibyte. The sum of all visits of a minute does not overflow.
const MAX_BYTES: i64 = 1 << 40;

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn summary(status: u16, duration: f64) -> Value {
        json!({"response": {"http": {"status": status}, "metrics": {"duration_ms": duration,
            "upstream_bytes": 3, "downstream_bytes": 4}}})
    }

    #[test]
    fn a_bucket_includes_its_bound() {
        let cases = [(0.0, 0), (1.0, 0), (1.1, 1), (60_000.0, 14), (60_001.0, 15)];
        for (duration, number) in cases {
            assert_eq!(bucket(duration), number, "{duration}");
        }
        assert_eq!(bucket(f64::MAX), BUCKETS - 1);
    }

    #[test]
    fn errors_are_failures_and_statuses_of_the_service() {
        let of = |outcome, status| counts(outcome, &summary(status, 7.0));
        let good = of("connected", 404);
        assert_eq!((good.requests, good.errors, good.denied), (1, 0, 0));
        assert_eq!((good.upstream_bytes, good.downstream_bytes), (3, 4));
        assert_eq!(good.durations[3], 1);
        assert_eq!(of("connected", 500).errors, 1);
        assert_eq!(of("failed", 200).errors, 1);
        assert_eq!(of("denied", 403).denied, 1);
    }

    #[test]
    fn a_connection_without_a_status_has_no_duration() {
        let counts = counts(
            "connected",
            &json!({"response": {"metrics": {"duration_ms": 7}}}),
        );
        assert_eq!(counts.durations, [0; BUCKETS]);
        assert_eq!(counts.requests, 1);
    }
}
