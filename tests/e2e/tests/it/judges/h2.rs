//! Frames that no visitor with manners sends, made with the Python package `h2`: what RFC 9113 says
//! of each, whether the service hears of it, and that another visitor is served all the while.

use std::sync::atomic::Ordering;

use anyhow::Result;
use e2e::{Agent, Service, Svc, judge};
use serde_json::json;

#[test]
fn each_violation_ends_what_it_has_to_and_nothing_else() -> Result<()> {
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
    assert_eq!(verdict.wrong, [""; 0], "{}", svc.log());
    assert!(verdict.ran >= 250, "ran {}", verdict.ran);
    Ok(())
}
