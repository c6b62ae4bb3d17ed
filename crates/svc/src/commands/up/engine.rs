//! The engine of `svc up`: its ports, its configuration, and the keys that it believes.

use std::{
    fs, io,
    net::{Ipv4Addr, SocketAddr, TcpListener},
    path::Path,
    time::Duration,
};

use client::{Config, HostPort, Token, Trust, api::Api, api::ApiError};
use credentials::{Identity, MintRequest, Secret, SigningKey, TokenKind};
use engine::config::EngineConfig;
use jiff::Timestamp;
use serde_json::json;

use super::{Args, HOST, certificates::Certificates};
use crate::{
    context::write_private,
    failure::{Code, Failure},
    random,
};

/// Whose tokens the engine believes.
#[derive(Debug)]
pub(super) enum Keys {
    /// Those signed with this secret (HS256): an engine alone.
    Secret(String),
    /// Those signed with the keys at this address: the platform's.
    Address(String),
}

/// The ports of everything; 0 is a free one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ports {
    pub(super) engine: u16,
    pub(super) metrics: u16,
    pub(super) platform: u16,
}

impl Ports {
    /// As given; what is not, follows the engine's. Says which one is in use, before anything is
    /// started.
    pub(super) fn of(args: &Args) -> Result<Self, Failure> {
        let after = |steps: u16, flag: &str| match args.port {
            0 => Ok(0),
            port => port.checked_add(steps).ok_or_else(|| {
                Failure::usage("there is no port after --port").hint(format!("give {flag}"))
            }),
        };
        let ports = Self {
            engine: args.port,
            metrics: args
                .metrics_port
                .map_or_else(|| after(1, "--metrics-port"), Ok)?,
            platform: match args.platform_port {
                Some(port) => port,
                None if args.community => 0,
                None => after(2, "--platform-port")?,
            },
        };
        let all = [
            Some(ports.engine),
            Some(ports.metrics),
            Some(ports.platform),
            args.http_port,
        ];
        all.into_iter().flatten().try_for_each(must_be_free)?;
        Ok(ports)
    }
}

/// Writes the engine's configuration beside its keys and reads it back as `svc engine` would: what
/// runs here can be looked at, and taken as a start.
pub(super) fn configuration(
    args: &Args,
    ports: Ports,
    data: &Path,
    certificates: &Certificates,
    keys: &Keys,
) -> Result<EngineConfig, Failure> {
    let listen = |port: u16| json!(SocketAddr::from((Ipv4Addr::LOCALHOST, port)).to_string());
    let jwt = match keys {
        Keys::Secret(secret) => json!({ "enabled": true, "token_jwt_secret": secret }),
        Keys::Address(url) => json!({ "enabled": true, "jwks_url": url }),
    };
    let mut file = json!({
        "engine": { "host": HOST, "log_level": "warn" },
        "tls": { "enabled": true, "listen_addr": listen(ports.engine) },
        "certs": { "static": {
            "enabled": true,
            "cert_file": certificates.cert,
            "key_file": certificates.key,
        } },
        "auth": { "jwt": jwt },
        "metrics": { "prometheus": { "enabled": true, "listen_addr": listen(ports.metrics) } },
        "tcp": { "port_range": args.tcp_ports },
        "compat": { "rstream": true },
    });
    if let (Some(port), Some(sections)) = (args.http_port, file.as_object_mut()) {
        let http = json!({ "enabled": true, "listen_addr": listen(port) });
        sections.insert("http".to_owned(), http);
    }
    let path = data.join("engine.yaml");
    // JSON is YAML too.
    write_private(&path, format!("{file:#}\n").as_bytes())
        .map_err(|error| Failure::of(&format!("cannot write {}", path.display()), error))?;
    EngineConfig::load(Some(&path), std::iter::empty())
        .map_err(|error| Failure::usage(error.to_string()))
}

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

/// The secret that signs the tokens of an engine alone: made once, so that tokens outlive a
/// restart.
pub(super) fn jwt_secret(data: &Path) -> Result<String, Failure> {
    let path = data.join("jwt.secret");
    match fs::read_to_string(&path) {
        Ok(secret) if secret.trim().len() >= 2 * SECRET_BYTES => Ok(secret.trim().to_owned()),
        Ok(_short) => Err(Failure::usage(format!("{} is no secret", path.display()))
            .hint("remove the file; a new one is made, and older tokens end")),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let secret = random::hex::<SECRET_BYTES>()?;
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

/// A PAT of the one who runs an engine alone: every permission, 90 days.
pub(super) fn administrator_token(secret: &str) -> Result<String, Failure> {
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

/// How the engine of this process is reached.
pub(super) fn access(engine: &HostPort, token: &str, certificates: &Certificates) -> Config {
    let mut config = Config::new(engine.clone(), Token::new(token));
    config.trust = Trust::CaFile(certificates.ca.clone());
    "svc".clone_into(&mut config.details.agent);
    env!("CARGO_PKG_VERSION").clone_into(&mut config.details.version);
    config
}

/// Waits until the engine believes the token: it reads the platform's keys over the network, as
/// any engine does, and who reads our "ready" may use the token at once.
pub(super) async fn believes(config: &Config) -> Result<(), Failure> {
    let api = Api::new(config)?;
    let asking = async {
        loop {
            match api.tunnels(&client::api::Filters::new(), Some(1)).await {
                Err(ApiError::Refused(problem)) if problem.status == 401 => {
                    tokio::time::sleep(ASK_AGAIN).await;
                }
                other => return other.map(drop),
            }
        }
    };
    match tokio::time::timeout(KEYS_ARRIVE, asking).await {
        Ok(result) => Ok(result?),
        Err(_elapsed) => Err(Failure::new(
            Code::Failed,
            "the engine did not get the keys of the platform",
        )),
    }
}

const ADMINISTRATOR: &str = "admin";

/// 256 bits, as the hash that they key.
const SECRET_BYTES: usize = 32;

const TOKEN_SECONDS: u32 = 90 * 24 * 60 * 60;

/// The keys are there within a moment of the platform's first answer.
const ASK_AGAIN: Duration = Duration::from_millis(20);

/// An engine whose first fetch failed tries again after a minute.
const KEYS_ARRIVE: Duration = Duration::from_secs(90);
