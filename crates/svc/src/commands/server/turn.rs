//! `svc turn`: runs one TURN relay from a configuration file.

use std::{net::SocketAddr, path::PathBuf};

use clap::Parser;
use daemon::logs;
use jiff::Timestamp;
use serde::Serialize;
use turn::{RunningRelay, config::TurnConfig};

use super::configuration;
use crate::failure::Failure;
use crate::output;
use crate::output::Format;
use crate::process::{descriptors, environment, signals, supervisor};

/// The flags of `svc turn`.
#[derive(Debug, Parser)]
pub(crate) struct Args {
    /// Configuration file (YAML); environment variables take precedence (`SVC_TURN__REALM`)
    #[arg(long = "config", short, value_name = "FILE")]
    config: Option<PathBuf>,

    /// Check the configuration, list all errors, try the platform once, and exit
    #[arg(long)]
    check: bool,

    /// Print the JSON Schema of the configuration and exit
    #[arg(long, conflicts_with_all = ["config", "check"])]
    schema: bool,

    /// Output format of the readiness message: only the log, or one line of JSON
    #[arg(long, short, value_enum, default_value_t)]
    output: Format,
}

/// Addresses of a running relay. Disabled listeners have no field.
#[derive(Serialize)]
struct ReadyReport {
    /// Listener addresses for UDP and TCP.
    turn_addrs: Vec<SocketAddr>,
    /// Listener addresses for TLS.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    turn_tls_addrs: Vec<SocketAddr>,
    /// The realm of its credentials.
    turn_realm: String,
    /// The metrics listener: metrics and health.
    #[serde(skip_serializing_if = "Option::is_none")]
    metrics_url: Option<String>,
    /// Id of this process.
    pid: u32,
}

/// Runs a relay until a signal.
pub(crate) async fn run(args: Args, log: Option<&str>) -> Result<(), Failure> {
    if args.schema {
        return output::line(&format!("{:#}", turn::config::schema()));
    }
    let file = args.config.as_deref();
    let invalid = |errors| configuration::invalid("turn", file, errors, args.output);
    let config = TurnConfig::load(file, environment::variables()).map_err(invalid)?;
    let mut warnings = config
        .inspect(Timestamp::now().as_second())
        .map_err(invalid)?;
    if args.check {
        let keys = ["turn.control_plane.url", "turn.control_plane.token_file"];
        if let Some(platform) = &config.control_plane {
            warnings.extend(configuration::platform_warning(keys, platform).await);
        }
        return configuration::report(&warnings);
    }
    logs::init(config.log_level, log, logs::Format::of_stderr())
        .map_err(|error| Failure::usage(error.to_string()).hint("see --log (or SVC_LOG)"))?;
    configuration::log(&warnings);
    descriptors::raise_limit();
    let shutdown = signals::listen_as_server(config.drain)?;
    let realm = config.realm.clone();
    let running = turn::start(config, shutdown.clone())
        .await
        .map_err(|error| Failure::from_error("the relay cannot start", error))?;
    if args.output == Format::Json {
        output::json(&ReadyReport::of(&running, realm))?;
    }
    supervisor::notify_ready(&shutdown)?;
    running.stopped().await;
    Ok(())
}

impl ReadyReport {
    fn of(running: &RunningRelay, realm: String) -> Self {
        let metrics = running.metrics_addr();
        Self {
            turn_addrs: running.listen_addrs().to_vec(),
            turn_tls_addrs: running.tls_listen_addrs().to_vec(),
            turn_realm: realm,
            metrics_url: metrics.map(|address| format!("http://{address}")),
            pid: std::process::id(),
        }
    }
}
