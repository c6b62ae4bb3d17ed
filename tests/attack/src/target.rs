use std::fs;
use std::io::Write as _;

use anyhow::{Context as _, Result, bail, ensure};
use e2e::{Agent, Svc};
use serde_json::json;

use crate::connection::{Connector, read_available};
use crate::http2;
use crate::oracle::Oracle;

/// The program under attack: an engine, and agents that publish the [`Oracle`].
pub(crate) struct Target {
    pub(crate) connector: Connector,
    pub(crate) oracle: Oracle,
    engine: Svc,
    /// Publishes the service to every visitor.
    open: Agent,
    /// Publishes it to holders of a token.
    protected: Agent,
}

impl Target {
    /// Starts the engine, the service and the agents.
    ///
    /// # Errors
    /// The program is missing or does not become ready.
    pub(crate) fn start() -> Result<Self> {
        let oracle = Oracle::start()?;
        // A file takes the debug log of a flood, which would otherwise fill the memory. The secrets
        // case reads it.
        let engine = Svc::engine_with(&json!({
            "access_log": {"path": "access.log", "format": "json"},
        }))?;
        let (_, port) = engine.address().rsplit_once(':').context("no port")?;
        let connector = Connector::new(engine.ca_file(), port.parse()?)?;
        let service = oracle.address();
        let open = Agent::forward(&engine, &service, &["--http", "--name", "open"])?;
        let flags = ["--http", "--name", "protected", "--token-auth"];
        let protected = Agent::forward(&engine, &service, &flags)?;
        Ok(Self {
            connector,
            oracle,
            engine,
            open,
            protected,
        })
    }

    /// Host name of the public tunnel.
    ///
    /// # Errors
    /// The agent printed none.
    pub(crate) fn open_host(&self) -> Result<&str> {
        self.open.hostname()
    }

    /// Host name of the tunnel that needs a token.
    ///
    /// # Errors
    /// The agent printed none.
    pub(crate) fn protected_host(&self) -> Result<&str> {
        self.protected.hostname()
    }

    /// The engine's own host name.
    pub(crate) fn engine_host(&self) -> &str {
        let address = self.engine.address();
        address.rsplit_once(':').map_or(address, |(host, _)| host)
    }

    /// Publishes another service through the engine until the result is dropped.
    ///
    /// # Errors
    /// The agent does not come online.
    pub(crate) fn publish(&self, address: &str, flags: &[&str]) -> Result<Agent> {
        Agent::forward(&self.engine, address, flags)
    }

    /// A token of the engine with further claims.
    pub(crate) fn token(&self, claims: &serde_json::Value) -> String {
        self.engine.token_with(claims)
    }

    /// The logs of the engine and of the agents.
    ///
    /// # Errors
    /// A file cannot be read.
    pub(crate) fn logs(&self) -> Result<Vec<u8>> {
        let mut all = self.open.full_log()?;
        all.extend(self.protected.full_log()?);
        for entry in fs::read_dir(self.engine.directory())? {
            let path = entry?.path();
            if path.extension().is_some_and(|extension| extension == "log") {
                all.extend(fs::read(path)?);
            }
        }
        Ok(all)
    }

    /// The engine's peak resident memory and that of the agent of the open tunnel, in bytes.
    ///
    /// # Errors
    /// A process has exited.
    pub(crate) fn memory(&mut self) -> Result<(u64, u64)> {
        Ok((
            resident(self.engine.process().id())?,
            resident(self.open.process().id())?,
        ))
    }

    /// Number of descriptors that the engine has open.
    ///
    /// # Errors
    /// The process has exited.
    pub(crate) fn descriptors(&mut self) -> Result<usize> {
        let id = self.engine.process().id();
        Ok(fs::read_dir(format!("/proc/{id}/fd"))?.count())
    }

    /// Checks the invariants of every case: the service received nothing forbidden, and a bystander
    /// is still served over both HTTP versions.
    ///
    /// # Errors
    /// One of them is violated; the engine's log is part of the error.
    pub(crate) fn check(&self) -> Result<()> {
        let served = self.bystander().and_then(|()| self.bystander_http2());
        served
            .with_context(|| format!("a bystander is not served; engine: {}", self.engine.log()))?;
        let violations = self.oracle.take_violations();
        ensure!(violations.is_empty(), "{}", violations.join("\n---\n"));
        Ok(())
    }

    fn bystander(&self) -> Result<()> {
        let host = self.open_host()?;
        let mut connection = self.connector.tls(host, b"http/1.1")?;
        write!(
            connection,
            "GET /bystander HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"
        )?;
        let response = read_available(&mut connection, 64 * 1024);
        let response = String::from_utf8_lossy(&response);
        ensure!(
            response.starts_with("HTTP/1.1 200 "),
            "over HTTP/1.1: {response:?}"
        );
        Ok(())
    }

    fn bystander_http2(&self) -> Result<()> {
        let host = self.open_host()?;
        let mut connection = self.connector.tls(host, b"h2")?;
        let fields = request_fields("GET", "/bystander", host);
        let mut out = Vec::new();
        http2::write_preface(&mut out, 65_535);
        let block = http2::encode_fields(&fields);
        http2::write_headers(&mut out, 1, http2::END_STREAM, &block);
        connection.write_all(&out)?;
        let head = http2::read_until(&mut connection, |frame| frame.kind == http2::HEADERS)?;
        // `:status: 200` is entry 8 of the static table (RFC 7541 appendix A).
        match head {
            Some(frame) if frame.payload.first() == Some(&0x88) => Ok(()),
            other => bail!("over HTTP/2: {other:?}"),
        }
    }
}

/// The pseudo-header fields of a usual request.
pub(crate) fn request_fields(method: &str, path: &str, host: &str) -> Vec<(Vec<u8>, Vec<u8>)> {
    [
        (":method", method),
        (":scheme", "https"),
        (":authority", host),
        (":path", path),
    ]
    .map(|(name, value)| (name.into(), value.into()))
    .to_vec()
}

/// Peak resident memory of a process, in bytes (`VmHWM` in `proc_pid_status(5)`, in KiB).
fn resident(id: u32) -> Result<u64> {
    let status = fs::read_to_string(format!("/proc/{id}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB"));
    Ok(kib.context("no VmHWM")?.trim().parse::<u64>()? * 1024)
}
