//! The metrics of a running engine match `docs/metrics.md`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use testing::{FakePlatform, TestEngine, Upstream};

/// Labels with their values.
type Labels = BTreeMap<String, BTreeSet<String>>;

/// Names in the documentation's table, with type and labels.
fn documented() -> BTreeMap<String, (String, Labels)> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/metrics.md");
    let text = std::fs::read_to_string(path).unwrap();
    // The platform's table comes after the engine's.
    let (own, _) = text
        .split_once("<!-- table: made from crates/control")
        .unwrap();
    let rows = own.lines().filter(|line| line.starts_with("| `svc_"));
    rows.map(|row| {
        let cells: Vec<_> = row.split(" | ").collect();
        let name = cells[0].trim_start_matches("| ").trim_matches('`');
        // `name`: `value`, `value`; `name`: …
        let labels = cells[2]
            .split("; ")
            .filter_map(|label| label.split_once(':'));
        let labels = labels.map(|(name, values)| {
            let values = values
                .split(',')
                .map(|value| value.trim().trim_matches('`'));
            let values = values.map(str::to_owned).collect();
            (name.trim_matches('`').to_owned(), values)
        });
        (name.to_owned(), (cells[1].to_owned(), labels.collect()))
    })
    .collect()
}

/// The name and the labels of `name{a="b",c="d"} 1`.
fn sample(line: &str) -> (&str, BTreeMap<&str, &str>) {
    let (series, _value) = line.rsplit_once(' ').unwrap();
    let Some((name, labels)) = series.split_once('{') else {
        return (series, BTreeMap::new());
    };
    let labels = labels.trim_end_matches("\"}").split("\",");
    let labels = labels.map(|label| label.split_once("=\"").unwrap());
    (name, labels.collect())
}

#[tokio::test]
async fn a_scrape_contains_exactly_the_documented_metrics() {
    // One recorder serves the process, and a managed engine also reports on its link.
    let platform = FakePlatform::start().await;
    let _managed = TestEngine::managed(&platform).await;
    let engine = TestEngine::start_with(
        "metrics: {prometheus: {enabled: true, listen_addr: '127.0.0.1:0'}}\n",
    )
    .await;
    let service = Upstream::http1().await;
    let tunnel = engine.publish(service.addr()).await;
    let host = tunnel.hostname();
    let mut visitor = engine.visitor().http1(host).await;
    // Names and values chosen by a visitor.
    let target = "/secret-path?svc_made_up=1";
    assert_eq!(visitor.get(target, host).await.status, 200);
    // A visit is counted when it is over, which is before the next request of its connection.
    assert_eq!(visitor.get("/", host).await.status, 200);

    let text = engine.scrape().await;
    let documented = documented();
    let mut types: BTreeMap<_, _> = text
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '))
        .filter(|(name, _)| name.starts_with("svc_"))
        .map(|(name, kind)| (name.to_owned(), kind.to_owned()))
        .collect();
    let mut expected: BTreeMap<_, _> = documented
        .iter()
        .map(|(name, (kind, _))| (name.clone(), kind.clone()))
        .collect();
    // Only engines with `certs.acme`, with custom domains or of a cluster have them. Other tests of
    // this process start some.
    let is_common = |name: &String, _: &mut String| {
        let is_rare = [
            "svc_acme_certificate_expiry_timestamp_seconds",
            "svc_acme_last_failure_timestamp_seconds",
            "svc_domain_certificate_expiry_timestamp_seconds",
        ]
        .contains(&name.as_str());
        !(is_rare || name.starts_with("svc_cluster_"))
    };
    expected.retain(is_common);
    types.retain(is_common);
    assert_eq!(types, expected, "{text}");
    for line in text.lines().filter(|line| line.starts_with("svc_")) {
        let (name, mut labels) = sample(line);
        let base = ["_bucket", "_sum", "_count"]
            .iter()
            .find_map(|suffix| name.strip_suffix(suffix))
            .unwrap_or(name);
        labels.remove("le");
        let (_, known) = &documented[base];
        assert!(labels.keys().eq(known.keys()), "{line}");
        for (label, value) in labels {
            let any = matches!(label, "version" | "domain" | "name" | "peer");
            assert!(any || known[label].contains(value), "{line}");
        }
    }
    assert!(!text.contains(host) && !text.contains("secret-path"));
    for counted in [
        r#"svc_edge_requests_total{status="2xx",rule="public"} "#,
        "svc_stream_open_seconds_count ",
        r#"svc_tls_handshakes_total{outcome="ok"} "#,
        "svc_agents_connected_total ",
        r#"svc_certificate_expiry_timestamp_seconds{name="engine.localhost"} "#,
    ] {
        let line = text.lines().find_map(|line| line.strip_prefix(counted));
        let count: f64 = line.unwrap_or_else(|| panic!("{text}")).parse().unwrap();
        assert!(count > 0.0, "{counted}");
    }
}
