//! Certificates of a profile of the authority.

use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result};
use e2e::{Authority, Curl, Svc, eventually};
use serde_json::json;

use super::{ask_for_renewal, log, stored_chain, wait_for_certificate};

/// Days until the certificate of an engine expires, by its metric.
fn days_left(svc: &Svc) -> Result<f64> {
    let metrics = svc.ready()["metrics_url"].as_str().context("no metrics")?;
    let text = Curl::plain().get(&[&format!("{metrics}/metrics")])?.text();
    let series = r#"svc_acme_certificate_expiry_timestamp_seconds{name="engine.localhost"} "#;
    let value = text.lines().find_map(|line| line.strip_prefix(series));
    let expiry: f64 = value.context("no expiry")?.parse()?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?;
    Ok((expiry - now.as_secs_f64()) / (24.0 * 3600.0))
}

/// Without a request for their profile no certificate of Let's Encrypt is valid for six days.
#[test]
fn certificates_of_six_days_are_ordered_and_renewed() -> Result<()> {
    let authority = Authority::start(&[("PEBBLE_SHORTLIVED", "1")])?;
    let mut sections = authority.sections(&json!({"profile": "shortlived"}));
    sections["metrics"] = json!({"prometheus": {"enabled": true, "listen_addr": "127.0.0.1:0"}});
    let mut svc = Svc::engine_with(&sections)?;
    wait_for_certificate(&authority, &svc, "engine.localhost")?;
    let left = days_left(&svc)?;
    assert!((5.0..=6.0).contains(&left), "{left} days");
    let before = stored_chain(&authority)?;
    ask_for_renewal(&authority, &before)?;
    svc.start_again()?;
    eventually("the renewed certificate", || {
        Ok(stored_chain(&authority)? != before)
    })?;
    let left = days_left(&svc)?;
    assert!((5.0..=6.0).contains(&left), "{left} days");
    // A short lifetime causes no further order.
    let orders = log(&svc)?.matches("a certificate is ordered").count();
    assert_eq!(orders, 2);
    Ok(())
}
