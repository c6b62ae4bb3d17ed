//! Values of configuration files that several sections check alike.

use daemon::config::ConfigError;
use daemon::config::values::is_dns_name;
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

/// A DNS name, in lower case.
pub(crate) fn host_name(key: &str, value: &str) -> CheckResult<String> {
    if !is_dns_name(value) {
        return Err(ConfigError::new(
            key,
            format!("{value:?} is not a DNS name"),
        ));
    }
    Ok(value.to_ascii_lowercase())
}
