//! `svc engine`: runs one engine from a configuration file.

use std::{net::SocketAddr, path::PathBuf};

use clap::Parser;
use daemon::logs;
use engine::{RunningEngine, config::EngineConfig};
use jiff::Timestamp;
use serde::Serialize;

use super::configuration;
use crate::failure::{Code, Failure};
use crate::output;
use crate::output::Format;
use crate::process::replacement::{self, Program};
use crate::process::{descriptors, environment, signals, supervisor};

/// The flags of `svc engine`.
#[derive(Debug, Parser)]
pub(crate) struct Args {
    /// Configuration file (YAML); environment variables take precedence (`SVC_TLS__LISTEN_ADDR`)
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

/// Addresses of a running engine. Disabled listeners have no field.
#[derive(Serialize)]
struct ReadyReport {
    /// Base host and port of the TLS listener, for agents and the Engine API.
    engine_url: String,
    /// The address of the TLS listener.
    tls_addr: SocketAddr,
    /// The plain HTTP listener, which redirects.
    #[serde(skip_serializing_if = "Option::is_none")]
    http_url: Option<String>,
    /// The metrics listener: metrics and health.
    #[serde(skip_serializing_if = "Option::is_none")]
    metrics_url: Option<String>,
    /// Id of this process.
    pid: u32,
}

/// Runs an engine until a signal.
pub(crate) async fn run(args: Args, log: Option<&str>) -> Result<(), Failure> {
    if args.schema {
        return output::line(&format!("{:#}", engine::config::schema()));
    }
    let file = args.config.as_deref();
    let now = Timestamp::now().as_second();
    let loaded = EngineConfig::load_inspected(file, environment::variables(), now);
    let (config, mut warnings) =
        loaded.map_err(|errors| configuration::invalid("engine", file, errors, args.output))?;
    if args.check {
        let keys = ["control_plane.url", "control_plane.token_file"];
        if let Some(platform) = config.platform() {
            warnings.extend(configuration::platform_warning(keys, platform).await);
        }
        return configuration::report(&warnings);
    }
    logs::init(config.log_level, log, logs::Format::of_stderr())
        .map_err(|error| Failure::usage(error.to_string()).hint("see --log (or SVC_LOG)"))?;
    configuration::log(&warnings);
    descriptors::raise_limit();
    let shutdown = signals::listen_as_server(config.timeouts.drain)?;
    let program = Program::listen()?;
    let origin = replacement::origin().await?;
    let is_successor = origin.has_predecessor();
    let host = config.host.clone();
    let running = engine::start_from(config, shutdown.clone(), origin)
        .await
        .map_err(|error| Failure::from_error("the engine cannot start", error))?;
    let has_served = running.wait_until_serving().await;
    if has_served {
        if args.output == Format::Json {
            output::json(&ReadyReport::of(&running, &host))?;
        }
        let replaced = running.replacement().replaced().clone();
        supervisor::notify_ready_until(&shutdown, replaced)?;
        let listeners = running
            .listeners()
            .map_err(|error| Failure::from_error("the listeners cannot be copied", error))?;
        supervisor::keep_listeners_open(&listeners, running.removed_listeners())?;
    }
    let replacement = running.replacement();
    let replaced = replacement.replaced().clone();
    let replacing = program.replace_on_signal(replacement, &shutdown)?;
    running.stopped().await;
    if replaced.is_cancelled() {
        let handed_over = replacing.await;
        handed_over.map_err(|error| Failure::from_error("the replacement failed", error))??;
    }
    if is_successor && !has_served {
        // The supervisor may regard this process as the main one, and restarts a failed one only.
        let message = "the old process ended, or did not hand over";
        return Err(Failure::new(Code::Failed, message));
    }
    Ok(())
}

impl ReadyReport {
    fn of(running: &RunningEngine, host: &str) -> Self {
        let tls = running.tls_addr();
        let plain = running.http_addr();
        let metrics = running.metrics_addr();
        Self {
            engine_url: format!("https://{host}:{}", tls.port()),
            tls_addr: tls,
            http_url: plain.map(|address| format!("http://{host}:{}", address.port())),
            metrics_url: metrics.map(|address| format!("http://{address}")),
            pid: std::process::id(),
        }
    }
}
