use std::env;
use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::symlink;
use std::path::{self, Path, PathBuf};
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result, bail, ensure};
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::Process;
use crate::certificate::Certificate;
use crate::process::{Successor, inheriting};
use crate::token;

/// A running `svc engine`, alone on this machine. It is killed when the value is dropped.
pub struct Svc {
    process: Process,
    directory: TempDir,
    config: Value,
    ca_file: PathBuf,
    address: String,
    ready: Value,
    /// The processes of the reloads. The last one serves, and those before it may still drain.
    successors: Vec<Successor>,
    /// The listener that each process inherits.
    listener: Option<TcpListener>,
}

impl Svc {
    /// Starts a community engine for `engine.localhost` on a free port and waits until it is
    /// ready.
    ///
    /// # Errors
    /// The program is not there, ends, or is not ready in time; its log is part of the error.
    pub fn engine() -> Result<Self> {
        Self::engine_with(&json!({}))
    }

    /// The same with further configuration: `sections` override the top-level sections that
    /// [`engine`](Self::engine) writes.
    ///
    /// # Errors
    /// As [`engine`](Self::engine).
    pub fn engine_with(sections: &Value) -> Result<Self> {
        Self::launch(HOST, sections, None)
    }

    /// The same on a listener that the test keeps open, as a supervisor does.
    ///
    /// # Errors
    /// As [`engine`](Self::engine).
    pub fn engine_on(listener: TcpListener, sections: &Value) -> Result<Self> {
        Self::launch(HOST, sections, Some(listener))
    }

    /// The same for another host, which only a proxy can resolve.
    ///
    /// # Errors
    /// As [`engine`](Self::engine).
    pub fn engine_named(host: &str) -> Result<Self> {
        Self::launch(host, &json!({}), None)
    }

    fn launch(host: &str, sections: &Value, listener: Option<TcpListener>) -> Result<Self> {
        let address = match &listener {
            Some(listener) => listener.local_addr()?.to_string(),
            // Leased, so that the engine gets the same address after a restart.
            None => ports::lease_address(),
        };
        let (directory, config, certificate) = prepare(host, &address, sections)?;
        symlink(path::absolute(program()?)?, directory.path().join(PROGRAM))?;
        let (process, ready, address) = start(directory.path(), &config, listener.as_ref())?;
        Ok(Self {
            process,
            directory,
            config,
            ca_file: certificate.authority,
            address,
            ready,
            successors: Vec::new(),
            listener,
        })
    }

    /// An engine that `start` runs, with the directory of its files and its configuration. The engine sees
    /// its certificate in `folder`.
    pub(crate) fn engine_in(
        folder: &str,
        start: impl FnOnce(&Path, &Value) -> Result<Process>,
    ) -> Result<Self> {
        let address = ports::lease_address();
        let grace = json!({"timeouts": {"startup_grace_seconds": 10}});
        let (directory, mut config, certificate) = prepare(HOST, &address, &grace)?;
        let files = &mut config["certs"]["static"];
        files["cert_file"] = json!(format!("{folder}/cert.pem"));
        files["key_file"] = json!(format!("{folder}/key.pem"));
        let process = start(directory.path(), &config)?;
        let (_, port) = address.rsplit_once(':').context("no port")?;
        Ok(Self {
            process,
            directory,
            config,
            ca_file: certificate.authority,
            address: format!("{HOST}:{port}"),
            ready: Value::Null,
            successors: Vec::new(),
            listener: None,
        })
    }

    /// Replaces it by a new process, and waits until that one serves.
    ///
    /// # Errors
    /// It is not replaced in time.
    pub fn reload(&mut self) -> Result<()> {
        self.ask_to_reload()?;
        self.reloaded()
    }

    /// Asks it to start the process that replaces it.
    ///
    /// # Errors
    /// It has ended.
    pub fn ask_to_reload(&self) -> Result<()> {
        match self.successors.last() {
            Some(successor) => successor.signal(Signal::SIGUSR2),
            None => self.process.ask_to_reload(),
        }
    }

    /// Waits until the process that replaces it serves.
    ///
    /// # Errors
    /// It is not replaced in time.
    pub fn reloaded(&mut self) -> Result<()> {
        let before = self.ready["pid"].clone();
        // The new process inherits the standard output.
        self.ready = self.process.json("the new process", |line| {
            line["engine_url"].is_string() && line["pid"] != before
        })?;
        let id = self.ready["pid"].as_u64().context("no pid")?;
        // The earlier ones are kept: a replaced process finishes its requests, and dropping its value
        // would kill it.
        self.successors.push(Successor::new(u32::try_from(id)?));
        Ok(())
    }

