//! Conversion of the file into checked values: each value first, then their combinations.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use daemon::config::values::{
    self, count_limit, networks, optional_path, overlap, path, port_range, required,
    usize_in_range, within,
};
use daemon::config::{ConfigError, ConfigErrors, StateDir};

use super::file::{ControlPlaneSection, LimitsSection, TurnFile, TurnSection};
use super::tls::OtherValues;
use super::{ControlPlane, RelayConfig, TurnConfig};
use crate::core::{Bandwidth, Limits, Millis, Quota};

type CheckResult<T> = Result<T, ConfigError>;

/// Converts the file. `state_dir` is the default directory for state.
///
/// # Errors
/// One error of each part.
pub(super) fn turn(
    file: TurnFile,
    state_dir: Option<StateDir>,
) -> Result<TurnConfig, ConfigErrors> {
    let mut errors = ConfigErrors::default();
    let config = check_parts(file, state_dir, &mut errors);
    errors.finish(config)
}

/// Checks each part, and adds all errors. `None` if a required part is wrong.
fn check_parts(
    file: TurnFile,
    state_dir: Option<StateDir>,
    errors: &mut ConfigErrors,
) -> Option<TurnConfig> {
    let mut section = file.turn;
    let tls = std::mem::take(&mut section.tls);
    let listen = errors.keep(check_listeners(&section.listen_addr));
    let tls_listen = errors.keep(addresses("turn.tls_listen_addr", &section.tls_listen_addr));
    let realm = errors.keep(check_realm(section.realm.as_deref()));
    // Without a listener, the relayed addresses are not known.
    let relay = listen
        .as_deref()
        .and_then(|listen| errors.keep(check_relay(&section, listen)));
    let has_source = section.secret_file.is_some() || section.control_plane.is_some();
    if !has_source {
        let message = "no source of credentials is configured: set turn.secret_file or \
            turn.control_plane";
        errors.push(ConfigError::new("turn.secret_file", message));
    }
    // A wrong realm does not make the directory wrong as well.
    let name = realm.as_deref().unwrap_or("turn");
    let state_dir = state_dir.map(|dir| dir.subdirectory("turn", name));
    let tls = tls.check(&OtherValues {
        realm: name,
        has_listener: !section.tls_listen_addr.is_empty(),
        state_dir: state_dir.as_deref(),
    });
    let tls = errors.keep_or_default(tls);
    let control_plane = section.control_plane;
    let control_plane = control_plane.map(|section| self::control_plane(section, state_dir));
    let control_plane = errors.keep_or_default(control_plane.transpose());
    let secret_file =
        errors.keep_or_default(optional_path("turn.secret_file", section.secret_file));
    let limits = errors.keep(limits(&section.limits));
    let bandwidth = errors.keep(bandwidth(&section.limits));
    let allowed_peers =
        errors.keep_or_default(networks("turn.allowed_peers", &section.allowed_peers));
    let metrics = errors.keep(file.metrics.check());
    let mut count = |name: &str, value| {
        errors.keep_or_default(count_limit(&format!("turn.limits.{name}"), value))
    };
    let max_connections = count("connections", section.limits.connections);
    let max_connections_per_source = count(
        "connections_per_source",
        section.limits.connections_per_source,
    );
    let drain = within("turn.drain_seconds", section.drain_seconds, 0..=3600);
    let drain = Duration::from_secs(errors.keep_or_default(drain).into());
    let (quota, limits) = limits?;
    let config = TurnConfig {
        log_level: section.log_level,
        listen: listen?,
        tls_listen: tls_listen?,
        tls,
        realm: realm?,
        relay: relay?,
        secret_file,
        allowed_peers,
        quota,
        bandwidth: bandwidth?,
        limits,
        max_connections,
        max_connections_per_source,
        control_plane,
        metrics: metrics?,
        drain,
    };
    errors.keep(ports_do_not_collide(&config))?;
    Some(config)
}

