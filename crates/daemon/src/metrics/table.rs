//! Metrics as a table: what a service can tell, what each means, and its documentation.

use metrics::{Label, Unit, counter, describe_counter, describe_gauge, describe_histogram};

/// One metric.
#[derive(Clone, Copy, Debug)]
pub struct Metric {
    /// Name, by the conventions of Prometheus.
    pub name: &'static str,
    /// What it measures with.
    pub kind: Kind,
    /// What it means: a sentence.
    pub help: &'static str,
    /// Labels with every value that they can have; none, where the code that counts knows them
    /// alone. No value comes from a peer: nobody can make more series than this.
    pub labels: &'static [(&'static str, &'static [&'static str])],
}

/// What a metric measures with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Only grows.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Counts by size.
    Histogram,
}

/// A row of a table.
pub const fn metric(
    name: &'static str,
    kind: Kind,
    labels: &'static [(&'static str, &'static [&'static str])],
    help: &'static str,
) -> Metric {
    Metric {
        name,
        kind,
        help,
        labels,
    }
}

/// Tells the recorder what each metric means, and begins counters at zero, so that the first
/// event of a kind is a change that an alert can see.
pub fn describe(table: &[Metric]) {
    for metric in table {
        let unit = match metric.name {
            name if name.ends_with("_seconds") => Unit::Seconds,
            name if name.ends_with("_bytes_total") => Unit::Bytes,
            _ => Unit::Count,
        };
        match metric.kind {
            Kind::Counter => describe_counter!(metric.name, unit, metric.help),
            Kind::Gauge => describe_gauge!(metric.name, unit, metric.help),
            Kind::Histogram => describe_histogram!(metric.name, unit, metric.help),
        }
        let series = metric.series();
        if metric.kind == Kind::Counter && series.len() <= MOST_AT_ZERO {
            for labels in series {
                let labels = labels.into_iter();
                let labels = labels.map(|(name, value)| Label::from_static_parts(name, value));
                counter!(metric.name, labels.collect::<Vec<_>>()).increment(0);
            }
        }
    }
}

impl Metric {
    /// Every combination of labels.
    pub fn series(&self) -> Vec<Vec<(&'static str, &'static str)>> {
        let mut series = vec![Vec::new()];
        for (name, values) in self.labels {
            let with = |value: &'static str| {
                series.iter().map(move |labels: &Vec<_>| {
                    let mut labels = labels.clone();
                    labels.push((*name, value));
                    labels
                })
            };
            series = values.iter().copied().flat_map(with).collect();
        }
        series
    }

    /// The row of `docs/metrics.md`.
    pub fn row(&self) -> String {
        let kind = match self.kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        };
        let labels = self.labels.iter().map(|(name, values)| {
            if *name == "version" {
                return format!("`{name}`: the version");
            }
            if values.is_empty() {
                return format!("`{name}`");
            }
            let values: Vec<_> = values.iter().map(|value| format!("`{value}`")).collect();
            format!("`{name}`: {}", values.join(", "))
        });
        let labels = labels.collect::<Vec<_>>().join("; ");
        let labels = if labels.is_empty() { "–" } else { &labels };
        let Self { name, help, .. } = self;
        format!("| `{name}` | {kind} | {labels} | {help} |")
    }
}

/// A metric with more combinations than this shows those that have occurred; most never do.
const MOST_AT_ZERO: usize = 20;
