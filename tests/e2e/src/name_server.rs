use std::env;
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};
use tempfile::TempDir;

use crate::{Process, run};

/// BIND, as the primary server of `engine.localhost`. Its key [`KEY`](Self::KEY) may change the
/// records of the engine's challenges. It is killed when the value is dropped.
pub struct NameServer {
    _process: Process,
    directory: TempDir,
    port: u16,
}

impl NameServer {
    /// Name of the key.
    pub const KEY: &str = "svc-acme";

    /// Secret of the key. Only used by tests.
    pub const SECRET: &str = "c2VjcmV0IG9mIHRoZSBuYW1lIHNlcnZlciBpbiB0ZXN0cw==";

    /// Another key, which may change nothing.
    pub const OTHER_KEY: &str = "other";

    /// The text of another client, at the name of the challenge for `*.t.engine.localhost`.
    pub const OTHER_TEXT: &str = "of another client";

    /// Starts it and waits until it has loaded its zone.
    ///
    /// # Errors
    /// BIND is not installed, or does not start; its log is part of the error.
    pub fn start() -> Result<Self> {
        let named = env::var_os("SVC_TEST_NAMED")
            .context("SVC_TEST_NAMED is not set: run `cargo xtask test`")?;
        let directory = tempfile::tempdir()?;
        let port = ports::lease();
        let place = directory.path();
        fs::write(place.join("zone"), zone())?;
        let config = place.join("named.conf");
        fs::write(&config, configuration(place, port))?;
        // It reports its start on its standard error only.
        let mut command = Command::new("sh");
        command
            .args(["-c", r#"exec "$0" "$@" 2>&1"#])
            .arg(named)
            .args(["-g", "-n", "1", "-c"])
            .arg(&config);
        let process = Process::start(&mut command, &place.join("log"))?;
        process.wait_for_line("its start", |line| line.ends_with(" running"))?;
        Ok(Self {
            _process: process,
            directory,
            port,
        })
    }

    /// Its address, for UDP and TCP.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// A private file with this content, which is removed with the server.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn file(&self, name: &str, content: &str) -> Result<PathBuf> {
        let path = self.directory.path().join(name);
        let mut options = fs::OpenOptions::new();
        let mut file = options
            .create(true)
            .truncate(true)
            .write(true)
            .mode(0o600)
            .open(&path)?;
        file.write_all(content.as_bytes())?;
        Ok(path)
    }

    /// A key in the form of BIND.
    pub fn key(name: &str, secret: &str) -> String {
        format!("key \"{name}\" {{\n\talgorithm hmac-sha256;\n\tsecret \"{secret}\";\n}};\n")
    }
}

fn zone() -> String {
    format!(
        "$TTL 60\n\
         @ IN SOA ns hostmaster 1 3600 600 86400 5\n\
         @ IN NS ns\n\
         @ IN A 127.0.0.1\n\
         ns IN A 127.0.0.1\n\
         _acme-challenge.t IN TXT \"{}\"\n",
        NameServer::OTHER_TEXT
    )
}

fn configuration(place: &Path, port: u16) -> String {
    let place = place.display();
    let keys = [NameServer::KEY, NameServer::OTHER_KEY]
        .map(|name| NameServer::key(name, NameServer::SECRET))
        .concat();
    let key = NameServer::KEY;
    format!(
        "{keys}\
         options {{\n\
         directory \"{place}\";\n\
         listen-on port {port} {{ 127.0.0.1; }};\n\
         listen-on-v6 {{ none; }};\n\
         pid-file none;\n\
         session-keyfile none;\n\
         recursion no;\n\
         notify no;\n\
         dnssec-validation no;\n\
         }};\n\
         controls {{}};\n\
         zone \"engine.localhost\" {{\n\
         type primary;\n\
         file \"zone\";\n\
         update-policy {{\n\
         grant {key} name _acme-challenge.engine.localhost TXT;\n\
         grant {key} name _acme-challenge.t.engine.localhost TXT;\n\
         }};\n\
         }};\n"
    )
}

/// The output of dig for a name server, `host:port`. It asks once.
///
/// # Errors
/// dig is not installed, or there is no response.
pub fn dig(server: &str, arguments: &[&str]) -> Result<String> {
    let program =
        env::var_os("SVC_TEST_DIG").context("SVC_TEST_DIG is not set: run `cargo xtask test`")?;
    let (host, port) = server.rsplit_once(':').context("no port")?;
    let mut command = Command::new(program);
    command
        .args([&format!("@{host}"), "-p", port, "+tries=1", "+time=10"])
        .args(arguments)
        // The file of a user may have other options.
        .env("HOME", "/nonexistent");
    run(&mut command)
}
