//! The format of the file before validation. The doc of a field is its description in the JSON
//! Schema and in `docs/agent-configuration.md`.
//!
//! The types here accept any value of the right kind. `plan` validates them and reports all errors
//! together.

use std::{borrow::Cow, collections::BTreeMap, fmt, path::PathBuf};

use crate::args::hostname::in_a_labels;
use crate::args::properties::{lower_case, parse_open_enum};
use client::Properties;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{
    Deserialize, Deserializer,
    de::{self, Visitor},
};
use types::tunnel::{HttpVersion, Protocol, ProxyHeader, TlsMode, TlsVersion, TunnelType};

/// The configuration of `svc run`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(title = "svc run")]
pub(super) struct AgentFile {
    /// The version of this format. Required.
    #[schemars(extend("const" = 1), example = 1)]
    pub(super) version: Option<u64>,
    /// The engine of tunnels without their own, `host:port`. Flags and the environment take
    /// precedence, and a context provides the fallback.
    #[schemars(example = "engine.example.com:443")]
    pub(super) engine: Option<String>,
    /// The file with the token for it, readable only by its owner. The token itself cannot be
    /// written in this file.
    #[schemars(example = "/etc/svc/token")]
    pub(super) token_file: Option<String>,
    /// CA certificates for its TLS certificate (PEM). Default: those of the system.
    #[schemars(example = "/etc/svc/ca.pem")]
    pub(super) ca_file: Option<String>,
    /// Context to take missing values from.
    #[schemars(example = &"work")]
    pub(super) context: Option<String>,
    /// Labels of this client, shown in lists of clients.
    #[schemars(example = serde_json::json!({"site": "bern"}))]
    pub(super) client_labels: BTreeMap<String, String>,
    /// The interval of heartbeats, 100ms to 5m. The connection is lost after three intervals of
    /// silence, and at least 10 s. Default: 5s.
    #[schemars(example = &"5s")]
    pub(super) heartbeat: Option<String>,
    /// Maximum number of bytes that all streams together buffer for slow readers, 16777216 to
    /// 4294967295. Beyond it, streams of the source that buffers the most are closed, starting with
    /// those whose readers have been idle for the longest time. Default: 268435456.
    #[schemars(example = 134_217_728)]
    pub(super) max_buffered_bytes: Option<u32>,
    /// Additional engines, under names that tunnels refer to.
    pub(super) engines: BTreeMap<String, EngineSection>,
    /// The tunnels, under names of your choice. The name appears in the output, and is also the
    /// tunnel's name at the engine unless `name` is set.
    pub(super) tunnels: BTreeMap<String, TunnelSection>,
}

/// An additional engine. Flags and the environment do not apply to it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct EngineSection {
    /// The engine, `host:port`.
    #[schemars(example = "other.example.com:443")]
    pub(super) engine: Option<String>,
    /// The file with the token for it.
    #[schemars(example = "/etc/svc/other-token")]
    pub(super) token_file: Option<String>,
    /// CA certificates for its TLS certificate (PEM). Default: those of the system.
    #[schemars(example = "/etc/svc/other-ca.pem")]
    pub(super) ca_file: Option<String>,
    /// Context to take missing values from.
    #[schemars(example = &"other")]
    pub(super) context: Option<String>,
}

