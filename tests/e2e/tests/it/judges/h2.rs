//! Invalid HTTP/2 frames, created with the Python package `h2`: the outcome that RFC 9113 requires,
//! the requests that reach the service, and that another visitor is served in the meantime.

use std::sync::atomic::Ordering;

use anyhow::Result;
use e2e::{Agent, Service, Svc, judge};
use serde_json::json;

#[test]
fn each_violation_ends_only_what_the_rfc_requires() -> Result<()> {
    let svc = Svc::engine()?;
    let (service, requests) = Service::counting_mirror()?;
    let count = Service::answering(move || requests.load(Ordering::SeqCst).to_string())?;
    let counted = Agent::forward(&svc, &service.to_string(), &["--http"])?;
    let other = Agent::forward(&svc, &Service::mirror()?.to_string(), &["--http"])?;
    let at = |agent: &Agent| agent.url("").replace("https://", "");
    let world = json!({
        "counted": at(&counted),
        "other": at(&other),
        "ca_file": svc.ca_file(),
        "count": count.to_string(),
    });
    let verdict = judge("judges/h2_frames.py", &world)?;
    assert_eq!(verdict.failed, [""; 0], "{}", svc.log());
    assert!(verdict.run_count >= 250, "ran {}", verdict.run_count);
    Ok(())
}
