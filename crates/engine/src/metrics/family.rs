//! A counter with labels, whose series are looked up once each.

use std::collections::HashMap;
use std::sync::OnceLock;

use daemon::metrics::Metric;
use metrics::{Counter, Label, counter};

use super::table::METRICS;

/// The series of one counter, by the values of its labels in the table's order. The recorder is
/// only used when a series is first counted. After that, counting is a lookup in a map that is not
/// written to.
pub(super) struct Family<const N: usize> {
    name: &'static str,
    series: HashMap<[&'static str; N], OnceLock<Counter>>,
}

impl<const N: usize> Family<N> {
    /// The counter with this name in the table.
    pub(super) fn new(name: &'static str) -> Self {
        let metric = METRICS.iter().find(|metric| metric.name == name);
        let series = metric.map(Metric::series).unwrap_or_default();
        let values = |labels: Vec<(&'static str, &'static str)>| {
            let values: Vec<_> = labels.into_iter().map(|(_, value)| value).collect();
            <[&'static str; N]>::try_from(values).ok()
        };
        Self {
            name,
            series: series
                .into_iter()
                .filter_map(values)
                .map(|values| (values, OnceLock::new()))
                .collect(),
        }
    }

    /// Counts one event.
    pub(super) fn count(&self, values: [&'static str; N]) {
        match self.series.get(&values) {
            Some(series) => series.get_or_init(|| self.register(values)).increment(1),
            // A value that is missing in the table. It is still a constant of the code.
            None => self.register(values).increment(1),
        }
    }

    fn register(&self, values: [&'static str; N]) -> Counter {
        let metric = METRICS.iter().find(|metric| metric.name == self.name);
        let names = metric.map_or(&[][..], |metric| metric.labels);
        let labels = names.iter().zip(values);
        let labels: Vec<_> = labels
            .map(|((name, _), value)| Label::from_static_parts(name, value))
            .collect();
        counter!(self.name, labels)
    }
}
