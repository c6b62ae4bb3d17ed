//! What is asked of a tunnel, and what the engine made of it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use wire::message::{TunnelProperties, text};

/// The properties of a tunnel, under the names of the Engine API.
///
/// What is absent is the engine's choice. Values are the engine's to judge, not this crate's: a
/// library that checked them here would refuse what a newer engine offers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Properties {
    /// `name`: how a private tunnel is dialled; also the stem of a published address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// `type`: `bytestream` or `datagram`.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// `publish`: whether there is a public address. Default: true.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub publish: Option<bool>,
    /// `protocol`: `http`, `tls`, `tcp`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub protocol: Option<String>,
    /// `labels` of the tunnel.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// `geo_ip`: countries of visitors, ISO 3166-1 alpha-2.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub geo_ip: Vec<String>,
    /// `trusted_ips`: addresses and networks of visitors.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub trusted_ips: Vec<String>,
    /// `tls_mode`: `terminated` or `passthrough`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls_mode: Option<String>,
    /// `tls_alpns` offered to visitors.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tls_alpns: Vec<String>,
    /// `tls_min_version`: `tls1.2` or `tls1.3`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls_min_version: Option<String>,
    /// `mtls_auth`: visitors prove themselves with a client certificate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mtls_auth: Option<bool>,
    /// `http_version` towards the service: `http/1.1`, `h2c`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub http_version: Option<String>,
    /// `token_auth`: visitors prove themselves with a token.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_auth: Option<bool>,
    /// `svc_auth`: visitors sign in with a browser session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub svc_auth: Option<bool>,
    /// `challenge_mode`: a challenge comes before anything else.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub challenge_mode: Option<bool>,
    /// `hostname`: the public name, wanted or given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hostname: Option<String>,
    /// `port`: the public port, wanted or given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// `upstream_tls`: the edge speaks TLS to the service.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub upstream_tls: Option<bool>,
    /// `allow_cross_region_routing`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allow_cross_region_routing: Option<bool>,
    /// `share`: agents of one identity may serve the name together, when all of them say so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub share: Option<bool>,
    /// `allowed_origins`: origins of other pages that may use people's sessions.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub allowed_origins: Vec<String>,
    /// `pass_headers`: headers of proxies that visitors may send.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub pass_headers: Vec<String>,
    /// `id`: the engine's; ignored when asking.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// `host`: the public authority (host and port); the engine's, ignored when asking.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
}

impl Properties {
    /// A published HTTP tunnel.
    pub fn http() -> Self {
        Self::published("http")
    }

    /// A published TLS tunnel.
    pub fn tls() -> Self {
        Self::published("tls")
    }

    /// A published TCP tunnel.
    pub fn tcp() -> Self {
        Self::published("tcp")
    }

    /// A private byte stream, dialled by its name.
    pub fn private(name: impl Into<String>) -> Self {
        Self {
            name: Some(name.into()),
            kind: Some("bytestream".to_owned()),
            publish: Some(false),
            ..Self::default()
        }
    }

    /// The same with a name.
    #[must_use]
    pub fn named(self, name: impl Into<String>) -> Self {
        Self {
            name: Some(name.into()),
            ..self
        }
    }

    /// What a visitor uses: `https://…`, `host:port`, or `svc://…` of a private tunnel.
    ///
    /// `engine_port` is the port on which the agent reached the engine, the only one known here
    /// where the engine did not give one.
    pub fn forwarding(&self, engine_port: u16) -> String {
        let published = self.publish.unwrap_or(true);
        let Some(hostname) = self.hostname.as_ref().filter(|_| published) else {
            let name = self.name.as_ref().or(self.id.as_ref());
            return format!("svc://{}", name.map_or("", String::as_str));
        };
        let port = self.port.unwrap_or(engine_port);
        match self.protocol.as_deref() {
            Some("http") if port == 443 => format!("https://{hostname}"),
            Some("http") => format!("https://{hostname}:{port}"),
            _ => format!("{hostname}:{port}"),
        }
    }

