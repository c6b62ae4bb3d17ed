//! The engine of `svc up`: its ports, its configuration, and its source of trust.

use std::{
    fs, io,
    net::{Ipv4Addr, SocketAddr, TcpListener},
    path::{Path, PathBuf},
    time::Duration,
};

use client::{Config, HostPort, Token, Trust, api::Api, api::ApiError, api::ListQuery};
use credentials::{Identity, MintRequest, Secret, SigningKey, TokenKind};
use engine::config::EngineConfig;
use jiff::Timestamp;
use serde_json::{Value, json};
use terminal::private;

use super::{Args, HOST, certificates::Certificates};
use crate::failure::{Code, Failure};
use crate::process::random;

/// The source of trust of the engine.
pub(super) enum TrustSource {
    /// Tokens that are signed with this secret (HS256), for an engine without a platform.
    Secret(String),
    /// A platform, to which the engine authenticates with the secret in a file.
    Platform {
        /// URL of the platform.
        url: String,
        /// File with the enrolment secret.
        enrolment: PathBuf,
    },
}

impl TrustSource {
    /// The platform at `url`. The enrolment secret is created at the first start.
    pub(super) fn platform(url: String, data: &Path) -> Result<Self, Failure> {
        let enrolment = data.join("enrolment.secret");
        read_or_create_secret(&enrolment)?;
        Ok(Self::Platform { url, enrolment })
    }

    /// File with the enrolment secret, if there is a platform.
    pub(super) fn enrolment(&self) -> Option<&Path> {
        match self {
            Self::Secret(_) => None,
            Self::Platform { enrolment, .. } => Some(enrolment),
        }
    }
}

/// All ports. 0 selects a free one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ports {
    pub(super) engine: u16,
    pub(super) metrics: u16,
    pub(super) platform: u16,
    pub(super) turn: u16,
    pub(super) turn_tls: u16,
}

impl Ports {
    /// The given ports, or else those that follow the engine's. Reports a port in use before
    /// anything is started.
    pub(super) fn of(args: &Args) -> Result<Self, Failure> {
        let engine = args.port.unwrap_or(LOCAL_PORT);
        let after = |steps: u16, flag: &str| match engine {
            0 => Ok(0),
            port => port.checked_add(steps).ok_or_else(|| {
                Failure::usage("no port number is left after --port").hint(format!("give {flag}"))
            }),
        };
        let ports = Self {
            engine,
            metrics: args
                .metrics_port
                .map_or_else(|| after(1, "--metrics-port"), Ok)?,
            platform: match args.platform_port {
                Some(port) => port,
                None if args.community => 0,
                None => after(2, "--platform-port")?,
            },
            turn: match args.turn_port {
                Some(port) => port,
                None if args.community => 0,
                None => after(3, "--turn-port")?,
            },
            turn_tls: match args.turn_tls_port {
                Some(port) => port,
                None if args.community => 0,
                None => after(4, "--turn-tls-port")?,
            },
        };
        let all = [
            Some(ports.engine),
            Some(ports.metrics),
            Some(ports.platform),
            Some(ports.turn),
            Some(ports.turn_tls),
            args.http_port,
        ];
        all.into_iter().flatten().try_for_each(must_be_free)?;
        Ok(ports)
    }
}

/// Writes the engine's configuration beside its keys, and reads it back like `svc engine`. Users
/// can inspect the file, or start their own engine from it.
pub(super) fn configuration(
    args: &Args,
    ports: Ports,
    data: &Path,
    certificates: &Certificates,
    authority: &TrustSource,
) -> Result<EngineConfig, Failure> {
    let listen = |port: u16| json!(SocketAddr::from((Ipv4Addr::LOCALHOST, port)).to_string());
    let mut file = json!({
        "engine": { "host": HOST, "log_level": "warn" },
        "tls": { "enabled": true, "listen_addr": listen(ports.engine) },
        "certs": { "static": {
            "enabled": true,
            "cert_file": certificates.cert,
            "key_file": certificates.key,
        } },
        "metrics": { "prometheus": { "enabled": true, "listen_addr": listen(ports.metrics) } },
        "tcp": { "port_range": args.tcp_ports },
        // At a local engine a name without an agent is a typing error, not a restart.
        "timeouts": { "startup_grace_seconds": 0 },
        "compat": { "rstream": true },
    });
    let (name, section) = match authority {
        TrustSource::Secret(secret) => {
            let jwt = json!({ "enabled": true, "token_jwt_secret": secret });
            ("auth", json!({ "jwt": jwt }))
        }
        TrustSource::Platform { url, enrolment } => {
            let data_dir = data.join("engine");
            let section = json!({ "url": url, "token_file": enrolment, "data_dir": data_dir });
            ("control_plane", section)
        }
    };
    let http = args.http_port;
    let http = http.map(|port| json!({ "enabled": true, "listen_addr": listen(port) }));
    if let Some(sections) = file.as_object_mut() {
        sections.insert(name.to_owned(), section);
        sections.extend(http.map(|http| ("http".to_owned(), http)));
    }
    write_and_load(&file, data)
}

