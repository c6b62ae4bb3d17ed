//! What a client may ask of a tunnel, and the rules that hold in every edition.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{
    Country, Hostname, HttpVersion, IpRange, Protocol, ProxyHeader, TlsMode, TlsVersion,
    TunnelName, TunnelType, WebOrigin,
};
use crate::client::check_labels;

/// The fields of a tunnel that its client may set. One that is left out is not asked for and
/// follows from the rest.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TunnelProperties {
    /// Name, unique in the project; the dial key of a private tunnel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = String, required = false)]
    pub name: Option<TunnelName>,
    /// Byte stream or datagrams; follows from the protocol.
    #[serde(default, rename = "type", skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub tunnel_type: Option<TunnelType>,
    /// Whether visitors reach it at the edge (default) or agents alone dial it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub publish: Option<bool>,
    /// What visitors speak. A published byte stream is `http` unless it says otherwise; a private
    /// tunnel may have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub protocol: Option<Protocol>,
    /// Labels.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schema(value_type = BTreeMap<String, String>, required = false)]
    // Spelled out, not by its alias: the schema is derived from what is written here.
    pub labels: BTreeMap<String, String>,
    /// Countries from which visitors may come.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<String>)]
    pub geo_ip: Vec<Country>,
    /// Address ranges from which visitors may come.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<String>)]
    pub trusted_ips: Vec<IpRange>,
    /// Requested stable host name or label, or the one that was allocated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = String, required = false)]
    pub hostname: Option<Hostname>,
    /// Requested reserved port (`tcp` alone), or the one that was allocated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, minimum = 1, maximum = 65535)]
    pub port: Option<u16>,
    /// Where TLS ends (`tls` alone; default `terminated`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub tls_mode: Option<TlsMode>,
    /// Application protocols offered to visitors, in order of preference.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tls_alpns: Vec<String>,
    /// Cipher suites offered to visitors.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tls_ciphers: Vec<String>,
    /// Lowest TLS version for visitors.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub tls_min_version: Option<TlsVersion>,
    /// Whether visitors prove themselves with a client certificate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub mtls_auth: Option<bool>,
    /// HTTP version towards the upstream (default `http/1.1`, negotiated with `upstream_tls`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub http_version: Option<HttpVersion>,
    /// Deprecated spelling of `upstream_tls`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, deprecated)]
    pub http_use_tls: Option<bool>,
    /// Whether the upstream is spoken to over TLS.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub upstream_tls: Option<bool>,
    /// Carries datagrams without loss, over a byte stream.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub datagram_guaranteed_delivery: Option<bool>,
    /// Whether visitors of other regions are routed to the tunnel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub allow_cross_region_routing: Option<bool>,
    /// Whether every request needs a token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub token_auth: Option<bool>,
    /// Whether visitors may prove themselves with a browser session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub svc_auth: Option<bool>,
    /// Whether browsers pass a challenge first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub challenge_mode: Option<bool>,
    /// Origins of other pages that may change something in a person's session or open WebSockets
    /// with it, such as `https://app.example.com`. Only pages of the tunnel may otherwise.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<String>)]
    pub allowed_origins: Vec<WebOrigin>,
    /// Whether the name may be served by several agents of one identity at once, when all of them
    /// say so: visitors go to the one that has the least to do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub share: Option<bool>,
    /// Headers that applications believe as a proxy's word, and that visitors of this tunnel may
    /// send all the same: others of their kind are dropped. For tunnels behind a proxy of one's own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<ProxyHeader>)]
    pub pass_headers: Vec<ProxyHeader>,
}

/// A property that breaks a rule: which one, and what would be right.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {message}")]
pub struct PropertyError {
    /// JSON name of the field at fault.
    pub field: String,
    /// What is wrong with it, for its author.
    pub message: String,
}

impl PropertyError {
    /// An error of one field.
    pub fn new(field: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            field: field.into(),
            message: message.into(),
        }
    }
}