/// A tunnel. The engine chooses the values that are not set.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct TunnelSection {
    /// The service: a port of this machine, `host:port`, `https://host:port` or `unix:/path`.
    /// Required.
    pub(super) target: Option<TargetText>,
    /// The engine, by its name under `engines`. Default: the top-level one.
    #[schemars(example = &"other")]
    pub(super) engine: Option<String>,
    /// Send the visitor's address to the service: start each connection with a PROXY protocol
    /// header of this version. For tls, tcp and private tunnels; an http service reads
    /// X-Forwarded-For.
    #[schemars(extend("enum" = ["v1", "v2"]), example = &"v2")]
    pub(super) proxy_protocol: Option<String>,
    /// The `Host` header for services that reject the public name, such as development servers:
    /// `rewrite` for the target's own, or a host. For services that use http/1.1. With an
    /// `https://` target, the agent opens the TLS session instead of the engine.
    #[schemars(example = &"rewrite")]
    pub(super) host_header: Option<String>,
    /// For an `https://` target: the server name (SNI) of the TLS session. Default: the host of
    /// `host_header`, or else of the target.
    #[schemars(example = &"app.intern.example")]
    pub(super) server_name: Option<String>,
    /// The name in lists and for dialling a private tunnel. Default: the tunnel's key.
    #[schemars(example = &"web")]
    pub(super) name: Option<String>,
    /// Publish the tunnel with a public address. Default: true. A private tunnel is dialled by its
    /// name.
    #[schemars(example = false)]
    pub(super) publish: Option<bool>,
    /// The protocol of visitors. Default for a published tunnel: http.
    #[schemars(extend("enum" = Protocol::ALL), example = &"http")]
    pub(super) protocol: Option<String>,
    /// The kind of traffic: bytes or datagrams. Default: derived from the protocol.
    #[serde(rename = "type")]
    #[schemars(extend("enum" = TunnelType::ALL), example = &"bytestream")]
    pub(super) kind: Option<String>,
    /// The public host name: a label under the engine's domain, or a custom domain. Default: the
    /// tunnel's name, or a generated one if another identity has that.
    #[schemars(example = &"web")]
    pub(super) hostname: Option<String>,
    /// The public port of a tcp tunnel.
    #[schemars(range(min = 1, max = 65535), example = 20_001)]
    pub(super) port: Option<i64>,
    /// Labels of the tunnel.
    #[schemars(example = serde_json::json!({"team": "shop"}))]
    pub(super) labels: BTreeMap<String, String>,
    /// The HTTP version of the service.
    #[schemars(extend("enum" = HttpVersion::ALL), example = &"h2c")]
    pub(super) http_version: Option<String>,
    /// Use TLS to the service. Implied by an `https://` target.
    #[schemars(example = true)]
    pub(super) upstream_tls: Option<bool>,
    /// Visitors need a token.
    #[schemars(example = true)]
    pub(super) token_auth: Option<bool>,
    /// Visitors sign in with a browser.
    #[schemars(example = true)]
    pub(super) svc_auth: Option<bool>,
    /// Visitors need a client certificate.
    #[schemars(example = true)]
    pub(super) mtls_auth: Option<bool>,
    /// Visitors solve a challenge first.
    #[schemars(example = true)]
    pub(super) challenge_mode: Option<bool>,
    /// File with passwords of visitors without an account: lines `name:password`, or `:password` for
    /// any name. Instead of a password, a line may have its argon2id hash. Only its owner and its
    /// group may be able to read the file.
    #[schemars(example = "/etc/svc/visitors")]
    pub(super) basic_auth_file: Option<String>,
    /// Share the name with your other agents that also set this.
    #[schemars(example = true)]
    pub(super) share: Option<bool>,
    /// Addresses and networks that may visit.
    #[schemars(example = ["192.0.2.0/24"])]
    pub(super) trusted_ips: Vec<String>,
    /// Headers of an upstream proxy that visitors may send. Headers that are not listed are
    /// dropped.
    #[schemars(extend("items" = {"type": "string", "enum": ProxyHeader::ALL}), example = ["x-forwarded-port"])]
    pub(super) pass_headers: Vec<String>,
    /// Countries that may visit.
    #[schemars(example = ["CH"])]
    pub(super) geo_ip: Vec<String>,
    /// The side that terminates TLS.
    #[schemars(extend("enum" = TlsMode::ALL), example = &"passthrough")]
    pub(super) tls_mode: Option<String>,
    /// ALPN names offered to visitors.
    #[schemars(example = ["h2", "http/1.1"])]
    pub(super) tls_alpns: Vec<String>,
    /// Origins of other pages that may call the tunnel: the edge answers their CORS preflights,
    /// and they may send state-changing requests or open WebSockets with a signed-in session. For
    /// tunnels that need a credential and whose pages are at another address.
    #[schemars(example = ["https://app.example.com"])]
    pub(super) allowed_origins: Vec<String>,
    /// Identity of signed-in visitors that the service receives: `email`, `name`, `groups`,
    /// `assertion`, or as another header, such as `email=Remote-User`. Needs `svc_auth`.
    #[schemars(example = ["email", "name=X-WEBAUTH-NAME"])]
    pub(super) identity: Vec<String>,
    /// The minimum TLS version of visitors.
    #[schemars(extend("enum" = TlsVersion::ALL), example = "tls1.3")]
    pub(super) tls_min_version: Option<String>,
    /// The time that the service may take until the first byte of a response, 1s to 1h, up to the
    /// engine's limit. Default: the engine's own, usually 30s.
    #[schemars(example = &"5m")]
    pub(super) time_to_first_byte: Option<String>,
    /// Accept visitors that arrive in another region.
    #[schemars(example = true)]
    pub(super) allow_cross_region_routing: Option<bool>,
}

