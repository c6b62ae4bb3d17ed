use std::env;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::node::node;
use crate::svc::program;
use crate::{Agent, Curl, Process, python};

/// A running `svc up`: a platform and its engine, alone on this machine, with two OAuth clients. It
/// is killed when the value is dropped.
pub struct Platform {
    process: Process,
    directory: TempDir,
    ready: Value,
    callback_port: u16,
}

impl Platform {
    /// Starts it on free ports and waits until it is ready. [`CLIENT`] is registered with
    /// [`callback`](Self::callback), and [`NATIVE_CLIENT`] with a callback on every port.
    ///
    /// # Errors
    /// The program is not there, ends, or is not ready in time; its log is part of the error.
    pub fn up() -> Result<Self> {
        let directory = tempfile::tempdir()?;
        let callback_port = ports::lease();
        let mut command = Command::new(program()?);
        command
            .args(["up", "--port", "0", "--output", "json", "--data-dir"])
            .arg(directory.path().join("data"))
            .arg("--config")
            .arg(directory.path().join("config"))
            .arg("--oauth-client")
            .arg(format!("{CLIENT}={}", callback(callback_port)))
            .arg("--oauth-client")
            .arg(format!("{NATIVE_CLIENT}=http://localhost/callback"))
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

    /// Runs a command of `svc` to its end, in the context that `svc up` wrote. Returns its output.
    ///
    /// # Errors
    /// It failed; its output is part of the error.
    pub fn svc(&self, args: &[&str]) -> Result<String> {
        let output = self.command(args)?.stdin(Stdio::null()).output()?;
        ensure!(
            output.status.success(),
            "svc {args:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        Ok(String::from_utf8(output.stdout)?.trim_end().to_owned())
    }

    /// The same for a command that prints JSON.
    ///
    /// # Errors
    /// As [`svc`](Self::svc).
    pub fn svc_json(&self, args: &[&str]) -> Result<Value> {
        let text = self.svc(&[args, &["--output", "json"]].concat())?;
        serde_json::from_str(&text).with_context(|| format!("svc {args:?} printed no JSON"))
    }

    /// Publishes `target` and waits until it is online. `args` are further flags of `svc forward`.
    ///
    /// # Errors
    /// It is not online in time.
    pub fn forward(&self, target: &str, args: &[&str]) -> Result<Agent> {
        self.agent(&[&["forward", target], args].concat())
    }

    /// Runs a command that opens a tunnel, and waits until it is online.
    ///
    /// # Errors
    /// As [`forward`](Self::forward).
    pub fn agent(&self, args: &[&str]) -> Result<Agent> {
        let command = self.command(&[args, &["--output", "json"]].concat())?;
        Agent::run(command, tempfile::tempdir()?)
    }

    /// curl as a visitor that trusts the development CA.
    pub fn curl(&self) -> Curl {
        let ca_file = self.ready["ca_file"].as_str().unwrap_or_default();
        Curl::trusting(ca_file.into())
    }

    /// A directory for files of the test.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    fn command(&self, args: &[&str]) -> Result<Command> {
        let mut command = Command::new(program()?);
        command
            .args(args)
            .env_clear()
            .env("HOME", self.directory.path())
            .env("SVC_CONFIG", self.directory.path().join("config"));
        Ok(command)
    }

    /// Its first output: its addresses, and the administrator's sign-in.
    pub fn ready(&self) -> &Value {
        &self.ready
    }

    /// The origin of the platform.
    pub fn base_url(&self) -> &str {
        self.ready["base_url"].as_str().unwrap_or_default()
    }

    /// The address to which users return from the consent page.
    pub fn callback(&self) -> String {
        callback(self.callback_port)
    }

    /// Its port, on which nothing listens.
    pub fn callback_port(&self) -> u16 {
        self.callback_port
    }

    /// Runs a script of `tests/node`, which drives Chromium through `browser.mjs`, and returns the
    /// results that it prints. The script receives the platform, the client and the user in
    /// `given`.
    ///
    /// # Errors
    /// The script failed; its output and the platform's log are part of the error.
    pub fn node(&self, name: &str) -> Result<Value> {
        self.node_with(name, json!({}))
    }

    /// The same, with `more` added to `given`.
    ///
    /// # Errors
    /// As [`node`](Self::node).
    pub fn node_with(&self, name: &str, more: Value) -> Result<Value> {
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        let mut command = Command::new(node()?);
        command.arg(here.join("../node").join(name));
        self.results(name, command, more)
    }

    /// Runs a script of `tests/e2e/python` with the same `given`.
    ///
    /// # Errors
    /// As [`node`](Self::node).
    pub fn python(&self, name: &str) -> Result<Value> {
        self.python_with(name, json!({}))
    }

    /// A token of a user with a separate account, who is not a member of the first project.
    ///
    /// # Errors
    /// As [`node`](Self::node).
    pub fn stranger(&self) -> Result<String> {
        let more = json!({"token": self.ready["token"]});
        let results = self.python_with("stranger.py", more)?;
        let token = results["token"].as_str();
        Ok(token.context("the script returned no token")?.to_owned())
    }

    /// Lets the user sign in and approve the request at `address`, the consent page. Returns the
    /// address to which they are redirected.
    ///
    /// # Errors
    /// The page is not the expected one.
    pub fn approve(&self, address: &str) -> Result<String> {
        let results = self.python_with("approve.py", json!({"address": address}))?;
        let returned = results["returned"].as_str();
        Ok(returned.context("the user was not redirected")?.to_owned())
    }

    /// Lets the user sign in at `address`, enter the code of a device, and approve it.
    ///
    /// # Errors
    /// As [`approve`](Self::approve).
    pub fn approve_device(&self, address: &str, user_code: &str) -> Result<()> {
        let story = json!({"address": address, "user_code": user_code});
        self.python_with("approve.py", story).map(drop)
    }

    /// The same, with `more` added to `given`.
    ///
    /// # Errors
    /// As [`node`](Self::node).
    pub fn python_with(&self, name: &str, more: Value) -> Result<Value> {
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        let mut command = Command::new(python()?);
        command
            .arg(here.join("python").join(name))
            .env("PYTHONDONTWRITEBYTECODE", "1");
        self.results(name, command, more)
    }

    /// Runs a script, with `more` added to the common `given`.
    fn results(&self, name: &str, mut command: Command, mut more: Value) -> Result<Value> {
        let mut world = json!({
            "url": self.base_url(),
            "shots": self.directory.path().join("shots"),
            "given": {
                "client": CLIENT,
                "native_client": NATIVE_CLIENT,
                "callback": self.callback(),
                "port": self.callback_port,
                "email": self.ready["admin_email"],
                "password": self.ready["admin_password"],
                "project": self.ready["project_id"],
            },
        });
        if let (Some(given), Some(more)) = (world["given"].as_object_mut(), more.as_object_mut()) {
            given.append(more);
        }
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

fn callback(port: u16) -> String {
    format!("http://127.0.0.1:{port}/callback")
}

/// The registered OAuth client.
pub const CLIENT: &str = "someone";
/// The registered OAuth client that listens on a port of its choice.
pub const NATIVE_CLIENT: &str = "native";
