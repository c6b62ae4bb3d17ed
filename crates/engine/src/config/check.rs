//! Conversion of the file into the checked configuration: first each value, then their
//! combinations.

use std::net::IpAddr;
use std::num::NonZeroU32;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use daemon::config::values::{
    address, count_limit, networks, optional_path, overlap, path, required, usize_in_range, within,
};
use daemon::config::{ConfigError, SecretString, StateDir, values};
use daemon::tls::CertFiles;
use http::Uri;

use super::ApiRates;
use super::file::{
    AccessLogForm, AccessLogSection, ControlPlaneSection, EngineFile, JwtSection, LimitsSection,
    StaticCertSection, TimeoutsSection,
};
use super::{
    AccessLogConfig, AccessLogFormat, Auth, ControlPlane, EngineConfig, JwtAuth, Limits,
    QuotaPercent, Timeouts,
};

type CheckResult<T> = Result<T, ConfigError>;

/// Converts the file; the first mistake is the error. `state_dir` is the default directory for
/// state.
pub(super) fn engine(file: EngineFile, state_dir: Option<StateDir>) -> CheckResult<EngineConfig> {
    refuse_what_is_not_built(&file)?;
    let http = file
        .http
        .enabled
        .then(|| address("http.listen_addr", &file.http.listen_addr, ADDRESSES));
    let host = host(&required("engine.host", file.engine.host)?)?;
    let http = http.transpose()?;
    let tls = address("tls.listen_addr", &file.tls.listen_addr, ADDRESSES)?;
    let certificate = certificate(file.certs.files)?;
    let auth = match file.control_plane {
        None => Auth::Keys(jwt(file.auth.jwt)?),
        Some(section) => {
            no_keys(&file.auth.jwt)?;
            let state_dir = state_dir.map(|dir| dir.subdirectory("engine", &host));
            Auth::Platform(control_plane(section, state_dir)?)
        }
    };
    let data_dir = match &auth {
        Auth::Platform(platform) => Some(platform.data_dir.as_path()),
        Auth::Keys(_) => None,
    };
    let recordings = super::recordings::check(file.webtty.recordings, data_dir)?;
    let config = EngineConfig {
        host,
        log_level: file.engine.log_level,
        http,
        tls,
        certificate,
        auth,
        metrics: file.metrics.check()?,
        timeouts: timeouts(&file.timeouts)?,
        tcp_ports: port_range(file.tcp.port_range.as_deref())?,
        trusted_proxies: networks("edge.trusted_proxies", &file.edge.trusted_proxies)?,
        access_log: access_log(file.access_log)?,
        limits: limits(&file.limits)?,
        geoip_file: optional_path("geoip.file", file.geoip.file)?,
        compat_rstream: file.compat.rstream,
        recordings,
    };
    listeners_do_not_collide(&config)?;
    Ok(config)
}

/// Examples of addresses of listeners.
const ADDRESSES: &str = "127.0.0.1:443 or [::]:443";

fn port_range(value: Option<&str>) -> CheckResult<Option<RangeInclusive<u16>>> {
    let range = |value| values::port_range("tcp.port_range", value, "20000-20999");
    value.map(range).transpose()
}

fn refuse_what_is_not_built(file: &EngineFile) -> CheckResult<()> {
    let refused = |key, message: &str| Err(ConfigError::new(key, message));
    if file.quic.enabled {
        return refused(
            "quic.enabled",
            "QUIC is not supported yet; agents connect over TLS",
        );
    }
    if !file.tls.enabled {
        return refused(
            "tls.enabled",
            "the engine is only reachable over TLS; this must be true",
        );
    }
    if !file.certs.files.enabled {
        return refused(
            "certs.static.enabled",
            "the TLS listener needs a certificate, and there is no other source; this must be true",
        );
    }
    if !file.auth.jwt.enabled {
        return refused(
            "auth.jwt.enabled",
            "no authentication method is enabled: no agent could connect, and an open engine is \
             not supported; this must be true",
        );
    }
    Ok(())
}

