//! `svc up`: everything on this machine, on loopback, ready to be used.
//!
//! The engine starts before the platform, because the platform tells its port to whoever asks for
//! a project, and stops before it: agents and visitors leave while what happened can still be
//! reported. The platform's port is taken first; the engine's link waits there.

pub(crate) mod certificates;
mod demo;
mod engine;
mod kept;
mod local;
mod ready;
mod relay;

use std::{
    fs::{self, File, TryLockError},
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
    time::Duration,
};

use clap::Parser;
use client::{Agent, Config, HostPort, Properties, Target};

use self::{
    certificates::Certificates,
    engine::{Authority, Ports},
    local::{Listeners, LocalPlatform, OauthClient, PlatformOptions},
    ready::{OfPlatform, Ready},
    relay::LocalRelay,
};
use crate::{
    connection::{config_directory, data_directory, path},
    context::{self, Context, SelectedProject, TemporaryContext, TokenStorage},
    descriptors,
    failure::{Code, Failure},
    output,
    output::Format,
    signals, supervisor,
};

/// The flags of `svc up`.
#[derive(Debug, Parser)]
#[command(after_help = "Examples:
  svc up --demo
  svc up --port 0 --output json --data-dir ./svc-data")]
pub(crate) struct Args {
    /// Also start a small web service and publish it
    #[arg(long)]
    demo: bool,

    /// The port of the engine; 0 takes free ports
    #[arg(long, value_name = "PORT", default_value_t = 8443)]
    port: u16,

    /// The port of the metrics; without it, the one after --port
    #[arg(long, value_name = "PORT")]
    metrics_port: Option<u16>,

    /// The port of the platform; without it, the second after --port
    #[arg(long, value_name = "PORT", conflicts_with = "community")]
    platform_port: Option<u16>,

    /// The port of the TURN relay, for UDP and TCP; without it, the third after --port
    #[arg(long, value_name = "PORT", conflicts_with = "community")]
    turn_port: Option<u16>,

    /// The port of the TURN relay for TLS; without it, the fourth after --port
    #[arg(long, value_name = "PORT", conflicts_with = "community")]
    turn_tls_port: Option<u16>,

    /// Also answer plain HTTP on this port, with redirects to https
    #[arg(long, value_name = "PORT")]
    http_port: Option<u16>,

    /// The ports of TCP tunnels
    #[arg(long, value_name = "LOW-HIGH", default_value = "20000-20999")]
    tcp_ports: String,

    /// Where the database, the CA, keys and secrets are kept
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,

    /// The engine alone, without a platform
    #[arg(long)]
    community: bool,

    /// An OAuth client beside the built-in ones, with the address that people return to (repeatable;
    /// repeat the same id to add another callback)
    #[arg(long = "oauth-client", value_name = "ID=CALLBACK", value_parser = oauth_client, conflicts_with = "community")]
    oauth_clients: Vec<OauthClient>,

    /// Output format of the startup summary
    #[arg(long, short, value_enum, default_value_t)]
    output: Format,

    /// The directory of the configuration, where the context for other terminals is written
    #[arg(long, env = "SVC_CONFIG", value_name = "DIR", hide_env_values = true, value_parser = path())]
    config: Option<PathBuf>,
}

/// `<id>=<callback>`.
fn oauth_client(text: &str) -> Result<OauthClient, String> {
    match text.split_once('=') {
        Some((id, callback)) if !id.is_empty() && !callback.is_empty() => Ok(OauthClient {
            id: id.to_owned(),
            callback: callback.to_owned(),
        }),
        _ => Err("expected an id, an equals sign, and the address to return to".to_owned()),
    }
}

/// The ports that projects can reserve: the upper tenth of those of TCP tunnels.
fn reserved_ports(range: &str) -> Option<String> {
    let (low, high) = range.split_once('-')?;
    let (low, high): (u16, u16) = (low.parse().ok()?, high.parse().ok()?);
    let count = high.checked_sub(low)? / 10;
    (count > 0).then(|| format!("{}-{high}", high - count + 1))
}