fn check_listeners(values: &[String]) -> CheckResult<Vec<SocketAddr>> {
    let listen = addresses("turn.listen_addr", values)?;
    if listen.is_empty() {
        let message = "the relay needs at least one listener; set an address";
        return Err(ConfigError::new("turn.listen_addr", message));
    }
    Ok(listen)
}

/// RFC 8489 section 14.9: fewer than 128 characters. It is part of quoted and hashed texts, so it
/// may only be a name.
fn check_realm(value: Option<&str>) -> CheckResult<String> {
    let key = "turn.realm";
    let value = required(key, value)?;
    let is_name = (1..128).contains(&value.len())
        && value
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_'));
    if !is_name {
        let message = format!("{value:?} is not a name of letters, digits, dots and dashes");
        return Err(ConfigError::new(key, message));
    }
    Ok(value.to_ascii_lowercase())
}

fn check_relay(section: &TurnSection, listen: &[SocketAddr]) -> CheckResult<RelayConfig> {
    let given = one_of_each("turn.relay_addr", &section.relay_addr)?;
    let bind = if given == [None, None] {
        let first = |is_v4: bool| {
            let mut ips = listen.iter().map(SocketAddr::ip);
            ips.find(|ip| ip.is_ipv4() == is_v4)
        };
        [first(true), first(false)]
    } else {
        given
    };
    let external = one_of_each("turn.external_ip", &section.external_ip)?;
    let mut announced = [None, None];
    for ((announced, bind), external) in announced.iter_mut().zip(bind).zip(external) {
        *announced = match (bind, external) {
            (Some(ip), None) if ip.is_unspecified() => {
                let message = format!(
                    "relayed addresses are bound to {ip}, to which peers cannot send: set the \
                     address that they can reach"
                );
                return Err(ConfigError::new("turn.external_ip", message));
            }
            (None, Some(ip)) => {
                let message = format!("no relayed address of the family of {ip} is configured");
                return Err(ConfigError::new("turn.external_ip", message)
                    .depending_on("turn.relay_addr")
                    .depending_on("turn.listen_addr"));
            }
            (bind, external) => external.or(bind),
        };
        if announced.is_some_and(|ip| ip.is_unspecified() || ip.is_multicast()) {
            let message = "this is not an address that a peer can send to";
            return Err(ConfigError::new("turn.external_ip", message));
        }
    }
    Ok(RelayConfig {
        bind,
        announced,
        ports: port_range("turn.relay_ports", &section.relay_ports, "49152-65535")?,
    })
}

/// Parses at most one address of each family: IPv4, IPv6.
fn one_of_each(key: &str, values: &[String]) -> CheckResult<[Option<IpAddr>; 2]> {
    let [mut v4, mut v6] = [None, None];
    for (index, value) in values.iter().enumerate() {
        let key = format!("{key}.{index}");
        let ip: IpAddr = value
            .parse()
            .map_err(|_| ConfigError::new(&*key, format!("{value:?} is not an address")))?;
        let place = if ip.is_ipv4() { &mut v4 } else { &mut v6 };
        if place.replace(ip).is_some() {
            return Err(ConfigError::new(
                key,
                "an address of this family is already set",
            ));
        }
    }
    Ok([v4, v6])
}

fn limits(section: &LimitsSection) -> CheckResult<(Quota, Limits)> {
    let count = |name: &str, value| count_limit(&format!("turn.limits.{name}"), value);
    let quota = Quota {
        whole: count("allocations", section.allocations)?,
        per_project: count("allocations_per_project", section.allocations_per_project)?,
        per_user: count("allocations_per_user", section.allocations_per_user)?,
        per_source: count("allocations_per_source", section.allocations_per_source)?,
    };
    // These lists are searched for each packet.
    let few = |name: &str, value| usize_in_range(&format!("turn.limits.{name}"), value, 1..=4096);
    let limits = Limits {
        permissions: few(
            "permissions_per_allocation",
            section.permissions_per_allocation,
        )?,
        channels: few("channels_per_allocation", section.channels_per_allocation)?,
        connections: few(
            "peer_connections_per_allocation",
            section.peer_connections_per_allocation,
        )?,
        age: Millis::from_seconds(
            within(
                "turn.limits.seconds_per_allocation",
                section.seconds_per_allocation,
                0..=MAX_ALLOCATION_SECONDS,
            )?
            .into(),
        ),
    };
    Ok((quota, limits))
}