    /// Replaces the program that the next process runs, as a package does.
    ///
    /// # Errors
    /// The file cannot be replaced.
    pub fn install(&self, program: &Path) -> Result<()> {
        let next = self.directory.path().join("next");
        symlink(path::absolute(program)?, &next)?;
        Ok(fs::rename(next, self.directory.path().join(PROGRAM))?)
    }

    /// The program that the last process runs.
    ///
    /// # Errors
    /// It has ended.
    pub fn installed(&self) -> Result<PathBuf> {
        let id = self.ready["pid"].as_u64().context("no pid")?;
        Ok(fs::read_link(format!("/proc/{id}/exe"))?)
    }

    /// Writes another configuration, which the next process reads.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn configure(&mut self, change: impl FnOnce(&mut Value)) -> Result<()> {
        change(&mut self.config);
        let file = self.directory.path().join("engine.yaml");
        Ok(fs::write(file, format!("{:#}", self.config))?)
    }

    /// Restarts it on the same address, after [`Process::kill`] or a normal stop.
    ///
    /// # Errors
    /// As [`engine`](Self::engine).
    pub fn start_again(&mut self) -> Result<()> {
        self.successors.clear();
        self.process.kill();
        let address = self.address.clone();
        let listener = self.listener.as_ref();
        (self.process, self.ready, self.address) =
            start(self.directory.path(), &self.config, listener)?;
        ensure!(self.address == address, "it is elsewhere: {}", self.address);
        Ok(())
    }

    /// Restarts it after a change of its configuration.
    ///
    /// # Errors
    /// As [`engine`](Self::engine).
    pub fn kill_and_configure(&mut self, change: impl FnOnce(&mut Value)) -> Result<()> {
        change(&mut self.config);
        self.start_again()
    }

    /// Writes invalid data into the certificate's file.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn break_certificate(&self) -> Result<()> {
        Ok(fs::write(self.directory.path().join("cert.pem"), "none\n")?)
    }

    /// Replaces the certificate by one of another authority. Returns the file of that authority.
    ///
    /// # Errors
    /// The files cannot be written.
    pub fn replace_certificate(&self) -> Result<PathBuf> {
        let (authority, put) = self.next_certificate()?;
        put()?;
        Ok(authority)
    }

    /// Creates a certificate of another authority. Returns the file of that authority, and a
    /// function that replaces the current certificate, one file after the other.
    ///
    /// # Errors
    /// The files cannot be written.
    pub fn next_certificate(&self) -> Result<(PathBuf, impl FnOnce() -> Result<()>)> {
        // Written elsewhere, so that the earlier authority keeps its file.
        let elsewhere = self.directory.path().join("replaced");
        fs::create_dir(&elsewhere)?;
        let certificate = Certificate::issue(
            &elsewhere,
            &names(HOST).iter().map(String::as_str).collect::<Vec<_>>(),
        )?;
        let here = self.directory.path().to_owned();
        let put = move || {
            for (from, name) in [
                (&certificate.chain, "cert.pem"),
                (&certificate.key, "key.pem"),
            ] {
                fs::copy(from, here.join(name))?;
            }
            Ok(())
        };
        Ok((elsewhere.join("ca.pem"), put))
    }

    /// Writes a new certificate for the engine's names into `directory`, under the names that
    /// certbot uses. Returns the file of its authority.
    ///
    /// # Errors
    /// The files cannot be written.
    pub fn lineage(directory: &Path) -> Result<PathBuf> {
        let names = names(HOST);
        let names: Vec<_> = names.iter().map(String::as_str).collect();
        let certificate = Certificate::issue(directory, &names)?;
        fs::rename(certificate.chain, directory.join("fullchain.pem"))?;
        fs::rename(certificate.key, directory.join("privkey.pem"))?;
        Ok(certificate.authority)
    }

    /// Writes a certificate for these names into `directory`: `cert.pem` and `key.pem`. Returns the
    /// file of its authority.
    ///
    /// # Errors
    /// The files cannot be written.
    pub fn certificate_for(directory: &Path, names: &[&str]) -> Result<PathBuf> {
        Ok(Certificate::issue(directory, names)?.authority)
    }

    /// A running `svc events` that has printed the snapshot.
    ///
    /// # Errors
    /// The program does not exist, exits, or prints nothing in time.
    pub fn events(&self) -> Result<Process> {
        let mut command = Command::new(program()?);
        command
            .args(["events", "--engine", &self.address])
            .arg("--ca-file")
            .arg(&self.ca_file)
            .env_clear()
            .env("HOME", self.directory.path())
            .env("SVC_TOKEN", self.token());
        let process = Process::start(&mut command, &self.directory.path().join("events.log"))?;
        process.json("state", |event| event["type"] == "state.initial")?;
        Ok(process)
    }

    /// The process.
    pub fn process(&mut self) -> &mut Process {
        &mut self.process
    }

    /// `host:port` of the engine.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// The directory of its configuration, its certificate and its log, in which it also runs.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// The authority that signed its certificate, PEM.
    pub fn ca_file(&self) -> &Path {
        &self.ca_file
    }

    /// The program's first output.
    pub fn ready(&self) -> &Value {
        &self.ready
    }

    /// A token of the user `usr_test` that may do everything, valid for five minutes.
    pub fn token(&self) -> String {
        self.token_with(&json!({}))
    }

    /// The same with further claims, where `null` removes a claim.
    pub fn token_with(&self, claims: &Value) -> String {
        let mut all = json!({"type": "app", "userId": "usr_test", "exp": unix_time() + 300});
        if let (Some(all), Some(claims)) = (all.as_object_mut(), claims.as_object()) {
            all.extend(claims.clone());
            all.retain(|_, value| !value.is_null());
        }
        token::sign(SECRET, &all)
    }

    /// The end of the engine's log, for messages of failed tests.
    pub fn log(&self) -> String {
        self.process.log()
    }
}

