//! Values of configuration files that several sections check alike.

use daemon::config::ConfigError;
use ipnet::IpNet;

type CheckResult<T> = Result<T, ConfigError>;

/// True for host names and addresses of this machine.
pub(crate) fn is_loopback(host: &str) -> bool {
    host == "localhost"
        || host.ends_with(".localhost")
        || host
            .trim_matches(['[', ']'])
            .parse::<std::net::IpAddr>()
            .is_ok_and(|ip| ip.is_loopback())
}

/// A network, or one address.
pub(crate) fn network(key: &str, value: &str) -> CheckResult<IpNet> {
    value
        .parse()
        .or_else(|_| value.parse::<std::net::IpAddr>().map(IpNet::from))
        .map_err(|_| {
            ConfigError::new(
                key,
                format!("{value:?} is not a network such as 10.0.0.0/8"),
            )
        })
}

/// Longest DNS name (RFC 1035 section 2.3.4).
pub(super) const MAX_HOST_BYTES: usize = 253;

/// A DNS name, in lower case.
pub(crate) fn host_name(key: &str, value: &str) -> CheckResult<String> {
    let label = |label: &str| {
        let inner = label
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
        inner && (1..=63).contains(&label.len()) && !label.starts_with('-') && !label.ends_with('-')
    };
    if value.len() > MAX_HOST_BYTES || !value.split('.').all(label) {
        return Err(ConfigError::new(
            key,
            format!("{value:?} is not a DNS name"),
        ));
    }
    Ok(value.to_ascii_lowercase())
}
