//! The checked configuration: the desired tunnels and their engines.

use std::{collections::BTreeMap, path::PathBuf, str::FromStr, time::Duration};

use client::{Destination, HostHeader, Properties, ProxyProtocol, Target};
use daemon::config::ConfigError;
use serde_json::Value;
use types::tunnel::TunnelProperties;

use super::file::{AgentFile, EngineSection, TunnelSection};
use crate::args::properties::{apply_defaults, unsupported_for_rewrite};
use crate::commands::forward::heartbeat;

/// Minimum of `max_buffered_bytes`. With less, a few slow downloads would reach the limit.
const LEAST_BUFFERED_BYTES: u32 = 16 * 1024 * 1024;

/// A checked configuration.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    /// Settings of the top-level engine, which flags and environment override.
    pub(super) engine: EngineSection,
    /// Additional engines.
    pub(super) engines: BTreeMap<String, EngineSection>,
    /// Labels of the client.
    pub(super) client_labels: BTreeMap<String, String>,
    /// The interval of heartbeats. `None`: the library's default.
    pub(super) heartbeat: Option<Duration>,
    /// Bytes that streams buffer for slow readers. `None`: the library's default.
    pub(super) max_buffered_bytes: Option<usize>,
    /// The tunnels by their keys.
    pub(super) tunnels: BTreeMap<String, DesiredTunnel>,
}

/// A desired tunnel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct DesiredTunnel {
    /// Name of an additional engine. `None`: the top-level one.
    pub(super) engine: Option<String>,
    /// The requested properties.
    pub(super) properties: Properties,
    /// The service.
    pub(super) destination: Destination,
}

impl Plan {
    /// The plan without a file. Flags, environment or a context provide the engine.
    pub(super) fn without_file() -> Self {
        Self {
            engine: EngineSection::default(),
            engines: BTreeMap::new(),
            client_labels: BTreeMap::new(),
            heartbeat: None,
            max_buffered_bytes: None,
            tunnels: BTreeMap::new(),
        }
    }

    /// Parses the bytes of a file with the name `name`, and checks the configuration.
    ///
    /// # Errors
    /// All errors, with their positions.
    pub(super) fn read(name: &str, bytes: &[u8]) -> Result<Self, Vec<ConfigError>> {
        daemon::config::read_all(name, bytes, Self::check)
    }

    fn check(file: AgentFile) -> Result<Self, Vec<ConfigError>> {
        let mut wrong = Vec::new();
        match file.version {
            Some(VERSION) => {}
            Some(_) => wrong.push(ConfigError::new(
                "version",
                "this program supports version 1",
            )),
            None => wrong.push(ConfigError::new("version", "missing; write version: 1")),
        }
        let heartbeat = file.heartbeat.and_then(|text| {
            heartbeat(&text)
                .map_err(|message| wrong.push(ConfigError::new("heartbeat", message)))
                .ok()
        });
        let max_buffered_bytes = file.max_buffered_bytes.and_then(|bytes| {
            if bytes < LEAST_BUFFERED_BYTES {
                let message = format!("{bytes} is less than {LEAST_BUFFERED_BYTES}");
                wrong.push(ConfigError::new("max_buffered_bytes", message));
            }
            usize::try_from(bytes).ok()
        });
        if let Err(error) = types::client::check_labels(&file.client_labels) {
            let key = error.field.replacen("labels", "client_labels", 1);
            wrong.push(ConfigError::new(key, error.message));
        }
        let engine = EngineSection {
            engine: file.engine,
            token_file: file.token_file,
            ca_file: file.ca_file,
            context: file.context,
        };
        check_engine(&engine, "", &mut wrong);
        for (name, section) in &file.engines {
            check_engine(section, &format!("engines.{name}."), &mut wrong);
        }
        let mut tunnels = BTreeMap::new();
        for (key, section) in &file.tunnels {
            let at = format!("tunnels.{key}");
            match DesiredTunnel::check(section, key) {
                Ok(wanted) => {
                    if let Err(message) = wanted.has_engine(&file.engines) {
                        wrong.push(ConfigError::new(format!("{at}.engine"), message));
                    }
                    tunnels.insert(key.clone(), wanted);
                }
                Err(errors) => wrong.extend(errors.into_iter().map(|error| ConfigError {
                    key: match error.key.as_str() {
                        "" => at.clone(),
                        field => format!("{at}.{field}"),
                    },
                    ..error
                })),
            }
        }
        wrong.extend(find_duplicates(&tunnels));
        if wrong.is_empty() {
            Ok(Self {
                engine,
                engines: file.engines,
                client_labels: file.client_labels,
                heartbeat,
                max_buffered_bytes,
                tunnels,
            })
        } else {
            Err(wrong)
        }
    }

    /// The files with tokens. They are polled like the configuration.
    pub(super) fn token_files(&self) -> impl Iterator<Item = PathBuf> {
        std::iter::once(&self.engine)
            .chain(self.engines.values())
            .filter_map(|section| section.token_file.as_deref().map(PathBuf::from))
    }
}

