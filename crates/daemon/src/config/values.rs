//! Checks of values that several programs have in their configuration. Each error names the key.

use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::path::PathBuf;

use ipnet::IpNet;
use types::contact::AbuseContact;

use super::{ConfigError, ConfigErrors};

type CheckResult<T> = Result<T, ConfigError>;

/// A key that has no default.
///
/// # Errors
/// The value is absent.
pub fn required<T>(key: &str, value: Option<T>) -> CheckResult<T> {
    value.ok_or_else(|| ConfigError::new(key, "this key is required"))
}

/// A path.
///
/// # Errors
/// It is empty.
pub fn path(key: &str, value: String) -> CheckResult<PathBuf> {
    if value.is_empty() {
        return Err(ConfigError::new(key, "a path must not be empty"));
    }
    Ok(PathBuf::from(value))
}

/// A path of an optional key.
///
/// # Errors
/// It is empty.
pub fn optional_path(key: &str, value: Option<String>) -> CheckResult<Option<PathBuf>> {
    value.map(|value| path(key, value)).transpose()
}

/// A contact for reports of abuse.
///
/// # Errors
/// It is neither a mail address nor an https address.
pub fn abuse_contact(key: &str, value: Option<String>) -> CheckResult<Option<AbuseContact>> {
    let parse = |text: String| {
        let parsed = text.parse::<AbuseContact>();
        parsed.map_err(|error| ConfigError::new(key, format!("{text:?}: {error}")))
    };
    value.map(parse).transpose()
}

/// The path of a state directory. If it is absent: `default`, which comes from the environment.
///
/// # Errors
/// It is empty, or there is no default.
pub fn state_dir(
    key: &str,
    value: Option<String>,
    default: Option<PathBuf>,
) -> CheckResult<PathBuf> {
    let missing = || {
        let message =
            "this key is required if $STATE_DIRECTORY, $XDG_STATE_HOME and $HOME are not set";
        ConfigError::new(key, message)
    };
    optional_path(key, value)?.or(default).ok_or_else(missing)
}

/// An address of a listener. The error has `example`.
///
/// # Errors
/// The value is not an address with a port.
pub fn address(key: &str, value: &str, example: &str) -> CheckResult<SocketAddr> {
    value.parse().map_err(|_| {
        let message = format!("{value:?} is not an address and a port, such as {example}");
        ConfigError::new(key, message)
    })
}

/// A range of ports, `low-high`, both included. The error has `example`.
///
/// # Errors
/// The value is not a range, or contains port 0.
pub fn port_range(key: &str, value: &str, example: &str) -> CheckResult<RangeInclusive<u16>> {
    let invalid = |problem: &str| ConfigError::new(key, format!("{value:?} {problem}"));
    let parsed = value.split_once('-').and_then(|(low, high)| {
        Some((
            low.trim().parse::<u16>().ok()?,
            high.trim().parse::<u16>().ok()?,
        ))
    });
    match parsed {
        None => Err(invalid(&format!(
            "is not a range of ports, such as {example}"
        ))),
        Some((0, _)) => Err(invalid("starts with port 0, which is not a valid port")),
        Some((low, high)) if low > high => Err(invalid("ends before it starts")),
        Some((low, high)) => Ok(low..=high),
    }
}

/// A list of networks and addresses.
///
/// # Errors
/// Values are neither, or have host bits set.
pub fn networks(key: &str, values: &[String]) -> Result<Vec<IpNet>, ConfigErrors> {
    let parse_network = |(index, value): (usize, &String)| {
        let invalid = |problem: String| ConfigError::new(format!("{key}.{index}"), problem);
        let network = value
            .parse::<IpNet>()
            .or_else(|_| value.parse::<IpAddr>().map(IpNet::from))
            .map_err(|_| invalid(format!("{value:?} is not an address or a network")))?;
        if network != network.trunc() {
            let truncated = network.trunc();
            return Err(invalid(format!(
                "{value:?} is not the start of a network; did you mean {truncated}?"
            )));
        }
        Ok(network)
    };
    let mut errors = ConfigErrors::default();
    let parsed = values.iter().enumerate().map(parse_network);
    let networks = parsed.filter_map(|network| errors.keep(network)).collect();
    errors.finish(Some(networks))
}

/// A number in a range.
///
/// # Errors
/// It is outside.
pub fn within(key: &str, value: u32, range: RangeInclusive<u32>) -> CheckResult<u32> {
    if range.contains(&value) {
        return Ok(value);
    }
    let (low, high) = range.into_inner();
    let message = format!("{value} is not between {low} and {high}");
    Err(ConfigError::new(key, message))
}

/// A number in a range, converted to `usize`.
///
/// # Errors
/// It is outside.
pub fn usize_in_range(key: &str, value: u32, range: RangeInclusive<u32>) -> CheckResult<usize> {
    let value = within(key, value, range)?;
    Ok(usize::try_from(value).unwrap_or(usize::MAX))
}

/// The range of maximum numbers, such as of clients or tunnels. No machine can hold more than its
/// end: a larger number is a mistake.
pub const COUNTS: RangeInclusive<u32> = 1..=10_000_000;

/// A maximum number, such as of clients or tunnels.
///
/// # Errors
/// It is outside of [`COUNTS`].
pub fn count_limit(key: &str, value: u32) -> CheckResult<usize> {
    usize_in_range(key, value, COUNTS)
}

/// Returns true if both addresses cannot be bound at the same time. An unspecified address overlaps
/// all addresses.
pub fn overlap(one: SocketAddr, other: SocketAddr) -> bool {
    let any = one.ip().is_unspecified() || other.ip().is_unspecified();
    one.port() == other.port() && (any || one.ip() == other.ip())
}

/// Returns true if the host of an address is this machine.
pub fn is_loopback(host: &str) -> bool {
    let literal = host.trim_start_matches('[').trim_end_matches(']');
    let address = literal.parse::<IpAddr>();
    host.eq_ignore_ascii_case("localhost")
        || address.is_ok_and(|ip| ip.to_canonical().is_loopback())
}

/// Returns true for a DNS name of letters, digits and dashes. An IPv4 address has this form as well.
pub fn is_dns_name(value: &str) -> bool {
    let label = |label: &str| {
        let inner = label
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
        inner && (1..=63).contains(&label.len()) && !label.starts_with('-') && !label.ends_with('-')
    };
    value.len() <= MAX_DNS_NAME_BYTES && value.split('.').all(label)
}

/// Longest DNS name (RFC 1035 section 2.3.4).
pub const MAX_DNS_NAME_BYTES: usize = 253;