/// A day. The credential of a longer connection should be replaced.
const MAX_ALLOCATION_SECONDS: u32 = 24 * 3600;

/// A value below the rate of a voice call is a mistake.
const MIN_BYTES_PER_SECOND: u32 = 1_000;

fn bandwidth(section: &LimitsSection) -> CheckResult<Bandwidth> {
    let rate = |of: &str, value: Option<u32>| {
        let key = format!("turn.limits.bytes_per_second_per_{of}");
        let check = |value| within(&key, value, MIN_BYTES_PER_SECOND..=u32::MAX);
        value.map(check).transpose()
    };
    Ok(Bandwidth {
        per_allocation: rate("allocation", section.bytes_per_second_per_allocation)?,
        per_user: rate("user", section.bytes_per_second_per_user)?,
        per_project: rate("project", section.bytes_per_second_per_project)?,
    })
}

fn control_plane(
    section: ControlPlaneSection,
    state_dir: Option<PathBuf>,
) -> CheckResult<ControlPlane> {
    let url = required("turn.control_plane.url", section.url)?;
    link::Endpoint::check_address(&url)
        .map_err(|problem| ConfigError::new("turn.control_plane.url", problem))?;
    let token_file = required("turn.control_plane.token_file", section.token_file)?;
    let data_dir = values::state_dir("turn.control_plane.data_dir", section.data_dir, state_dir)?;
    Ok(ControlPlane {
        url,
        token_file: path("turn.control_plane.token_file", token_file)?,
        ca_file: optional_path("turn.control_plane.ca_file", section.ca_file)?,
        data_dir,
    })
}

fn addresses(key: &str, values: &[String]) -> CheckResult<Vec<SocketAddr>> {
    let address = |(index, value): (usize, &String)| {
        values::address(&format!("{key}.{index}"), value, "203.0.113.7:3478")
    };
    values.iter().enumerate().map(address).collect()
}

/// Rejects listeners whose ports are in the range of relayed addresses, or used twice.
fn ports_do_not_collide(config: &TurnConfig) -> CheckResult<()> {
    let plain = config
        .listen
        .iter()
        .map(|address| ("turn.listen_addr", address));
    let tls = config
        .tls_listen
        .iter()
        .map(|address| ("turn.tls_listen_addr", address));
    let http = config.tls.as_ref().and_then(|tls| tls.http_listen.as_ref());
    let http = http.map(|address| ("turn.tls.http_listen_addr", address));
    for (key, address) in plain.chain(tls).chain(http) {
        if config.relay.ports.contains(&address.port()) {
            let message = format!("the range contains port {} of {key}", address.port());
            return Err(ConfigError::new("turn.relay_ports", message));
        }
    }
    let refuse = |key: &str, address: &SocketAddr, other: &str| {
        let message = format!("port {} is already used by {other}", address.port());
        Err(ConfigError::new(key, message))
    };
    let is_taken = |address: &SocketAddr, others: &[SocketAddr]| {
        address.port() != 0 && others.iter().any(|other| overlap(*address, *other))
    };
    for address in &config.tls_listen {
        if is_taken(address, &config.listen) {
            return refuse("turn.tls_listen_addr", address, "turn.listen_addr");
        }
    }
    if let Some((key, address)) = http {
        for (other, others) in [
            ("turn.listen_addr", &config.listen),
            ("turn.tls_listen_addr", &config.tls_listen),
        ] {
            if is_taken(address, others) {
                return refuse(key, address, other);
            }
        }
    }
    Ok(())
}
