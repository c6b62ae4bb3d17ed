//! Validation of the file's values.

use std::ops::RangeInclusive;
use std::time::Duration;

use daemon::config::ConfigError;
use daemon::config::values::{address, optional_path, path, required};
use daemon::tls::CertFiles;
use http::Uri;
use jiff::SignedDuration;

use super::file::{EngineSection, PlatformFile, TlsSection, TurnSection};
use super::values::{MAX_HOST_BYTES, host_name, is_loopback, network};
use super::{ClusterConfig, Config, PasswordCost, TurnConfig};

type CheckResult<T> = Result<T, ConfigError>;

pub(super) fn platform(file: PlatformFile) -> CheckResult<Config> {
    let section = file.platform;
    let listen = address(
        "platform.listen_addr",
        &section.listen_addr,
        "127.0.0.1:8080",
    )?;
    let base_url = check_base_url(section.base_url)?;
    if base_url.starts_with("http://") && !listen.ip().is_loopback() {
        return Err(ConfigError::new(
            "platform.listen_addr",
            "without TLS the platform is only served on loopback; base_url must be https",
        ));
    }
    let tls = check_tls(file.tls)?;
    if tls.is_some() && base_url.starts_with("http://") {
        return Err(ConfigError::new(
            "tls.cert_file",
            "the listener uses TLS, so platform.base_url must be https",
        ));
    }
    let signing_keys = section
        .signing_keys
        .into_iter()
        .enumerate()
        .map(|(index, value)| path(&format!("platform.signing_keys.{index}"), value))
        .collect::<CheckResult<_>>()?;
    let trusted_proxies = section
        .trusted_proxies
        .iter()
        .enumerate()
        .map(|(index, value)| network(&format!("platform.trusted_proxies.{index}"), value))
        .collect::<CheckResult<_>>()?;
    let engines = file
        .engines
        .into_iter()
        .enumerate()
        .map(|(index, section)| engine(index, section))
        .collect::<CheckResult<Vec<_>>>()?;
    let data_dir = path("platform.data_dir", section.data_dir)?;
    let mail = file.mail.check(data_dir.join("mail"))?;
    let openid = file.openid.check()?;
    let first_engine = engines.first().map(|engine| engine.cluster_domain.as_str());
    let catalogue = file.catalog.check(first_engine)?;
    let geoip_file = file.geoip.file;
    let secret_file = section.secret_file;
    Ok(Config {
        base_url,
        listen,
        tls,
        metrics: file.metrics.check()?,
        retention: file.retention.check()?,
        limits: file.limits.check()?,
        log_level: section.log_level,
        data_dir,
        mail,
        openid,
        database_url: section.database_url,
        database_connections: connections(section.database_connections)?,
        secret_file: optional_path("platform.secret_file", secret_file)?,
        signing_keys,
        rotate_keys_every: rotation(file.keys.rotate_days)?,
        trusted_proxies,
        drain_period: drain(section.drain_seconds)?,
        engines,
        catalogue,
        geoip_file: optional_path("geoip.file", geoip_file)?,
        turn: turn(file.turn)?,
        oauth: file.oauth.check(file.compat.rstream)?,
        webhooks: file.webhooks.check()?,
        compat_rstream: file.compat.rstream,
        password_cost: PasswordCost::Production,
    })
}

/// Parses an origin. Values that are derived from it (issuer, cookies, callbacks) are compared byte
/// for byte.
fn check_base_url(value: Option<String>) -> CheckResult<String> {
    let key = "platform.base_url";
    let value = required(key, value)?;
    let value = value.strip_suffix('/').unwrap_or(&value).to_owned();
    let refused = |message: &str| Err(ConfigError::new(key, message));
    let Ok(uri) = value.parse::<Uri>() else {
        return refused("this is not an address such as https://svc.example.com");
    };
    let host = uri.host().unwrap_or_default();
    match uri.scheme_str() {
        Some("https") => {}
        Some("http") if is_loopback(host) => {}
        Some("http") => return refused("users sign in here: it must be https, or on loopback"),
        _ => return refused("this is not an address such as https://svc.example.com"),
    }
    let has_path = value.matches('/').count() != 2 || uri.query().is_some();
    if host.is_empty() || has_path || value.contains(['@', '#', '?']) {
        return refused("expected an origin: scheme, host, and a port if it is not the default");
    }
    if value.bytes().any(|byte| byte.is_ascii_uppercase()) {
        return refused("it must be lower case: it is compared byte for byte");
    }
    let default_port = match uri.scheme_str() {
        Some("http") => 80,
        _ => 443,
    };
    if uri.port_u16() == Some(default_port) {
        return refused("leave out the default port of the scheme, as browsers do");
    }
    Ok(value)
}

