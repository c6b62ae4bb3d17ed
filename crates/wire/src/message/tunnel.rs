//! Messages about tunnels.

use std::collections::BTreeMap;

use super::wrappers::{BoolValue, Secret, StringValue, Timestamp, UInt32Value};
use crate::error::Error;

/// Requests a tunnel.
#[derive(Clone, PartialEq, prost::Message)]
pub struct OpenTunnelReq {
    /// Chosen by the client and repeated in the response.
    #[prost(string, tag = "1")]
    pub request_id: String,
    /// The requested properties; the engine chooses the ones that are missing.
    #[prost(message, optional, tag = "2")]
    pub tunnel_properties: Option<TunnelProperties>,
}

/// The response to an [`OpenTunnelReq`].
#[derive(Clone, PartialEq, prost::Message)]
pub struct OpenTunnelRsp {
    /// Id of the request.
    #[prost(string, tag = "1")]
    pub request_id: String,
    /// The tunnel, or an error.
    #[prost(oneof = "TunnelOutcome", tags = "2, 3")]
    pub outcome: Option<TunnelOutcome>,
}

/// Result of the request for a tunnel.
#[derive(Clone, PartialEq, prost::Oneof)]
pub enum TunnelOutcome {
    /// The tunnel with its effective properties: id, address and defaults are set.
    #[prost(message, boxed, tag = "2")]
    TunnelProperties(Box<TunnelProperties>),
    /// No tunnel.
    #[prost(message, tag = "3")]
    Error(Error),
}

/// Requests the end of a tunnel.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct CloseTunnelReq {
    /// The tunnel.
    #[prost(string, tag = "1")]
    pub tunnel_id: String,
}

/// Reports that a tunnel has ended.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct CloseTunnelRsp {
    /// The tunnel.
    #[prost(string, tag = "1")]
    pub tunnel_id: String,
}

/// A tunnel in its wire format, unchecked; [`properties`](crate::properties) checks it.
#[derive(Clone, PartialEq, prost::Message)]
pub struct TunnelProperties {
    /// Set by the engine.
    #[prost(message, optional, tag = "1")]
    pub id: Option<StringValue>,
    /// Set by the engine.
    #[prost(message, optional, tag = "2")]
    pub creation_date: Option<Timestamp>,
    /// The name for dialling a private tunnel.
    #[prost(message, optional, tag = "3")]
    pub name: Option<StringValue>,
    /// `bytestream` or `datagram`.
    #[prost(message, optional, tag = "4")]
    pub r#type: Option<StringValue>,
    /// True if visitors reach it at a public address.
    #[prost(message, optional, tag = "5")]
    pub publish: Option<BoolValue>,
    /// `http`, `tls`, `tcp`, `dtls`, `quic`, `webtty`; absent on a raw private tunnel.
    #[prost(message, optional, tag = "6")]
    pub protocol: Option<StringValue>,
    /// Labels of the tunnel.
    #[prost(btree_map = "string, string", tag = "7")]
    pub labels: BTreeMap<String, String>,
    /// Countries that may visit, ISO 3166-1 alpha-2; `geo_ip` in JSON.
    #[prost(string, repeated, tag = "8")]
    pub geoip: Vec<String>,
    /// Addresses and networks that may visit.
    #[prost(string, repeated, tag = "9")]
    pub trusted_ips: Vec<String>,
    /// Set by the engine; the deprecated authority (host and port).
    #[prost(message, optional, tag = "10")]
    pub host: Option<StringValue>,
    /// `terminated` or `passthrough`.
    #[prost(message, optional, tag = "11")]
    pub tls_mode: Option<StringValue>,
    /// ALPN names offered to visitors.
    #[prost(string, repeated, tag = "12")]
    pub tls_alpns: Vec<String>,
    /// `tls1.2` or `tls1.3`.
    #[prost(message, optional, tag = "13")]
    pub tls_min_version: Option<StringValue>,
    /// Cipher suites offered to visitors.
    #[prost(string, repeated, tag = "14")]
    pub tls_ciphers: Vec<String>,
    /// True if visitors need a client certificate.
    #[prost(message, optional, tag = "15")]
    pub mtls_auth: Option<BoolValue>,
    /// Deprecated.
    #[prost(message, optional, tag = "16")]
    pub mtls_cacert_pem: Option<StringValue>,
    /// Version of HTTP towards the service: `http/1.1`, `h2c`, `h3`.
    #[prost(message, optional, tag = "17")]
    pub http_version: Option<StringValue>,
    /// Deprecated name of `upstream_tls`.
    #[prost(message, optional, tag = "18")]
    pub http_use_tls: Option<BoolValue>,
    /// True if visitors need a token (ED-1).
    #[prost(message, optional, tag = "19")]
    pub token_auth: Option<BoolValue>,
    /// True if visitors sign in with a browser; `svc_auth` in JSON (ED-2).
    #[prost(message, optional, tag = "20")]
    pub svc_auth: Option<BoolValue>,
    /// True if browsers solve a challenge first (ED-6).
    #[prost(message, optional, tag = "21")]
    pub challenge_mode: Option<BoolValue>,
    /// Public host name: requested, or assigned by the engine.
    #[prost(message, optional, tag = "22")]
    pub hostname: Option<StringValue>,
    /// Public port: requested, or assigned by the engine.
    #[prost(message, optional, tag = "23")]
    pub port: Option<UInt32Value>,
    /// True if the service uses TLS.
    #[prost(message, optional, tag = "24")]
    pub upstream_tls: Option<BoolValue>,
    /// True if datagrams are sent over a byte stream.
    #[prost(message, optional, tag = "25")]
    pub datagram_guaranteed_delivery: Option<BoolValue>,
    /// True if visitors of other regions are forwarded.
    #[prost(message, optional, tag = "26")]
    pub allow_cross_region_routing: Option<BoolValue>,
    /// True if agents of one identity may serve the name together. Our addition: other
    /// implementations ignore it.
    #[prost(message, optional, tag = "100")]
    pub share: Option<BoolValue>,
    /// Proxy headers that visitors may send. Our addition: other implementations ignore it.
    #[prost(string, repeated, tag = "101")]
    pub pass_headers: Vec<String>,
    /// Origins of pages that may use a user's session. Our addition: other implementations ignore
    /// it.
    #[prost(string, repeated, tag = "102")]
    pub allowed_origins: Vec<String>,
    /// Seconds until the first byte of a response. Our addition: other implementations ignore it.
    #[prost(message, optional, tag = "103")]
    pub time_to_first_byte_seconds: Option<UInt32Value>,
    /// Link passwords of visitors without an account. Our addition: an agent that requests them
    /// checks that the response contains an entry, because an engine that ignores the field would
    /// admit every visitor. The response repeats neither names nor hashes.
    #[prost(message, repeated, tag = "104")]
    pub basic_auth: Vec<BasicAuthUser>,
    /// Headers with the identity of signed-in visitors. Our addition: an agent that requests them
    /// checks that the response contains them, because an engine that ignores the field would
    /// forward a visitor's own headers with these names.
    #[prost(string, repeated, tag = "107")]
    pub identity: Vec<String>,
}

/// A user of a tunnel with link passwords (our addition).
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct BasicAuthUser {
    /// The name that visitors send. Empty: any name.
    #[prost(string, tag = "1")]
    pub user: String,
    /// The hash of the password, as a PHC string of argon2id.
    #[prost(message, optional, tag = "2")]
    pub password_hash: Option<Secret>,
}
