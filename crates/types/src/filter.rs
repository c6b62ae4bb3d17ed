//! Filters of the Engine API, and the `params` that contain them (EN-2, EN-3).
//!
//! The list, the snapshot and every later event use the same filter value, so that they cannot
//! disagree.

mod params;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

pub use self::params::{
    Filter, ListClientsParams, ListParams, ListTunnelsParams, MAX_LIMIT, ParamError, WatchParams,
    limit_schema, params_of_query,
};
use self::params::{boolean, members, text, unknown_key, word};
use crate::client::{Client, Labels};
use crate::tunnel::{Hostname, HttpVersion, Protocol, Status, Tunnel, TunnelName, TunnelType};

/// Required labels: the value that a label must have, or `null` for any value.
pub type LabelFilter = BTreeMap<String, Option<String>>;

/// Conditions on a client, all of which must be met.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ClientFilter {
    /// Id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub id: Option<String>,
    /// Status.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub status: Option<Status>,
    /// Owner.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub user_id: Option<String>,
    /// Name of the agent program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub agent: Option<String>,
    /// Release channel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub channel: Option<String>,
    /// Version of the agent program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub version: Option<String>,
    /// Operating system.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub os: Option<String>,
    /// Processor architecture.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub arch: Option<String>,
    /// Version of the agent protocol.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub protocol_version: Option<String>,
    /// Labels; a value of `null` requires only the key.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schema(value_type = BTreeMap<String, Option<String>>, required = false)]
    // The type is spelled out because the schema is derived from it; an alias would not work.
    pub labels: BTreeMap<String, Option<String>>,
}

impl ClientFilter {
    /// True if the client matches the whole filter (EN-2b).
    pub fn matches(&self, client: &Client) -> bool {
        let equal = [
            (&self.id, Some(client.id.as_str())),
            (&self.user_id, client.user_id.as_deref()),
            (&self.agent, client.agent.as_deref()),
            (&self.channel, client.channel.as_deref()),
            (&self.version, client.version.as_deref()),
            (&self.os, client.os.as_deref()),
            (&self.arch, client.arch.as_deref()),
            (&self.protocol_version, client.protocol_version.as_deref()),
        ];
        all_equal(&equal)
            && self.status.is_none_or(|wanted| wanted == client.status)
            && has_labels(&self.labels, &client.labels)
    }
}

/// Conditions on a tunnel, all of which must be met.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TunnelFilter {
    /// Id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub id: Option<String>,
    /// Name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub name: Option<String>,
    /// Byte stream or datagrams.
    #[serde(default, rename = "type", skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub tunnel_type: Option<TunnelType>,
    /// Status.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub status: Option<Status>,
    /// Client that provides the tunnel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub client_id: Option<String>,
    /// Owner.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub user_id: Option<String>,
    /// Published or private.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub publish: Option<bool>,
    /// Protocol.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub protocol: Option<Protocol>,
    /// Host name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub hostname: Option<String>,
    /// HTTP version towards the upstream.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub http_version: Option<HttpVersion>,
    /// True if browser sessions are on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub svc_auth: Option<bool>,
    /// Labels; a value of `null` requires only the key.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schema(value_type = BTreeMap<String, Option<String>>, required = false)]
    // The type is spelled out because the schema is derived from it; an alias would not work.
    pub labels: BTreeMap<String, Option<String>>,
}

impl TunnelFilter {
    /// True if the tunnel matches the whole filter (EN-2a).
    pub fn matches(&self, tunnel: &Tunnel) -> bool {
        let properties = &tunnel.properties;
        let equal = [
            (&self.id, Some(tunnel.id.as_str())),
            (&self.client_id, Some(tunnel.client_id.as_str())),
            (&self.user_id, tunnel.user_id.as_deref()),
            (&self.name, properties.name.as_ref().map(TunnelName::as_str)),
            (
                &self.hostname,
                properties.hostname.as_ref().map(Hostname::as_str),
            ),
        ];
        // Absent properties have their defaults: published, and all other flags off.
        all_equal(&equal)
            && self.status.is_none_or(|wanted| wanted == tunnel.status)
            && self
                .tunnel_type
                .is_none_or(|wanted| properties.tunnel_type == Some(wanted))
            && self
                .protocol
                .is_none_or(|wanted| properties.protocol == Some(wanted))
            && self
                .http_version
                .is_none_or(|wanted| properties.http_version == Some(wanted))
            && self
                .publish
                .is_none_or(|wanted| properties.publish.unwrap_or(true) == wanted)
            && self
                .svc_auth
                .is_none_or(|wanted| properties.svc_auth.unwrap_or(false) == wanted)
            && has_labels(&self.labels, &properties.labels)
    }
}

