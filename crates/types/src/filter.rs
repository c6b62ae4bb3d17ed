//! Filters and the `params` of the Engine API (EN-2, EN-3).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::client::Client;
use crate::tunnel::{HttpVersion, Protocol, Status, Tunnel, TunnelType};

/// Required labels: a value to equal, or `null` for "has this key".
pub type LabelFilter = BTreeMap<String, Option<String>>;

/// What a client must have; all of it (EN-2b).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ClientFilter {
    /// Id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// Status.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<Status>,
    /// Owner.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user_id: Option<String>,
    /// Name of the agent program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    /// Release channel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub channel: Option<String>,
    /// Version of the agent program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Operating system.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub os: Option<String>,
    /// Processor architecture.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arch: Option<String>,
    /// Version of the agent protocol.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protocol_version: Option<String>,
    /// Labels; a value of `null` asks for the key alone.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: LabelFilter,
}

impl ClientFilter {
    /// Whether the client has all that the filter names.
    pub fn matches(&self, client: &Client) -> bool {
        let _ = client;
        false
    }
}

/// What a tunnel must have; all of it (EN-2a).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TunnelFilter {
    /// Id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// Name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Byte stream or datagrams.
    #[serde(default, rename = "type", skip_serializing_if = "Option::is_none")]
    pub tunnel_type: Option<TunnelType>,
    /// Status.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<Status>,
    /// Client that holds it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_id: Option<String>,
    /// Owner.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user_id: Option<String>,
    /// Published or private.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub publish: Option<bool>,
    /// Protocol.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protocol: Option<Protocol>,
    /// Host name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hostname: Option<String>,
    /// HTTP version towards the upstream.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub http_version: Option<HttpVersion>,
    /// Whether browser sessions are on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub svc_auth: Option<bool>,
    /// Labels; a value of `null` asks for the key alone.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: LabelFilter,
}

impl TunnelFilter {
    /// Whether the tunnel has all that the filter names.
    pub fn matches(&self, tunnel: &Tunnel) -> bool {
        let _ = tunnel;
        false
    }
}

/// A filter that stands in `params`.
pub trait Filter: Default + Sized {
    /// Name of the schema of `params` with this filter.
    const PARAMS_SCHEMA: &'static str;

    /// Reads the filter from a JSON value at `field`, refusing unknown keys by name.
    fn from_json(value: &serde_json::Value, field: &str, compat: bool) -> Result<Self, ParamError>;
}

/// `params` of `/api/clients` and `/api/tunnels`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ListParams<F> {
    /// At most this many objects, 1 to [`MAX_LIMIT`]; the whole list without it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u16>,
    /// What the objects must have.
    pub filters: F,
}

impl<F: Filter> ListParams<F> {
    /// Reads the decoded text of the parameter (EN-2).
    pub fn parse(text: &str, compat: bool) -> Result<Self, ParamError> {
        let _ = (text, compat);
        Err(ParamError::new("", "not read"))
    }

    /// Reads `params` out of a raw query; the defaults where there is none.
    pub fn from_query(query: &str, compat: bool) -> Result<Self, ParamError> {
        params_of_query(query)?
            .map_or_else(|| Ok(Self::default()), |text| Self::parse(&text, compat))
    }
}

/// `params` of `/api/sse` and `/api/websocket` (EN-3).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, ToSchema)]
pub struct WatchParams {
    /// What clients must have to be seen.
    pub clients: ClientFilter,
    /// What tunnels must have to be seen.
    pub tunnels: TunnelFilter,
    /// Whether `webtty.*` events are sent too.
    pub webtty: bool,
}

impl WatchParams {
    /// Reads the decoded text of the parameter.
    pub fn parse(text: &str, compat: bool) -> Result<Self, ParamError> {
        let _ = (text, compat);
        Err(ParamError::new("", "not read"))
    }

    /// Reads `params` out of a raw query; the defaults where there is none.
    pub fn from_query(query: &str, compat: bool) -> Result<Self, ParamError> {
        params_of_query(query)?
            .map_or_else(|| Ok(Self::default()), |text| Self::parse(&text, compat))
    }
}

/// An input at fault.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}{}{message}", if field.is_empty() { "" } else { ": " })]
pub struct ParamError {
    /// Dotted path, for example `filters.name`; empty for the whole.
    pub field: String,
    /// What is wrong.
    pub message: String,
}

impl ParamError {
    /// An error of one input.
    pub fn new(field: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            field: field.into(),
            message: message.into(),
        }
    }
}

/// The decoded text of the one `params` of a raw query.
pub fn params_of_query(query: &str) -> Result<Option<String>, ParamError> {
    let _ = query;
    Err(ParamError::new("params", "not read"))
}

/// Upper end of `limit`: a page that a person or a program still handles in one piece.
pub const MAX_LIMIT: u16 = 1000;