/// The program under test: `SVC_BIN`, or the one that was built next to this test.
pub fn program() -> Result<PathBuf> {
    if let Some(program) = env::var_os("SVC_BIN") {
        return Ok(program.into());
    }
    // <target>/debug/deps/<test>
    let test = env::current_exe()?;
    let beside = test.ancestors().nth(2).map(|debug| debug.join("svc"));
    match beside.filter(|program| program.exists()) {
        Some(program) => Ok(program),
        None => bail!("there is no svc to test: run `cargo xtask test`"),
    }
}

/// A directory with a certificate, and a configuration. `sections` override those of the configuration.
fn prepare(host: &str, address: &str, sections: &Value) -> Result<(TempDir, Value, Certificate)> {
    let directory = tempfile::tempdir()?;
    let names = names(host);
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let certificate = Certificate::issue(directory.path(), &names)?;
    let mut config = json!({
        "engine": {"host": host, "log_level": "debug"},
        "tls": {"enabled": true, "listen_addr": address},
        "certs": {"static": {
            "enabled": true,
            "cert_file": certificate.chain,
            "key_file": certificate.key,
        }},
        "auth": {"jwt": {"enabled": true, "token_jwt_secret": SECRET}},
        // Tests of unknown names start right after the engine.
        "timeouts": {"startup_grace_seconds": 0},
    });
    if let (Some(config), Some(sections)) = (config.as_object_mut(), sections.as_object()) {
        config.extend(sections.clone());
    }
    Ok((directory, config, certificate))
}

/// Starts an engine, and waits for the line with its addresses. It inherits `listener` as the only
/// socket of a supervisor.
fn start(
    directory: &Path,
    config: &Value,
    listener: Option<&TcpListener>,
) -> Result<(Process, Value, String)> {
    let config_file = directory.join("engine.yaml");
    // JSON is valid YAML.
    fs::write(&config_file, format!("{config:#}"))?;
    let (mut command, input) = inheriting(&directory.join(PROGRAM), listener)?;
    command
        .arg("engine")
        .arg("-c")
        .arg(&config_file)
        .args(["--output", "json"])
        .current_dir(directory);
    let log = directory.join("engine.log");
    let process = Process::start_with_input(&mut command, &log, input)?;
    let ready = process.json("engine_url", |_first| true)?;
    let address = ready["engine_url"]
        .as_str()
        .and_then(|url| url.strip_prefix("https://"))
        .context("engine_url is no https address")?
        .to_owned();
    Ok((process, ready, address))
}

fn unix_time() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
        .as_secs()
}

const HOST: &str = "engine.localhost";

/// The link to the program, in the directory of the engine.
const PROGRAM: &str = "svc";

/// Names in the certificate of the engine at `host`.
fn names(host: &str) -> [String; 3] {
    [host.to_owned(), format!("*.{host}"), format!("*.t.{host}")]
}

/// Only used by tests, and long enough for HS256 (RFC 7518 section 3.2).
const SECRET: &str = "a secret of the tests, of no worth anywhere else";
