//! Conversion of the file into the checked configuration: first each value, then their
//! combinations.

use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU32;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::Duration;

use acme::SectionContext;
use daemon::config::values::{
    COUNTS, address, is_dns_name, is_loopback, networks, optional_path, overlap, path, required,
    usize_in_range, within,
};
use daemon::config::{ConfigError, ConfigErrors, SecretString, StateDir, values};
use daemon::metrics::MetricsConfig;
use daemon::tls::CertFiles;
use http::Uri;

use super::ApiRates;
use super::cluster;
use super::domains::{self, DomainConfig};
use super::file::{
    AccessLogForm, AccessLogSection, ControlPlaneSection, EngineFile, JwtSection, LimitsSection,
    StaticCertSection, TimeoutsSection,
};
use super::pages;
use super::tls_routes;
use super::{
    AccessLogConfig, AccessLogFormat, Auth, ControlPlane, EngineConfig, FixedTimeouts, JwtAuth,
    Limits, QuotaPercent, Timeouts,
};

type CheckResult<T> = Result<T, ConfigError>;

/// The parts of a configuration that name files, as far as their values are valid.
#[derive(Debug)]
pub(super) struct NamedFiles<'a> {
    pub(super) host: Option<&'a str>,
    pub(super) certificate: Option<&'a CertFiles>,
    pub(super) auth: Option<&'a Auth>,
    pub(super) geoip_file: Option<&'a Path>,
    pub(super) acme: Option<&'a acme::Settings>,
    pub(super) domains: &'a [DomainConfig],
}

/// Converts the file, and adds all mistakes to `errors`. `None` if a required part is wrong.
/// `state_dir` is the default directory for state. `inspect` gets the valid parts, also of a
/// configuration with mistakes.
pub(super) fn engine(
    file: EngineFile,
    state_dir: Option<StateDir>,
    errors: &mut ConfigErrors,
    inspect: impl FnOnce(&NamedFiles<'_>, &mut ConfigErrors),
) -> Option<EngineConfig> {
    refuse_what_is_not_built(&file, errors);
    let http = file
        .http
        .enabled
        .then(|| address("http.listen_addr", &file.http.listen_addr, ADDRESSES));
    let host = errors.keep(required("engine.host", file.engine.host).and_then(|text| host(&text)));
    let http = errors.keep_or_default(http.transpose());
    let tls = errors.keep(address("tls.listen_addr", &file.tls.listen_addr, ADDRESSES));
    let name = host.as_deref().unwrap_or_default();
    let tls_routes = errors.keep_or_default(tls_routes::check(file.tls.routes, name, tls));
    let is_managed = file.control_plane.is_some();
    // A wrong host does not make the directory wrong as well.
    let name = host.as_deref().unwrap_or("engine");
    let state_dir = state_dir.map(|dir| dir.subdirectory("engine", name));
    let certificate = errors.keep(certificate(file.certs.files, file.certs.acme.is_some()));
    let domains = domains::check(file.domains, (host.as_deref(), is_managed), &tls_routes);
    let domains = errors.keep(domains);
    let wildcards = super::wildcards(name, is_managed);
    let others = domains::names_without_files(domains.as_deref().unwrap_or_default());
    let context = SectionContext {
        has_plain_listener: file.http.enabled,
        state_dir: state_dir.as_deref(),
        ..acme_context(name, &wildcards, &others)
    };
    let acme = errors.keep(file.certs.acme.map(|acme| acme.check(&context)).transpose());
    let auth = match file.control_plane {
        None => jwt(file.auth.jwt, errors).map(Auth::Keys),
        Some(section) => {
            no_keys(&file.auth.jwt, errors);
            control_plane(section, state_dir, errors).map(Auth::Platform)
        }
    };
    let data_dir = data_dir(auth.as_ref(), is_managed);
    let recordings = errors.keep(super::recordings::check(file.webtty.recordings, data_dir));
    let metrics = errors.keep(file.metrics.check());
    let tcp_ports = errors.keep_or_default(port_range(file.tcp.port_range.as_deref()));
    let trusted_proxies =
        errors.keep_or_default(networks("edge.trusted_proxies", &file.edge.trusted_proxies));
    let geoip_file = errors.keep_or_default(optional_path("geoip.file", file.geoip.file));
    let timeouts = timeouts(&file.timeouts, errors);
    let limits = limits(&file.limits, errors);
    let listeners = [
        ("tls.listen_addr", tls),
        ("http.listen_addr", http),
        (
            "metrics.prometheus.listen_addr",
            metrics.as_ref().and_then(MetricsConfig::listener),
        ),
    ];
    listeners_do_not_collide(listeners, tcp_ports.as_ref(), errors);
    let named_files = NamedFiles {
        host: host.as_deref(),
        certificate: certificate.as_ref().and_then(Option::as_ref),
        auth: auth.as_ref(),
        geoip_file: geoip_file.as_deref(),
        acme: acme.as_ref().and_then(Option::as_ref),
        domains: domains.as_deref().unwrap_or_default(),
    };
    inspect(&named_files, errors);
    Some(EngineConfig {
        pages: errors.keep_or_default(pages::check(file.pages)),
        access_log: errors.keep_or_default(access_log(file.access_log)),
        cluster: errors.keep_or_default(cluster::check(file.cluster)),
        host: host?,
        log_level: file.engine.log_level,
        http,
        tls: tls?,
        tls_routes,
        certificate: certificate?,
        acme: acme?,
        domains: domains?,
        auth: auth?,
        metrics: metrics?,
        timeouts,
        tcp_ports,
        trusted_proxies,
        limits,
        geoip_file,
        compat_rstream: file.compat.rstream,
        recordings: recordings?,
    })
}

/// The context of `certs.acme` in a file without other sections.
fn acme_context<'a>(
    host: &'a str,
    wildcards: &'a [String],
    other_names: &'a [String],
) -> SectionContext<'a> {
    SectionContext {
        key: "certs.acme",
        host,
        host_key: "engine.host",
        wildcards,
        other_names,
        plain_key: "http.enabled",
        has_plain_listener: false,
        can_respond: true,
        state_dir: None,
    }
}

