//! Configuration, rules and metrics checked with Prometheus' own tool, and the existence of every
//! named metric.

use std::collections::BTreeSet;
use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use e2e::{Agent, Curl, Service, Svc, eventually, provided};
use serde_json::{Value, json};

use super::{Stack, deploy, read, yaml};

/// Runs promtool, and returns its output if it succeeds.
fn promtool(args: &[&str], file: Option<&Path>, input: &str) -> Result<()> {
    let mut child = Command::new(provided("SVC_TEST_PROMTOOL")?)
        .args(args)
        .args(file)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let mut stdin = child.stdin.take().context("no pipe")?;
    stdin.write_all(input.as_bytes())?;
    drop(stdin);
    let output = child.wait_with_output()?;
    let output_bytes = [output.stdout, output.stderr].concat();
    ensure!(
        output.status.success(),
        "promtool {args:?}: {}",
        String::from_utf8_lossy(&output_bytes)
    );
    Ok(())
}

#[test]
fn prometheus_accepts_configuration_and_rules() -> Result<()> {
    // The file of the token is inside a container.
    let config = deploy().join("prometheus/prometheus.yml");
    promtool(&["check", "config", "--syntax-only"], Some(&config), "")?;
    let rules = deploy().join("prometheus/alerts.yml");
    promtool(&["check", "rules"], Some(&rules), "")?;
    // The dashboard's expressions as rules, because promtool reads no dashboards.
    let recorded: Vec<Value> = dashboard()?
        .into_iter()
        .enumerate()
        .map(|(at, expr)| {
            let expr = expr
                .replace("$__rate_interval", "5m")
                .replace("$engine", ".*");
            json!({"record": format!("dashboard:{at}"), "expr": expr})
        })
        .collect();
    ensure!(recorded.len() > 30, "{}", recorded.len());
    let rules = json!({"groups": [{"name": "dashboard", "rules": recorded}]});
    let directory = tempfile::tempdir()?;
    let file = directory.path().join("dashboard.yml");
    fs::write(&file, format!("{rules:#}"))?;
    promtool(&["check", "rules"], Some(&file), "")
}

#[test]
fn every_metric_of_alerts_and_dashboard_exists() -> Result<()> {
    let stack = Stack::start()?;
    let engine = &stack.metrics[1].1;
    eventually("the link", || {
        Ok(stack
            .scrape(engine)?
            .contains("svc_control_plane_connected 1\n"))
    })?;
    let documented = documented()?;
    let named = named()?;
    let unknown: Vec<_> = named.difference(&documented).collect();
    ensure!(unknown.is_empty(), "not in docs/metrics.md: {unknown:?}");
    let mut untold = named;
    untold.retain(|name| !LATER.contains(&name.as_str()));
    // Some are first set after a few seconds.
    let all = eventually("every metric exists", || {
        for (name, url) in &stack.metrics {
            let scrape = stack.scrape(url)?;
            promtool(&["check", "metrics"], None, &scrape).with_context(|| (*name).to_owned())?;
            let types = scrape
                .lines()
                .filter_map(|line| line.strip_prefix("# TYPE "));
            let exposed: BTreeSet<_> = types.filter_map(|line| line.split(' ').next()).collect();
            untold.retain(|name| !exposed.contains(name.as_str()));
        }
        Ok(untold.is_empty())
    });
    all.with_context(|| format!("nobody tells {untold:?}"))
}

/// The metrics of an agent, beside its health.
#[test]
fn prometheus_accepts_the_metrics_of_an_agent() -> Result<()> {
    let svc = Svc::engine()?;
    let service = Service::mirror()?.to_string();
    let listen = format!("127.0.0.1:{}", ports::lease());
    let agent = Agent::forward(&svc, &service, &["--http", "--health-listen", &listen])?;
    ensure!(Curl::new(&svc).status(&[&agent.url("/")])? == 200);
    let answer = Curl::plain().get(&[&format!("http://{listen}/metrics")])?;
    ensure!(answer.status == 200, "{answer:?}");
    let scrape = answer.text();
    ensure!(scrape.contains("svc_agent_streams_total"), "{scrape}");
    promtool(&["check", "metrics"], None, &scrape)?;
    let documented = documented()?;
    let types = scrape
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE "));
    for name in types.filter_map(|line| line.split(' ').next()) {
        ensure!(
            documented.contains(name),
            "{name} is not in docs/metrics.md"
        );
    }
    Ok(())
}

/// Metrics that appear with their first event: after a visit, an API call, a change for an engine.
/// The first two exist only with `certs.acme`, and the third one only with `domains`.
const LATER: [&str; 7] = [
    "svc_acme_certificate_expiry_timestamp_seconds",
    "svc_acme_last_failure_timestamp_seconds",
    "svc_domain_certificate_expiry_timestamp_seconds",
    "svc_edge_requests_total",
    "svc_platform_link_lag_seconds",
    "svc_platform_requests_total",
    "svc_platform_request_seconds",
];

/// Expressions of the dashboard.
fn dashboard() -> Result<Vec<String>> {
    let dashboard: Value = serde_json::from_str(&read("grafana/svc.json")?)?;
    let panels = dashboard["panels"].as_array().context("no panels")?;
    let targets = panels
        .iter()
        .filter_map(|panel| panel["targets"].as_array());
    let expressions = targets
        .flatten()
        .filter_map(|target| target["expr"].as_str());
    Ok(expressions.map(str::to_owned).collect())
}

/// The metrics that alerts and dashboard name.
fn named() -> Result<BTreeSet<String>> {
    let alerts = yaml("prometheus/alerts.yml")?;
    let groups = alerts["groups"].as_array().context("no groups")?;
    let rules = groups.iter().filter_map(|group| group["rules"].as_array());
    let alerts = rules.flatten().filter_map(|rule| rule["expr"].as_str());
    let dashboard = dashboard()?;
    let all = alerts.chain(dashboard.iter().map(String::as_str));
    Ok(all.flat_map(metrics).collect())
}

/// Our metric names in an expression. Those of a histogram's parts count as the histogram.
fn metrics(expression: &str) -> Vec<String> {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let words = expression.split(|c: char| !is_word(c));
    let ours = words.filter(|word| word.starts_with("svc_"));
    ours.map(|name| {
        let parts = ["_bucket", "_count", "_sum"];
        let part = parts.iter().find_map(|part| name.strip_suffix(part));
        part.unwrap_or(name).to_owned()
    })
    .collect()
}

/// The names in the tables of `docs/metrics.md`.
fn documented() -> Result<BTreeSet<String>> {
    let rows = read("../docs/metrics.md")?;
    let names = rows.lines().filter_map(|row| row.strip_prefix("| `svc_"));
    let names = names.filter_map(|row| Some(format!("svc_{}", row.split('`').next()?)));
    Ok(names.collect())
}
