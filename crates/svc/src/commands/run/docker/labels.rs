//! Converts the labels of a container to tunnels.

use std::{collections::BTreeMap, net::IpAddr};

use daemon::config::ConfigError;
use serde_json::{Map, Value};

use super::{ContainerTunnel, api::Container};
use crate::commands::run::{file::TunnelSection, plan::DesiredTunnel};

/// The label that enables a container, with the value `true`.
pub(super) const ENABLE: &str = "svc.enable";

/// Parser of labels.
#[derive(Debug)]
pub(super) struct LabelParser {
    host_ports: bool,
    /// The keys of a tunnel section in a file, with their schemas.
    keys: Map<String, Value>,
}

/// The labels of one tunnel: their names without the common prefix, and their values.
type Group<'a> = BTreeMap<String, &'a str>;

impl LabelParser {
    /// A parser. The targets of its tunnels are the ports that containers publish (`host_ports`),
    /// or ports at the addresses of the containers.
    pub(super) fn new(host_ports: bool) -> Self {
        let mut schema = daemon::config::schema::<TunnelSection>();
        let keys = match schema.get_mut("properties").map(Value::take) {
            Some(Value::Object(keys)) => keys,
            _ => Map::new(),
        };
        Self { host_ports, keys }
    }

    /// The tunnels that a container requests. `None` if it requests none.
    pub(super) fn parse(&self, container: &Container) -> Option<ContainerTunnel> {
        let labels = container.config.labels.as_ref()?;
        let name = container.name.trim_start_matches('/');
        let mut found = ContainerTunnel::default();
        match labels.get(ENABLE)?.as_str() {
            "true" => {}
            "false" => return None,
            _ => {
                let error = format!("container {name}: {ENABLE}: expected true or false");
                found.errors.push(error);
                return Some(found);
            }
        }
        for (group, labels) in groups(labels) {
            let (key, default_name) = match group {
                None => (format!("docker/{name}"), name.to_owned()),
                Some(group) => (format!("docker/{name}/{group}"), format!("{name}-{group}")),
            };
            match self.tunnel(container, &labels, &default_name) {
                Ok(wanted) => {
                    found.tunnels.insert(key, wanted);
                }
                Err(errors) => found.errors.extend(errors.iter().map(|error| {
                    let label = match group {
                        None => format!("svc.{}", error.key),
                        Some(group) => format!("svc.tunnels.{group}.{}", error.key),
                    };
                    let label = label.trim_end_matches('.');
                    format!("container {name}: {label}: {}", error.message)
                })),
            }
        }
        Some(found)
    }

    /// Parses the labels of one tunnel like a section of a file. Errors name labels as keys.
    fn tunnel(
        &self,
        container: &Container,
        labels: &Group<'_>,
        default_name: &str,
    ) -> Result<DesiredTunnel, Vec<ConfigError>> {
        let mut errors = Vec::new();
        let mut section = Map::new();
        let mut own_labels = Map::new();
        for (label, text) in labels {
            let property = label.replace('-', "_");
            match property.as_str() {
                PORT | NETWORK => {}
                PUBLIC_PORT => {
                    self.insert_value("port", label, text, &mut section, &mut errors);
                }
                "labels" => errors.push(ConfigError::new(label, "write svc.label.<key>")),
                _ => match label.strip_prefix("label.") {
                    Some(key) if !key.is_empty() => {
                        own_labels.insert(key.to_owned(), (*text).into());
                    }
                    _ => self.insert_value(&property, label, text, &mut section, &mut errors),
                },
            }
        }
        section.insert("labels".to_owned(), own_labels.into());
        if !section.contains_key("target") {
            match self.target(container, labels) {
                Ok(target) => {
                    section.insert("target".to_owned(), target.into());
                }
                Err(error) => errors.push(error),
            }
        }
        if !errors.is_empty() {
            return Err(errors);
        }
        let section: TunnelSection = serde_json::from_value(section.into())
            .map_err(|error| vec![ConfigError::new("", error.to_string())])?;
        DesiredTunnel::from_section(&section, default_name).map_err(|errors| {
            let as_label = |error: ConfigError| ConfigError {
                key: match error.key.as_str() {
                    "port" => "public-port".to_owned(),
                    key => key.replace('_', "-"),
                },
                ..error
            };
            errors.into_iter().map(as_label).collect()
        })
    }

    /// Converts a text to the type of its key.
    fn insert_value(
        &self,
        key: &str,
        label: &str,
        text: &str,
        section: &mut Map<String, Value>,
        errors: &mut Vec<ConfigError>,
    ) {
        let Some(schema) = self.keys.get(key) else {
            errors.push(ConfigError::new(label, self.unknown(key)));
            return;
        };
        let kind = match schema.get("type") {
            Some(Value::Array(kinds)) => kinds.first().and_then(Value::as_str),
            kind => kind.and_then(Value::as_str),
        };
        let value = match kind {
            Some("boolean") => match text {
                "true" => Ok(true.into()),
                "false" => Ok(false.into()),
                _ => Err("expected true or false"),
            },
            Some("integer") => text
                .parse::<i64>()
                .map(Value::from)
                .map_err(|_invalid| "expected a whole number"),
            Some("array") => Ok(text
                .split(',')
                .map(str::trim)
                .filter(|item| !item.is_empty())
                .collect()),
            _ => Ok(text.into()),
        };
        match value {
            Ok(value) => {
                section.insert(key.to_owned(), value);
            }
            Err(expected) => errors.push(ConfigError::new(label, expected)),
        }
    }

