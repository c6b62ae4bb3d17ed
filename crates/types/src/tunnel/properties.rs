//! The properties that a client may request for a tunnel, and the rules that apply in every
//! edition.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{
    Country, Hostname, HttpVersion, IdentityField, IpRange, Protocol, ProxyHeader, TlsMode,
    TlsVersion, TunnelName, TunnelType, WebOrigin,
};
use crate::tunnel::labels::check_labels;

/// The fields of a tunnel that its client may set. An absent field is not requested and follows
/// from the others.
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
    /// True (default) if visitors reach the tunnel at the edge; false if only agents may dial it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub publish: Option<bool>,
    /// Protocol of visitors. A published byte stream is `http` by default; a private tunnel may
    /// have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub protocol: Option<Protocol>,
    /// Labels.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schema(value_type = BTreeMap<String, String>, required = false)]
    // The type is spelled out because the schema is derived from it; an alias would not work.
    pub labels: BTreeMap<String, String>,
    /// Countries from which visitors may connect.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<String>)]
    pub geo_ip: Vec<Country>,
    /// Address ranges from which visitors may connect.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<String>)]
    pub trusted_ips: Vec<IpRange>,
    /// Requested stable host name or label, or the allocated one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = String, required = false)]
    pub hostname: Option<Hostname>,
    /// Requested reserved port (`tcp` only), or the allocated one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, minimum = 1, maximum = 65535)]
    pub port: Option<u16>,
    /// Endpoint that terminates TLS (`tls` only; default `terminated`).
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
    /// True if visitors authenticate with a client certificate.
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
    /// True if the connection to the upstream uses TLS.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub upstream_tls: Option<bool>,
    /// Carries datagrams without loss, over a byte stream.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub datagram_guaranteed_delivery: Option<bool>,
    /// True if visitors of other regions are routed to the tunnel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub allow_cross_region_routing: Option<bool>,
    /// True if every request needs a token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub token_auth: Option<bool>,
    /// True if visitors may authenticate with a browser session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub svc_auth: Option<bool>,
    /// True if browsers must pass a challenge first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub challenge_mode: Option<bool>,
    /// True if visitors may authenticate with a link password (HTTP Basic authentication). The
    /// passwords themselves are not part of the properties.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub basic_auth: Option<bool>,
    /// Origins of other pages that may send changing requests in a person's session or open
    /// WebSockets with it, such as `https://app.example.com`. Otherwise only pages of the tunnel
    /// itself may do this.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<String>)]
    pub allowed_origins: Vec<WebOrigin>,
    /// True if several agents of one identity may serve the name at the same time. All of them must
    /// set it. Visitors are routed to the agent with the lowest load.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub share: Option<bool>,
    /// Headers that applications trust as a proxy's information, but that visitors of this tunnel
    /// may send anyway. Other headers of this kind are removed. For tunnels behind one's own proxy.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<ProxyHeader>)]
    pub pass_headers: Vec<ProxyHeader>,
    /// Headers with the identity of signed-in visitors, which the service receives: `email`, `name`,
    /// `groups` or `assertion`, or with another name for the header, such as `email=remote-user`.
    /// Needs `svc_auth`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<String>)]
    pub identity: Vec<IdentityField>,
    /// Seconds that the service may take until the first byte of its response, within the limit of
    /// the engine. Default: the engine's own time limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, minimum = 1, maximum = 3600)]
    pub time_to_first_byte_seconds: Option<u16>,
}