impl Filter for ClientFilter {
    const PARAMS_SCHEMA: &'static str = "ListClientsParams";

    fn from_json(value: &Value, field: &str, _compat: bool) -> Result<Self, ParamError> {
        let mut filter = Self::default();
        for (key, at, value) in members(value, field)? {
            match key {
                "id" => filter.id = Some(text(value, &at)?),
                "status" => filter.status = Some(word(value, &at)?),
                "user_id" => filter.user_id = Some(text(value, &at)?),
                "agent" => filter.agent = Some(text(value, &at)?),
                "channel" => filter.channel = Some(text(value, &at)?),
                "version" => filter.version = Some(text(value, &at)?),
                "os" => filter.os = Some(text(value, &at)?),
                "arch" => filter.arch = Some(text(value, &at)?),
                "protocol_version" => filter.protocol_version = Some(text(value, &at)?),
                "labels" => filter.labels = labels(value, &at)?,
                _ => return Err(unknown_key(at)),
            }
        }
        Ok(filter)
    }
}

impl Filter for TunnelFilter {
    const PARAMS_SCHEMA: &'static str = "ListTunnelsParams";

    fn from_json(value: &Value, field: &str, compat: bool) -> Result<Self, ParamError> {
        let mut filter = Self::default();
        for (key, at, value) in members(value, field)? {
            match key {
                "id" => filter.id = Some(text(value, &at)?),
                "name" => filter.name = Some(text(value, &at)?),
                "type" => filter.tunnel_type = Some(word(value, &at)?),
                "status" => filter.status = Some(word(value, &at)?),
                "client_id" => filter.client_id = Some(text(value, &at)?),
                "user_id" => filter.user_id = Some(text(value, &at)?),
                "publish" => filter.publish = Some(boolean(value, &at)?),
                "protocol" => filter.protocol = Some(word(value, &at)?),
                // Host names are compared in lower case, the only spelling that tunnels use.
                "hostname" => filter.hostname = Some(text(value, &at)?.to_ascii_lowercase()),
                "http_version" => filter.http_version = Some(word(value, &at)?),
                "svc_auth" => set_session(&mut filter, value, &at)?,
                "rstream_auth" if compat => set_session(&mut filter, value, &at)?,
                "labels" => filter.labels = labels(value, &at)?,
                _ => return Err(unknown_key(at)),
            }
        }
        Ok(filter)
    }
}

fn set_session(filter: &mut TunnelFilter, value: &Value, at: &str) -> Result<(), ParamError> {
    match filter.svc_auth.replace(boolean(value, at)?) {
        Some(_) => Err(ParamError::new(at, "is given in two spellings")),
        None => Ok(()),
    }
}

fn labels(value: &Value, field: &str) -> Result<LabelFilter, ParamError> {
    members(value, field)?
        .map(|(key, at, value)| {
            let wanted = if value.is_null() {
                None
            } else {
                Some(text(value, &at)?)
            };
            Ok((key.to_owned(), wanted))
        })
        .collect()
}

fn all_equal(pairs: &[(&Option<String>, Option<&str>)]) -> bool {
    pairs
        .iter()
        .all(|(wanted, actual)| wanted.is_none() || wanted.as_deref() == *actual)
}

fn has_labels(wanted: &LabelFilter, actual: &Labels) -> bool {
    wanted.iter().all(|(key, value)| {
        actual
            .get(key)
            .is_some_and(|actual| value.as_ref().is_none_or(|wanted| wanted == actual))
    })
}
