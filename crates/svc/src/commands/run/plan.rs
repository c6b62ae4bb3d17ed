//! The checked configuration: the desired tunnels and their engines.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    str::FromStr,
    time::Duration,
};

use client::{Destination, HostHeader, Properties, ProxyProtocol, ServiceName, Target};
use daemon::config::ConfigError;
use serde_json::Value;
use types::tunnel::TunnelProperties;

use super::file::{AgentFile, EngineSection, TunnelSection};
use crate::args::link_password;
use crate::args::properties::{apply_defaults, apply_service_names, time_to_first_byte};
use crate::commands::forward::heartbeat;

/// Minimum of `max_buffered_bytes`. With less, a few slow downloads would reach the limit.
const MIN_BUFFERED_BYTES: u32 = 16 * 1024 * 1024;

/// A checked configuration.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    /// Settings of the top-level engine, which flags and environment override.
    pub(super) engine: EngineSection,
    /// Additional engines.
    pub(super) engines: BTreeMap<String, EngineSection>,
    /// Labels of the agent (`client_labels`).
    pub(super) client_labels: BTreeMap<String, String>,
    /// The interval of heartbeats. `None`: the library's default.
    pub(super) heartbeat: Option<Duration>,
    /// Limit of the bytes that streams buffer for slow readers. `None`: the library's default.
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
    pub(super) fn parse(name: &str, bytes: &[u8]) -> Result<Self, Vec<ConfigError>> {
        Self::parse_and_list(name, bytes).0
    }

    /// As [`Self::parse`], with the files that contain the configuration's secrets. Those of an
    /// invalid configuration are listed too, because it can become valid when one of them changes.
    /// If the bytes are not a configuration at all, the list is empty.
    pub(super) fn parse_and_list(
        name: &str,
        bytes: &[u8],
    ) -> (Result<Self, Vec<ConfigError>>, Vec<PathBuf>) {
        let mut secret_files = Vec::new();
        let check = |file: AgentFile| {
            secret_files = file.secret_files();
            Self::from_file(file).map_err(Into::into)
        };
        let plan = daemon::config::read_all(name, bytes, check);
        let plan = plan.map_err(|errors| errors.into_iter().collect());
        (plan, secret_files)
    }

    fn from_file(file: AgentFile) -> Result<Self, Vec<ConfigError>> {
        let mut all_errors = Vec::new();
        match file.version {
            Some(FORMAT_VERSION) => {}
            Some(_) => all_errors.push(ConfigError::new(
                "version",
                "this program supports version 1",
            )),
            None => all_errors.push(ConfigError::new("version", "missing; write version: 1")),
        }
        let heartbeat = file.heartbeat.and_then(|text| {
            heartbeat(&text)
                .map_err(|message| all_errors.push(ConfigError::new("heartbeat", message)))
                .ok()
        });
        let max_buffered_bytes = file.max_buffered_bytes.and_then(|bytes| {
            if bytes < MIN_BUFFERED_BYTES {
                let message = format!("{bytes} is less than {MIN_BUFFERED_BYTES}");
                all_errors.push(ConfigError::new("max_buffered_bytes", message));
            }
            usize::try_from(bytes).ok()
        });
        if let Err(error) = types::client::check_labels(&file.client_labels) {
            let key = error.field.replacen("labels", "client_labels", 1);
            all_errors.push(ConfigError::new(key, error.message));
        }
        let engine = EngineSection {
            engine: file.engine,
            token_file: file.token_file,
            ca_file: file.ca_file,
            context: file.context,
        };
        check_engine(&engine, "", &mut all_errors);
        for (name, section) in &file.engines {
            check_engine(section, &format!("engines.{name}."), &mut all_errors);
        }
        let mut tunnels = BTreeMap::new();
        for (key, section) in &file.tunnels {
            let path = format!("tunnels.{key}");
            match DesiredTunnel::from_section(section, key) {
                Ok(tunnel) => {
                    if let Err(message) = tunnel.check_engine_exists(&file.engines) {
                        all_errors.push(ConfigError::new(format!("{path}.engine"), message));
                    }
                    tunnels.insert(key.clone(), tunnel);
                }
                Err(errors) => all_errors.extend(errors.into_iter().map(|error| ConfigError {
                    key: match error.key.as_str() {
                        "" => path.clone(),
                        field => format!("{path}.{field}"),
                    },
                    ..error
                })),
            }
        }
        all_errors.extend(find_duplicates(&tunnels));
        if all_errors.is_empty() {
            Ok(Self {
                engine,
                engines: file.engines,
                client_labels: file.client_labels,
                heartbeat,
                max_buffered_bytes,
                tunnels,
            })
        } else {
            Err(all_errors)
        }
    }
}

