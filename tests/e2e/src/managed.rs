use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use serde_json::{Map, Value, json};
use tempfile::TempDir;

use crate::control::{Control, EMAIL, ENROLMENT};
use crate::process::logs;
use crate::script::command;
use crate::svc::program;
use crate::{Agent, Answer, CLIENT, Curl, Postgres, Process, Relay, Svc};

/// A managed pair: `svc platform` and `svc engine` as separate processes, with a network between
/// them that can be interrupted, and one project.
pub struct ManagedPair {
    /// The engine process.
    pub engine: Svc,
    /// The platform process.
    pub control: Control,
    /// The network between the engine and the platform.
    pub link: Relay,
    /// The database, if it is not an embedded one.
    pub postgres: Option<Postgres>,
    password: Value,
    token: String,
    project: Value,
    directory: TempDir,
}

impl ManagedPair {
    /// With an embedded database.
    ///
    /// # Errors
    /// A part does not start, or they do not connect; logs are part of the error.
    pub fn on_sqlite() -> Result<Self> {
        Self::start(None, &json!({}), &json!({}))
    }

    /// With an embedded database, full logging, webhooks to this machine, and an OAuth client,
    /// [`CLIENT`](crate::CLIENT), with `callback`.
    ///
    /// # Errors
    /// As [`on_sqlite`](Self::on_sqlite).
    pub fn with_full_logging(callback: &str) -> Result<Self> {
        let platform = json!({
            "oauth": {"clients": [{"id": CLIENT, "name": "Someone", "redirect_uris": [callback]}]},
            "webhooks": {"allowed_targets": ["127.0.0.0/8"]},
        });
        let engine = json!({"access_log": {"path": ACCESS_LOG}, "compat": {"rstream": true}});
        Self::start(None, &platform, &engine)
    }

    /// With an embedded database; `platform` overrides sections of the platform's configuration.
    ///
    /// # Errors
    /// As [`on_sqlite`](Self::on_sqlite).
    pub fn with_platform(platform: &Value) -> Result<Self> {
        Self::start(None, platform, &json!({}))
    }

    /// With a separate PostgreSQL server.
    ///
    /// # Errors
    /// As [`on_sqlite`](Self::on_sqlite).
    pub fn on_postgres() -> Result<Self> {
        Self::start(Some(Postgres::start()?), &json!({}), &json!({}))
    }

    /// With an embedded database and a platform that trusts the engine's certificate, so that its
    /// pages show what the engine reports.
    ///
    /// # Errors
    /// As [`on_sqlite`](Self::on_sqlite).
    pub fn with_live_pages() -> Result<Self> {
        let mut managed = Self::on_sqlite()?;
        let authority = managed.engine.ca_file().to_owned();
        // The engine's certificate exists only after the platform's first start.
        managed.control.start_with_engine_authority(&authority)?;
        Ok(managed)
    }

    /// `platform` and `engine` override sections of their configurations.
    fn start(postgres: Option<Postgres>, platform: &Value, engine: &Value) -> Result<Self> {
        let directory = tempfile::tempdir()?;
        let engine_port = ports::lease();
        let url = postgres.as_ref().map(Postgres::url);
        let control = Control::first(directory.path(), url.as_deref(), engine_port, platform)?;
        let link = Relay::start(control.port())?;
        let mut sections = json!({
            "tls": {"enabled": true, "listen_addr": format!("127.0.0.1:{engine_port}")},
            "auth": null,
            "metrics": {"prometheus": {"enabled": true, "listen_addr": "127.0.0.1:0"}},
            "control_plane": {
                "url": format!("http://127.0.0.1:{}", link.port()),
                "token_file": directory.path().join(ENROLMENT),
                "data_dir": directory.path().join("engine"),
            },
        });
        if let (Some(sections), Some(engine)) = (sections.as_object_mut(), engine.as_object()) {
            sections.extend(engine.clone());
        }
        let engine = Svc::engine_with(&sections)?;
        let jar = jar(&directory);
        control.sign_in(&jar)?;
        let token = control.token(&jar)?;
        let project = create_project(&control, &token)?;
        let password = control.ready()["admin_password"].clone();
        let managed = Self {
            engine,
            control,
            link,
            postgres,
            password,
            token,
            project,
            directory,
        };
        managed.wait_until_accepted(&managed.token)?;
        Ok(managed)
    }