impl AgentFile {
    /// The files with tokens and link passwords. They are polled like the configuration.
    pub(super) fn secret_files(&self) -> Vec<PathBuf> {
        let engines = self.engines.values();
        let tokens = engines.map(|section| &section.token_file);
        let tunnels = self.tunnels.values();
        let passwords = tunnels.map(|section| &section.basic_auth_file);
        let paths = std::iter::once(&self.token_file)
            .chain(tokens)
            .chain(passwords);
        paths.flatten().map(PathBuf::from).collect()
    }
}

impl TunnelSection {
    /// The requested properties: every property of the library that the engine does not set.
    pub(super) fn properties(&self) -> Properties {
        let mut properties = Properties::default();
        properties.name.clone_from(&self.name);
        properties.kind = parse_open_enum(self.kind.as_ref());
        properties.publish = self.publish;
        properties.protocol = parse_open_enum(self.protocol.as_ref());
        properties.labels.clone_from(&self.labels);
        properties.geo_ip.clone_from(&self.geo_ip);
        properties.trusted_ips.clone_from(&self.trusted_ips);
        properties.allowed_origins.clone_from(&self.allowed_origins);
        properties.tls_mode = parse_open_enum(self.tls_mode.as_ref());
        properties.tls_alpns.clone_from(&self.tls_alpns);
        properties.tls_min_version = parse_open_enum(self.tls_min_version.as_ref());
        properties.mtls_auth = self.mtls_auth;
        properties.http_version = parse_open_enum(self.http_version.as_ref());
        properties.token_auth = self.token_auth;
        properties.svc_auth = self.svc_auth;
        properties.challenge_mode = self.challenge_mode;
        properties.hostname = self.hostname.as_deref().map(in_a_labels);
        properties.port = self.port.and_then(|port| u16::try_from(port).ok());
        properties.upstream_tls = self.upstream_tls;
        properties.allow_cross_region_routing = self.allow_cross_region_routing;
        properties.share = self.share;
        properties.pass_headers = lower_case(&self.pass_headers);
        properties.identity.clone_from(&self.identity);
        properties
    }
}

/// A target as written in the file. A port needs no quotes.
#[derive(Clone, Debug)]
pub(super) struct TargetText(pub(super) String);

impl<'de> Deserialize<'de> for TargetText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TextOrPort;

        impl Visitor<'_> for TextOrPort {
            type Value = TargetText;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text or a port")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<TargetText, E> {
                Ok(TargetText(text.to_owned()))
            }

            fn visit_u64<E: de::Error>(self, port: u64) -> Result<TargetText, E> {
                Ok(TargetText(port.to_string()))
            }

            fn visit_i64<E: de::Error>(self, port: i64) -> Result<TargetText, E> {
                Ok(TargetText(port.to_string()))
            }
        }

        deserializer.deserialize_any(TextOrPort)
    }
}

impl JsonSchema for TargetText {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Target".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": ["string", "integer"], "examples": ["localhost:3000"] })
    }
}
