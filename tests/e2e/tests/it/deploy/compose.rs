//! The compose file: no container runs here, so the test checks that each named file and command
//! exists. The tests of `xtask` read the Dockerfile.

use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use e2e::program;
use serde_json::{Map, Value};

use super::{TOKEN_VARIABLE, deploy, metrics_token, placed, prepared, read, yaml};

/// Every service with the settings that it inherits.
fn services() -> Result<Map<String, Value>> {
    let compose = yaml("compose.yaml")?;
    let services = compose["services"].as_object().context("no services")?;
    let merged = services.iter().map(|(name, service)| {
        let mut all = service["<<"].as_object().cloned().unwrap_or_default();
        all.extend(service.as_object().cloned().unwrap_or_default());
        (name.clone(), Value::Object(all))
    });
    Ok(merged.collect())
}

fn texts(value: &Value) -> Vec<String> {
    let all = value.as_array().into_iter().flatten();
    all.filter_map(|one| one.as_str().map(str::to_owned))
        .collect()
}

/// A user who reads only the file must not take it for tested.
#[test]
fn the_compose_file_states_first_that_no_test_runs_it() -> Result<()> {
    let compose = read("compose.yaml")?;
    let first = compose.lines().next().unwrap_or_default();
    ensure!(
        first.starts_with("# No test runs these containers."),
        "{first}"
    );
    Ok(())
}

#[test]
fn mounts_and_dependencies_of_the_compose_file_exist() -> Result<()> {
    let compose = yaml("compose.yaml")?;
    let services = services()?;
    for (name, service) in &services {
        for mount in texts(&service["volumes"]) {
            let source = mount.split(':').next().unwrap_or_default();
            let is_there = match source.strip_prefix("./") {
                Some(path) => deploy().join(path).exists(),
                None => compose["volumes"].get(source).is_some(),
            };
            ensure!(is_there, "{name} mounts {source}");
        }
        let awaited = service["depends_on"]
            .as_object()
            .cloned()
            .unwrap_or_default();
        for other in awaited.keys() {
            ensure!(services.contains_key(other), "{name} waits for {other}");
        }
        if let Some(build) = service.get("build") {
            let file = build["dockerfile"].as_str().context("no Dockerfile")?;
            ensure!(deploy().join("..").join(file).exists(), "{file}");
        }
    }
    Ok(())
}

#[test]
fn the_commands_of_the_compose_file_pass_their_check() -> Result<()> {
    let directory = prepared()?;
    for (name, service) in services()? {
        let command = texts(&service["command"]);
        if command.is_empty() {
            continue;
        }
        ensure!(
            command == [&name, "-c", &format!("/etc/svc/{name}.yaml")],
            "{command:?}"
        );
        let mounted = format!("./compose/{name}.yaml:/etc/svc/{name}.yaml:ro");
        ensure!(texts(&service["volumes"]).contains(&mounted), "{name}");
        let entry = texts(&service["entrypoint"]).join(" ");
        ensure!(
            entry.contains(TOKEN_VARIABLE) && entry.contains("exec /usr/bin/svc"),
            "{entry}"
        );
        let checked = Command::new(program()?)
            .args([&name, "--check", "-c"])
            .arg(placed(&name, directory.path(), 20_000)?)
            .env_clear()
            .env(TOKEN_VARIABLE, metrics_token(directory.path())?)
            .output()?;
        let output_text = String::from_utf8_lossy(&checked.stderr);
        // A warning is an error here, for instance about names of a certificate. The platform of
        // the file does not run.
        let unreachable = "control_plane.url: cannot reach the platform";
        let mut warnings = output_text.lines();
        ensure!(
            checked.status.success() && warnings.all(|line| line.contains(unreachable)),
            "{name}: {output_text}"
        );
    }
    Ok(())
}

#[test]
fn grafana_finds_its_mounted_files() -> Result<()> {
    let provider = yaml("grafana/provisioning/dashboards/svc.yaml")?;
    let folder = provider["providers"][0]["options"]["path"]
        .as_str()
        .context("no path")?;
    let services = services()?;
    let mounts = texts(&services["grafana"]["volumes"]);
    let mounted = format!("./grafana/svc.json:{folder}/svc.json:ro");
    ensure!(mounts.contains(&mounted), "{mounts:?}");
    let source = yaml("grafana/provisioning/datasources/svc.yaml")?;
    let dashboard: Value = serde_json::from_str(&read("grafana/svc.json")?)?;
    let panels = dashboard["panels"].as_array().context("no panels")?;
    for panel in panels.iter().filter(|panel| panel["type"] != "row") {
        ensure!(
            panel["datasource"]["uid"] == source["datasources"][0]["uid"],
            "{panel}"
        );
    }
    ensure!(source["datasources"][0]["url"] == "http://prometheus:9090");
    Ok(())
}
