//! The description of each end in its first message.

use std::collections::BTreeMap;

use super::wrappers::{Secret, StringValue};

/// Description of a client in its first message, with its authentication.
///
/// On a data connection `token` is the one-time secret of the stream, or the secret of the agent's
/// standing connections ([`pool`](crate::pool)).
#[derive(Clone, PartialEq, prost::Message)]
pub struct ClientDetails {
    /// Name of the program.
    #[prost(message, optional, tag = "1")]
    pub agent: Option<StringValue>,
    /// Release channel of the program.
    #[prost(message, optional, tag = "2")]
    pub channel: Option<StringValue>,
    /// Version of the program.
    #[prost(message, optional, tag = "3")]
    pub version: Option<StringValue>,
    /// Operating system.
    #[prost(message, optional, tag = "4")]
    pub os: Option<StringValue>,
    /// Processor architecture.
    #[prost(message, optional, tag = "5")]
    pub arch: Option<StringValue>,
    /// The token that authenticates the client.
    #[prost(message, optional, tag = "6")]
    pub token: Option<Secret>,
    /// The protocol version, see [`handshake`](crate::handshake).
    #[prost(message, optional, tag = "7")]
    pub protocol_version: Option<StringValue>,
    /// Our addition: labels of the client, used by client filters (EN-2b).
    #[prost(btree_map = "string, string", tag = "100")]
    pub labels: BTreeMap<String, String>,
    /// Our addition: names of the extensions that the client supports.
    #[prost(string, repeated, tag = "101")]
    pub extensions: Vec<String>,
}

/// Description of an engine in its first message.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ServerDetails {
    /// Name of the program.
    #[prost(message, optional, tag = "1")]
    pub agent: Option<StringValue>,
    /// Release channel of the program.
    #[prost(message, optional, tag = "2")]
    pub channel: Option<StringValue>,
    /// Version of the program.
    #[prost(message, optional, tag = "3")]
    pub version: Option<StringValue>,
    /// Plan of the project.
    #[prost(message, optional, tag = "4")]
    pub plan: Option<StringValue>,
    /// Provider of the machine.
    #[prost(message, optional, tag = "5")]
    pub provider: Option<StringValue>,
    /// Region of the machine.
    #[prost(message, optional, tag = "6")]
    pub region: Option<StringValue>,
    /// A newer version of the client, if one is known.
    #[prost(message, optional, tag = "7")]
    pub update: Option<StringValue>,
    /// Our addition: the extensions in use on this connection, which both ends support.
    #[prost(string, repeated, tag = "101")]
    pub extensions: Vec<String>,
    /// Our addition: the process of the engine that holds the channel (extension `move/1`).
    #[prost(string, tag = "102")]
    pub process: String,
}
