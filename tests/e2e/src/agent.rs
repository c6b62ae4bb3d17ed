use std::fs;
use std::process::Command;

use anyhow::{Context as _, Result};
use serde_json::Value;
use tempfile::TempDir;

use crate::svc::program;
use crate::{Process, Svc};

/// A running `svc forward`. It is killed when the value is dropped.
pub struct Agent {
    process: Process,
    online: Value,
    /// Its home directory, so that it reads no file of this machine.
    home: TempDir,
}

impl Agent {
    /// Publishes `target` through the engine and waits until it is online. `args` are further
    /// flags of `svc forward`.
    ///
    /// # Errors
    /// The program is not there, ends, or is not online in time; its log is part of the error.
    pub fn forward(svc: &Svc, target: &str, args: &[&str]) -> Result<Self> {
        Self::forward_to(svc, svc.address(), target, args)
    }

    /// The same through another address of the engine, `host:port`.
    ///
    /// # Errors
    /// As [`forward`](Self::forward).
    pub fn forward_to(svc: &Svc, address: &str, target: &str, args: &[&str]) -> Result<Self> {
        Self::start(svc, address, &svc.token(), target, args)
    }

    /// The same with a token.
    pub(crate) fn start(
        svc: &Svc,
        address: &str,
        token: &str,
        target: &str,
        args: &[&str],
    ) -> Result<Self> {
        let mut agent = Self::begin(svc, address, token, target, args)?;
        agent.online_again()?;
        Ok(agent)
    }

    /// The same without the wait. [`online_again`](Self::online_again) must be called first.
    pub(crate) fn begin(
        svc: &Svc,
        address: &str,
        token: &str,
        target: &str,
        args: &[&str],
    ) -> Result<Self> {
        let home = tempfile::tempdir()?;
        let mut command = Command::new(program()?);
        command
            .args(["forward", target, "--output", "json"])
            .args(["--engine", address])
            .arg("--ca-file")
            .arg(svc.ca_file())
            .args(args)
            .env_clear()
            .env("HOME", home.path())
            .env("SVC_TOKEN", token)
            .env("SVC_LOG", "debug");
        Self::spawn(command, home)
    }

    /// Runs a `svc forward` that writes JSON, and waits until it is online.
    pub(crate) fn run(command: Command, home: TempDir) -> Result<Self> {
        let mut agent = Self::spawn(command, home)?;
        agent.online_again()?;
        Ok(agent)
    }

    fn spawn(mut command: Command, home: TempDir) -> Result<Self> {
        let process = Process::start(&mut command, &home.path().join("log"))?;
        Ok(Self {
            process,
            online: Value::Null,
            home,
        })
    }

    /// Waits until it is online again, and returns its output.
    ///
    /// # Errors
    /// It is not online in time.
    pub fn online_again(&mut self) -> Result<&Value> {
        self.online = self.process.json("tunnel", is_online)?;
        Ok(&self.online)
    }

    /// Waits until it reports the loss of the engine.
    ///
    /// # Errors
    /// It does not notice the loss in time.
    pub fn disconnected(&self) -> Result<Value> {
        self.process
            .json("loss", |line| line["status"] == "disconnected")
    }

    /// Its output when it came online.
    pub fn online(&self) -> &Value {
        &self.online
    }

    /// The name under which it is published.
    ///
    /// # Errors
    /// It has none.
    pub fn hostname(&self) -> Result<&str> {
        self.online["hostname"].as_str().context("no hostname")
    }

    /// The address of `path` on the published name.
    pub fn url(&self, path: &str) -> String {
        let base = self.online["forwarding"].as_str().unwrap_or_default();
        format!("{base}{path}")
    }

    /// The end of its log, for messages of failed tests.
    pub fn log(&self) -> String {
        self.process.log()
    }

    /// Its whole log.
    ///
    /// # Errors
    /// Its log cannot be read.
    pub fn full_log(&self) -> Result<Vec<u8>> {
        Ok(fs::read(self.home.path().join("log"))?)
    }

    /// The process.
    pub fn process(&mut self) -> &mut Process {
        &mut self.process
    }
}

fn is_online(line: &Value) -> bool {
    line["status"] == "online"
}
