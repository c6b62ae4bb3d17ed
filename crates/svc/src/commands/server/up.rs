//! `svc up`: runs everything on this machine, on loopback or as a public server ([`public`]).
//!
//! The engine starts before the platform, because the platform reports the engine's port to callers
//! that request a project. It also stops before the platform, so that the close of agents and
//! visitors can still be reported. The platform's port is bound first, and the engine's link waits
//! there.

pub(crate) mod certificates;
mod demo;
mod engine;
mod local;
pub(crate) mod public;
mod ready;
mod relay;
mod saved_state;

use std::{
    fs::{self, File, TryLockError},
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
    time::Duration,
};

use clap::Parser;
use client::{Agent, Config, HostPort, Properties, Target};
use daemon::shutdown::Shutdown;

use self::{
    certificates::Certificates,
    engine::{Ports, TrustSource},
    local::{Listeners, LocalPlatform, OauthClient, PlatformOptions},
    public::PublicArgs,
    ready::{PlatformInfo, ReadyReport},
    relay::LocalRelay,
    saved_state::SavedUpState,
};
use crate::connection::{config_directory, data_directory, path};
use crate::context::{Context, SelectedProject, TemporaryContext, TokenStorage};
use crate::failure::{Code, Failure};
use crate::output::Format;
use crate::process::{descriptors, signals, supervisor};
use crate::{context, output};

/// The flags of `svc up`.
#[derive(Debug, Parser)]
#[command(after_help = "Examples:
  svc up --demo
  sudo svc up --public engine.example.com --email admin@example.com
  svc up --port 0 --output json --data-dir ./svc-data")]
pub(crate) struct Args {
    /// Also start a small web service and publish it
    #[arg(long)]
    demo: bool,

    /// Port of the engine; 0 selects free ports. Default: 8443, or 443 with --public
    #[arg(long, value_name = "PORT")]
    port: Option<u16>,

    /// Port of the metrics. Default: the first after --port, or 8444 with --public
    #[arg(long, value_name = "PORT")]
    metrics_port: Option<u16>,

    /// Port of the platform. Default: the second after --port, or 8445 with --public
    #[arg(long, value_name = "PORT", conflicts_with = "community")]
    platform_port: Option<u16>,

    /// UDP and TCP port of the TURN relay. Default: the third after --port, or 3478 with --public
    #[arg(long, value_name = "PORT", conflicts_with = "community")]
    turn_port: Option<u16>,

    /// TLS port of the TURN relay. Default: the fourth after --port, or 5349 with --public
    #[arg(long, value_name = "PORT", conflicts_with = "community")]
    turn_tls_port: Option<u16>,

    /// Also serve plain HTTP on this port, with redirects to https. Default with --public: 80
    #[arg(long, value_name = "PORT")]
    http_port: Option<u16>,

    /// Port range for TCP tunnels
    #[arg(long, value_name = "LOW-HIGH", default_value = "20000-20999")]
    tcp_ports: String,

    /// Directory of the database, the CA, keys and secrets
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,

    /// Run only the engine, without a platform
    #[arg(long)]
    community: bool,

    /// Additional OAuth client with its redirect URI (repeatable; repeat the same id to add another
    /// redirect URI). With a URI on localhost without a port, the client may use every port
    #[arg(long = "oauth-client", value_name = "ID=CALLBACK", value_parser = oauth_client, conflicts_with = "community")]
    oauth_clients: Vec<OauthClient>,

    /// Output format of the startup summary
    #[arg(long, short, value_enum, default_value_t)]
    output: Format,

    /// Configuration directory, which receives the context for other terminals
    #[arg(long, env = "SVC_CONFIG", value_name = "DIR", hide_env_values = true, value_parser = path())]
    config: Option<PathBuf>,

    #[command(flatten)]
    server: PublicArgs,
}

/// Parses `<id>=<callback>`.
fn oauth_client(text: &str) -> Result<OauthClient, String> {
    match text.split_once('=') {
        Some((id, callback)) if !id.is_empty() && !callback.is_empty() => Ok(OauthClient {
            id: id.to_owned(),
            callback: callback.to_owned(),
        }),
        _ => Err("expected an id, an equals sign, and the address to return to".to_owned()),
    }
}

