use std::path::Path;

use daemon::metrics::{Kind, Metric};

use super::table::METRICS;

/// With `BLESS=1` in the environment the test writes the table instead of comparing it.
#[test]
fn every_metric_is_documented_and_every_documented_one_exists() {
    const BEGIN: &str = "<!-- table: made from crates/control/src/metrics/table.rs -->\n";
    const END: &str = "<!-- end of the platform's table -->\n";
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/metrics.md");
    let text = std::fs::read_to_string(&path).unwrap();
    let (before, rest) = text.split_once(BEGIN).unwrap();
    let (_, after) = rest.split_once(END).unwrap();
    let rows: Vec<_> = METRICS.iter().map(Metric::row).collect();
    let rows = rows.join("\n");
    let head = "| name | type | labels | meaning |\n|---|---|---|---|";
    let expected = format!("{before}{BEGIN}\n{head}\n{rows}\n\n{END}{after}");
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(&path, expected).unwrap();
    } else {
        assert!(text == expected, "docs/metrics.md: BLESS=1 writes it");
    }
}

/// <https://prometheus.io/docs/practices/naming/>
#[test]
fn names_keep_the_conventions() {
    assert!(METRICS.is_sorted_by_key(|metric| metric.name));
    for metric in METRICS {
        let name = metric.name;
        assert_eq!(
            name.ends_with("_total"),
            metric.kind == Kind::Counter,
            "{name}"
        );
        assert!(
            metric.kind != Kind::Histogram || name.ends_with("_seconds"),
            "{name}"
        );
        assert!(
            metric.help.ends_with('.') && !metric.help.contains('|'),
            "{name}"
        );
    }
}