/// The directory for the state of a managed engine.
fn data_dir(auth: Option<&Auth>, is_managed: bool) -> Option<&Path> {
    match auth {
        Some(Auth::Platform(platform)) => Some(platform.data_dir.as_path()),
        // A wrong section does not make the storage of recordings wrong as well.
        None if is_managed => Some(Path::new("")),
        Some(Auth::Keys(_)) | None => None,
    }
}

/// Examples of addresses of listeners.
const ADDRESSES: &str = "127.0.0.1:443 or [::]:443";

fn port_range(value: Option<&str>) -> CheckResult<Option<RangeInclusive<u16>>> {
    let range = |value| values::port_range("tcp.port_range", value, "20000-20999");
    value.map(range).transpose()
}

fn refuse_what_is_not_built(file: &EngineFile, errors: &mut ConfigErrors) {
    if !file.certs.files.enabled && file.certs.acme.is_none() {
        let message =
            "the TLS listener needs a certificate; this must be true, or certs.acme be set";
        let error = ConfigError::new("certs.static.enabled", message);
        errors.push(error.depending_on("certs.acme"));
    }
    let mut refuse = |is_wrong: bool, key: &str, message: &str| {
        if is_wrong {
            errors.push(ConfigError::new(key, message));
        }
    };
    refuse(
        file.quic.enabled,
        "quic.enabled",
        "QUIC is not supported yet; agents connect over TLS",
    );
    refuse(
        !file.tls.enabled,
        "tls.enabled",
        "the engine is only reachable over TLS; this must be true",
    );
    refuse(
        !file.auth.jwt.enabled,
        "auth.jwt.enabled",
        "no authentication method is enabled: no agent could connect, and an open engine is not \
         supported; this must be true",
    );
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
    // A name whose last label is a number would be read as an IPv4 address (RFC 1123 2.1).
    let numeric = value
        .rsplit('.')
        .next()
        .is_some_and(|last| !last.is_empty() && last.bytes().all(|byte| byte.is_ascii_digit()));
    if numeric || !is_dns_name(value) {
        return refused("is not a DNS name of letters, digits and dashes");
    }
    Ok(value.to_ascii_lowercase())
}

/// The files; `None` if the certificate comes from an authority only.
fn certificate(
    section: StaticCertSection,
    has_acme: bool,
) -> Result<Option<CertFiles>, ConfigErrors> {
    let is_named = section.cert_file.is_some() || section.key_file.is_some();
    if has_acme && !(section.enabled && is_named) {
        return Ok(None);
    }
    let mut errors = ConfigErrors::default();
    let mut file = |key, value| {
        let value = required(key, value).map_err(|error| {
            if has_acme {
                error
            } else {
                error.depending_on("certs.acme")
            }
        });
        errors.keep(value.and_then(|value| path(key, value)))
    };
    let cert = file("certs.static.cert_file", section.cert_file);
    let key = file("certs.static.key_file", section.key_file);
    let files = cert.zip(key).map(|(cert, key)| CertFiles { cert, key });
    errors.finish(files.map(Some))
}

