use anyhow::{Context as _, Result};
use serde_json::Value;
use tempfile::TempDir;

use crate::Process;
use crate::script::command;

/// A service made with somebody else's library. It is killed when the value is dropped.
pub struct Peer {
    process: Process,
    ready: Value,
    _directory: TempDir,
}

impl Peer {
    /// Runs a script of `tests/e2e/python` or of `tests/node` and waits until it says where it
    /// listens, in a line of JSON.
    ///
    /// # Errors
    /// The script ends, or says nothing in time; what it wrote is part of the error.
    pub fn start(name: &str) -> Result<Self> {
        let directory = tempfile::tempdir()?;
        let process = Process::start(&mut command(name)?, &directory.path().join("log"))?;
        let ready = process.json("address", |line| line["address"].is_string())?;
        Ok(Self {
            process,
            ready,
            _directory: directory,
        })
    }

    /// `host:port` where it listens.
    ///
    /// # Errors
    /// It has said none.
    pub fn address(&self) -> Result<&str> {
        self.ready["address"].as_str().context("no address")
    }

    /// What it said when it was ready.
    pub fn ready(&self) -> &Value {
        &self.ready
    }

    /// The end of what it wrote, for messages of failed tests.
    pub fn log(&self) -> String {
        self.process.log()
    }
}
