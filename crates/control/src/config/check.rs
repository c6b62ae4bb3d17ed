//! Validation of the file's values.

use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use daemon::config::values::{
    MAX_DNS_NAME_BYTES, abuse_contact, address, optional_path, overlap, path, required,
};
use daemon::config::{ConfigError, ConfigErrors};
use http::Uri;
use jiff::SignedDuration;

use super::file::{EngineSection, PlatformFile, TurnSection};
use super::tls::{CheckedTls, OtherValues};
use super::values::{host_name, is_loopback, network};
use super::{ClusterConfig, Config, PasswordCost, TurnConfig};

type CheckResult<T> = Result<T, ConfigError>;

pub(super) fn platform(file: PlatformFile) -> Result<Config, ConfigErrors> {
    let mut errors = ConfigErrors::default();
    let config = check_sections(file, &mut errors);
    errors.finish(config)
}

/// Checks each section, and adds all errors. `None` if a required part is wrong.
fn check_sections(file: PlatformFile, errors: &mut ConfigErrors) -> Option<Config> {
    let section = file.platform;
    let key = "platform.listen_addr";
    let listen = errors.keep(address(key, &section.listen_addr, "127.0.0.1:8080"));
    let base_url = errors.keep(check_base_url(section.base_url));
    let is_plain = |url: &String| url.starts_with("http://");
    if base_url.as_ref().is_some_and(is_plain)
        && listen.is_some_and(|listen| !listen.ip().is_loopback())
    {
        let message = "without TLS the platform is only served on loopback; base_url must be https";
        errors.push(ConfigError::new(key, message));
    }
    let data_dir = errors.keep(path("platform.data_dir", section.data_dir));
    let tls = file.tls.check(&OtherValues {
        base_url: base_url.as_deref(),
        listen,
        data_dir: data_dir.as_deref(),
        has_trusted_proxies: !section.trusted_proxies.is_empty(),
    });
    let CheckedTls { tls, has_proxy } = errors.keep_or_default(tls);
    let local_listen = local_listener(section.local_listen_addr.as_deref(), listen);
    let signing_keys = signing_keys(section.signing_keys, errors);
    let trusted_proxies = section.trusted_proxies.iter().enumerate();
    let trusted_proxies = trusted_proxies
        .filter_map(|(index, value)| {
            errors.keep(network(&format!("platform.trusted_proxies.{index}"), value))
        })
        .collect();
    // An engine with an error counts, so that regions do not report a missing engine as well.
    let named = file.engines.first();
    let named = named.and_then(|engine| engine.cluster_domain.clone());
    let clusters = cluster_domains(&file.engines);
    let engines = file.engines.into_iter().enumerate();
    let engines: Vec<_> = engines
        .filter_map(|(index, section)| errors.keep(engine(index, section)))
        .collect();
    let mail_dir = data_dir.as_deref().map(|dir| dir.join("mail"));
    let mail = errors.keep(file.mail.check(mail_dir.unwrap_or_default()));
    let first_engine = engines.first().map(|engine| engine.cluster_domain.as_str());
    let first_engine = first_engine.or(named.as_deref());
    let openid = errors.keep_or_default(file.openid.check());
    let catalogue = errors.keep(file.catalog.check(first_engine));
    let metrics = errors.keep(file.metrics.check());
    let retention = errors.keep(file.retention.check());
    let limits = errors.keep(file.limits.check());
    let turn = errors.keep(turn(file.turn));
    let oauth = errors.keep(file.oauth.check(file.compat.rstream));
    let webhooks = errors.keep(file.webhooks.check());
    let secret_file = optional_path("platform.secret_file", section.secret_file);
    let contact = abuse_contact("platform.abuse_contact", section.abuse_contact);
    let config = Config {
        log_level: section.log_level,
        database_url: section.database_url,
        database_connections: errors.keep_or_default(connections(section.database_connections)),
        secret_file: errors.keep_or_default(secret_file),
        rotate_keys_every: errors.keep_or_default(rotation(file.keys.rotate_days)),
        drain_period: errors.keep_or_default(drain(section.drain_seconds)),
        abuse_contact: errors.keep_or_default(contact),
        geoip_file: errors.keep_or_default(optional_path("geoip.file", file.geoip.file)),
        base_url: base_url?,
        listen: listen?,
        local_listen: errors.keep_or_default(local_listen),
        proxy_protocol: has_proxy,
        tls,
        metrics: metrics?,
        retention: retention?,
        limits: limits?,
        data_dir: data_dir?,
        mail: mail?,
        openid,
        signing_keys,
        trusted_proxies,
        engines,
        catalogue: catalogue?,
        turn: turn?,
        oauth: oauth?,
        webhooks: webhooks?,
        domains: errors.keep_or_default(file.domains.check(&clusters)),
        compat_rstream: file.compat.rstream,
        password_cost: PasswordCost::Production,
    };
    Some(config)
}

fn signing_keys(values: Vec<String>, errors: &mut ConfigErrors) -> Vec<PathBuf> {
    let key = |index: usize| format!("platform.signing_keys.{index}");
    let files = values.into_iter().enumerate();
    files
        .filter_map(|(index, value)| errors.keep(path(&key(index), value)))
        .collect()
}

/// The second listener. It is not encrypted, so it must stay on this machine.
fn local_listener(
    value: Option<&str>,
    listen: Option<SocketAddr>,
) -> CheckResult<Option<SocketAddr>> {
    let key = "platform.local_listen_addr";
    let Some(value) = value else {
        return Ok(None);
    };
    let local = address(key, value, "127.0.0.1:8081")?;
    if !local.ip().is_loopback() {
        let message = "this listener has no TLS: it must be on loopback, such as 127.0.0.1:8081";
        return Err(ConfigError::new(key, message));
    }
    if local.port() != 0 && listen.is_some_and(|listen| overlap(local, listen)) {
        let port = local.port();
        let message = format!("port {port} is already used by platform.listen_addr");
        return Err(ConfigError::new(key, message));
    }
    Ok(Some(local))
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
const MAX_CLUSTER_BYTES: usize = MAX_DNS_NAME_BYTES - 63;

/// Those of all engines, as they are written. An engine with an error counts.
fn cluster_domains(engines: &[EngineSection]) -> Vec<String> {
    let domains = engines.iter();
    domains
        .filter_map(|engine| engine.cluster_domain.clone())
        .collect()
}

fn cluster_domain(key: &str, value: &str) -> CheckResult<String> {
    let name = host_name(key, value)?;
    if name.len() > MAX_CLUSTER_BYTES {
        let message =
            format!("{value:?} is too long: the names of projects do not fit in front of it");
        return Err(ConfigError::new(key, message));
    }
    Ok(name)
}