/// A host must be short enough for the published names: a label of 63 bytes, `.t.` and the host, in
/// the 253 bytes of a DNS name (RFC 1035 section 2.3.4).
const MAX_HOST_BYTES: usize = 253 - 63 - ".t.".len();

fn host(value: &str) -> CheckResult<String> {
    let refused = |problem: &str| {
        Err(ConfigError::new(
            "engine.host",
            format!("{value:?} {problem}"),
        ))
    };
    if value.contains("://") || value.contains('/') {
        return refused("is an address; expected only a host name");
    }
    if value.parse::<IpAddr>().is_ok() || value.starts_with('[') {
        return refused(
            "is an IP address; expected a DNS name, because published names are below it",
        );
    }
    if value.contains(':') {
        return refused("has a port; set the port in tls.listen_addr");
    }
    if value.len() > MAX_HOST_BYTES {
        return refused("is too long for names below it");
    }
    let label = |label: &str| {
        let inner = label
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
        inner && (1..=63).contains(&label.len()) && !label.starts_with('-') && !label.ends_with('-')
    };
    // A name whose last label is a number would be read as an IPv4 address (RFC 1123 2.1).
    let numeric = value
        .rsplit('.')
        .next()
        .is_some_and(|last| !last.is_empty() && last.bytes().all(|byte| byte.is_ascii_digit()));
    if numeric || !value.split('.').all(label) {
        return refused("is not a DNS name of letters, digits and dashes");
    }
    Ok(value.to_ascii_lowercase())
}

fn certificate(section: StaticCertSection) -> CheckResult<CertFiles> {
    let file = |key, value| path(key, required(key, value)?);
    Ok(CertFiles {
        cert: file("certs.static.cert_file", section.cert_file)?,
        key: file("certs.static.key_file", section.key_file)?,
    })
}

/// A key of HS256 must not be shorter than its hash (RFC 7518 section 3.2).
const MIN_SECRET_BYTES: usize = 32;
/// The new secret and the old one.
const MAX_SECRETS: usize = 2;

fn jwt(section: JwtSection) -> CheckResult<JwtAuth> {
    let single = section
        .token_jwt_secret
        .map(|secret| ("auth.jwt.token_jwt_secret".to_owned(), secret));
    let listed = section
        .token_jwt_secrets
        .into_iter()
        .enumerate()
        .map(|(index, secret)| (format!("auth.jwt.token_jwt_secrets.{index}"), secret));
    let mut secrets: Vec<SecretString> = Vec::new();
    for (key, secret) in single.into_iter().chain(listed) {
        if secret.expose().len() < MIN_SECRET_BYTES {
            let message =
                format!("a secret for HS256 tokens must have at least {MIN_SECRET_BYTES} bytes");
            return Err(ConfigError::new(key, message));
        }
        if secrets.contains(&secret) {
            continue;
        }
        if secrets.len() == MAX_SECRETS {
            let message = format!("at most {MAX_SECRETS} secrets can be active");
            return Err(ConfigError::new(key, message));
        }
        secrets.push(secret);
    }
    let public_keys = section
        .public_keys
        .into_iter()
        .enumerate()
        .map(|(index, file)| path(&format!("auth.jwt.public_keys.{index}"), file))
        .collect::<CheckResult<Vec<_>>>()?;
    let jwks_url = section.jwks_url.as_deref().map(jwks_url).transpose()?;
    if secrets.is_empty() && public_keys.is_empty() && jwks_url.is_none() {
        return Err(ConfigError::new(
            "auth.jwt",
            "no key to verify tokens is configured: set token_jwt_secret, public_keys or jwks_url",
        ));
    }
    Ok(JwtAuth {
        secrets,
        public_keys,
        jwks_url,
    })
}

