use anyhow::{Context as _, Result};
use serde_json::Value;
use tempfile::TempDir;

use crate::Process;
use crate::script::command;

/// A service written with a third-party library. It is killed when the value is dropped.
pub struct Peer {
    process: Process,
    ready: Value,
    _directory: TempDir,
}

impl Peer {
    /// Runs a script of `tests/e2e/python` or of `tests/node`, and waits until it prints its
    /// address in a line of JSON.
    ///
    /// # Errors
    /// The script exits, or prints nothing in time; its output is part of the error.
    pub fn start(name: &str) -> Result<Self> {
        Self::start_with(name, &[])
    }

    /// The same, with arguments.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn start_with(name: &str, args: &[&str]) -> Result<Self> {
        let directory = tempfile::tempdir()?;
        let mut command = command(name)?;
        let process = Process::start(command.args(args), &directory.path().join("log"))?;
        let ready = process.json("address", |line| line["address"].is_string())?;
        Ok(Self {
            process,
            ready,
            _directory: directory,
        })
    }

    /// `host:port` of the service.
    ///
    /// # Errors
    /// It has printed none.
    pub fn address(&self) -> Result<&str> {
        self.ready["address"].as_str().context("no address")
    }

    /// Its first output.
    pub fn ready(&self) -> &Value {
        &self.ready
    }

    /// The end of its output, for messages of failed tests.
    pub fn log(&self) -> String {
        self.process.log()
    }
}
