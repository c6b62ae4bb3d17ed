use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use crate::process::inheriting;
use crate::svc::program;
use crate::{Answer, Curl, Process};

/// A running `svc platform`: one process of a control plane. It is killed when the value is
/// dropped.
pub struct Control {
    process: Process,
    config: PathBuf,
    log: PathBuf,
    port: u16,
    /// The listener that each process inherits.
    listener: Option<TcpListener>,
    ready: Value,
}

impl Control {
    /// Starts the first process of a platform on a free port, with an administrator whose password
    /// is in [`ready`](Self::ready). Its files are in `directory`. Without a database address it
    /// uses an embedded database. `sections` override those of its configuration.
    ///
    /// # Errors
    /// The program is not there, ends, or is not ready in time; its log is part of the error.
    pub(crate) fn first(
        directory: &Path,
        database: Option<&str>,
        engine_port: u16,
        sections: &Value,
    ) -> Result<Self> {
        let port = ports::lease();
        let secret = directory.join(ENROLMENT);
        fs::write(
            &secret,
            "a-secret-of-the-tests-that-nobody-else-has-any-use-for\n",
        )?;
        let mut config = json!({
            "platform": {
                "base_url": format!("http://localhost:{port}"),
                "listen_addr": format!("127.0.0.1:{port}"),
                "data_dir": directory.join("platform"),
                "database_url": database,
                "log_level": "debug",
            },
            "engines": [{"cluster_domain": "engine.localhost", "enrolment_secret_file": secret}],
            "catalog": {
                // Tests send more requests per second than users.
                "plans": [{"plan": "basic", "webhooks": true, "limits": {
                    "clients": 0, "tunnels": 0,
                    "requests_per_second": 0, "tunnel_requests_per_second": 0,
                    "bytes_per_second": 0, "tunnel_bytes_per_second": 0,
                }}],
                "regions": [{"provider": "other", "region": "local", "engine_port": engine_port}],
            },
        });
        if let (Some(config), Some(sections)) = (config.as_object_mut(), sections.as_object()) {
            config.extend(sections.clone());
        }
        let file = directory.join("platform.yaml");
        // JSON is valid YAML.
        fs::write(&file, format!("{config:#}"))?;
        let admin = ["--create-admin", EMAIL];
        Self::start(file, directory.join("platform.log"), port, &admin)
    }

    /// Starts a platform that serves TLS on `address` itself, with this section `tls`. Its files are
    /// in `directory`.
    ///
    /// # Errors
    /// The program is not there, ends, or is not ready in time; its log is part of the error.
    pub fn over_tls(directory: &Path, address: &str, tls: &Value) -> Result<Self> {
        let (_, port) = address.rsplit_once(':').context("no port")?;
        let config = json!({
            "platform": {
                "base_url": format!("https://platform.localhost:{port}"),
                "listen_addr": address,
                "data_dir": directory.join("platform"),
                "log_level": "debug",
            },
            "tls": tls,
            "metrics": {"prometheus": {"enabled": true, "listen_addr": "127.0.0.1:0"}},
        });
        let file = directory.join("platform.yaml");
        fs::write(&file, format!("{config:#}"))?;
        Self::start(file, directory.join("platform.log"), port.parse()?, &[])
    }

    /// Starts a platform on a listener that the test keeps open, as a supervisor does. A stop request is
    /// announced to balancers for `drain_seconds`. Its files are in `directory`.
    ///
    /// # Errors
    /// The program is not there, ends, or is not ready in time; its log is part of the error.
    pub fn on_listener(
        directory: &Path,
        listener: TcpListener,
        drain_seconds: u16,
    ) -> Result<Self> {
        let port = listener.local_addr()?.port();
        let config = json!({
            "platform": {
                "base_url": format!("http://localhost:{port}"),
                "listen_addr": format!("127.0.0.1:{port}"),
                "data_dir": directory.join("platform"),
                "log_level": "debug",
                "drain_seconds": drain_seconds,
            },
        });
        let file = directory.join("platform.yaml");
        fs::write(&file, format!("{config:#}"))?;
        let log = directory.join("platform.log");
        Self::start_inheriting(file, log, port, &[], Some(listener))
    }

    /// A second process of the same platform with its own port, and the same database and secrets.
    ///
    /// # Errors
    /// As [`first`](Self::first).
    pub fn second(&self) -> Result<Self> {
        let port = ports::lease();
        let mut config: Value = serde_json::from_slice(&fs::read(&self.config)?)?;
        config["platform"]["listen_addr"] = json!(format!("127.0.0.1:{port}"));
        let file = self.config.with_file_name("second.yaml");
        fs::write(&file, format!("{config:#}"))?;
        Self::start(file, self.log.with_file_name("second.log"), port, &[])
    }