impl TunnelProperties {
    /// Enforces the property rules that hold in every edition and fills in the defaults. `None`, an
    /// empty list and an empty map are "not asked for". What an edition does not offer is its
    /// engine's to refuse (EN-11).
    pub fn resolve(mut self) -> Result<Self, PropertyError> {
        self.check_limits()?;
        let publish = *self.publish.get_or_insert(true);
        self.fold_deprecated_alias()?;
        self.choose_protocol_and_type(publish)?;
        match self.protocol {
            Some(Protocol::Http | Protocol::Webtty) => self.check_http()?,
            Some(Protocol::Tls) => self.check_tls(publish)?,
            Some(Protocol::Tcp) => self.check_tcp()?,
            Some(Protocol::Dtls | Protocol::Quic) | None => {}
        }
        self.refuse_options_without_effect(publish)?;
        Ok(self)
    }

    fn check_limits(&self) -> Result<(), PropertyError> {
        check_labels(&self.labels)?;
        for (field, length) in [
            ("geo_ip", self.geo_ip.len()),
            ("trusted_ips", self.trusted_ips.len()),
            ("allowed_origins", self.allowed_origins.len()),
            ("tls_alpns", self.tls_alpns.len()),
            ("pass_headers", self.pass_headers.len()),
            ("tls_ciphers", self.tls_ciphers.len()),
        ] {
            if length > MAX_LIST_LENGTH {
                return Err(PropertyError::new(
                    field,
                    format!("at most {MAX_LIST_LENGTH} entries"),
                ));
            }
        }
        for (field, entries) in [
            ("tls_alpns", &self.tls_alpns),
            ("tls_ciphers", &self.tls_ciphers),
        ] {
            // RFC 7301 section 3.1 gives a protocol name 1 to 255 bytes.
            if let Some(place) = entries
                .iter()
                .position(|entry| !(1..=255).contains(&entry.len()))
            {
                return Err(PropertyError::new(
                    format!("{field}.{place}"),
                    "1 to 255 bytes",
                ));
            }
        }
        let distinct: BTreeSet<_> = self.tls_alpns.iter().collect();
        if distinct.len() != self.tls_alpns.len() {
            return Err(PropertyError::new("tls_alpns", "a protocol is named twice"));
        }
        if self.port == Some(0) {
            return Err(PropertyError::new("port", "a port is 1 to 65535"));
        }
        Ok(())
    }

    pub(crate) fn fold_deprecated_alias(&mut self) -> Result<(), PropertyError> {
        if let Some(alias) = self.http_use_tls.take()
            && *self.upstream_tls.get_or_insert(alias) != alias
        {
            return Err(PropertyError::new(
                "http_use_tls",
                "contradicts upstream_tls",
            ));
        }
        Ok(())
    }

    fn choose_protocol_and_type(&mut self, publish: bool) -> Result<(), PropertyError> {
        if self.protocol.is_none() && publish {
            if self.tunnel_type == Some(TunnelType::Datagram) {
                return Err(PropertyError::new(
                    "protocol",
                    "a published datagram tunnel names its protocol",
                ));
            }
            self.protocol = Some(Protocol::Http);
        }
        let implied = match self.protocol {
            Some(Protocol::Tls | Protocol::Tcp | Protocol::Webtty) => TunnelType::Bytestream,
            Some(Protocol::Dtls | Protocol::Quic) if !publish => {
                return Err(PropertyError::new(
                    "protocol",
                    "dtls and quic tunnels are published",
                ));
            }
            Some(Protocol::Dtls | Protocol::Quic) => TunnelType::Datagram,
            Some(Protocol::Http) if self.http_version == Some(HttpVersion::H3) => {
                TunnelType::Datagram
            }
            Some(Protocol::Http) => TunnelType::Bytestream,
            None => self.tunnel_type.unwrap_or(TunnelType::Bytestream),
        };
        if *self.tunnel_type.get_or_insert(implied) != implied {
            let message = format!("this protocol makes it a {implied} tunnel");
            return Err(PropertyError::new("type", message));
        }
        Ok(())
    }

    fn check_http(&mut self) -> Result<(), PropertyError> {
        if self.tls_mode == Some(TlsMode::Passthrough) {
            return Err(PropertyError::new(
                "tls_mode",
                "HTTP tunnels end TLS at the edge",
            ));
        }
        match (self.upstream_tls, self.http_version) {
            (Some(true), Some(_)) => {
                return Err(PropertyError::new(
                    "http_version",
                    "upstream_tls negotiates the version itself",
                ));
            }
            (_, Some(HttpVersion::H2)) => {
                return Err(PropertyError::new(
                    "http_version",
                    "use h2c, or upstream_tls for HTTP/2 over TLS",
                ));
            }
            (Some(true), None) => {}
            (_, version) => self.http_version = Some(version.unwrap_or(HttpVersion::Http11)),
        }
        Ok(())
    }