/// A property that breaks a rule, with a description of the rule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {message}")]
pub struct PropertyError {
    /// JSON name of the invalid field.
    pub field: String,
    /// Description of the error, for the author of the property.
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
    /// Enforces the property rules of every edition and fills in the defaults. `None`, an empty
    /// list and an empty map mean "not requested". The engine of an edition refuses options that
    /// the edition does not support (EN-11).
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
        self.check_basic_auth()?;
        Ok(self)
    }

    fn check_limits(&self) -> Result<(), PropertyError> {
        check_labels(&self.labels)?;
        IdentityField::check_list(&self.identity)?;
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
                    format!("it has more than {MAX_LIST_LENGTH} entries: remove some"),
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
                    "an entry has 1 to 255 bytes: correct it or remove it",
                ));
            }
        }
        let distinct: BTreeSet<_> = self.tls_alpns.iter().collect();
        if distinct.len() != self.tls_alpns.len() {
            return Err(PropertyError::new(
                "tls_alpns",
                "a protocol is repeated: remove one of the two",
            ));
        }
        if self.port == Some(0) {
            return Err(PropertyError::new("port", "a port is 1 to 65535"));
        }
        if let Some(seconds) = self.time_to_first_byte_seconds
            && !(1..=MAX_TIME_TO_FIRST_BYTE_SECONDS).contains(&seconds)
        {
            return Err(PropertyError::new(
                "time_to_first_byte_seconds",
                format!("it is 1 to {MAX_TIME_TO_FIRST_BYTE_SECONDS} seconds"),
            ));
        }
        Ok(())
    }

    pub(crate) fn fold_deprecated_alias(&mut self) -> Result<(), PropertyError> {
        if let Some(alias) = self.http_use_tls.take()
            && *self.upstream_tls.get_or_insert(alias) != alias
        {
            return Err(PropertyError::new(
                "http_use_tls",
                "it contradicts upstream_tls: remove it",
            ));
        }
        Ok(())
    }

    fn choose_protocol_and_type(&mut self, publish: bool) -> Result<(), PropertyError> {
        if self.protocol.is_none() && publish {
            if self.tunnel_type == Some(TunnelType::Datagram) {
                return Err(PropertyError::new(
                    "protocol",
                    "a published datagram tunnel needs a protocol: set dtls or quic",
                ));
            }
            self.protocol = Some(Protocol::Http);
        }
        let implied = match self.protocol {
            Some(Protocol::Tls | Protocol::Tcp | Protocol::Webtty) => TunnelType::Bytestream,
            Some(Protocol::Dtls | Protocol::Quic) if !publish => {
                return Err(PropertyError::new(
                    "protocol",
                    "dtls and quic tunnels must be published: set publish to true",
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
            let message = format!("this protocol makes it a {implied} tunnel: remove this key");
            return Err(PropertyError::new("type", message));
        }
        Ok(())
    }

    fn check_http(&mut self) -> Result<(), PropertyError> {
        if self.tls_mode == Some(TlsMode::Passthrough) {
            return Err(PropertyError::new(
                "tls_mode",
                "http tunnels terminate TLS at the edge: remove it, or set protocol to tls",
            ));
        }
        match (self.upstream_tls, self.http_version) {
            (Some(true), Some(_)) => {
                return Err(PropertyError::new(
                    "http_version",
                    "upstream_tls negotiates the version automatically: remove it",
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
        // TLS is not terminated for clients that dial a private tunnel.
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
            && let Some((field, _)) = excluded.into_iter().find(|(_, requested)| *requested)
        {
            return Err(PropertyError::new(
                field,
                "a passthrough tunnel leaves TLS to its upstream: remove it, or set tls_mode to \
                 terminated",
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
        match excluded.into_iter().find(|(_, requested)| *requested) {
            Some((field, _)) => Err(PropertyError::new(
                field,
                "tcp tunnels do not have this option: remove it, or set another protocol",
            )),
            None => Ok(()),
        }
    }

    fn check_basic_auth(&self) -> Result<(), PropertyError> {
        if self.basic_auth != Some(true) {
            return Ok(());
        }
        // A managed terminal is opened with a token.
        if self.protocol == Some(Protocol::Webtty) {
            return Err(PropertyError::new(
                "basic_auth",
                "webtty tunnels are opened with a token and do not have this option: remove it",
            ));
        }
        // A browser without a credential can either be redirected to the sign-in or be asked for a
        // password.
        if self.svc_auth == Some(true) {
            return Err(PropertyError::new(
                "basic_auth",
                "it cannot be combined with svc_auth (--svc-auth): remove one of the two",
            ));
        }
        Ok(())
    }

    /// An option that protects or routes must not be accepted without taking effect.
    fn refuse_options_without_effect(&self, publish: bool) -> Result<(), PropertyError> {
        let http = matches!(self.protocol, Some(Protocol::Http | Protocol::Webtty));
        let http_only = [
            ("http_version", self.http_version.is_some()),
            ("pass_headers", !self.pass_headers.is_empty()),
            (
                "time_to_first_byte_seconds",
                self.time_to_first_byte_seconds.is_some(),
            ),
            ("token_auth", self.token_auth == Some(true)),
            ("svc_auth", self.svc_auth == Some(true)),
            ("challenge_mode", self.challenge_mode == Some(true)),
            ("basic_auth", self.basic_auth == Some(true)),
            ("allowed_origins", !self.allowed_origins.is_empty()),
        ];
        if !http && let Some((field, _)) = http_only.into_iter().find(|(_, requested)| *requested) {
            return Err(only(field, "http", "set protocol to http"));
        }
        // Only the session of a person who signed in has these facts. The terminal of a `webtty`
        // tunnel is opened with a token.
        let has_sessions = self.svc_auth == Some(true) && self.protocol == Some(Protocol::Http);
        if !self.identity.is_empty() && !has_sessions {
            return Err(PropertyError::new(
                "identity",
                "only signed-in visitors have an identity: set svc_auth (--svc-auth) and protocol \
                 http",
            ));
        }
        self.check_share()?;
        if self.port.is_some() && self.protocol != Some(Protocol::Tcp) {
            return Err(only("port", "tcp", "set protocol to tcp"));
        }
        if self.datagram_guaranteed_delivery == Some(true)
            && self.tunnel_type != Some(TunnelType::Datagram)
        {
            let field = "datagram_guaranteed_delivery";
            return Err(only(field, "datagram", "set type to datagram"));
        }
        let edge_only = [
            ("hostname", self.hostname.is_some()),
            ("port", self.port.is_some()),
            ("trusted_ips", !self.trusted_ips.is_empty()),
            ("geo_ip", !self.geo_ip.is_empty()),
            ("allowed_origins", !self.allowed_origins.is_empty()),
            ("pass_headers", !self.pass_headers.is_empty()),
            (
                "time_to_first_byte_seconds",
                self.time_to_first_byte_seconds.is_some(),
            ),
            ("mtls_auth", self.mtls_auth == Some(true)),
            ("token_auth", self.token_auth == Some(true)),
            ("svc_auth", self.svc_auth == Some(true)),
            ("challenge_mode", self.challenge_mode == Some(true)),
            ("basic_auth", self.basic_auth == Some(true)),
        ];
        if !publish
            && let Some((field, _)) = edge_only.into_iter().find(|(_, requested)| *requested)
        {
            return Err(only(field, "published", "set publish to true"));
        }
        Ok(())
    }

    /// The port of a tcp tunnel belongs to one agent, and a tunnel without a name has nothing to
    /// share.
    fn check_share(&self) -> Result<(), PropertyError> {
        if self.share != Some(true) {
            return Ok(());
        }
        if self.protocol == Some(Protocol::Tcp) {
            let message = "tcp tunnels do not have this option: remove it, or set another protocol";
            return Err(PropertyError::new("share", message));
        }
        if self.name.is_none() && self.hostname.is_none() {
            let message = "agents share a tunnel by its name: set name or hostname";
            return Err(PropertyError::new("share", message));
        }
        Ok(())
    }
}

/// The error for an option of another kind of tunnel. `step` makes the tunnel one of that kind.
fn only(field: &str, kind: &str, step: &str) -> PropertyError {
    let message = format!("only {kind} tunnels have this option: remove it, or {step}");
    PropertyError::new(field, message)
}

/// Limits the size that one tunnel adds to every list and event, and the work per visitor.
pub const MAX_LIST_LENGTH: usize = 64;

/// Longest time until the first byte of a response, in seconds: an hour, like the time limits that
/// an engine may configure.
pub const MAX_TIME_TO_FIRST_BYTE_SECONDS: u16 = 3600;
