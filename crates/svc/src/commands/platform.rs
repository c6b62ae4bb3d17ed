//! `svc platform`: the control plane, from a file.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use clap::Parser;
use control::config::Config;
use daemon::logs;
use serde::Serialize;

use crate::{
    cli::Format,
    descriptors, environment,
    failure::{Code, Failure},
    output, signals,
};

/// The flags of `svc platform`.
#[derive(Debug, Parser)]
pub(crate) struct Args {
    /// The configuration (YAML); the environment stands above it (`SVC_PLATFORM__BASE_URL`)
    #[arg(long = "config", short, value_name = "FILE")]
    config: Option<PathBuf>,

    /// Check the configuration and end
    #[arg(long)]
    check: bool,

    /// Print the JSON Schema of the configuration and end
    #[arg(long, conflicts_with_all = ["config", "check"])]
    schema: bool,

    /// How it is told that the platform serves: not at all but in the log, or as one line of JSON
    #[arg(long, short, value_enum, default_value_t)]
    output: Format,
}

/// Where a running platform is.
#[derive(Serialize)]
struct Ready {
    /// Where people and programs reach it.
    base_url: String,
    /// The address of the listener.
    listen_addr: SocketAddr,
    /// This process.
    pid: u32,
}

/// Requests of the control plane are short: what takes longer than this hangs.
const DRAIN: Duration = Duration::from_secs(15);

/// Runs the control plane until a signal.
pub(crate) async fn run(args: Args, log: Option<&str>) -> Result<(), Failure> {
    if args.schema {
        return output::line(&format!("{:#}", control::config::schema()));
    }
    let config = Config::load(args.config.as_deref(), environment::variables())
        .map_err(|error| wrong(&args, &error.to_string()))?;
    if args.check {
        return output::line("the configuration is good");
    }
    logs::init(config.log_level, log, logs::Format::of_stderr())
        .map_err(|error| Failure::usage(error.to_string()).hint("see --log (or SVC_LOG)"))?;
    descriptors::raise_limit();
    let shutdown = signals::listen(DRAIN)?;
    let base_url = config.base_url.clone();
    let running = control::start(config, shutdown)
        .await
        .map_err(|error| Failure::of("the platform cannot start", error))?;
    if args.output == Format::Json {
        output::json(&Ready {
            base_url,
            listen_addr: running.address(),
            pid: std::process::id(),
        })?;
    }
    running.stopped().await;
    Ok(())
}

fn wrong(args: &Args, message: &str) -> Failure {
    let failure = Failure::new(Code::Usage, message);
    match &args.config {
        Some(_) => failure.hint("`svc platform --schema` describes every key"),
        None => failure.hint("name the configuration with -c FILE"),
    }
}