/// Starts everything, says where it is, and stays until a signal.
pub(crate) async fn run(args: Args) -> Result<(), Failure> {
    descriptors::raise_limit();
    let shutdown = signals::listen(DRAIN)?;
    let data = data_directory(args.data_dir.as_ref())
        .ok_or_else(|| Failure::usage("there is no home directory").hint("give --data-dir"))?;
    let data = absolute(&data)?;
    let _only = only_one(&data)?;
    let ports = Ports::of(&args)?;
    let certificates = Certificates::in_directory(&data, HOST)?;
    let listeners = if args.community {
        None
    } else {
        Some(Listeners::bind(ports.platform).await?)
    };
    let authority = match &listeners {
        Some(listeners) => Authority::platform(listeners.link_url(), &data)?,
        None => Authority::Secret(engine::jwt_secret(&data)?),
    };
    let config = engine::configuration(&args, ports, &data, &certificates, &authority)?;
    let running = ::engine::start(config, shutdown.clone())
        .await
        .map_err(|error| Failure::of("the engine cannot start", error))?;
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
            let given = PlatformOptions {
                engine_port: port,
                relay: relay.as_ref(),
                enrolment: authority.enrolment(),
                ca_file: &certificates.ca,
                reserved_ports: reserved_ports(&args.tcp_ports),
                oauth_clients: &args.oauth_clients,
            };
            Some(LocalPlatform::start(listeners, &data, &given).await?)
        }
        None => None,
    };
    let token = match (&platform, &authority) {
        (Some(platform), _) => platform.kept.token.clone().unwrap_or_default(),
        (None, Authority::Secret(secret)) => engine::administrator_token(secret)?,
        (None, Authority::Platform { .. }) => String::new(),
    };
    // A project has an address of its own; an engine alone is its one project.
    let host = match &platform {
        Some(platform) => format!("{}.{HOST}", platform.project.endpoint),
        None => HOST.to_owned(),
    };
    let address = HostPort::new(&host, port).map_err(|error| Failure::usage(error.to_string()))?;
    let access = engine::access(&address, &token, &certificates);
    engine::believes(&access).await?;
    if let Some(relay) = &relay {
        relay.is_informed().await;
    }
    let _context = context_for_others(
        &args,
        &address,
        &token,
        &certificates.ca,
        (&data, platform.as_ref()),
    )?;
    let demo = if args.demo {
        Some(Demo::start(access).await?)
    } else {
        None
    };

    let ready = Ready {
        platform: platform.as_ref().map(OfPlatform::of),
        engine_url: format!("https://{address}"),
        metrics_url: running
            .metrics_addr()
            .map(|address| format!("http://{address}")),
        ca_file: certificates.ca.clone(),
        token,
        demo_url: demo.as_ref().map(|demo| demo.url.clone()),
        pid: std::process::id(),
    };
    match args.output {
        Format::Json => output::json(&ready)?,
        Format::Text => output::line(&ready.panel(&data))?,
    }

    supervisor::serving(&shutdown)?;
    shutdown.drain().cancelled().await;
    if args.output == Format::Text {
        output::message("Stopping… press Ctrl-C again to stop immediately.");
    }
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
    tokio::join!(agent_leaves, running.stopped(), relay_stops);
    if let Some(platform) = platform {
        platform.stop(&shutdown).await;
    }
    Ok(())
}

/// The demo's service and its agent.
struct Demo {
    agent: Agent,
    url: String,
    /// Kept: the tunnel goes when this is dropped.
    _forwarding: tokio::task::JoinHandle<client::Closed>,
}

impl Demo {
    async fn start(engine: Config) -> Result<Self, Failure> {
        let service = demo::start()
            .await
            .map_err(|error| Failure::of("the demo service cannot start", error))?;
        let agent = Agent::start(engine)?;
        // The engine puts the rest behind the host name.
        let properties = Properties::http().named(DEMO).hostname(DEMO);
        let mut tunnel = agent.open(properties);
        let online = tunnel.online().await?;
        let target: Target = service
            .to_string()
            .parse()
            .map_err(|error| Failure::of("the demo service has no address", error))?;
        let forwarding = tokio::spawn(async move { tunnel.forward(target).await });
        Ok(Self {
            agent,
            url: online.forwarding.clone(),
            _forwarding: forwarding,
        })
    }
}

/// Lets a second terminal do without flags while this one runs.
fn context_for_others(
    args: &Args,
    engine: &HostPort,
    token: &str,
    ca_file: &Path,
    (data, platform): (&Path, Option<&LocalPlatform>),
) -> Result<Option<TemporaryContext>, Failure> {
    let Some(directory) = config_directory(args.config.as_ref()) else {
        return Ok(None);
    };
    let context = Context {
        api_url: platform.map(|platform| platform.base_url.clone()),
        engine: Some(engine.to_string()),
        token: TokenStorage::Token(token.to_owned()),
        ca_file: Some(ca_file.to_owned()),
        workspace_id: platform.map(|platform| platform.workspace_id.clone()),
        project: platform.map(|platform| SelectedProject {
            id: platform.project.id.clone(),
            endpoint: platform.project.endpoint.clone(),
        }),
        data_dir: Some(data.to_owned()),
    };
    context.write(&directory, context::LOCAL).map(Some)
}

/// Holds the data directory for as long as the file that is returned is open: two at once would
/// write over each other's configuration and secrets.
fn only_one(data: &Path) -> Result<File, Failure> {
    let path = data.join(LOCK);
    let failed = |error| Failure::of(&format!("cannot use {}", path.display()), error);
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

/// Whether a `svc up` uses this data directory now.
pub(super) fn is_in_use(data: &Path) -> bool {
    let file = File::open(data.join(LOCK));
    file.is_ok_and(|file| matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock)))
}

fn absolute(path: &Path) -> Result<PathBuf, Failure> {
    std::path::absolute(path)
        .map_err(|error| Failure::of(&format!("{} is no directory", path.display()), error))
}

/// The file that a running one holds.
const LOCK: &str = "up.lock";

/// The base host: browsers and curl resolve names under `localhost` to this machine.
const HOST: &str = "engine.localhost";

/// The demo's name and the first label of its address.
const DEMO: &str = "demo";

/// How long streams may take to finish after the first signal. Who waits here is the person at
/// the terminal, so it is shorter than a server's.
const DRAIN: Duration = Duration::from_secs(10);