    /// Waits until the engine accepts a token, which it receives over its link.
    ///
    /// # Errors
    /// The engine does not accept the token in time.
    pub fn wait_until_accepted(&self, token: &str) -> Result<()> {
        eventually("the token in force", || Ok(self.api_status(token)? == 204))
            .with_context(|| format!("{}\n{}", self.engine.log(), self.control.log()))
    }

    /// The status of the engine's API for a token.
    ///
    /// # Errors
    /// It does not answer.
    pub fn api_status(&self, token: &str) -> Result<u64> {
        let bearer = format!("Authorization: Bearer {token}");
        let url = format!("https://{}/api/auth", self.address()?);
        Ok(Curl::new(&self.engine).get(&["-H", &bearer, &url])?.status)
    }

    /// `host:port` of the project's engine.
    ///
    /// # Errors
    /// The engine has no address.
    pub fn address(&self) -> Result<String> {
        let endpoint = self.project["endpoint"].as_str().context("no endpoint")?;
        let (host, port) = self.engine.address().rsplit_once(':').context("no port")?;
        Ok(format!("{endpoint}.{host}:{port}"))
    }

    /// A running `svc forward` of the administrator.
    ///
    /// # Errors
    /// As [`Agent::forward`].
    pub fn forward(&self, target: &str, args: &[&str]) -> Result<Agent> {
        Agent::start(&self.engine, &self.address()?, &self.token, target, args)
    }

    /// The output of a `svc forward` that the engine refuses.
    ///
    /// # Errors
    /// It is not refused in time.
    pub fn refused(&self, target: &str, token: &str) -> Result<Vec<u8>> {
        let (engine, args) = (&self.engine, ["--http"]);
        let mut agent = Agent::begin(engine, &self.address()?, token, target, &args)?;
        let ended = agent.process().wait_for_exit()?;
        ensure!(ended == Some(3), "{ended:?}: {}", agent.log());
        agent.full_log()
    }

    /// Starts a script of `tests/node`, which drives Chromium through `browser.mjs` and prints what
    /// it needs. It receives the platform and the administrator in `given`.
    ///
    /// # Errors
    /// Node is not installed: run `cargo xtask test`.
    pub fn node(&self, name: &str) -> Result<Process> {
        self.node_with(name, json!({}))
    }

    /// The same, with `more` added to `given`.
    ///
    /// # Errors
    /// As [`node`](Self::node).
    pub fn node_with(&self, name: &str, mut more: Value) -> Result<Process> {
        let mut world = json!({
            "url": self.control.base_url(),
            "shots": self.directory.path().join("shots"),
            "given": {"email": EMAIL, "password": self.password, "project": self.project()},
        });
        if let (Some(given), Some(more)) = (world["given"].as_object_mut(), more.as_object_mut()) {
            given.append(more);
        }
        let mut command = command(name)?;
        command.env("SVC_TEST_WORLD", world.to_string());
        Process::start(&mut command, &self.directory.path().join("script.log"))
    }

    /// Starts `count` agents with `svc forward`, some in parallel.
    ///
    /// # Errors
    /// As [`Agent::forward`].
    pub fn forward_many(&self, count: usize, target: &str, args: &[&str]) -> Result<Vec<Agent>> {
        let address = self.address()?;
        let begin = || Agent::begin(&self.engine, &address, &self.token, target, args);
        let mut agents = Vec::new();
        while agents.len() < count {
            let batch = agents.len()..count.min(agents.len() + AT_ONCE);
            let mut batch = batch.map(|_| begin()).collect::<Result<Vec<_>>>()?;
            for agent in &mut batch {
                agent.online_again()?;
            }
            agents.append(&mut batch);
        }
        Ok(agents)
    }

    /// Every file that the processes write, with its name: logs, the access log, databases, the
    /// engine's stored state and its unsent reports. Files from an operator are omitted, and so are
    /// mails, which belong to their recipients.
    ///
    /// # Errors
    /// A file cannot be read.
    pub fn written_files(&self) -> Result<Vec<(PathBuf, Vec<u8>)>> {
        let mut files = Vec::new();
        let mut places = vec![
            self.directory.path().join("platform"),
            self.directory.path().join("platform.log"),
            self.directory.path().join("engine"),
            self.engine.directory().join("engine.log"),
            self.engine.directory().join(ACCESS_LOG),
        ];
        while let Some(place) = places.pop() {
            if !place.is_dir() {
                files.push((place.clone(), fs::read(&place)?));
                continue;
            }
            for entry in fs::read_dir(&place)? {
                let entry = entry?;
                if entry.file_name() != "mail" {
                    places.push(entry.path());
                }
            }
        }
        Ok(files)
    }