/// A managed engine only accepts tokens of its platform.
fn no_keys(section: &JwtSection) -> CheckResult<()> {
    let named = [
        ("token_jwt_secret", section.token_jwt_secret.is_some()),
        ("token_jwt_secrets", !section.token_jwt_secrets.is_empty()),
        ("public_keys", !section.public_keys.is_empty()),
        ("jwks_url", section.jwks_url.is_some()),
    ];
    match named.into_iter().find(|(_, named)| *named) {
        None => Ok(()),
        Some((key, _)) => Err(ConfigError::new(
            format!("auth.jwt.{key}"),
            "a managed engine gets its keys from the platform; remove this key or control_plane",
        )),
    }
}

fn control_plane(
    section: ControlPlaneSection,
    state_dir: Option<PathBuf>,
) -> CheckResult<ControlPlane> {
    let url = required("control_plane.url", section.url)?;
    link::Endpoint::check_address(&url)
        .map_err(|problem| ConfigError::new("control_plane.url", problem))?;
    let token_file = required("control_plane.token_file", section.token_file)?;
    let data_dir = values::state_dir("control_plane.data_dir", section.data_dir, state_dir)?;
    Ok(ControlPlane {
        url,
        token_file: path("control_plane.token_file", token_file)?,
        ca_file: optional_path("control_plane.ca_file", section.ca_file)?,
        data_dir,
    })
}

/// Keys that were fetched over plain HTTP could be an attacker's.
fn jwks_url(value: &str) -> CheckResult<Uri> {
    let key = "auth.jwt.jwks_url";
    let invalid = || ConfigError::new(key, "this is not an https address");
    let uri: Uri = value.parse().map_err(|_| invalid())?;
    let host = uri.host().ok_or_else(invalid)?;
    if uri
        .authority()
        .is_some_and(|authority| authority.as_str().contains('@'))
    {
        return Err(ConfigError::new(
            key,
            "an address with a user name is not supported",
        ));
    }
    match uri.scheme_str() {
        Some("https") => Ok(uri),
        Some("http") if is_loopback(host) => Ok(uri),
        Some("http") => Err(ConfigError::new(
            key,
            "http is allowed only on loopback; use https",
        )),
        _ => Err(invalid()),
    }
}

/// Returns true if the host of an address is this machine.
pub(super) fn is_loopback(host: &str) -> bool {
    let literal = host.trim_start_matches('[').trim_end_matches(']');
    let address = literal.parse::<IpAddr>();
    host.eq_ignore_ascii_case("localhost")
        || address.is_ok_and(|ip| ip.to_canonical().is_loopback())
}

fn timeouts(section: &TimeoutsSection) -> CheckResult<Timeouts> {
    let seconds = |name: &str, value: u32, range: RangeInclusive<u32>| {
        within(&format!("timeouts.{name}"), value, range)
            .map(|value| Duration::from_secs(value.into()))
    };
    // An hour is longer than the time-out of any proxy in front.
    Ok(Timeouts {
        stream_request: seconds(
            "stream_request_seconds",
            section.stream_request_seconds,
            1..=3600,
        )?,
        http_idle: seconds("http_idle_seconds", section.http_idle_seconds, 1..=3600)?,
        visitor_stall: seconds(
            "visitor_stall_seconds",
            section.visitor_stall_seconds,
            1..=3600,
        )?,
        drain: seconds("drain_seconds", section.drain_seconds, 0..=3600)?,
        startup_grace: seconds(
            "startup_grace_seconds",
            section.startup_grace_seconds,
            0..=3600,
        )?,
    })
}

fn access_log(section: AccessLogSection) -> CheckResult<Option<AccessLogConfig>> {
    let format = match section.format {
        AccessLogForm::Json => AccessLogFormat::Json,
    };
    let path = optional_path("access_log.path", section.path)?;
    Ok(path.map(|path| AccessLogConfig { path, format }))
}

/// Requests per minute. A page needs the minimum, and no machine responds faster than the maximum.
const RATES: RangeInclusive<u32> = 10..=1_000_000;

fn rate(name: &str, value: u32) -> CheckResult<NonZeroU32> {
    let key = format!("limits.{name}");
    let value = within(&key, value, RATES)?;
    NonZeroU32::new(value).ok_or_else(|| ConfigError::new(key, "must not be empty"))
}