/// Both files, or none.
fn check_tls(section: TlsSection) -> CheckResult<Option<CertFiles>> {
    match (section.cert_file, section.key_file) {
        (None, None) => Ok(None),
        (Some(cert), Some(key)) => Ok(Some(CertFiles {
            cert: path("tls.cert_file", cert)?,
            key: path("tls.key_file", key)?,
        })),
        (Some(_), None) => Err(ConfigError::new("tls.key_file", TOGETHER)),
        (None, Some(_)) => Err(ConfigError::new("tls.cert_file", TOGETHER)),
    }
}

const TOGETHER: &str = "tls.cert_file and tls.key_file must be set together";

fn engine(index: usize, section: EngineSection) -> CheckResult<ClusterConfig> {
    let key = format!("engines.{index}.cluster_domain");
    let value = required(&key, section.cluster_domain)?;
    let file =
        |key: &str, value: Option<String>| optional_path(&format!("engines.{index}.{key}"), value);
    Ok(ClusterConfig {
        cluster_domain: cluster_domain(&key, &value)?,
        enrolment_secret_file: file("enrolment_secret_file", section.enrolment_secret_file)?,
        relay_secret_file: file("relay_secret_file", section.relay_secret_file)?,
        ca_file: file("ca_file", section.ca_file)?,
        tcp_ports: section
            .tcp_ports
            .map(|value| ports(&format!("engines.{index}.tcp_ports"), &value))
            .transpose()?,
    })
}

/// `low-high`, both included.
fn ports(key: &str, value: &str) -> CheckResult<RangeInclusive<u16>> {
    let range = value.split_once('-').and_then(|(low, high)| {
        let (low, high) = (low.trim().parse().ok()?, high.trim().parse().ok()?);
        (0 < low && low <= high).then_some(low..=high)
    });
    range.ok_or_else(|| {
        let message = format!("{value:?} is not a range of ports such as 20000-20999");
        ConfigError::new(key, message)
    })
}

fn turn(section: TurnSection) -> CheckResult<TurnConfig> {
    let name = |key: &str, value: Option<String>| {
        value.map(|value| cluster_domain(key, &value)).transpose()
    };
    for (key, port) in [
        ("turn.port", section.port),
        ("turn.tls_port", section.tls_port),
    ] {
        if port == 0 {
            return Err(ConfigError::new(
                key,
                "the relay has a host, so it needs a port",
            ));
        }
    }
    Ok(TurnConfig {
        realm: name("turn.realm", section.realm)?,
        domain: name("turn.domain", section.domain)?,
        port: section.port,
        tls_port: section.tls_port,
        secret_file: optional_path("turn.secret_file", section.secret_file)?,
    })
}

/// Minimum connections of a process: one to write or to read, one that receives changes, one that
/// holds the lock of the purge, and one for long reads.
const MIN_CONNECTIONS: u32 = 4;
/// More than a server handles well.
const MAX_CONNECTIONS: u32 = 1000;

fn connections(given: Option<u32>) -> CheckResult<Option<u32>> {
    if given.is_some_and(|given| !(MIN_CONNECTIONS..=MAX_CONNECTIONS).contains(&given)) {
        let message = format!("expected {MIN_CONNECTIONS} to {MAX_CONNECTIONS} connections");
        return Err(ConfigError::new("platform.database_connections", message));
    }
    Ok(given)
}

/// Longer than any balancer takes to notice.
const MAX_DRAIN_SECONDS: u16 = 300;

fn drain(seconds: u16) -> CheckResult<Duration> {
    if seconds > MAX_DRAIN_SECONDS {
        let message = format!("expected 0 to {MAX_DRAIN_SECONDS} seconds");
        return Err(ConfigError::new("platform.drain_seconds", message));
    }
    Ok(Duration::from_secs(seconds.into()))
}

/// Ten years. A longer period is a mistake.
const MAX_ROTATE_DAYS: u16 = 3650;

fn rotation(days: u16) -> CheckResult<Option<SignedDuration>> {
    if days > MAX_ROTATE_DAYS {
        let message = format!("this is not a number of days from 0 to {MAX_ROTATE_DAYS}");
        return Err(ConfigError::new("keys.rotate_days", message));
    }
    Ok((days > 0).then(|| SignedDuration::from_hours(i64::from(days) * 24)))
}

/// With room for the endpoint before it.
const MAX_CLUSTER_BYTES: usize = MAX_HOST_BYTES - 63;

fn cluster_domain(key: &str, value: &str) -> CheckResult<String> {
    let name = host_name(key, value)?;
    if name.len() > MAX_CLUSTER_BYTES {
        let message =
            format!("{value:?} is too long: the names of projects do not fit in front of it");
        return Err(ConfigError::new(key, message));
    }
    Ok(name)
}