    /// What is asked for on the wire; the engine's own fields are left out.
    pub(crate) fn to_wire(&self) -> TunnelProperties {
        TunnelProperties {
            name: self.name.as_deref().map(Into::into),
            r#type: self.kind.as_deref().map(Into::into),
            publish: self.publish.map(Into::into),
            protocol: self.protocol.as_deref().map(Into::into),
            labels: self.labels.clone(),
            geoip: self.geo_ip.clone(),
            trusted_ips: self.trusted_ips.clone(),
            allowed_origins: self.allowed_origins.clone(),
            tls_mode: self.tls_mode.as_deref().map(Into::into),
            tls_alpns: self.tls_alpns.clone(),
            tls_min_version: self.tls_min_version.as_deref().map(Into::into),
            mtls_auth: self.mtls_auth.map(Into::into),
            http_version: self.http_version.as_deref().map(Into::into),
            token_auth: self.token_auth.map(Into::into),
            svc_auth: self.svc_auth.map(Into::into),
            challenge_mode: self.challenge_mode.map(Into::into),
            hostname: self.hostname.as_deref().map(Into::into),
            port: self.port.map(|port| u32::from(port).into()),
            upstream_tls: self.upstream_tls.map(Into::into),
            share: self.share.map(Into::into),
            pass_headers: self.pass_headers.clone(),
            allow_cross_region_routing: self.allow_cross_region_routing.map(Into::into),
            ..TunnelProperties::default()
        }
    }

    /// What the engine made of it.
    pub(crate) fn from_wire(wire: &TunnelProperties) -> Self {
        let owned = |value| text(value).map(str::to_owned);
        Self {
            name: owned(wire.name.as_ref()),
            kind: owned(wire.r#type.as_ref()),
            publish: wire.publish.map(|flag| flag.value),
            protocol: owned(wire.protocol.as_ref()),
            labels: wire.labels.clone(),
            geo_ip: wire.geoip.clone(),
            trusted_ips: wire.trusted_ips.clone(),
            allowed_origins: wire.allowed_origins.clone(),
            tls_mode: owned(wire.tls_mode.as_ref()),
            tls_alpns: wire.tls_alpns.clone(),
            tls_min_version: owned(wire.tls_min_version.as_ref()),
            mtls_auth: wire.mtls_auth.map(|flag| flag.value),
            http_version: owned(wire.http_version.as_ref()),
            token_auth: wire.token_auth.map(|flag| flag.value),
            svc_auth: wire.svc_auth.map(|flag| flag.value),
            challenge_mode: wire.challenge_mode.map(|flag| flag.value),
            hostname: owned(wire.hostname.as_ref()),
            port: wire.port.and_then(|port| u16::try_from(port.value).ok()),
            upstream_tls: wire.upstream_tls.map(|flag| flag.value),
            allow_cross_region_routing: wire.allow_cross_region_routing.map(|flag| flag.value),
            share: wire.share.map(|flag| flag.value),
            pass_headers: wire.pass_headers.clone(),
            id: owned(wire.id.as_ref()),
            host: owned(wire.host.as_ref()),
        }
    }

    fn published(protocol: &str) -> Self {
        Self {
            publish: Some(true),
            protocol: Some(protocol.to_owned()),
            ..Self::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_visitor_uses_follows_from_the_protocol() {
        let http = Properties {
            hostname: Some("demo.t.engine.localhost".into()),
            ..Properties::http()
        };
        assert_eq!(
            http.forwarding(8443),
            "https://demo.t.engine.localhost:8443"
        );
        assert_eq!(http.forwarding(443), "https://demo.t.engine.localhost");
        let tcp = Properties {
            hostname: Some("engine.localhost".into()),
            port: Some(20_001),
            ..Properties::tcp()
        };
        assert_eq!(tcp.forwarding(8443), "engine.localhost:20001");
        assert_eq!(Properties::private("db").forwarding(8443), "svc://db");
    }

    #[test]
    fn properties_survive_the_wire() {
        let asked = Properties {
            labels: [("a".to_owned(), "b".to_owned())].into(),
            trusted_ips: vec!["127.0.0.0/8".to_owned()],
            allowed_origins: vec!["https://app.example.com".to_owned()],
            token_auth: Some(false),
            pass_headers: vec!["x-original-url".to_owned()],
            port: Some(20_001),
            ..Properties::tcp().named("db")
        };
        assert_eq!(Properties::from_wire(&asked.to_wire()), asked);
    }

    #[test]
    fn properties_have_the_names_of_the_engine_api() {
        let text = r#"{"name":"demo","type":"bytestream","publish":true,"geo_ip":["CH"]}"#;
        let properties: Properties = serde_json::from_str(text).unwrap();
        assert_eq!(serde_json::to_string(&properties).unwrap(), text);
    }
}