fn limits(section: &LimitsSection) -> CheckResult<Limits> {
    let limit = |name: &str, value: u32, range: RangeInclusive<u32>| {
        usize_in_range(&format!("limits.{name}"), value, range)
    };
    let count = |name: &str, value: u32| count_limit(&format!("limits.{name}"), value);
    let given = |name: &str, value: Option<u32>| value.map(|value| count(name, value)).transpose();
    Ok(Limits {
        max_clients: count("max_clients", section.max_clients)?,
        max_tunnels: count("max_tunnels", section.max_tunnels)?,
        max_tunnels_per_client: count("max_tunnels_per_client", section.max_tunnels_per_client)?,
        max_streams_per_client: count("max_streams_per_client", section.max_streams_per_client)?,
        max_streams: count("max_streams", section.max_streams)?,
        max_streams_per_source: match section.max_streams_per_source {
            Some(given) => count("max_streams_per_source", given)?,
            // Several sources at this limit leave capacity for others; a browser has one
            // connection.
            None => count("max_streams", (section.max_streams / 8).max(256))?,
        },
        // With less than this, a few slow downloads would use up the limit.
        max_buffered_bytes: limit(
            "max_buffered_bytes",
            section.max_buffered_bytes,
            16 * 1024 * 1024..=u32::MAX,
        )?,
        max_watchers: count("max_watchers", section.max_watchers)?,
        api_rates: ApiRates {
            per_credential: rate(
                "credential_requests_per_minute",
                section.credential_requests_per_minute,
            )?,
            per_project: rate(
                "project_requests_per_minute",
                section.project_requests_per_minute,
            )?,
            per_source: rate(
                "invalid_tokens_per_minute",
                section.invalid_tokens_per_minute,
            )?,
        },
        project_share: QuotaPercent(limit(
            "project_share_percent",
            section.project_share_percent,
            1..=100,
        )?),
        max_connections: given("max_connections", section.max_connections)?,
        max_connections_per_source: given(
            "max_connections_per_source",
            section.max_connections_per_source,
        )?,
        max_handshakes_per_source: count(
            "max_handshakes_per_source",
            section.max_handshakes_per_source,
        )?,
        // Below 4 KiB a head with a token does not fit; above 1 MiB a flood of heads exhausts
        // memory.
        header_bytes: limit("header_bytes", section.header_bytes, 4096..=1024 * 1024)?,
        url_bytes: limit("url_bytes", section.url_bytes, 256..=section.header_bytes)?,
        min_body_rate: NonZeroU32::new(within(
            "limits.min_body_rate",
            section.min_body_rate,
            0..=1024 * 1024,
        )?),
    })
}

/// Two listeners on one port, or a port of a tunnel that is in use, would otherwise only fail at
/// the bind.
fn listeners_do_not_collide(config: &EngineConfig) -> CheckResult<()> {
    let listeners = [
        ("tls.listen_addr", Some(config.tls)),
        ("http.listen_addr", config.http),
        ("metrics.prometheus.listen_addr", config.metrics.listener()),
    ];
    let listeners = listeners
        .into_iter()
        .filter_map(|(key, address)| Some((key, address?)));
    // Port 0 selects another free port each time.
    let listeners = listeners
        .filter(|(_, address)| address.port() != 0)
        .collect::<Vec<_>>();
    for (index, (key, address)) in listeners.iter().enumerate() {
        let port = address.port();
        let earlier = listeners
            .iter()
            .take(index)
            .find(|(_, earlier)| overlap(*address, *earlier));
        if let Some((earlier, _)) = earlier {
            return Err(ConfigError::new(
                *key,
                format!("port {port} is already used by {earlier}"),
            ));
        }
        if config
            .tcp_ports
            .as_ref()
            .is_some_and(|range| range.contains(&port))
        {
            let message = format!("the range contains port {port} of {key}");
            return Err(ConfigError::new("tcp.port_range", message));
        }
    }
    Ok(())
}