    /// The texts of the mails that the platform has sent.
    ///
    /// # Errors
    /// The folder cannot be read.
    pub fn mails(&self) -> Result<Vec<String>> {
        let folder = self.directory.path().join("platform/mail");
        let mails = fs::read_dir(folder)?;
        mails
            .map(|mail| Ok(fs::read_to_string(mail?.path())?))
            .collect()
    }

    /// The secret that engine and platform share.
    ///
    /// # Errors
    /// Its file cannot be read.
    pub fn enrolment_secret(&self) -> Result<String> {
        let secret = fs::read_to_string(self.directory.path().join(ENROLMENT))?;
        Ok(secret.trim().to_owned())
    }

    /// The administrator's token, which may do everything.
    pub fn token(&self) -> &str {
        &self.token
    }

    /// The id of the project.
    pub fn project(&self) -> &str {
        self.project["id"].as_str().unwrap_or_default()
    }

    /// The cookies of the administrator's browser, which is signed in to the platform: a file for
    /// `curl -b` and `-c`.
    pub fn jar(&self) -> String {
        jar(&self.directory)
    }

    /// Calls the platform's API as the administrator.
    ///
    /// # Errors
    /// The platform does not answer.
    pub fn call(&self, method: &str, path: &str, body: Option<&Value>) -> Result<Answer> {
        self.control.call(&self.token, method, path, body)
    }

    /// Issues a personal access token, and returns it with its id.
    ///
    /// # Errors
    /// It is refused.
    pub fn issue(&self, through: &Control) -> Result<(String, String)> {
        let body = json!({"type": "pat", "name": "another"});
        let answer = through.call(&self.token, "POST", "/api/credentials", Some(&body))?;
        let issued = answer.json();
        let text = |value: &Value| value.as_str().map(str::to_owned);
        text(&issued["token"])
            .zip(text(&issued["credential"]["id"]))
            .with_context(|| format!("no token: {answer:?}"))
    }

    /// Revokes a credential through one process of the platform.
    ///
    /// # Errors
    /// It is refused.
    pub fn revoke(&self, through: &Control, id: &str) -> Result<()> {
        let path = format!("/api/credentials/{id}");
        let answer = through.call(&self.token, "DELETE", &path, None)?;
        ensure!(answer.status == 204, "{answer:?}");
        Ok(())
    }

    /// True if the engine has stored the administrator's token and the project on disk, with which
    /// it serves when it starts without its platform.
    ///
    /// # Errors
    /// The platform does not return the id of the token's credential.
    pub fn is_stored(&self) -> Result<bool> {
        let listed = self.call("GET", "/api/credentials", None)?.json();
        let credential = listed["credentials"][0]["id"]
            .as_str()
            .context("no credential")?;
        let kept = fs::read(self.directory.path().join("engine/link/state")).unwrap_or_default();
        let kept = String::from_utf8_lossy(&kept);
        Ok(kept.contains(credential) && kept.contains(self.project()))
    }

