use std::env;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result};
use tempfile::TempDir;

use crate::Process;

/// A real proxy that requires a login, and alone resolves the name [`NAME`](Self::NAME). It is
/// killed when the value is dropped.
pub struct ProxyServer {
    process: Process,
    directory: TempDir,
    scheme: &'static str,
    port: u16,
}

impl ProxyServer {
    /// The name that the proxy resolves to this machine. No other resolver knows it (RFC 6761
    /// section 6.2).
    pub const NAME: &str = "engine.test";

    /// Starts tinyproxy (HTTP `CONNECT`) and waits until it listens. It refuses connections to other
    /// ports than `allowed`.
    ///
    /// # Errors
    /// tinyproxy is not installed, or does not start; its log is part of the error.
    pub fn http(allowed: u16) -> Result<Self> {
        let directory = tempfile::tempdir()?;
        let port = ports::lease();
        let config_file = directory.path().join("tinyproxy.conf");
        let config = format!(
            "Port {port}\nListen 127.0.0.1\nTimeout 600\nAllow 127.0.0.1\nLogLevel Info\n\
             BasicAuth {USER} {PASSWORD}\nConnectPort {allowed}\n"
        );
        fs::write(&config_file, config)?;
        let mut command = program("SVC_TEST_TINYPROXY", directory.path())?;
        command.args(["-d", "-c"]).arg(&config_file);
        let process = Process::start(&mut command, &directory.path().join("log"))?;
        process.wait_for_line("its loop", |line| line.contains("Accepting connections"))?;
        Ok(Self {
            process,
            directory,
            scheme: "http",
            port,
        })
    }

    /// Starts microsocks (SOCKS5). It does not report that it listens, so the first client must
    /// retry.
    ///
    /// # Errors
    /// microsocks is not installed.
    pub fn socks() -> Result<Self> {
        let directory = tempfile::tempdir()?;
        let port = ports::lease();
        Ok(Self {
            process: start_socks(directory.path(), port)?,
            directory,
            scheme: "socks5",
            port,
        })
    }

    /// Starts microsocks again at the same address, after [`Process::kill`].
    ///
    /// # Errors
    /// As [`socks`](Self::socks).
    pub fn start_socks_again(&mut self) -> Result<()> {
        self.process = start_socks(self.directory.path(), self.port)?;
        Ok(())
    }

    /// Its URL with the login.
    pub fn url(&self) -> String {
        self.url_with(&format!("{USER}:{PASSWORD}@"))
    }

    /// Its URL with another login, `user:password@`.
    pub fn url_with(&self, login: &str) -> String {
        format!("{}://{login}127.0.0.1:{}", self.scheme, self.port)
    }

    /// The process.
    pub fn process(&mut self) -> &mut Process {
        &mut self.process
    }
}

fn start_socks(directory: &Path, port: u16) -> Result<Process> {
    let mut command = program("SVC_TEST_MICROSOCKS", directory)?;
    command.args(["-i", "127.0.0.1", "-p", &port.to_string()]);
    command.args(["-u", USER, "-P", PASSWORD]);
    Process::start(&mut command, &directory.join("log"))
}

/// A proxy that gets its names from a file, instead of the resolver of this machine.
fn program(variable: &str, directory: &Path) -> Result<Command> {
    let program = env::var_os(variable)
        .with_context(|| format!("{variable} is not set: run `cargo xtask test`"))?;
    let hosts = directory.join("hosts");
    fs::write(&hosts, format!("127.0.0.1 {}\n", ProxyServer::NAME))?;
    let mut command = Command::new(program);
    command
        .env("LD_PRELOAD", "libnss_wrapper.so")
        .env("NSS_WRAPPER_HOSTS", hosts);
    Ok(command)
}

const USER: &str = "ada";

/// Only used by tests.
const PASSWORD: &str = "s3cret";