impl DesiredTunnel {
    /// Checks a section. `key` is the default name of the tunnel. The keys of errors are relative
    /// to the section.
    pub(super) fn from_section(
        section: &TunnelSection,
        key: &str,
    ) -> Result<Self, Vec<ConfigError>> {
        let mut errors = Vec::new();
        let target: Option<Target> = match &section.target {
            None => {
                errors.push(ConfigError::new(
                    "target",
                    "missing: give the service's port or \
                                                       address",
                ));
                None
            }
            Some(text) => parse_property("target", &text.0, &mut errors),
        };
        let proxy_protocol: Option<ProxyProtocol> = section
            .proxy_protocol
            .as_deref()
            .and_then(|text| parse_property("proxy_protocol", text, &mut errors));
        let host_header: Option<HostHeader> = section
            .host_header
            .as_deref()
            .and_then(|text| parse_property("host_header", text, &mut errors));
        let server_name: Option<ServiceName> = section
            .server_name
            .as_deref()
            .and_then(|text| parse_property("server_name", text, &mut errors));
        let properties = requested_properties(section, key, &mut errors);
        check_properties(&properties, &mut errors);
        let Some(target) = target.filter(|_| errors.is_empty()) else {
            return Err(errors);
        };
        let mut properties = apply_defaults(properties, &target).map_err(|_contradiction| {
            vec![ConfigError::new(
                "upstream_tls",
                "false contradicts the https:// target: remove this key",
            )]
        })?;
        let effective = resolve_properties(&properties)?;
        if proxy_protocol.is_some() && effective.protocol == Some(types::tunnel::Protocol::Http) {
            let message = "it is not for http tunnels, whose connections carry the requests of \
                           many visitors; read X-Forwarded-For";
            return Err(vec![ConfigError::new("proxy_protocol", message)]);
        }
        let mut destination = Destination::new(target);
        destination.proxy_protocol = proxy_protocol;
        let key = if server_name.is_some() {
            "server_name"
        } else {
            "host_header"
        };
        apply_service_names(&mut properties, &mut destination, host_header, server_name)
            .map_err(|error| vec![ConfigError::new(key, error.to_string())])?;
        Ok(Self {
            engine: section.engine.clone(),
            properties,
            destination,
        })
    }

    /// Fails if its engine is not one of these. The error suggests a similar name.
    pub(super) fn check_engine_exists(
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

/// The properties that a section requests, with the tunnel's key as their name.
fn requested_properties(
    section: &TunnelSection,
    key: &str,
    errors: &mut Vec<ConfigError>,
) -> Properties {
    if section
        .port
        .is_some_and(|port| !(1..=65535).contains(&port))
    {
        errors.push(ConfigError::new("port", "a port is 1 to 65535"));
    }
    let mut properties = section.properties();
    if let Some(text) = &section.time_to_first_byte {
        match time_to_first_byte(text) {
            Ok(seconds) => properties.time_to_first_byte_seconds = Some(seconds),
            Err(message) => errors.push(ConfigError::new("time_to_first_byte", message)),
        }
    }
    if let Some(path) = &section.basic_auth_file {
        match link_password::read(Path::new(path)) {
            Ok(passwords) => {
                properties.link_passwords = passwords;
                properties.basic_auth = Some(true);
            }
            Err(message) => errors.push(ConfigError::new("basic_auth_file", message)),
        }
    }
    if properties.name.is_none() {
        if let Err(error) = types::tunnel::TunnelName::from_str(key) {
            let message = format!("`{key}` is not a tunnel name ({error}); give it a `name`");
            errors.push(ConfigError::new("", message));
        } else {
            properties.name = Some(key.to_owned());
        }
    }
    properties
}

/// Checks property combinations by the rules that all engines share. An engine decides later if it
/// offers the requested options.
fn resolve_properties(properties: &Properties) -> Result<TunnelProperties, Vec<ConfigError>> {
    let resolved = serde_json::to_value(properties)
        .and_then(serde_json::from_value::<TunnelProperties>)
        .map_err(|error| vec![ConfigError::new("", error.to_string())])?
        .resolve();
    resolved.map_err(|error| {
        let key = match error.field.as_str() {
            "time_to_first_byte_seconds" => "time_to_first_byte",
            "basic_auth" => "basic_auth_file",
            field => field,
        };
        vec![ConfigError::new(key, error.message)]
    })
}

/// Parses a text, or reports the expected format.
fn parse_property<T: FromStr<Err: ToString>>(
    key: &str,
    text: &str,
    errors: &mut Vec<ConfigError>,
) -> Option<T> {
    text.parse()
        .map_err(|error: T::Err| errors.push(ConfigError::new(key, error.to_string())))
        .ok()
}

/// Checks each property separately, with the types that engines use.
fn check_properties(properties: &Properties, errors: &mut Vec<ConfigError>) {
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
        for (path, value) in items {
            let single_property = serde_json::json!({ &key: value });
            if let Err(error) = serde_json::from_value::<TunnelProperties>(single_property) {
                errors.push(ConfigError::new(path, error.to_string()));
            }
        }
    }
}

fn check_engine(section: &EngineSection, prefix: &str, errors: &mut Vec<ConfigError>) {
    if let Some(text) = &section.engine
        && let Err(error) = text.parse::<client::HostPort>()
    {
        errors.push(ConfigError::new(
            format!("{prefix}engine"),
            format!("`{text}` is {error}"),
        ));
    }
    let optional_fields = [
        ("token_file", &section.token_file),
        ("ca_file", &section.ca_file),
        ("context", &section.context),
    ];
    for (key, value) in optional_fields {
        if value.as_deref() == Some("") {
            errors.push(ConfigError::new(
                format!("{prefix}{key}"),
                "it is empty: remove this key",
            ));
        }
    }
}

/// Names, host names and ports that two tunnels of one engine request. The engine would accept one
/// tunnel and reject the other.
fn find_duplicates(tunnels: &BTreeMap<String, DesiredTunnel>) -> Vec<ConfigError> {
    let mut seen: BTreeMap<(&Option<String>, &str, String), &str> = BTreeMap::new();
    let mut errors = Vec::new();
    for (key, tunnel) in tunnels {
        let requested = &tunnel.properties;
        let requested_values = [
            ("name", requested.name.clone()),
            ("hostname", requested.hostname.clone()),
            ("port", requested.port.map(|port| port.to_string())),
        ];
        for (field, value) in requested_values {
            let Some(value) = value else { continue };
            if let Some(other_key) = seen.insert((&tunnel.engine, field, value), key) {
                let message = format!("tunnels.{other_key} asks for the same {field}");
                errors.push(ConfigError::new(format!("tunnels.{key}.{field}"), message));
            }
        }
    }
    errors
}

/// The format version that this program reads.
const FORMAT_VERSION: u64 = 1;
