//! Failures below the open views of the dashboard.

use anyhow::{Result, bail, ensure};
use e2e::{Curl, ManagedPair, Service, eventually};
use serde_json::json;

/// The engine is killed and starts again, the platform too, each at its address; the browser loses
/// its network; an operator suspends the project and resumes it. The script looks at each view.
#[test]
fn each_view_reports_failures_keeps_its_content_and_recovers() -> Result<()> {
    let mut pair = ManagedPair::with_live_pages()?;
    let service = Service::mirror()?.to_string();
    let forward = |pair: &ManagedPair| pair.forward(&service, &["--http", "--name", "shop"]);
    let mut agent = Some(forward(&pair)?);
    let project = format!("/api/operator/projects/{}", pair.project());
    let mut script = pair.node("dashboard_failures.mjs")?;
    loop {
        let line = script.json("a step", |line| line["step"].is_string())?;
        match line["step"].as_str().unwrap_or_default() {
            "stop engine" => pair.engine.process().kill(),
            "start engine" => pair.engine.start_again()?,
            "stop platform" => pair.control.process().kill(),
            "start platform" => pair.control.start_again()?,
            "suspend project" => {
                let reason = json!({"reason": "a test"});
                let answer = pair.call("POST", &format!("{project}/suspend"), Some(&reason))?;
                ensure!(answer.status == 200, "{answer:?}");
                // The engine refuses it now, so that it does not try again.
                drop(agent.take());
            }
            "resume project" => {
                let answer = pair.call("POST", &format!("{project}/resume"), None)?;
                ensure!(answer.status == 200, "{answer:?}");
                // The engine receives it over its link, and refuses agents until then.
                let tunnels = format!("https://{}/api/tunnels", pair.address()?);
                let bearer = format!("Authorization: Bearer {}", pair.token());
                let curl = Curl::new(&pair.engine);
                eventually("the end of the suspension", || {
                    Ok(curl.status(&["-H", &bearer, &tunnels])? == 200)
                })?;
                agent = Some(forward(&pair)?);
            }
            "end" => break,
            unknown => bail!("the script has no step {unknown}"),
        }
    }
    drop(agent);
    ensure!(script.wait_for_exit()? == Some(0), "{}", script.log());
    Ok(())
}