    fn check_tls(&mut self, publish: bool) -> Result<(), PropertyError> {
        // Nobody ends TLS for a dialler of a private tunnel.
        if publish {
            self.tls_mode.get_or_insert(TlsMode::Terminated);
        }
        let excluded = [
            ("tls_min_version", self.tls_min_version.is_some()),
            ("tls_ciphers", !self.tls_ciphers.is_empty()),
            ("mtls_auth", self.mtls_auth == Some(true)),
            ("upstream_tls", self.upstream_tls == Some(true)),
        ];
        if self.tls_mode == Some(TlsMode::Passthrough)
            && let Some((field, _)) = excluded.into_iter().find(|(_, asked)| *asked)
        {
            return Err(PropertyError::new(
                field,
                "a passthrough tunnel leaves TLS to its upstream",
            ));
        }
        Ok(())
    }

    fn check_tcp(&self) -> Result<(), PropertyError> {
        let excluded = [
            ("hostname", self.hostname.is_some()),
            ("tls_mode", self.tls_mode.is_some()),
            ("tls_alpns", !self.tls_alpns.is_empty()),
            ("tls_ciphers", !self.tls_ciphers.is_empty()),
            ("tls_min_version", self.tls_min_version.is_some()),
            ("mtls_auth", self.mtls_auth == Some(true)),
            ("upstream_tls", self.upstream_tls == Some(true)),
        ];
        match excluded.into_iter().find(|(_, asked)| *asked) {
            Some((field, _)) => Err(PropertyError::new(field, "not an option of a tcp tunnel")),
            None => Ok(()),
        }
    }

    /// An option that guards or routes must never be accepted and then not be kept.
    fn refuse_options_without_effect(&self, publish: bool) -> Result<(), PropertyError> {
        let http = matches!(self.protocol, Some(Protocol::Http | Protocol::Webtty));
        let http_only = [
            ("http_version", self.http_version.is_some()),
            ("pass_headers", !self.pass_headers.is_empty()),
            ("token_auth", self.token_auth == Some(true)),
            ("svc_auth", self.svc_auth == Some(true)),
            ("challenge_mode", self.challenge_mode == Some(true)),
            ("allowed_origins", !self.allowed_origins.is_empty()),
        ];
        if !http && let Some((field, _)) = http_only.into_iter().find(|(_, asked)| *asked) {
            return Err(PropertyError::new(field, "an option of HTTP tunnels"));
        }
        // The port of a tcp tunnel is one agent's; and without a name there is nothing to share.
        if self.share == Some(true) {
            if self.protocol == Some(Protocol::Tcp) {
                return Err(PropertyError::new("share", "not an option of a tcp tunnel"));
            }
            if self.name.is_none() && self.hostname.is_none() {
                return Err(PropertyError::new("share", "needs a name or a hostname"));
            }
        }
        if self.port.is_some() && self.protocol != Some(Protocol::Tcp) {
            return Err(PropertyError::new("port", "an option of tcp tunnels"));
        }
        if self.datagram_guaranteed_delivery == Some(true)
            && self.tunnel_type != Some(TunnelType::Datagram)
        {
            return Err(PropertyError::new(
                "datagram_guaranteed_delivery",
                "an option of datagram tunnels",
            ));
        }
        let edge_only = [
            ("hostname", self.hostname.is_some()),
            ("port", self.port.is_some()),
            ("trusted_ips", !self.trusted_ips.is_empty()),
            ("geo_ip", !self.geo_ip.is_empty()),
            ("allowed_origins", !self.allowed_origins.is_empty()),
            ("pass_headers", !self.pass_headers.is_empty()),
            ("mtls_auth", self.mtls_auth == Some(true)),
            ("token_auth", self.token_auth == Some(true)),
            ("svc_auth", self.svc_auth == Some(true)),
            ("challenge_mode", self.challenge_mode == Some(true)),
        ];
        if !publish && let Some((field, _)) = edge_only.into_iter().find(|(_, asked)| *asked) {
            return Err(PropertyError::new(field, "an option of published tunnels"));
        }
        Ok(())
    }
}

/// Bounds what one tunnel adds to every list and event, and the work per visitor.
pub const MAX_LIST_LENGTH: usize = 64;