/// The ports that projects can reserve: the upper tenth of the TCP tunnel ports.
fn reserved_ports(range: &str) -> Option<String> {
    let (low, high) = range.split_once('-')?;
    let (low, high): (u16, u16) = (low.parse().ok()?, high.parse().ok()?);
    let count = high.checked_sub(low)? / 10;
    (count > 0).then(|| format!("{}-{high}", high - count + 1))
}

/// Starts everything, prints the addresses, and runs until a signal.
#[expect(clippy::too_many_lines, reason = "starts the parts in their order")]
pub(crate) async fn run(args: Args) -> Result<(), Failure> {
    if let Some(host) = args.server.host() {
        return Box::pin(public::run(&args, host)).await;
    }
    descriptors::raise_limit();
    let shutdown = signals::listen(DRAIN)?;
    let data = data_directory(args.data_dir.as_ref())
        .ok_or_else(|| Failure::usage("no home directory is set").hint("give --data-dir"))?;
    let data = absolute(&data)?;
    let _only = lock_data_directory(&data)?;
    SavedUpState::check_kind(&data, false)?;
    let ports = Ports::of(&args)?;
    let certificates = Certificates::in_directory(&data, HOST)?;
    let listeners = if args.community {
        None
    } else {
        Some(Listeners::bind(ports.platform).await?)
    };
    let authority = match &listeners {
        Some(listeners) => TrustSource::platform(listeners.link_url(), &data)?,
        None => TrustSource::Secret(engine::jwt_secret(&data)?),
    };
    let config = engine::configuration(&args, ports, &data, &certificates, &authority)?;
    let running = ::engine::start(config, shutdown.clone())
        .await
        .map_err(|error| Failure::from_error("the engine cannot start", error))?;
    let port = running.tls_addr().port();
    let relay = match &listeners {
        Some(listeners) => {
            let url = listeners.link_url();
            let ports = [ports.turn, ports.turn_tls];
            let stop = shutdown.clone();
            Some(LocalRelay::start(&url, ports, &data, &certificates, stop).await?)
        }
        None => None,
    };
    let platform = match listeners {
        Some(listeners) => {
            let options = PlatformOptions {
                engine_port: port,
                relay: relay.as_ref(),
                enrolment: authority.enrolment(),
                ca_file: &certificates.ca,
                reserved_ports: reserved_ports(&args.tcp_ports),
                oauth_clients: &args.oauth_clients,
            };
            Some(LocalPlatform::start(listeners, &data, &options).await?)
        }
        None => None,
    };
    let token = match (&platform, &authority) {
        (Some(platform), _) => platform.saved_state.token.clone().unwrap_or_default(),
        (None, TrustSource::Secret(secret)) => engine::administrator_token(secret)?,
        (None, TrustSource::Platform { .. }) => String::new(),
    };
    // Each project has its own address. An engine without a platform has only one project.
    let host = match &platform {
        Some(platform) => format!("{}.{HOST}", platform.project.endpoint),
        None => HOST.to_owned(),
    };
    let address = HostPort::new(&host, port).map_err(|error| Failure::usage(error.to_string()))?;
    let access = engine::engine_config(&address, &token, Some(&certificates.ca));
    engine::wait_until_trusted(&access).await?;
    if let Some(relay) = &relay {
        // After a signal its link is closed, and the wait would not end.
        tokio::select! {
            () = relay.wait_for_data() => {}
            () = shutdown.drain().cancelled() => {}
        }
    }
    let _context = write_shared_context(
        &args,
        &address,
        &token,
        Some(&certificates.ca),
        (&data, platform.as_ref()),
    )?;
    let demo = if args.demo {
        Some(Demo::start(access).await?)
    } else {
        None
    };

    let ready = ReadyReport {
        platform: platform.as_ref().map(PlatformInfo::of),
        engine_url: format!("https://{address}"),
        metrics_url: running
            .metrics_addr()
            .map(|address| format!("http://{address}")),
        public: None,
        ca_file: Some(certificates.ca.clone()),
        token,
        demo_url: demo.as_ref().map(|demo| demo.url.clone()),
        pid: std::process::id(),
    };
    print_ready(&ready, args.output, &data)?;
    supervisor::notify_ready(&shutdown)?;
    shutdown.drain().cancelled().await;
    if args.output == Format::Text {
        output::message("Stopping… press Ctrl-C again to stop immediately.");
    }
    let parts = (demo, relay, platform);
    stop(running, parts, &shutdown).await;
    Ok(())
}

fn print_ready(ready: &ReadyReport, format: Format, data: &Path) -> Result<(), Failure> {
    match format {
        Format::Json => output::json(ready),
        Format::Text => output::line(&ready.panel(data)),
    }
}