    fn unknown(&self, key: &str) -> String {
        let own_keys = [PORT, NETWORK, PUBLIC_PORT, "enable"];
        let known = self.keys.keys().map(String::as_str).chain(own_keys);
        let nearest = known.min_by_key(|known| strsim::damerau_levenshtein(key, known));
        match nearest {
            Some(nearest) => format!(
                "unknown label; the nearest known one is svc.{}",
                nearest.replace('_', "-")
            ),
            None => "unknown label".to_owned(),
        }
    }

    /// The address of the service in the container.
    fn target(&self, container: &Container, labels: &Group<'_>) -> Result<String, ConfigError> {
        let port = match labels.get(PORT) {
            Some(text) => text
                .parse::<u16>()
                .ok()
                .filter(|port| *port > 0)
                .ok_or_else(|| {
                    ConfigError::new(PORT, "expected the port of the service, 1 to 65535")
                })?,
            None => only_port(container)?,
        };
        let network = labels.get(NETWORK).copied();
        if self.host_ports {
            return published_address(container, port);
        }
        if container.host_config.network_mode == "host" {
            return Ok(format!("127.0.0.1:{port}"));
        }
        address(container, network).map(|address| match address {
            IpAddr::V4(address) => format!("{address}:{port}"),
            IpAddr::V6(address) => format!("[{address}]:{port}"),
        })
    }
}

/// Groups labels by tunnel: `svc.tunnels.<name>.` and the container's own. The network of the
/// container is the default for each tunnel.
fn groups(labels: &BTreeMap<String, String>) -> BTreeMap<Option<&str>, Group<'_>> {
    let mut groups: BTreeMap<Option<&str>, Group<'_>> = BTreeMap::new();
    for (label, text) in labels {
        let Some(rest) = label.strip_prefix("svc.").filter(|_| label != ENABLE) else {
            continue;
        };
        let named = rest
            .strip_prefix("tunnels.")
            .and_then(|rest| rest.split_once('.'));
        let (group, property) = match named {
            Some((name, property)) => (Some(name), property),
            None => (None, rest),
        };
        let labels = groups.entry(group).or_default();
        labels.insert(property.to_owned(), text);
    }
    let shared = groups
        .get(&None)
        .and_then(|labels| labels.get(NETWORK))
        .copied();
    let alone = groups
        .get(&None)
        .is_none_or(|labels| labels.keys().all(|label| label == NETWORK));
    if groups.keys().any(Option::is_some) {
        if alone {
            groups.remove(&None);
        }
    } else {
        groups.entry(None).or_default();
    }
    if let Some(network) = shared {
        for labels in groups.values_mut() {
            labels.entry(NETWORK.to_owned()).or_insert(network);
        }
    }
    groups
}

/// The single TCP port that the image exposes.
fn only_port(container: &Container) -> Result<u16, ConfigError> {
    let exposed = container.config.exposed_ports.iter().flatten();
    let mut ports = exposed
        .filter_map(|(port, _)| port.strip_suffix("/tcp"))
        .filter_map(|port| port.parse().ok());
    match (ports.next(), ports.next()) {
        (Some(port), None) => Ok(port),
        (None, _) => Err(ConfigError::new(PORT, "missing: set the container's port")),
        (Some(_), Some(_)) => Err(ConfigError::new(
            PORT,
            "missing, and the image exposes several ports",
        )),
    }
}

/// The container's address in a network: the named one, or else the first by name.
fn address(container: &Container, network: Option<&str>) -> Result<IpAddr, ConfigError> {
    let networks = container.network_settings.networks.iter().flatten();
    let mut addresses = networks
        .filter(|(name, _)| network.is_none_or(|wanted| wanted == *name))
        .flat_map(|(_, network)| [&network.ip_address, &network.ipv6_address])
        .filter_map(|text| text.parse().ok());
    addresses.next().ok_or_else(|| match network {
        Some(name) => ConfigError::new(NETWORK, format!("it has no address in `{name}`")),
        None => ConfigError::new(
            PORT,
            "the container has no address of its own; publish a port and give --docker-host-ports",
        ),
    })
}

/// The address on this machine where the container's port is published.
fn published_address(container: &Container, port: u16) -> Result<String, ConfigError> {
    let bindings = container
        .network_settings
        .ports
        .as_ref()
        .and_then(|ports| ports.get(&format!("{port}/tcp")))
        .and_then(Option::as_ref);
    let binding = bindings
        .and_then(|bindings| bindings.first())
        .ok_or_else(|| {
            ConfigError::new(
                PORT,
                format!("the container does not publish its port {port}"),
            )
        })?;
    let host = match binding.host_ip.as_str() {
        // A wildcard address includes loopback.
        "" | "0.0.0.0" => "127.0.0.1".to_owned(),
        "::" => "[::1]".to_owned(),
        ip if ip.contains(':') => format!("[{ip}]"),
        ip => ip.to_owned(),
    };
    Ok(format!("{host}:{}", binding.host_port))
}

/// Port of the service in the container.
const PORT: &str = "port";
/// The public port. Its key in a file is `port`.
const PUBLIC_PORT: &str = "public_port";
/// The network to reach the container in.
const NETWORK: &str = "network";

#[cfg(test)]
mod tests;