    /// Data of the project: `logs`, `events` or `usage`, as the command line shows it.
    ///
    /// # Errors
    /// The command fails.
    pub fn project_data(&self, what: &str, more: &[&str]) -> Result<Value> {
        let output = Command::new(program()?)
            .args([
                "project",
                what,
                "--output",
                "json",
                "--project",
                self.project(),
            ])
            .args(more)
            .env_clear()
            .env("HOME", self.directory.path())
            .env("SVC_API_URL", self.control.base_url())
            .env("SVC_TOKEN", &self.token)
            .output()?;
        let output_text = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "svc project {what}: {output_text}");
        Ok(serde_json::from_slice(&output.stdout)?)
    }

    /// The checks of `svc doctor` at the project's engine, with their status.
    ///
    /// # Errors
    /// The command writes no findings, or exits with success despite a failed check.
    pub fn doctor(&self) -> Result<Value> {
        let output = Command::new(program()?)
            // Its own visits would be among the counted records.
            .args(["doctor", "--no-tunnel", "--output", "json"])
            .args(["--engine", &self.address()?])
            .arg("--ca-file")
            .arg(self.engine.ca_file())
            .env_clear()
            .env("HOME", self.directory.path())
            .env("SVC_TOKEN", &self.token)
            .output()?;
        let found: Value = serde_json::from_slice(&output.stdout)?;
        ensure!(
            output.status.success() == (found["summary"]["fail"] == 0),
            "{found}"
        );
        let checks = found["checks"].as_array().context("no checks")?;
        let check =
            |check: &Value| Some((check["name"].as_str()?.to_owned(), check["status"].clone()));
        Ok(checks
            .iter()
            .filter_map(check)
            .collect::<Map<_, _>>()
            .into())
    }

    /// The current value of a gauge or counter of the engine, without labels. The engine updates
    /// them every few seconds, so this waits for the next update.
    ///
    /// # Errors
    /// The engine does not answer, or has no such metric.
    pub fn metric(&self, name: &str) -> Result<u64> {
        let before = self.scraped(SILENCE)?;
        eventually("fresh metrics", || Ok(self.scraped(SILENCE)? != before))?;
        self.scraped(name)?.parse().context(name.to_owned())
    }

    /// The value at the last update.
    fn scraped(&self, name: &str) -> Result<String> {
        let scraped = Curl::plain().get(&[&self.metrics_url("/metrics")])?.text();
        let value = |line: &str| Some(line.strip_prefix(name)?.strip_prefix(' ')?.to_owned());
        scraped
            .lines()
            .find_map(value)
            .with_context(|| format!("no {name}"))
    }

    /// An address of the engine's metrics listener.
    pub fn metrics_url(&self, path: &str) -> String {
        let base = self.engine.ready()["metrics_url"]
            .as_str()
            .unwrap_or_default();
        format!("{base}{path}")
    }
}

/// Polls `condition` until it is true.
///
/// # Errors
/// It is not true in time, or the check fails.
#[expect(
    clippy::disallowed_methods,
    reason = "the pace of a poll: the platform limits how often a credential may call"
)]
pub fn eventually(what: &str, mut condition: impl FnMut() -> Result<bool>) -> Result<()> {
    let deadline = Instant::now() + WAIT_LIMIT;
    while !condition()? {
        ensure!(
            Instant::now() < deadline,
            "{what} was expected within {WAIT_LIMIT:?}; {}",
            logs()
        );
        thread::sleep(POLL);
    }
    Ok(())
}

/// Some commands call the platform three times, and a credential may call it 20 times a second.
const POLL: Duration = Duration::from_millis(100);

fn jar(directory: &TempDir) -> String {
    directory.path().join("cookies").display().to_string()
}

/// Creates a project on the free plan.
fn create_project(control: &Control, token: &str) -> Result<Value> {
    let listed = control.call(token, "GET", "/api/workspaces?type=personal", None)?;
    let workspace = listed.json()["workspaces"][0]["id"]
        .as_str()
        .map(str::to_owned);
    let workspace = workspace.with_context(|| format!("no workspace: {listed:?}"))?;
    let path = format!("/api/workspaces/{workspace}/projects/tunnels");
    let preview = control
        .call(token, "GET", &format!("{path}/plan/config"), None)?
        .json();
    let plans = preview["plans"].as_array().context("no plans")?;
    let plan = plans
        .iter()
        .find(|plan| plan["plan"] == "basic")
        .context("no plan basic")?;
    let order = json!({
        "name": "test",
        "plan": "basic",
        "provider": plan["providers"][0]["provider"],
        "region": plan["providers"][0]["regions"][0]["region"],
        "creationFingerprint": plan["creationFingerprint"],
        "idempotencyKey": "test",
    });
    let created = control.call(token, "POST", &path, Some(&order))?;
    ensure!(created.status == 201, "{created:?}");
    Ok(created.json())
}

/// The engine's access log, in its own directory.
const ACCESS_LOG: &str = "access.log";

/// Changes whenever the metrics are updated.
const SILENCE: &str = "svc_control_plane_silence_seconds";

/// Number of processes that start in parallel. More of them would only compete for the processors.
const AT_ONCE: usize = 20;

/// Enough for a debug build on a busy machine with two processors.
const WAIT_LIMIT: Duration = Duration::from_mins(1);
