use std::env;
use std::fs::{self, File};
use std::io::{BufRead as _, BufReader};
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result, bail};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::certificate::Certificate;
use crate::token;

/// A running `svc engine`, alone on this machine. It is killed when the value is dropped.
pub struct Svc {
    child: Child,
    directory: TempDir,
    ca_file: PathBuf,
    address: String,
    ready: Value,
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

    /// The same with further configuration: `sections` are laid over the top-level sections that
    /// [`engine`](Self::engine) writes.
    ///
    /// # Errors
    /// As [`engine`](Self::engine).
    pub fn engine_with(sections: &Value) -> Result<Self> {
        let directory = tempfile::tempdir()?;
        let names = [HOST, "*.engine.localhost", "*.t.engine.localhost"];
        let certificate = Certificate::issue(directory.path(), &names)?;
        let mut config = json!({
            "engine": {"host": HOST, "log_level": "debug"},
            "tls": {"enabled": true, "listen_addr": "127.0.0.1:0"},
            "certs": {"static": {
                "enabled": true,
                "cert_file": certificate.chain,
                "key_file": certificate.key,
            }},
            "auth": {"jwt": {"enabled": true, "token_jwt_secret": SECRET}},
        });
        if let (Some(config), Some(sections)) = (config.as_object_mut(), sections.as_object()) {
            config.extend(sections.clone());
        }
        let config_file = directory.path().join("engine.yaml");
        // JSON is YAML.
        fs::write(&config_file, format!("{config:#}"))?;

        let program = program()?;
        let mut child = Command::new(&program)
            .arg("engine")
            .arg("-c")
            .arg(&config_file)
            .args(["--output", "json"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(File::create(directory.path().join(LOG))?)
            .spawn()
            .with_context(|| format!("starting {}", program.display()))?;
        match ready_line(&mut child) {
            Ok((ready, address)) => {
                let ca_file = certificate.authority;
                Ok(Self {
                    child,
                    directory,
                    ca_file,
                    address,
                    ready,
                })
            }
            Err(error) => {
                stop(&mut child);
                let log = tail(&directory.path().join(LOG));
                Err(error.context(format!("the engine did not become ready; its log:\n{log}")))
            }
        }
    }

    /// `host:port` of the engine.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// The authority that signed its certificate, PEM.
    pub fn ca_file(&self) -> &Path {
        &self.ca_file
    }

    /// What the program said when it was ready.
    pub fn ready(&self) -> &Value {
        &self.ready
    }

    /// A token that may do everything, of the user `usr_test`, for five minutes.
    pub fn token(&self) -> String {
        self.token_with(&json!({}))
    }

    /// The same with further claims; `null` takes a claim away.
    pub fn token_with(&self, claims: &Value) -> String {
        let mut all = json!({"type": "app", "userId": "usr_test", "exp": unix_time() + 300});
        if let (Some(all), Some(claims)) = (all.as_object_mut(), claims.as_object()) {
            all.extend(claims.clone());
            all.retain(|_, value| !value.is_null());
        }
        token::sign(SECRET, &all)
    }

    /// The end of what the engine logged, for messages of failed tests.
    pub fn log(&self) -> String {
        tail(&self.directory.path().join(LOG))
    }
}

impl Drop for Svc {
    fn drop(&mut self) {
        stop(&mut self.child);
    }
}

/// The first and last port of `count` in a row that are free now, for `tcp.port_range`.
///
/// # Errors
/// None such was found in a hundred tries.
pub fn free_ports(count: u16) -> Result<(u16, u16)> {
    for _ in 0..100 {
        let first = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?
            .local_addr()?
            .port();
        let Some(last) = first.checked_add(count - 1) else {
            continue;
        };
        if (first..=last).all(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok()) {
            return Ok((first, last));
        }
    }
    bail!("no {count} free ports in a row")
}

/// The program under test: `SVC_BIN`, or the one that was built beside this test.
fn program() -> Result<PathBuf> {
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

/// Waits for the line that says where the engine is.
fn ready_line(child: &mut Child) -> Result<(Value, String)> {
    let stdout = child.stdout.take().context("no standard output")?;
    let (sender, receiver) = mpsc::channel();
    // Reads on to the end, so that the program never waits for a reader.
    std::thread::spawn(move || {
        for line in BufReader::new(stdout).lines().map_while(Result::ok) {
            // The receiver is gone once the first line is there.
            sender.send(line).ok();
        }
    });
    let line = receiver
        .recv_timeout(START_TIME)
        .context("no line on standard output")?;
    let ready: Value = serde_json::from_str(&line).with_context(|| format!("not JSON: {line}"))?;
    let url = ready
        .get("engine_url")
        .and_then(Value::as_str)
        .context("no engine_url")?;
    let address = url
        .strip_prefix("https://")
        .context("engine_url is not https")?;
    let address = address.trim_end_matches('/').to_owned();
    Ok((ready, address))
}

fn stop(child: &mut Child) {
    // It may have ended by itself.
    child.kill().ok();
    child.wait().ok();
}

fn tail(log: &Path) -> String {
    let text = fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    let skip = lines.len().saturating_sub(LOG_LINES);
    lines.into_iter().skip(skip).collect::<Vec<_>>().join("\n")
}

fn unix_time() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
        .as_secs()
}

const HOST: &str = "engine.localhost";

/// Of the test alone; long enough for HS256 (RFC 7518 section 3.2).
const SECRET: &str = "a secret of the tests, of no worth anywhere else";

const LOG: &str = "engine.log";

/// What a failed test shows of the log.
const LOG_LINES: usize = 60;

/// A debug build on a busy machine with two processors is ready in less.
const START_TIME: Duration = Duration::from_secs(30);