/// A key of HS256 must not be shorter than its hash (RFC 7518 section 3.2).
const MIN_SECRET_BYTES: usize = 32;
/// The new secret and the old one.
const MAX_SECRETS: usize = 2;

fn jwt(section: JwtSection, errors: &mut ConfigErrors) -> Option<JwtAuth> {
    let has_key = section.token_jwt_secret.is_some()
        || !section.token_jwt_secrets.is_empty()
        || !section.public_keys.is_empty()
        || section.jwks_url.is_some();
    if !has_key {
        let message =
            "no key to verify tokens is configured: set token_jwt_secret, public_keys or jwks_url";
        errors.push(ConfigError::new("auth.jwt", message).depending_on("control_plane"));
        return None;
    }
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
            errors.push(ConfigError::new(key, message));
            continue;
        }
        if secrets.contains(&secret) {
            continue;
        }
        if secrets.len() == MAX_SECRETS {
            let message = format!("at most {MAX_SECRETS} secrets can be active");
            errors.push(ConfigError::new(key, message));
            continue;
        }
        secrets.push(secret);
    }
    let public_keys = section.public_keys.into_iter().enumerate();
    let public_keys = public_keys
        .map(|(index, file)| {
            errors.keep_or_default(path(&format!("auth.jwt.public_keys.{index}"), file))
        })
        .collect();
    let jwks_url = errors.keep_or_default(section.jwks_url.as_deref().map(jwks_url).transpose());
    Some(JwtAuth {
        secrets,
        public_keys,
        jwks_url,
    })
}

/// A managed engine only accepts tokens of its platform.
fn no_keys(section: &JwtSection, errors: &mut ConfigErrors) {
    let named = [
        ("token_jwt_secret", section.token_jwt_secret.is_some()),
        ("token_jwt_secrets", !section.token_jwt_secrets.is_empty()),
        ("public_keys", !section.public_keys.is_empty()),
        ("jwks_url", section.jwks_url.is_some()),
    ];
    for (key, _) in named.into_iter().filter(|(_, named)| *named) {
        errors.push(ConfigError::new(
            format!("auth.jwt.{key}"),
            "a managed engine gets its keys from the platform; remove this key or control_plane",
        ));
    }
}

