//! A running `svc up` with its own ports.

use serde_json::Value;

use super::program::{CommandOutput, Home, RunningCommand};

/// The process and its first output.
pub(crate) struct RunningUp {
    pub(crate) running: RunningCommand,
    pub(crate) ready: Value,
}

impl RunningUp {
    /// A field of its first output.
    pub(crate) fn ready_field(&self, key: &str) -> &str {
        self.ready[key]
            .as_str()
            .unwrap_or_else(|| panic!("no {key} in {}", self.ready))
    }

    pub(crate) async fn stop(self) -> CommandOutput {
        let output = self.running.terminate().await;
        assert_eq!(output.code, Some(0), "{output:?}");
        output
    }
}

/// Starts platform and engine.
pub(crate) async fn up(home: &Home, more: &[&str]) -> RunningUp {
    let tcp_ports = tcp_ports();
    let own = [
        "up",
        "--port",
        "0",
        "--tcp-ports",
        &tcp_ports,
        "--output",
        "json",
    ];
    let args = [&own, more].concat();
    let mut running = home.start(&args);
    let ready = running.json().await;
    RunningUp { running, ready }
}

/// Starts an engine alone.
pub(crate) async fn alone(home: &Home, more: &[&str]) -> RunningUp {
    up(home, &[&["--community"], more].concat()).await
}

/// Starts an engine alone at a leased port, which it gets again after a restart.
pub(crate) async fn alone_at(home: &Home, port: &str) -> RunningUp {
    let tcp_ports = tcp_ports();
    let args = [
        "up",
        "--community",
        "--port",
        port,
        "--metrics-port",
        "0",
        "--tcp-ports",
        &tcp_ports,
        "-o",
        "json",
    ];
    let mut running = home.start(&args);
    let ready = running.json().await;
    RunningUp { running, ready }
}

/// A range of ports for TCP tunnels. Engines share their listening ports among their threads, and
/// would also share them with another engine of this user, so each engine has its own range.
pub(crate) fn tcp_ports() -> String {
    let ports = ports::lease_range(10);
    format!("{}-{}", ports.start(), ports.end())
}

/// The secret that signs tokens for the engine of this home.
pub(crate) fn secret(home: &Home) -> String {
    let file = home.path().join(".local/share/svc/jwt.secret");
    std::fs::read_to_string(file).unwrap().trim().to_owned()
}
