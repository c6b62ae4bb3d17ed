use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::svc::{free_ports, program};
use crate::{Process, python};

/// A running `svc up`: a platform and its engine, alone on this machine, with one OAuth client. It
/// is killed when the value is dropped.
pub struct Platform {
    process: Process,
    directory: TempDir,
    ready: Value,
    callback_port: u16,
}

impl Platform {
    /// Starts it on free ports and waits until it is ready. [`CLIENT`] is registered with
    /// [`callback`](Self::callback).
    ///
    /// # Errors
    /// The program is not there, ends, or is not ready in time; its log is part of the error.
    pub fn up() -> Result<Self> {
        let directory = tempfile::tempdir()?;
        let (callback_port, _) = free_ports(1)?;
        let mut command = Command::new(program()?);
        command
            .args(["up", "--port", "0", "--output", "json", "--data-dir"])
            .arg(directory.path().join("data"))
            .arg("--config")
            .arg(directory.path().join("config"))
            .arg("--oauth-client")
            .arg(format!("{CLIENT}={}", callback(callback_port)))
            .env_clear()
            .env("HOME", directory.path());
        let process = Process::start(&mut command, &directory.path().join("up.log"))?;
        let ready = process.json("base_url", |first| first["base_url"].is_string())?;
        Ok(Self {
            process,
            directory,
            ready,
            callback_port,
        })
    }

    /// What it said when it was ready: where it is, and who may sign in.
    pub fn ready(&self) -> &Value {
        &self.ready
    }

    /// The origin of the platform.
    pub fn base_url(&self) -> &str {
        self.ready["base_url"].as_str().unwrap_or_default()
    }

    /// The address that people return to from the consent page.
    pub fn callback(&self) -> String {
        callback(self.callback_port)
    }

    /// Its port, which nobody listens on.
    pub fn callback_port(&self) -> u16 {
        self.callback_port
    }

    /// Runs a script of `tests/node`, which drives Chromium through `browser.mjs`, and gives the
    /// results that it printed. It finds the platform, the client and the person as `given`.
    ///
    /// # Errors
    /// The script failed; what it said and the platform's log are part of the error.
    pub fn node(&self, name: &str) -> Result<Value> {
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        let mut command = Command::new(node()?);
        command.arg(here.join("../node").join(name));
        self.results(name, command)
    }

    /// Runs a script of `tests/e2e/python` with the same world.
    ///
    /// # Errors
    /// As [`node`](Self::node).
    pub fn python(&self, name: &str) -> Result<Value> {
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        let mut command = Command::new(python()?);
        command
            .arg(here.join("python").join(name))
            .env("PYTHONDONTWRITEBYTECODE", "1");
        self.results(name, command)
    }

    fn results(&self, name: &str, mut command: Command) -> Result<Value> {
        let world = json!({
            "url": self.base_url(),
            "shots": self.directory.path().join("shots"),
            "given": {
                "client": CLIENT,
                "callback": self.callback(),
                "port": self.callback_port,
                "email": self.ready["admin_email"],
                "password": self.ready["admin_password"],
                "project": self.ready["project_id"],
            },
        });
        let output = command
            .env("SVC_TEST_WORLD", world.to_string())
            .stdin(Stdio::null())
            .output()
            .with_context(|| format!("running {name}"))?;
        let Output { stdout, stderr, .. } = &output;
        ensure!(
            output.status.success(),
            "{name} failed:\n{}{}\nthe platform: {}",
            String::from_utf8_lossy(stdout),
            String::from_utf8_lossy(stderr),
            self.process.log()
        );
        serde_json::from_slice(stdout).with_context(|| format!("{name} printed no JSON"))
    }
}

/// The Node that the packages of `tests/node` bring: newer than what systems have, because the
/// conformance suite of the Model Context Protocol asks for 22.
///
/// # Errors
/// Nobody has installed it: that is the work of `cargo xtask test`.
pub fn node() -> Result<PathBuf> {
    let architecture = match env::consts::ARCH {
        "aarch64" => "arm64",
        _ => "x64",
    };
    let node = packages()?.join(format!("node-linux-{architecture}/bin/node"));
    ensure!(
        node.exists(),
        "there is no {}: run `cargo xtask test`",
        node.display()
    );
    Ok(node)
}

/// The `node_modules` of `tests/node`.
///
/// # Errors
/// As [`node`].
pub fn packages() -> Result<PathBuf> {
    match env::var_os("SVC_TEST_NODE_PACKAGES") {
        Some(directory) => Ok(Path::new(&directory).join("node_modules")),
        None => bail!("SVC_TEST_NODE_PACKAGES is not set: run `cargo xtask test`"),
    }
}

fn callback(port: u16) -> String {
    format!("http://127.0.0.1:{port}/callback")
}

/// The OAuth client that is registered.
pub const CLIENT: &str = "someone";