impl DesiredTunnel {
    /// Checks a section. The tunnel's default name is `key`. Errors contain the keys of the
    /// section.
    pub(super) fn check(section: &TunnelSection, key: &str) -> Result<Self, Vec<ConfigError>> {
        let mut wrong = Vec::new();
        let target: Option<Target> = match &section.target {
            None => {
                wrong.push(ConfigError::new(
                    "target",
                    "missing: give the service's port or \
                                                       address",
                ));
                None
            }
            Some(text) => read("target", &text.0, &mut wrong),
        };
        let proxy_protocol: Option<ProxyProtocol> = section
            .proxy_protocol
            .as_deref()
            .and_then(|text| read("proxy_protocol", text, &mut wrong));
        let host_header: Option<HostHeader> = section
            .host_header
            .as_deref()
            .and_then(|text| read("host_header", text, &mut wrong));
        if section
            .port
            .is_some_and(|port| !(1..=65535).contains(&port))
        {
            wrong.push(ConfigError::new("port", "a port is 1 to 65535"));
        }
        let mut properties = section.properties();
        if properties.name.is_none() {
            if let Err(error) = types::tunnel::TunnelName::from_str(key) {
                let message = format!("`{key}` is not a tunnel name ({error}); give it a `name`");
                wrong.push(ConfigError::new("", message));
            } else {
                properties.name = Some(key.to_owned());
            }
        }
        check_properties(&properties, &mut wrong);
        let Some(target) = target.filter(|_| wrong.is_empty()) else {
            return Err(wrong);
        };
        let properties = apply_defaults(properties, &target).map_err(|_contradiction| {
            vec![ConfigError::new(
                "upstream_tls",
                "false contradicts an https:// target",
            )]
        })?;
        // The rules between properties that apply at every engine. Only an engine can decide which
        // options it offers.
        let rules = serde_json::to_value(&properties)
            .and_then(serde_json::from_value::<TunnelProperties>)
            .map_err(|error| vec![ConfigError::new("", error.to_string())])?
            .resolve();
        let effective =
            rules.map_err(|error| vec![ConfigError::new(error.field, error.message)])?;
        if proxy_protocol.is_some() && effective.protocol == Some(types::tunnel::Protocol::Http) {
            let message = "it is not for http tunnels, whose connections carry the requests of \
                           many visitors; read X-Forwarded-For";
            return Err(vec![ConfigError::new("proxy_protocol", message)]);
        }
        if host_header.is_some()
            && let Some(other) = unsupported_for_rewrite(&properties)
        {
            let message = format!(
                "it is for services that use http/1.1 without TLS, and this one uses {other}"
            );
            return Err(vec![ConfigError::new("host_header", message)]);
        }
        let mut destination = Destination::new(target);
        destination.proxy_protocol = proxy_protocol;
        destination.host_header = host_header;
        Ok(Self {
            engine: section.engine.clone(),
            properties,
            destination,
        })
    }

    /// True if its engine is one of these.
    pub(super) fn has_engine(
        &self,
        engines: &BTreeMap<String, EngineSection>,
    ) -> Result<(), String> {
        let Some(name) = self
            .engine
            .as_ref()
            .filter(|name| !engines.contains_key(*name))
        else {
            return Ok(());
        };
        let nearest = engines
            .keys()
            .min_by_key(|known| strsim::damerau_levenshtein(name, known));
        Err(match nearest {
            Some(nearest) => format!("engine `{name}` does not exist; did you mean `{nearest}`?"),
            None => format!("engine `{name}` does not exist: `engines` is empty"),
        })
    }
}

/// Parses a text, or reports the expected format.
fn read<T: FromStr<Err: ToString>>(
    key: &str,
    text: &str,
    wrong: &mut Vec<ConfigError>,
) -> Option<T> {
    text.parse()
        .map_err(|error: T::Err| wrong.push(ConfigError::new(key, error.to_string())))
        .ok()
}

/// Checks each property separately, with the types that engines use.
fn check_properties(properties: &Properties, wrong: &mut Vec<ConfigError>) {
    let Ok(Value::Object(fields)) = serde_json::to_value(properties) else {
        return;
    };
    for (key, value) in fields {
        let items: Vec<_> = match value {
            Value::Array(items) => items
                .into_iter()
                .enumerate()
                .map(|(index, item)| (format!("{key}.{index}"), Value::Array(vec![item])))
                .collect(),
            value => vec![(key.clone(), value)],
        };
        for (at, value) in items {
            let alone = serde_json::json!({ &key: value });
            if let Err(error) = serde_json::from_value::<TunnelProperties>(alone) {
                wrong.push(ConfigError::new(at, error.to_string()));
            }
        }
    }
}

fn check_engine(section: &EngineSection, at: &str, wrong: &mut Vec<ConfigError>) {
    if let Some(text) = &section.engine
        && let Err(error) = text.parse::<client::HostPort>()
    {
        wrong.push(ConfigError::new(
            format!("{at}engine"),
            format!("`{text}` is {error}"),
        ));
    }
    let empty = [
        ("token_file", &section.token_file),
        ("ca_file", &section.ca_file),
        ("context", &section.context),
    ];
    for (key, value) in empty {
        if value.as_deref() == Some("") {
            wrong.push(ConfigError::new(format!("{at}{key}"), "it is empty"));
        }
    }
}

/// Names, host names and ports that two tunnels of one engine request. The engine would accept one
/// tunnel and reject the other.
fn find_duplicates(tunnels: &BTreeMap<String, DesiredTunnel>) -> Vec<ConfigError> {
    let mut seen: BTreeMap<(&Option<String>, &str, String), &str> = BTreeMap::new();
    let mut wrong = Vec::new();
    for (key, wanted) in tunnels {
        let asked = &wanted.properties;
        let claims = [
            ("name", asked.name.clone()),
            ("hostname", asked.hostname.clone()),
            ("port", asked.port.map(|port| port.to_string())),
        ];
        for (field, value) in claims {
            let Some(value) = value else { continue };
            if let Some(other) = seen.insert((&wanted.engine, field, value), key) {
                let message = format!("tunnels.{other} asks for the same {field}");
                wrong.push(ConfigError::new(format!("tunnels.{key}.{field}"), message));
            }
        }
    }
    wrong
}

/// The format version that this program reads.
const VERSION: u64 = 1;
