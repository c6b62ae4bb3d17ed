use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use crate::{Platform, python};

/// The client of `tests/e2e/python/turn_client.py`, which executes orders.
pub struct TurnClient {
    child: Child,
    orders: ChildStdin,
    results: BufReader<ChildStdout>,
}

impl TurnClient {
    /// Starts it with the relay of a platform.
    ///
    /// # Errors
    /// The interpreter is not installed.
    pub fn start(platform: &Platform) -> Result<Self> {
        let (host, ports) = relay(platform)?;
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("python/turn_client.py");
        let ca_file = platform.ready()["ca_file"].as_str().unwrap_or_default();
        let mut child = Command::new(python()?)
            .arg(script)
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .env("TURN_HOST", host)
            .env("TURN_PORT", ports[0].to_string())
            .env("TURN_TLS_PORT", ports[1].to_string())
            .env("TURN_CA_FILE", ca_file)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        Ok(Self {
            orders: child.stdin.take().context("no pipe")?,
            results: BufReader::new(child.stdout.take().context("no pipe")?),
            child,
        })
    }

    /// Sends an order and waits for its result.
    ///
    /// # Errors
    /// The script exited; its output is on standard error.
    pub fn order(&mut self, order: &Value) -> Result<Value> {
        writeln!(self.orders, "{order}")?;
        let mut line = String::new();
        self.results.read_line(&mut line)?;
        ensure!(!line.is_empty(), "the client ended at {order}");
        Ok(serde_json::from_str(&line)?)
    }

    /// Allocates under a name, with a credential of the form that the platform issues.
    ///
    /// # Errors
    /// As [`order`](Self::order).
    pub fn allocate(&mut self, name: &str, credential: &Value, transport: &str) -> Result<u64> {
        let result = self.order(&json!({
            "allocate": name,
            "username": credential["username"],
            "password": credential["credential"],
            "transport": transport,
        }))?;
        result["code"].as_u64().context("no code")
    }
}

impl Drop for TurnClient {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// Host of the relay, and its ports: for UDP and TCP, and for TLS.
///
/// # Errors
/// The platform names none.
pub fn relay(platform: &Platform) -> Result<(String, [u16; 2])> {
    let urls = &platform.ready()["turn_urls"];
    let place = |index: usize| {
        let url = urls[index].as_str().context("no url")?;
        let rest = url.split_once(':').context("no scheme")?.1;
        let authority = rest.split_once('?').context("no transport")?.0;
        let (host, port) = authority.split_once(':').context("no port")?;
        Ok::<_, anyhow::Error>((host.to_owned(), port.parse::<u16>()?))
    };
    let ((host, port), (_, tls_port)) = (place(0)?, place(3)?);
    Ok((host, [port, tls_port]))
}
