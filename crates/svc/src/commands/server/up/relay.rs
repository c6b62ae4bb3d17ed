//! The TURN relay of `svc up`. The local one is on loopback and for loopback peers.

use std::{
    net::{Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
};

use daemon::shutdown::Shutdown;
use serde_json::{Value, json};
use terminal::private;
use turn::{RunningRelay, config::TurnConfig};

use super::{HOST, certificates::Certificates, engine::read_or_create_secret};
use crate::failure::Failure;

/// A running relay.
pub(super) struct LocalRelay {
    running: RunningRelay,
    /// File with the secret that it sends to the platform.
    pub(super) secret_file: PathBuf,
    /// The port for UDP and TCP.
    pub(super) port: u16,
    /// The port for TLS.
    pub(super) tls_port: u16,
}

/// Address of the relay. It works for programs that do not resolve names under `localhost`.
pub(super) const ADDRESS: Ipv4Addr = Ipv4Addr::LOCALHOST;

impl LocalRelay {
    /// Starts the relay. Its link is established once the platform at `url` responds.
    pub(super) async fn start(
        url: &str,
        ports: [u16; 2],
        data: &Path,
        certificates: &Certificates,
        shutdown: Shutdown,
    ) -> Result<Self, Failure> {
        let secret_file = data.join("relay.secret");
        read_or_create_secret(&secret_file)?;
        let [port, tls_port] = ports.map(|port| SocketAddr::from((ADDRESS, port)).to_string());
        let file = json!({ "turn": {
            "listen_addr": [port],
            "tls_listen_addr": [tls_port],
            "tls": {
                "cert_file": certificates.relay_cert,
                "key_file": certificates.relay_key,
            },
            "realm": HOST,
            "relay_ports": RELAY_PORTS,
            "allowed_peers": [ALLOWED_PEERS],
            "log_level": "warn",
            "control_plane": {
                "url": url,
                "token_file": secret_file,
                "data_dir": data.join("turn"),
            },
        } });
        Self::launch(&file, secret_file, data, shutdown).await
    }

    /// Writes the configuration, reads it back like `svc turn`, and starts the relay.
    pub(super) async fn launch(
        file: &Value,
        secret_file: PathBuf,
        data: &Path,
        shutdown: Shutdown,
    ) -> Result<Self, Failure> {
        let path = data.join("turn.yaml");
        private::write(&path, format!("{file:#}\n").as_bytes()).map_err(|error| {
            Failure::from_error(&format!("cannot write {}", path.display()), error)
        })?;
        let config = TurnConfig::load(Some(&path), std::iter::empty())
            .map_err(|error| Failure::usage(error.to_string()))?;
        let running = turn::start(config, shutdown)
            .await
            .map_err(|error| Failure::from_error("the relay cannot start", error))?;
        let of = |addresses: &[SocketAddr]| addresses.first().map_or(0, SocketAddr::port);
        Ok(Self {
            port: of(running.listen_addrs()),
            tls_port: of(running.tls_listen_addrs()),
            secret_file,
            running,
        })
    }

    /// Waits until the relay has received the platform's data.
    pub(super) async fn wait_for_data(&self) {
        if let Some(link) = self.running.link() {
            link.wait_until_connected(true).await;
        }
    }

    pub(super) async fn stopped(self) {
        self.running.stopped().await;
    }
}

/// Special-purpose addresses that may be peers.
pub(super) const ALLOWED_PEERS: &str = "127.0.0.0/8";
/// Ports above the range that systems assign dynamically.
pub(super) const RELAY_PORTS: &str = "61000-65535";