fn control_plane(
    section: ControlPlaneSection,
    state_dir: Option<PathBuf>,
    errors: &mut ConfigErrors,
) -> Option<ControlPlane> {
    let url = required("control_plane.url", section.url).and_then(|url| {
        link::Endpoint::check_address(&url)
            .map_err(|problem| ConfigError::new("control_plane.url", problem))?;
        Ok(url)
    });
    let key = "control_plane.token_file";
    let token_file = required(key, section.token_file).and_then(|file| path(key, file));
    let ca_file = optional_path("control_plane.ca_file", section.ca_file);
    let data_dir = values::state_dir("control_plane.data_dir", section.data_dir, state_dir);
    let (url, token_file) = (errors.keep(url), errors.keep(token_file));
    let (ca_file, data_dir) = (errors.keep(ca_file), errors.keep(data_dir));
    Some(ControlPlane {
        url: url?,
        token_file: token_file?,
        ca_file: ca_file?,
        data_dir: data_dir?,
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

/// Default of `timeouts.max_time_to_first_byte_seconds`: a large report, or the answer of a language
/// model that thinks for minutes.
const MAX_TIME_TO_FIRST_BYTE: u32 = 600;

fn timeouts(section: &TimeoutsSection, errors: &mut ConfigErrors) -> Timeouts {
    let mut seconds = |name: &str, value: u32, low: u32| {
        // An hour is longer than the time-out of any proxy in front.
        let seconds = within(&format!("timeouts.{name}"), value, low..=3600);
        Duration::from_secs(errors.keep_or_default(seconds).into())
    };
    let stream_request = section.stream_request_seconds;
    // A wrong time limit does not make the longest one wrong as well.
    let least = Some(stream_request).filter(|seconds| (1..=3600).contains(seconds));
    let least = least.unwrap_or(1);
    let longest = section
        .max_time_to_first_byte_seconds
        .unwrap_or(MAX_TIME_TO_FIRST_BYTE.max(least));
    Timeouts {
        stream_request: seconds("stream_request_seconds", stream_request, 1),
        max_time_to_first_byte: seconds("max_time_to_first_byte_seconds", longest, least),
        http_idle: seconds("http_idle_seconds", section.http_idle_seconds, 1),
        visitor_stall: seconds("visitor_stall_seconds", section.visitor_stall_seconds, 1),
        drain: seconds("drain_seconds", section.drain_seconds, 0),
        startup_grace: seconds("startup_grace_seconds", section.startup_grace_seconds, 0),
        fixed: FixedTimeouts::default(),
    }
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

fn limits(section: &LimitsSection, errors: &mut ConfigErrors) -> Limits {
    let header_range = 4096..=1024 * 1024;
    // A wrong limit of heads does not make the limit of targets wrong as well.
    let most_url_bytes = if header_range.contains(&section.header_bytes) {
        section.header_bytes
    } else {
        *header_range.end()
    };
    let api_rates = ApiRates {
        per_credential: keep_rate(
            "credential_requests_per_minute",
            section.credential_requests_per_minute,
            errors,
        ),
        per_project: keep_rate(
            "project_requests_per_minute",
            section.project_requests_per_minute,
            errors,
        ),
        per_source: keep_rate(
            "invalid_tokens_per_minute",
            section.invalid_tokens_per_minute,
            errors,
        ),
    };
    let mut limit = |name: &str, value: u32, range: RangeInclusive<u32>| {
        errors.keep_or_default(usize_in_range(&format!("limits.{name}"), value, range))
    };
    let mut count = |name: &str, value: u32| limit(name, value, COUNTS);
    let max_streams = count("max_streams", section.max_streams);
    Limits {
        max_clients: count("max_clients", section.max_clients),
        max_tunnels: count("max_tunnels", section.max_tunnels),
        max_tunnels_per_client: count("max_tunnels_per_client", section.max_tunnels_per_client),
        max_streams_per_client: count("max_streams_per_client", section.max_streams_per_client),
        max_streams,
        max_streams_per_source: match section.max_streams_per_source {
            Some(given) => count("max_streams_per_source", given),
            // Several sources at this limit leave capacity for others; a browser has one
            // connection.
            None => (max_streams / 8).max(256),
        },
        max_watchers: count("max_watchers", section.max_watchers),
        api_rates,
        max_connections: section
            .max_connections
            .map(|given| count("max_connections", given)),
        max_connections_per_source: section
            .max_connections_per_source
            .map(|given| count("max_connections_per_source", given)),
        max_handshakes_per_source: count(
            "max_handshakes_per_source",
            section.max_handshakes_per_source,
        ),
        // With less than this, a few slow downloads would use up the limit.
        max_buffered_bytes: limit(
            "max_buffered_bytes",
            section.max_buffered_bytes,
            16 * 1024 * 1024..=u32::MAX,
        ),
        project_share: QuotaPercent(limit(
            "project_share_percent",
            section.project_share_percent,
            1..=100,
        )),
        // Below 4 KiB a head with a token does not fit; above 1 MiB a flood of heads exhausts
        // memory.
        header_bytes: limit("header_bytes", section.header_bytes, header_range),
        url_bytes: limit("url_bytes", section.url_bytes, 256..=most_url_bytes),
        min_body_rate: NonZeroU32::new(errors.keep_or_default(within(
            "limits.min_body_rate",
            section.min_body_rate,
            0..=1024 * 1024,
        ))),
    }
}

/// [`rate`], or a placeholder for a wrong one.
fn keep_rate(name: &str, value: u32, errors: &mut ConfigErrors) -> NonZeroU32 {
    errors.keep(rate(name, value)).unwrap_or(NonZeroU32::MIN)
}

/// Two listeners on one port, or a port of a tunnel that is in use, would otherwise only fail at
/// the bind.
fn listeners_do_not_collide(
    listeners: [(&'static str, Option<SocketAddr>); 3],
    tcp_ports: Option<&RangeInclusive<u16>>,
    errors: &mut ConfigErrors,
) {
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
            errors.push(ConfigError::new(
                *key,
                format!("port {port} is already used by {earlier}"),
            ));
        }
        if tcp_ports.is_some_and(|range| range.contains(&port)) {
            let message = format!("the range contains port {port} of {key}");
            errors.push(ConfigError::new("tcp.port_range", message));
        }
    }
}
