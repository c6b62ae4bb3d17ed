//! A table of a service's metrics, with their descriptions and documentation.

use metrics::{Label, Unit, counter, describe_counter, describe_gauge, describe_histogram};

/// One metric.
#[derive(Clone, Copy, Debug)]
pub struct Metric {
    /// Name, by the conventions of Prometheus.
    pub name: &'static str,
    /// Type of the metric.
    pub kind: Kind,
    /// Description: a sentence.
    pub help: &'static str,
    /// Labels with all of their possible values; none if only the counting code defines them. No
    /// value comes from a peer, so a peer cannot create more series than these.
    pub labels: &'static [(&'static str, &'static [&'static str])],
}

/// Type of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Only grows.
    Counter,
    /// Goes up and down.
    Gauge,
    /// A distribution of values.
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

/// Sets the description of each metric, and initialises counters to zero, so that the first event
/// of a kind is a change that an alert can detect.
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
        let is_open = metric.labels.iter().any(|(name, _)| *name == OPEN_LABEL);
        if metric.kind == Kind::Counter && !is_open && series.len() <= MOST_AT_ZERO {
            for labels in series {
                let labels = labels.into_iter();
                let labels = labels.map(|(name, value)| Label::from_static_parts(name, value));
                counter!(metric.name, labels.collect::<Vec<_>>()).increment(0);
            }
        }
    }
}

/// The table of `docs/metrics.md`, in Markdown.
pub fn markdown(table: &[Metric]) -> String {
    let rows: Vec<_> = table.iter().map(Metric::row).collect();
    let head = "| name | type | labels | meaning |\n|---|---|---|---|";
    format!("{head}\n{}\n\n", rows.join("\n"))
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

/// A label whose values are not known in advance, such as the engines of a cluster. The table has an
/// example.
const OPEN_LABEL: &str = "peer";

/// A metric with more combinations than this is not initialised: most of them never occur.
const MOST_AT_ZERO: usize = 20;