/// Writes the configuration of the engine, and reads it back like `svc engine`.
pub(super) fn write_and_load(file: &Value, data: &Path) -> Result<EngineConfig, Failure> {
    let path = data.join("engine.yaml");
    // JSON is also valid YAML.
    private::write(&path, format!("{file:#}\n").as_bytes())
        .map_err(|error| Failure::from_error(&format!("cannot write {}", path.display()), error))?;
    EngineConfig::load(Some(&path), std::iter::empty())
        .map_err(|error| Failure::usage(error.to_string()))
}

fn must_be_free(port: u16) -> Result<(), Failure> {
    match TcpListener::bind((Ipv4Addr::LOCALHOST, port)) {
        Ok(_free) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => Err(Failure::usage(format!(
            "port {port} is in use on this machine"
        ))
        .hint("`--port 0` selects free ports")),
        Err(error) => Err(Failure::from_error(
            &format!("cannot use port {port}"),
            error,
        )),
    }
}

/// The secret that signs tokens for an engine without a platform. It is created once, so that
/// tokens survive a restart.
pub(super) fn jwt_secret(data: &Path) -> Result<String, Failure> {
    read_or_create_secret(&data.join("jwt.secret"))
}

/// Reads the secret in a file, and creates the file if it is missing.
pub(super) fn read_or_create_secret(path: &Path) -> Result<String, Failure> {
    match fs::read_to_string(path) {
        Ok(secret) if secret.trim().len() >= 2 * SECRET_BYTES => Ok(secret.trim().to_owned()),
        Ok(_short) => Err(
            Failure::usage(format!("{} is not a secret", path.display())).hint(
                "remove the file; a new one is then created, and tokens signed with the old one \
                   become invalid",
            ),
        ),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let secret = random::hex::<SECRET_BYTES>()?;
            private::write(path, secret.as_bytes()).map_err(|error| {
                Failure::from_error(&format!("cannot write {}", path.display()), error)
            })?;
            Ok(secret)
        }
        Err(error) => Err(Failure::from_error(
            &format!("cannot read {}", path.display()),
            error,
        )),
    }
}

/// A personal access token for an engine without a platform, with every permission for 90 days.
pub(super) fn administrator_token(secret: &str) -> Result<String, Failure> {
    let key = SigningKey::from_secret(&Secret::new(secret.as_bytes()))
        .map_err(|error| Failure::from_error("the secret cannot sign", error))?;
    let request = MintRequest {
        kind: TokenKind::Pat,
        identity: Identity::User(ADMINISTRATOR.to_owned()),
        ttl_seconds: Some(TOKEN_SECONDS),
        permissions: None,
        resources: None,
    };
    let token = credentials::mint(&key, &request, Timestamp::now().as_second())
        .map_err(|error| Failure::from_error("cannot create the token", error))?;
    String::from_utf8(token.expose().to_vec())
        .map_err(|error| Failure::from_error("the token cannot be written", error))
}

/// Connection settings for the engine of this process.
pub(super) fn engine_config(engine: &HostPort, token: &str, ca_file: Option<&Path>) -> Config {
    let mut config = Config::new(engine.clone(), Token::new(token));
    if let Some(ca_file) = ca_file {
        config.trust = Trust::CaFile(ca_file.to_owned());
    }
    "svc".clone_into(&mut config.details.agent);
    env!("CARGO_PKG_VERSION").clone_into(&mut config.details.version);
    config
}

/// Waits until the engine accepts the token. The engine receives project and token over its link,
/// like any managed engine. After the "ready" message both must be usable.
pub(super) async fn wait_until_trusted(config: &Config) -> Result<(), Failure> {
    let api = Api::new(config)?;
    let asking = async {
        loop {
            match api.tunnels(&ListQuery::new().with_limit(1)).await {
                // The engine has not received the token, its owner or the project yet.
                Err(ApiError::Refused(problem))
                    if matches!(problem.status, 401 | 403 | 421 | 503) =>
                {
                    tokio::time::sleep(POLL_INTERVAL).await;
                }
                other => return other.map(drop),
            }
        }
    };
    match tokio::time::timeout(TRUST_TIMEOUT, asking).await {
        Ok(result) => Ok(result?),
        Err(_elapsed) => Err(Failure::new(
            Code::Failed,
            "the engine received no message from the platform",
        )),
    }
}

/// Port of the local engine, if none is given.
const LOCAL_PORT: u16 = 8443;

const ADMINISTRATOR: &str = "admin";

/// Length of a secret: 256 bits, the output size of the hash (HS256).
const SECRET_BYTES: usize = 32;

const TOKEN_SECONDS: u32 = 90 * 24 * 60 * 60;

/// Interval between the attempts. The records arrive soon after the platform's first response.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Time limit until the engine accepts the token: longer than on any usable machine.
const TRUST_TIMEOUT: Duration = Duration::from_secs(90);
