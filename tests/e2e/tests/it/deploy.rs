//! The contents of `deploy`, tested with the program: its configurations start, its commands and
//! files exist, Prometheus accepts metrics and rules, and every named metric exists.

mod compose;
mod monitoring;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use e2e::{Curl, Process, program};
use serde_json::Value;
use tempfile::TempDir;

/// The folder `deploy`.
fn deploy() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy")
}

fn read(path: &str) -> Result<String> {
    let path = deploy().join(path);
    fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
}

/// Platform, engine and relay with the configurations of the compose file, adapted to free ports of
/// this machine and to a directory of the test.
struct Stack {
    directory: TempDir,
    /// Metrics address of each, by the name of its service.
    metrics: Vec<(&'static str, String)>,
    _processes: Vec<Process>,
}

impl Stack {
    fn start() -> Result<Self> {
        let directory = prepared()?;
        let port = *ports::lease_range(3).start();
        let mut metrics = Vec::new();
        let mut processes = Vec::new();
        for name in ["platform", "engine", "turn"] {
            let config = placed(name, directory.path(), port)?;
            let mut command = Command::new(program()?);
            command
                .args([name, "--output", "json", "-c"])
                .arg(&config)
                .env_clear()
                .env(TOKEN_VARIABLE, metrics_token(directory.path())?);
            let log = directory.path().join(format!("{name}.log"));
            let process = Process::start(&mut command, &log)?;
            let ready = process.json("its first line", |first| first["pid"].is_number())?;
            let url = ready["metrics_url"].as_str().context("no metrics")?;
            metrics.push((name, url.to_owned()));
            processes.push(process);
        }
        Ok(Self {
            directory,
            metrics,
            _processes: processes,
        })
    }

    /// The metrics of one of them, scraped like Prometheus.
    fn scrape(&self, url: &str) -> Result<String> {
        let bearer = format!(
            "Authorization: Bearer {}",
            metrics_token(self.directory.path())?
        );
        let answer = Curl::plain().get(&["-H", &bearer, &format!("{url}/metrics")])?;
        ensure!(answer.status == 200, "{answer:?}");
        Ok(answer.text())
    }
}

/// A directory prepared like by `init.sh`.
fn prepared() -> Result<TempDir> {
    let directory = tempfile::tempdir()?;
    let made = Command::new("sh")
        .arg(deploy().join("compose/init.sh"))
        .arg(directory.path().join("shared"))
        .arg(directory.path().join("given"))
        .output()?;
    let output_text = String::from_utf8_lossy(&made.stderr);
    ensure!(made.status.success(), "init.sh: {output_text}");
    Ok(directory)
}

/// A configuration of the compose file for this machine. Only addresses and paths are changed.
fn placed(name: &str, directory: &Path, port: u16) -> Result<PathBuf> {
    let shared = directory.join("shared");
    let state = directory.join("state");
    fs::create_dir_all(state.join(name))?;
    let mut text = read(&format!("compose/{name}.yaml"))?;
    let [platform, engine, relay] = [port, port + 1, port + 2];
    for (there, here) in [
        ("/run/svc", shared.display().to_string()),
        ("/var/lib/svc", state.display().to_string()),
        ("\"[::]:8080\"", format!("127.0.0.1:{platform}")),
        ("//platform:8080", format!("//localhost:{platform}")),
        (
            "platform.localhost:8080",
            format!("platform.localhost:{platform}"),
        ),
        ("\"[::]:8443\"", format!("127.0.0.1:{engine}")),
        ("engine_port: 8443", format!("engine_port: {engine}")),
        ("0.0.0.0:3478", format!("127.0.0.1:{relay}")),
        ("0.0.0.0:9100", "127.0.0.1:0".to_owned()),
        ("0.0.0.0:9101", "127.0.0.1:0".to_owned()),
        ("0.0.0.0:9102", "127.0.0.1:0".to_owned()),
    ] {
        text = text.replace(there, &here);
    }
    let file = directory.join(format!("{name}.yaml"));
    fs::write(&file, text)?;
    Ok(file)
}

fn metrics_token(directory: &Path) -> Result<String> {
    let token = fs::read_to_string(directory.join("shared/metrics-token"))?;
    Ok(token.trim().to_owned())
}

/// Variables that the compose file sets in the containers.
const TOKEN_VARIABLE: &str = "SVC_METRICS__PROMETHEUS__BEARER_TOKEN";

/// YAML as JSON.
fn yaml(path: &str) -> Result<Value> {
    serde_saphyr::from_str(&read(path)?).with_context(|| path.to_owned())
}