/// Waits for the engine, the demo's agent and the relay. The platform stops last, because they
/// report to it.
async fn stop(
    engine: ::engine::RunningEngine,
    (demo, relay, platform): (Option<Demo>, Option<LocalRelay>, Option<LocalPlatform>),
    shutdown: &Shutdown,
) {
    let agent_leaves = async {
        if let Some(demo) = &demo {
            tokio::select! {
                _drained = demo.agent.close(DRAIN) => {}
                () = shutdown.hard().cancelled() => drop(demo.agent.close(Duration::ZERO).await),
            }
        }
    };
    let relay_stops = async {
        if let Some(relay) = relay {
            relay.stopped().await;
        }
    };
    tokio::join!(agent_leaves, engine.stopped(), relay_stops);
    if let Some(platform) = platform {
        platform.stop(shutdown).await;
    }
}

/// The demo service and its agent.
struct Demo {
    agent: Agent,
    url: String,
    /// Closes the tunnel when it is dropped.
    _forwarding: tokio::task::JoinHandle<client::CloseReason>,
}

impl Demo {
    async fn start(engine: Config) -> Result<Self, Failure> {
        let service = demo::start()
            .await
            .map_err(|error| Failure::from_error("the demo service cannot start", error))?;
        let agent = Agent::start(engine)?;
        // The engine appends its domain to the host name.
        let properties = Properties::http().named(DEMO).hostname(DEMO);
        let mut tunnel = agent.open(properties);
        let online = tunnel.online().await?;
        let target: Target = service
            .to_string()
            .parse()
            .map_err(|error| Failure::from_error("the demo service has no address", error))?;
        let forwarding = tokio::spawn(async move { tunnel.forward(target).await });
        Ok(Self {
            agent,
            url: online.forwarding.clone(),
            _forwarding: forwarding,
        })
    }
}

/// Writes the context that other terminals use while this process runs.
fn write_shared_context(
    args: &Args,
    engine: &HostPort,
    token: &str,
    ca_file: Option<&Path>,
    (data, platform): (&Path, Option<&LocalPlatform>),
) -> Result<Option<TemporaryContext>, Failure> {
    let Some(directory) = config_directory(args.config.as_ref()) else {
        return Ok(None);
    };
    let context = Context {
        api_url: platform.map(|platform| platform.base_url.clone()),
        engine: Some(engine.to_string()),
        token: TokenStorage::Token(token.to_owned()),
        ca_file: ca_file.map(Path::to_owned),
        workspace_id: platform.map(|platform| platform.workspace_id.clone()),
        project: platform.map(|platform| SelectedProject {
            id: platform.project.id.clone(),
            endpoint: platform.project.endpoint.clone(),
        }),
        data_dir: Some(data.to_owned()),
    };
    context.write(&directory, context::LOCAL).map(Some)
}

/// Locks the data directory while the returned file is open. Two processes would overwrite each
/// other's configuration and secrets.
fn lock_data_directory(data: &Path) -> Result<File, Failure> {
    let path = data.join(LOCK);
    let failed = |error| Failure::from_error(&format!("cannot use {}", path.display()), error);
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(data)
        .map_err(failed)?;
    let file = File::create(&path).map_err(failed)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => {
            let message = format!("another `svc up` uses {}", data.display());
            Err(Failure::new(Code::Conflict, message)
                .hint("stop it, or give this one its own --data-dir"))
        }
        Err(TryLockError::Error(error)) => Err(failed(error)),
    }
}

/// True if a running `svc up` uses this data directory.
pub(super) fn is_in_use(data: &Path) -> bool {
    let file = File::open(data.join(LOCK));
    file.is_ok_and(|file| matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock)))
}

fn absolute(path: &Path) -> Result<PathBuf, Failure> {
    std::path::absolute(path).map_err(|error| {
        Failure::from_error(&format!("{} is not a directory", path.display()), error)
    })
}

/// The lock file.
const LOCK: &str = "up.lock";

/// The base host. Browsers and curl resolve names under `localhost` to this machine.
const HOST: &str = "engine.localhost";

/// Name of the demo tunnel and first label of its host name.
const DEMO: &str = "demo";

/// Time for streams to finish after the first signal. A user waits at the terminal, so it is
/// shorter than on a server.
const DRAIN: Duration = Duration::from_secs(10);
