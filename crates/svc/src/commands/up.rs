//! `svc up`: an engine on this machine, on loopback, ready to be used.

mod certificates;
mod demo;
mod ready;

use std::{
    fs, io,
    net::{Ipv4Addr, SocketAddr, TcpListener},
    path::{Path, PathBuf},
    time::Duration,
};

use clap::Parser;
use client::{Agent, Config, HostPort, Properties, Target, Token, Trust};
use credentials::{Identity, MintRequest, Secret, SigningKey, TokenKind};
use engine::config::EngineConfig;
use jiff::Timestamp;

use self::{certificates::Certificates, ready::Ready};
use crate::{
    cli::Format,
    connection::{config_directory, data_directory},
    context::{self, Context, Written, write_private},
    descriptors,
    failure::Failure,
    output, signals,
};

/// The flags of `svc up`.
#[derive(Debug, Parser)]
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

    /// Also answer plain HTTP on this port, with redirects to https
    #[arg(long, value_name = "PORT")]
    http_port: Option<u16>,

    /// The ports of TCP tunnels
    #[arg(long, value_name = "LOW-HIGH", default_value = "20000-20999")]
    tcp_ports: String,

    /// Where the CA, keys and secrets are kept
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,

    /// The engine alone, without a control plane (all that this version has)
    #[arg(long)]
    community: bool,

    /// How it is told that all is ready: for people, or as one line of JSON
    #[arg(long, short, value_enum, default_value_t)]
    output: Format,

    /// The directory of the configuration, where the context for other terminals is written
    #[arg(long, env = "SVC_CONFIG", value_name = "DIR", hide_env_values = true)]
    config: Option<PathBuf>,
}

/// Starts everything, says where it is, and stays until a signal.
pub(crate) async fn run(args: Args) -> Result<(), Failure> {
    descriptors::raise_limit();
    let shutdown = signals::listen(DRAIN)?;
    let data = data_directory(args.data_dir.as_ref())
        .ok_or_else(|| Failure::usage("there is no home directory").hint("give --data-dir"))?;
    let data = absolute(&data)?;
    let certificates = Certificates::in_directory(&data, HOST)?;
    let secret = jwt_secret(&data)?;
    let config = configuration(&args, &data, &certificates, &secret)?;

    let running = engine::start(config, shutdown.clone())
        .await
        .map_err(|error| Failure::of("the engine cannot start", error))?;
    let token = administrator_token(&secret)?;
    let engine = HostPort::new(HOST, running.tls_addr().port())
        .map_err(|error| Failure::usage(error.to_string()))?;
    let _context = context_for_others(&args, &engine, &token, &certificates.ca)?;
    let demo = if args.demo {
        Some(Demo::start(&engine, &token, &certificates).await?)
    } else {
        None
    };

    let ready = Ready {
        engine_url: format!("https://{engine}"),
        metrics_url: running
            .metrics_addr()
            .map(|address| format!("http://{address}")),
        ca_file: certificates.ca.clone(),
        token: token.clone(),
        demo_url: demo.as_ref().map(|demo| demo.url.clone()),
        pid: std::process::id(),
    };
    match args.output {
        Format::Json => output::json(&ready)?,
        Format::Text => output::line(&ready.panel(&data))?,
    }

    shutdown.drain().cancelled().await;
    if args.output == Format::Text {
        output::message("stopping; once more stops at once");
    }
    let agent_leaves = async {
        if let Some(demo) = &demo {
            tokio::select! {
                _drained = demo.agent.close(DRAIN) => {}
                () = shutdown.hard().cancelled() => drop(demo.agent.close(Duration::ZERO).await),
            }
        }
    };
    tokio::join!(agent_leaves, running.stopped());
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
    async fn start(
        engine: &HostPort,
        token: &str,
        certificates: &Certificates,
    ) -> Result<Self, Failure> {
        let service = demo::start()
            .await
            .map_err(|error| Failure::of("the demo service cannot start", error))?;
        let mut config = Config::new(engine.clone(), Token::new(token));
        config.trust = Trust::CaFile(certificates.ca.clone());
        "svc".clone_into(&mut config.details.agent);
        env!("CARGO_PKG_VERSION").clone_into(&mut config.details.version);
        let agent = Agent::start(config)?;
        let properties = Properties {
            hostname: Some(format!("{DEMO}.t.{HOST}")),
            ..Properties::http().named(DEMO)
        };
        let mut tunnel = agent.open(properties);
        let online = tunnel.online().await?;
        let target: Target = service
            .to_string()
            .parse()
            .map_err(|error| Failure::of("the demo service has no address", error))?;
        let forwarding = tokio::spawn(async move { tunnel.forward(target, None).await });
        Ok(Self {
            agent,
            url: online.forwarding.clone(),
            _forwarding: forwarding,
        })
    }
}