    /// Restarts it on the same port, after [`Process::kill`] or a normal stop.
    ///
    /// # Errors
    /// As [`first`](Self::first).
    pub fn start_again(&mut self) -> Result<()> {
        self.process.kill();
        let (config, log, listener) = (self.config.clone(), self.log.clone(), self.listener.take());
        *self = Self::start_inheriting(config, log, self.port, &[], listener)?;
        Ok(())
    }

    /// Restarts it on the same port with another database, and with the same secret.
    ///
    /// # Errors
    /// As [`first`](Self::first).
    pub fn start_with_database(&mut self, url: &str) -> Result<()> {
        let mut config: Value = serde_json::from_slice(&fs::read(&self.config)?)?;
        config["platform"]["database_url"] = json!(url);
        fs::write(&self.config, format!("{config:#}"))?;
        self.start_again()
    }

    /// Restarts it on the same port with the authority of the engine's certificate, so that its pages
    /// show what the engine reports.
    ///
    /// # Errors
    /// As [`first`](Self::first).
    pub(crate) fn start_with_engine_authority(&mut self, ca_file: &Path) -> Result<()> {
        let mut config: Value = serde_json::from_slice(&fs::read(&self.config)?)?;
        config["engines"][0]["ca_file"] = json!(ca_file);
        fs::write(&self.config, format!("{config:#}"))?;
        self.start_again()
    }

    fn start(config: PathBuf, log: PathBuf, port: u16, more: &[&str]) -> Result<Self> {
        Self::start_inheriting(config, log, port, more, None)
    }

    fn start_inheriting(
        config: PathBuf,
        log: PathBuf,
        port: u16,
        more: &[&str],
        listener: Option<TcpListener>,
    ) -> Result<Self> {
        let (mut command, input) = inheriting(&program()?, listener.as_ref())?;
        command
            .args(["platform", "--output", "json", "-c"])
            .arg(&config)
            .args(more)
            .env_clear();
        let process = Process::start_with_input(&mut command, &log, input)?;
        let ready = process.json("base_url", |_first| true)?;
        Ok(Self {
            process,
            config,
            log,
            port,
            listener,
            ready,
        })
    }

    /// Calls the API of this process with a token.
    ///
    /// # Errors
    /// The platform does not answer.
    pub fn call(
        &self,
        token: &str,
        method: &str,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Answer> {
        let (bearer, url) = (format!("Authorization: Bearer {token}"), self.url(path));
        let mut args = vec!["-X", method, "-H", bearer.as_str(), url.as_str()];
        let body = body.map(ToString::to_string);
        if let Some(body) = &body {
            args.extend([
                "-H",
                "Content-Type: application/json",
                "--data-binary",
                body,
            ]);
        }
        Curl::plain().get(&args)
    }

    /// Signs the administrator in. The session is stored in the file `jar`, as in a browser.
    ///
    /// # Errors
    /// The sign-in is refused.
    pub(crate) fn sign_in(&self, jar: &str) -> Result<()> {
        let base = self.base_url();
        let (login, origin) = (format!("{base}/login"), format!("Origin: {base}"));
        let password = self.ready["admin_password"]
            .as_str()
            .context("no password")?;
        let (email, password) = (format!("email={EMAIL}"), format!("password={password}"));
        let answer = Curl::plain().get(&[
            "-c",
            jar,
            "-H",
            &origin,
            "--data-urlencode",
            &email,
            "--data-urlencode",
            &password,
            &login,
        ])?;
        ensure!(answer.status == 303, "not signed in: {answer:?}");
        Ok(())
    }

    /// A personal access token of the administrator whose session is in `jar`.
    pub(crate) fn token(&self, jar: &str) -> Result<String> {
        let base = self.base_url();
        let (url, origin) = (format!("{base}/api/credentials"), format!("Origin: {base}"));
        let body = json!({"type": "pat", "name": "test"}).to_string();
        let answer = Curl::plain().get(&[
            "-b",
            jar,
            "-H",
            &origin,
            "-H",
            "Content-Type: application/json",
            "--data-binary",
            &body,
            &url,
        ])?;
        let issued = answer.json();
        Ok(issued["token"]
            .as_str()
            .with_context(|| format!("no token: {answer:?}"))?
            .to_owned())
    }

    /// The public address of the platform.
    pub fn base_url(&self) -> &str {
        self.ready["base_url"].as_str().unwrap_or_default()
    }

    /// The address of `path` at this process.
    pub fn url(&self, path: &str) -> String {
        format!("http://localhost:{}{path}", self.port)
    }

    /// The port on which it listens, on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Its first output.
    pub fn ready(&self) -> &Value {
        &self.ready
    }

    /// The process.
    pub fn process(&mut self) -> &mut Process {
        &mut self.process
    }

    /// The end of its log, for messages of failed tests.
    pub fn log(&self) -> String {
        self.process.log()
    }
}

/// The file with the cluster's secret, next to the configuration.
pub(crate) const ENROLMENT: &str = "enrolment.secret";

/// The administrator's address.
pub(crate) const EMAIL: &str = "ada@example.com";
