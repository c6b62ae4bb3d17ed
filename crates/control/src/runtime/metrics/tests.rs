use std::path::Path;

use daemon::documents::check_part;
use daemon::metrics::Kind;

use crate::runtime::metrics::table::METRICS;

/// With `BLESS=1` in the environment the test writes the table instead of comparing it.
#[test]
fn every_metric_is_documented_and_every_documented_one_exists() {
    let lines = [
        "<!-- table: made from crates/control/src/runtime/metrics/table.rs -->\n",
        "<!-- end of the platform's table -->\n",
    ];
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/metrics.md");
    check_part(&page, lines, &daemon::metrics::markdown(METRICS)).unwrap();
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
