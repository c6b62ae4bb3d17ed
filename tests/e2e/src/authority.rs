use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{Process, Svc};

/// Pebble, a certificate authority, beside an engine, a platform or a relay that orders from it. It
/// is killed when the value is dropped.
pub struct Authority {
    process: Process,
    directory: TempDir,
    addresses: Value,
    http: String,
    tls: String,
}

impl Authority {
    /// Starts it for an engine that will have the addresses of [`sections`](Self::sections).
    /// `switches` are environment variables of Pebble.
    ///
    /// # Errors
    /// The program is not there, or ends.
    pub fn start(switches: &[(&str, &str)]) -> Result<Self> {
        let directory = tempfile::tempdir()?;
        // Leased, because the authority must have the ports before the engine starts.
        let (http, tls) = (ports::lease_address(), ports::lease_address());
        let pebble = env::var_os("SVC_TEST_PEBBLE")
            .context("SVC_TEST_PEBBLE is not set: run `cargo xtask test`")?;
        let mut command = Command::new(pebble);
        command
            .arg(directory.path())
            .args([port(&http)?, port(&tls)?])
            .env("PEBBLE_VA_NOSLEEP", "1")
            .env("PEBBLE_AUTHZREUSE", "0")
            .env("PEBBLE_WFE_NONCEREJECT", "0")
            .envs(switches.iter().copied());
        let process = Process::start(&mut command, &directory.path().join("pebble.log"))?;
        let addresses = process.json("the addresses of Pebble", |line| {
            line["directory"].is_string()
        })?;
        Ok(Self {
            process,
            directory,
            addresses,
            http,
            tls,
        })
    }

    /// The section of a process that orders from it; `acme` overrides keys.
    pub fn section(&self, acme: &Value) -> Value {
        let mut section = json!({
            "directory": self.addresses["directory"],
            "terms_agreed": true,
            "ca_file": self.directory.path().join("ca.pem"),
            "state_dir": self.state_dir(),
            "dns_propagation_seconds": 0,
        });
        if let (Some(section), Some(acme)) = (section.as_object_mut(), acme.as_object()) {
            section.extend(acme.clone());
        }
        section
    }

    /// Sections of an engine that orders from it, without files; `acme` overrides keys of
    /// `certs.acme`.
    pub fn sections(&self, acme: &Value) -> Value {
        json!({
            "http": {"enabled": true, "listen_addr": self.http},
            "tls": {"enabled": true, "listen_addr": self.tls},
            "certs": {"static": {"enabled": false}, "acme": self.section(acme)},
        })
    }

    /// An engine with [`sections`](Self::sections).
    ///
    /// # Errors
    /// As [`Svc::engine`].
    pub fn engine(&self, acme: &Value) -> Result<Svc> {
        Svc::engine_with(&self.sections(acme))
    }

    /// The address of its directory.
    pub fn url(&self) -> &str {
        self.addresses["directory"].as_str().unwrap_or_default()
    }

    /// The address of the name server that it asks, which responds over TCP only.
    pub fn resolver(&self) -> &str {
        self.addresses["resolver"].as_str().unwrap_or_default()
    }

    /// A file with the authority of the directory and with the root of the issued certificates.
    ///
    /// # Errors
    /// A file cannot be read or written.
    pub fn all_roots(&self) -> Result<PathBuf> {
        let path = self.directory.path().join("all.pem");
        let directory = fs::read_to_string(self.directory.path().join("ca.pem"))?;
        fs::write(&path, directory + &fs::read_to_string(self.root())?)?;
        Ok(path)
    }

    /// The root of the issued certificates.
    pub fn root(&self) -> PathBuf {
        self.directory.path().join("root.pem")
    }

    /// The directory of the account and the certificate.
    pub fn state_dir(&self) -> PathBuf {
        self.directory.path().join("state")
    }

    /// The address of the plain listener.
    pub fn http(&self) -> &str {
        &self.http
    }

    /// The address of the TLS listener.
    pub fn tls(&self) -> &str {
        &self.tls
    }

    /// The address of Pebble's management.
    pub fn management(&self) -> &str {
        self.addresses["management"].as_str().unwrap_or_default()
    }

    /// A directory that is removed with this value.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Kills it: it is unreachable from now on.
    pub fn kill(&mut self) {
        self.process.kill();
    }
}

fn port(address: &str) -> Result<&str> {
    let (_, port) = address.rsplit_once(':').context("no port")?;
    Ok(port)
}