/// Writes the engine's configuration beside its keys and reads it back as `svc engine` would: what
/// runs here can be looked at, and taken as a start.
fn configuration(
    args: &Args,
    data: &Path,
    certificates: &Certificates,
    secret: &str,
) -> Result<EngineConfig, Failure> {
    let metrics = match (args.metrics_port, args.port) {
        (Some(port), _) => port,
        (None, 0) => 0,
        (None, port) => port.checked_add(1).ok_or_else(|| {
            Failure::usage("there is no port after --port").hint("give --metrics-port")
        })?,
    };
    for port in [Some(args.port), Some(metrics), args.http_port]
        .into_iter()
        .flatten()
    {
        must_be_free(port)?;
    }
    let listen =
        |port: u16| serde_json::json!(SocketAddr::from((Ipv4Addr::LOCALHOST, port)).to_string());
    let mut file = serde_json::json!({
        "engine": { "host": HOST, "log_level": "warn" },
        "tls": { "enabled": true, "listen_addr": listen(args.port) },
        "certs": { "static": {
            "enabled": true,
            "cert_file": certificates.cert,
            "key_file": certificates.key,
        } },
        "auth": { "jwt": { "enabled": true, "token_jwt_secret": secret } },
        "metrics": { "prometheus": { "enabled": true, "listen_addr": listen(metrics) } },
        "tcp": { "port_range": args.tcp_ports },
        "compat": { "rstream": true },
    });
    if let (Some(port), Some(sections)) = (args.http_port, file.as_object_mut()) {
        let http = serde_json::json!({ "enabled": true, "listen_addr": listen(port) });
        sections.insert("http".to_owned(), http);
    }
    let path = data.join("engine.yaml");
    // JSON is YAML too.
    write_private(&path, format!("{file:#}\n").as_bytes())
        .map_err(|error| Failure::of(&format!("cannot write {}", path.display()), error))?;
    EngineConfig::load(Some(&path), std::iter::empty())
        .map_err(|error| Failure::usage(error.to_string()))
}

/// Says which port is in use, before anything is started.
fn must_be_free(port: u16) -> Result<(), Failure> {
    match TcpListener::bind((Ipv4Addr::LOCALHOST, port)) {
        Ok(_free) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => Err(Failure::usage(format!(
            "port {port} is in use on this machine"
        ))
        .hint("`--port 0` takes free ports")),
        Err(error) => Err(Failure::of(&format!("port {port} cannot be used"), error)),
    }
}

/// The secret that signs this engine's tokens: made once, so that tokens outlive a restart.
fn jwt_secret(data: &Path) -> Result<String, Failure> {
    let path = data.join("jwt.secret");
    match fs::read_to_string(&path) {
        Ok(secret) if secret.trim().len() >= 2 * SECRET_BYTES => Ok(secret.trim().to_owned()),
        Ok(_short) => Err(Failure::usage(format!("{} is no secret", path.display()))
            .hint("remove the file; a new one is made, and older tokens end")),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let mut bytes = [0; SECRET_BYTES];
            rustls::crypto::aws_lc_rs::default_provider()
                .secure_random
                .fill(&mut bytes)
                .map_err(|_none| Failure::usage("the system gives no randomness"))?;
            let secret = hexadecimal(&bytes);
            write_private(&path, secret.as_bytes())
                .map_err(|error| Failure::of(&format!("cannot write {}", path.display()), error))?;
            Ok(secret)
        }
        Err(error) => Err(Failure::of(
            &format!("cannot read {}", path.display()),
            error,
        )),
    }
}

fn hexadecimal(bytes: &[u8]) -> String {
    let digit = |nibble: u8| char::from_digit(nibble.into(), 16).unwrap_or('0');
    bytes
        .iter()
        .flat_map(|byte| [digit(byte >> 4), digit(byte & 0xF)])
        .collect()
}

/// A PAT of the one who runs this: every permission, 90 days.
fn administrator_token(secret: &str) -> Result<String, Failure> {
    let key = SigningKey::from_secret(&Secret::new(secret.as_bytes()))
        .map_err(|error| Failure::of("the secret cannot sign", error))?;
    let request = MintRequest {
        kind: TokenKind::Pat,
        identity: Identity::User(ADMINISTRATOR.to_owned()),
        ttl_seconds: Some(TOKEN_SECONDS),
        permissions: None,
        resources: None,
    };
    let token = credentials::mint(&key, &request, Timestamp::now().as_second())
        .map_err(|error| Failure::of("the token cannot be made", error))?;
    String::from_utf8(token.expose().to_vec())
        .map_err(|error| Failure::of("the token cannot be written", error))
}

/// Lets a second terminal do without flags while this one runs.
fn context_for_others(
    args: &Args,
    engine: &HostPort,
    token: &str,
    ca_file: &Path,
) -> Result<Option<Written>, Failure> {
    let Some(directory) = config_directory(args.config.as_ref()) else {
        return Ok(None);
    };
    let context = Context {
        engine: engine.to_string(),
        token: token.to_owned(),
        ca_file: Some(ca_file.to_owned()),
    };
    context.write(&directory, context::LOCAL).map(Some)
}

fn absolute(path: &Path) -> Result<PathBuf, Failure> {
    std::path::absolute(path)
        .map_err(|error| Failure::of(&format!("{} is no directory", path.display()), error))
}

/// The base host: browsers and curl resolve names under `localhost` to this machine.
const HOST: &str = "engine.localhost";

/// The demo's name and the first label of its address.
const DEMO: &str = "demo";

const ADMINISTRATOR: &str = "admin";

/// How long streams may take to finish after the first signal. Who waits here is the person at
/// the terminal, so it is shorter than a server's.
const DRAIN: Duration = Duration::from_secs(10);

/// 256 bits, as the hash that they key.
const SECRET_BYTES: usize = 32;

const TOKEN_SECONDS: u32 = 90 * 24 * 60 * 60;
