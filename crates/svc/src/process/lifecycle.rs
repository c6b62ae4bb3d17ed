//! Flags and state of a process that a supervisor or a container runs.

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::PathBuf,
    time::Duration,
};

use clap::Args;
use daemon::{
    config::SecretString,
    metrics::{
        MetricsConfig, MetricsError, MetricsServer, Readiness, recorder, serve, serve_health,
    },
    shutdown::Shutdown,
};

use super::{agent_metrics::AgentMetrics, signals};
use crate::{
    args::time,
    connection::{non_empty_path, path},
    failure::Failure,
    output,
};

/// The flags of an agent that runs as a service.
#[derive(Clone, Debug, Args)]
pub(crate) struct LifecycleFlags {
    /// Time for open streams to finish after SIGTERM or SIGINT; a second signal ends it
    #[arg(long, env = "SVC_DRAIN", value_name = "DURATION", default_value = "30s", value_parser = drain, hide_env_values = true, hide_short_help = true)]
    drain: Duration,

    /// Serve `/healthz` (the process runs), `/readyz` (every tunnel is online) and `/metrics` at
    /// ADDRESS or PORT
    ///
    /// `svc dial` is ready while its local addresses accept connections. A port alone is one of
    /// 127.0.0.1. Probes of a container need 0.0.0.0:PORT.
    #[arg(long, env = "SVC_HEALTH_LISTEN", value_name = "ADDRESS", value_parser = listen_address, hide_env_values = true, hide_short_help = true)]
    health_listen: Option<SocketAddr>,

    /// File with the bearer token for `/metrics`, which is required if other machines reach the
    /// address
    #[arg(long, env = "SVC_METRICS_TOKEN_FILE", value_name = "FILE", value_parser = path(), hide_env_values = true, hide_short_help = true)]
    metrics_token_file: Option<PathBuf>,
}

impl LifecycleFlags {
    /// Converts signals to the two steps of a shutdown, with the drain time of the flags.
    pub(crate) fn listen_for_signals(&self) -> Result<Shutdown, Failure> {
        signals::listen(self.drain)
    }

    /// True if a health listener was requested.
    pub(crate) fn has_health(&self) -> bool {
        self.health_listen.is_some()
    }

    /// Starts the health listener, if there is one. The process is not ready initially.
    pub(crate) async fn health(&self) -> Result<Health, Failure> {
        let readiness = Readiness::default();
        let Some(address) = self.health_listen else {
            // An empty variable counts as unset.
            if non_empty_path(self.metrics_token_file.as_ref()).is_some() {
                let message = "--metrics-token-file (SVC_METRICS_TOKEN_FILE) needs --health-listen";
                return Err(Failure::usage(message));
            }
            return Ok(Health {
                readiness,
                server: None,
                metrics: AgentMetrics::new(),
            });
        };
        let config = MetricsConfig {
            enabled: true,
            listen_addr: Some(address),
            bearer_token: self.metrics_token()?,
            ..MetricsConfig::default()
        };
        // Without a token, an address that other machines reach has no metrics.
        let has_metrics = !matches!(config.check(), Err(MetricsError::BearerRequired { .. }));
        let serving = async {
            if has_metrics {
                serve(&config, recorder()?, readiness.clone()).await
            } else {
                serve_health(address, readiness.clone()).await.map(Some)
            }
        };
        let server = serving.await.map_err(|error| match error {
            MetricsError::Bind { source, .. } => Failure::of_bind(
                &format!("--health-listen cannot listen on {address}"),
                &source,
            ),
            error @ MetricsError::UnusableToken => {
                Failure::usage(format!("--metrics-token-file: {error}"))
            }
            error => Failure::from_error("cannot start --health-listen", error),
        })?;
        if let Some(server) = &server {
            let metrics = if has_metrics { ", and /metrics" } else { "" };
            output::message(&format!(
                "health: http://{}/readyz and /healthz{metrics}",
                server.local_addr()
            ));
        }
        Ok(Health {
            readiness,
            server,
            // After the recorder, which they register at.
            metrics: AgentMetrics::new(),
        })
    }

    /// The token that scrapers send.
    fn metrics_token(&self) -> Result<Option<SecretString>, Failure> {
        let Some(path) = non_empty_path(self.metrics_token_file.as_ref()) else {
            return Ok(None);
        };
        let bytes = daemon::files::read_bounded(path, MAX_TOKEN_BYTES).map_err(|error| {
            let path = path.display();
            Failure::usage(format!("the token in {path} cannot be read: {error}"))
                .hint("check --metrics-token-file")
        })?;
        let text = String::from_utf8_lossy(&bytes);
        Ok(Some(SecretString::new(text.trim_ascii())))
    }
}

/// The health of this process, for probes. The listener stops when this is dropped.
#[derive(Debug)]
pub(crate) struct Health {
    readiness: Readiness,
    server: Option<MetricsServer>,
    metrics: AgentMetrics,
}

impl Health {
    /// The metrics of this process. They have no effect without a listener.
    pub(crate) fn metrics(&self) -> &AgentMetrics {
        &self.metrics
    }

    /// Sets if every tunnel is online. A process that stops is not ready.
    pub(crate) fn set_ready(&self, is_ready: bool) {
        if self.server.is_some() {
            self.readiness.set_ready(is_ready);
        }
    }
}

/// Parses `host:port` with an address, or a port of this machine.
fn listen_address(text: &str) -> Result<SocketAddr, String> {
    if let Ok(port) = text.parse::<u16>() {
        return Ok(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port));
    }
    text.parse()
        .map_err(|_invalid| "use a port, or an address such as 0.0.0.0:8080".to_owned())
}

/// Parses a drain time.
fn drain(text: &str) -> Result<Duration, String> {
    // `0` needs no unit.
    let time = if text == "0" {
        Duration::ZERO
    } else {
        time::duration(text)?
    };
    if time > MAX_DRAIN {
        return Err("a drain is at most 24h".to_owned());
    }
    Ok(time)
}

/// A process that still stops after a day does not stop.
const MAX_DRAIN: Duration = Duration::from_hours(24);

/// Scrapers send the token in one header.
const MAX_TOKEN_BYTES: u64 = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_alone_is_on_this_machine() {
        assert_eq!(
            listen_address("8080").unwrap().to_string(),
            "127.0.0.1:8080"
        );
        assert_eq!(
            listen_address("0.0.0.0:1").unwrap().to_string(),
            "0.0.0.0:1"
        );
        assert_eq!(listen_address("[::]:1").unwrap().to_string(), "[::]:1");
        for text in ["", "localhost", "1.2.3.4", "99999"] {
            assert!(listen_address(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_drain_may_be_short_but_not_endless() {
        assert_eq!(drain("0").unwrap(), Duration::ZERO);
        assert_eq!(drain("8s").unwrap(), Duration::from_secs(8));
        assert!(drain("25h").is_err());
    }
}
