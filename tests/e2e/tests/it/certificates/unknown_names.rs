//! Visits under names that the engine does not serve. They cost no order, no record of DNS and no
//! series of a metric.

use std::fs;

use anyhow::{Context as _, Result};
use e2e::{Authority, Curl, Svc, eventually};
use serde_json::json;

use super::{dns_program, log, port, wait_for_certificate};

/// Orders that the authority has received.
fn orders(authority: &Authority) -> Result<usize> {
    let log = fs::read_to_string(authority.directory().join("pebble.log"))?;
    Ok(log.matches("POST /order-plz -> calling handler").count())
}

/// The engine's metrics.
fn metrics(svc: &Svc) -> Result<String> {
    let url = svc.ready()["metrics_url"].as_str().context("no metrics")?;
    Ok(Curl::plain().get(&[&format!("{url}/metrics")])?.text())
}

/// A visitor that accepts every certificate, so that its handshake is complete.
fn visit(svc: &Svc, name: &str) -> Result<()> {
    let url = format!("https://{name}:{}/", port(svc)?);
    let status = Curl::plain().status(&["--insecure", &url])?;
    assert_eq!(status, 404, "{name}");
    Ok(())
}

#[test]
fn visits_under_unknown_names_order_nothing_and_leave_nothing() -> Result<()> {
    let authority = Authority::start(&[])?;
    let calls = authority.directory().join("calls");
    let first = format!("echo \"$1 $2\" >> '{}'", calls.display());
    let program = dns_program(&authority, &first)?;
    let mut sections = authority.sections(&json!({
        "challenges": ["tls-alpn-01", "dns-01"],
        "dns_program": program,
    }));
    sections["domains"] = json!([{"name": "app.example.com"}]);
    sections["metrics"] = json!({"prometheus": {"enabled": true, "listen_addr": "127.0.0.1:0"}});
    let svc = Svc::engine_with(&sections)?;
    wait_for_certificate(&authority, &svc, "engine.localhost")?;
    let domains = authority.state_dir().join("domains");
    eventually("the certificate of the domain", || {
        Ok(domains.join("app.example.com/certificate.json").exists())
    })?;
    let calls_before = fs::read_to_string(&calls)?;
    assert_eq!(orders(&authority)?, 2, "of the engine and of its domain");
    assert!(calls_before.contains("present _acme-challenge.t.engine.localhost"));

    for number in 0..VISITS {
        for parent in ["example.net", "app.example.com"] {
            visit(&svc, &format!("n{number}.{parent}"))?;
        }
    }
    assert_eq!(orders(&authority)?, 2);
    assert_eq!(fs::read_to_string(&calls)?, calls_before);
    let exported = metrics(&svc)?;
    assert!(
        exported.contains(r#"domain="app.example.com""#),
        "{exported}"
    );
    for invented in ["example.net", ".app.example.com"] {
        assert!(!exported.contains(invented), "{exported}");
    }
    assert_eq!(fs::read_dir(&domains)?.count(), 1);
    let text = log(&svc)?;
    assert_eq!(text.matches("a certificate is ordered").count(), 2);
    Ok(())
}

/// Each is a process of its own.
const VISITS: usize = 15;
