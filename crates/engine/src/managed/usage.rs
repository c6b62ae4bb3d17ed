//! Traffic through the tunnels of each project.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use api::link::UsageRecord;
use jiff::Timestamp;

/// Counts of all projects since the last call of `take`.
#[derive(Debug, Default)]
pub(crate) struct Usage {
    meters: papaya::HashMap<Arc<str>, Arc<Meter>>,
}

/// Counts of one project. Visits have a reference to it and count while they run.
#[derive(Debug, Default)]
pub(crate) struct Meter {
    streams: AtomicU64,
    failed: AtomicU64,
    upstream: AtomicU64,
    downstream: AtomicU64,
}

impl Meter {
    /// Counts a stream that started.
    pub(crate) fn begin(&self) {
        self.streams.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a stream that failed, as in the metrics and the log.
    pub(crate) fn fail(&self) {
        self.failed.fetch_add(1, Ordering::Relaxed);
    }

    /// Adds bytes that were sent to the service and to the visitor.
    pub(crate) fn add(&self, upstream: u64, downstream: u64) {
        self.upstream.fetch_add(upstream, Ordering::Relaxed);
        self.downstream.fetch_add(downstream, Ordering::Relaxed);
    }

    fn take(&self, project: &str, hour: Timestamp) -> Option<UsageRecord> {
        let take = |count: &AtomicU64| count.swap(0, Ordering::Relaxed);
        let record = UsageRecord {
            project_id: project.to_owned(),
            hour,
            streams: take(&self.streams),
            failed_streams: take(&self.failed),
            upstream_bytes: take(&self.upstream),
            downstream_bytes: take(&self.downstream),
        };
        let counted = [
            record.streams,
            record.failed_streams,
            record.upstream_bytes,
            record.downstream_bytes,
        ];
        counted.iter().any(|count| *count > 0).then_some(record)
    }
}

impl Usage {
    /// The counts of a project.
    pub(crate) fn meter(&self, project: &Arc<str>) -> Arc<Meter> {
        let meters = self.meters.pin();
        Arc::clone(meters.get_or_insert_with(Arc::clone(project), Arc::default))
    }

    /// Takes all counts. They belong to the hour that starts at `hour`. Meters are kept, so there
    /// are as many as projects that were ever visited here.
    pub(crate) fn take(&self, hour: Timestamp) -> Vec<UsageRecord> {
        let meters = self.meters.pin();
        meters
            .iter()
            .filter_map(|(project, meter)| meter.take(project, hour))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_taken_once() {
        let usage = Usage::default();
        let project: Arc<str> = "prj_1".into();
        let meter = usage.meter(&project);
        meter.begin();
        meter.fail();
        usage.meter(&project).add(7, 9);
        let hour = Timestamp::UNIX_EPOCH;
        let expected = UsageRecord {
            project_id: "prj_1".to_owned(),
            hour,
            streams: 1,
            failed_streams: 1,
            upstream_bytes: 7,
            downstream_bytes: 9,
        };
        assert_eq!(usage.take(hour), [expected]);
        assert_eq!(usage.take(hour), []);
        meter.add(0, 1);
        assert_eq!(usage.take(hour).len(), 1, "a meter in use still counts");
    }
}
