//! Numbers of records in a report.

use std::collections::{BTreeMap, HashMap};

use store::directory;
use types::id::ProjectId;

use super::cluster::Cluster;
use crate::runtime::metrics;

/// The projects of a report that the engine serves.
pub(super) type ServedProjects = HashMap<ProjectId, directory::Project>;

/// Numbers of stored records and of skipped ones.
#[derive(Default)]
pub(super) struct ReportCounts {
    kinds: BTreeMap<&'static str, u64>,
    left_out: u64,
}

impl ReportCounts {
    /// The project of a record, if the engine serves it. The record is counted under its kind, or as
    /// skipped.
    pub(super) fn of<'a>(
        &mut self,
        served: &'a ServedProjects,
        id: ProjectId,
        kind: &'static str,
    ) -> Option<&'a directory::Project> {
        let project = served.get(&id);
        if project.is_some() {
            *self.kinds.entry(kind).or_default() += 1;
        } else {
            self.left_out += 1;
        }
        project
    }

    /// Adds the stored records of one kind, which has no other ones.
    pub(super) fn add(&mut self, kind: &'static str, records: u64) {
        if records > 0 {
            self.kinds.insert(kind, records);
        }
    }

    /// Adds the numbers to the metrics.
    pub(super) fn record_metrics(&self, cluster: &Cluster) {
        metrics::report("ok");
        for (kind, records) in &self.kinds {
            metrics::report_records(kind, *records);
        }
        if self.left_out > 0 {
            metrics::report_records("left_out", self.left_out);
            tracing::warn!(
                cluster = %cluster.domain,
                records = self.left_out,
                "an engine reported projects that it does not serve"
            );
        }
    }
}
