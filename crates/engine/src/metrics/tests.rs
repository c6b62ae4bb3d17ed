use std::path::Path;

use daemon::metrics::{Kind, Metric};

use super::table::METRICS;
use crate::access::Rule;

fn documentation() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/metrics.md");
    let text = std::fs::read_to_string(path).unwrap();
    // The rest of the file is about the platform.
    text.split_once("\n# ")
        .map_or(text.clone(), |(engine, _)| engine.to_owned())
}

#[test]
fn every_metric_is_documented_and_every_documented_one_exists() {
    let text = documentation();
    let rows: Vec<_> = text
        .lines()
        .filter(|line| line.starts_with("| `svc_"))
        .collect();
    let expected: Vec<_> = METRICS.iter().map(Metric::row).collect();
    assert_eq!(
        rows,
        expected,
        "the table should be\n{}",
        expected.join("\n")
    );
}

#[test]
fn documented_alerts_use_existing_metrics() {
    let text = documentation();
    let names = text
        .split(|c: char| !c.is_ascii_alphanumeric() && c != '_')
        .filter(|word| word.starts_with("svc_"));
    let mut seen = 0;
    for name in names {
        let base = ["_bucket", "_sum", "_count"]
            .iter()
            .find_map(|suffix| name.strip_suffix(suffix))
            .unwrap_or(name);
        assert!(METRICS.iter().any(|metric| metric.name == base), "{name}");
        seen += 1;
    }
    assert!(seen > METRICS.len(), "alerts name metrics");
}

/// <https://prometheus.io/docs/practices/naming/>
#[test]
fn names_follow_the_conventions() {
    assert!(METRICS.is_sorted_by_key(|metric| metric.name));
    for Metric {
        name,
        kind,
        help,
        labels,
    } in METRICS
    {
        let plain = |text: &str| {
            text.bytes()
                .all(|byte| byte.is_ascii_lowercase() || byte == b'_')
        };
        assert!(name.starts_with("svc_") && plain(name), "{name}");
        assert_eq!(name.ends_with("_total"), *kind == Kind::Counter, "{name}");
        assert!(
            *kind != Kind::Histogram || name.ends_with("_seconds"),
            "{name}"
        );
        assert!(help.ends_with('.') && !help.contains('|'), "{name}");
        for (label, values) in *labels {
            assert!(plain(label) && !values.is_empty(), "{name}");
        }
    }
}

#[test]
fn a_series_is_counted_under_its_labels() {
    let recorder = metrics_exporter_prometheus::PrometheusBuilder::new().build_recorder();
    metrics::with_local_recorder(&recorder, || {
        let family = super::Family::new(super::table::STREAMS);
        family.count(["tcp", "served"]);
        family.count(["tcp", "served"]);
        family.count(["http", "failed"]);
    });
    let text = recorder.handle().render();
    assert!(
        text.contains(r#"svc_streams_total{kind="tcp",outcome="served"} 2"#),
        "{text}"
    );
    assert!(
        text.contains(r#"svc_streams_total{kind="http",outcome="failed"} 1"#),
        "{text}"
    );
}

#[test]
fn every_rule_that_decides_is_a_known_label() {
    let requests = METRICS
        .iter()
        .find(|metric| metric.name == super::table::EDGE_REQUESTS)
        .unwrap();
    let (_, known) = requests.labels[1];
    for rule in Rule::ALL {
        assert!(known.contains(&rule.as_str()), "{rule:?}");
    }
}
