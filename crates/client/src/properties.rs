//! The requested and effective properties of a tunnel.

mod link_password;
mod string_enums;

use std::collections::BTreeMap;

use wire::message::{BasicAuthUser, TunnelProperties, text};

pub use link_password::LinkPassword;
pub use string_enums::{HttpVersion, Protocol, TlsMode, TlsVersion, TunnelKind};

/// The properties of a tunnel, under the names of the Engine API.
///
/// Start with a constructor, such as [`Properties::http`], and set other properties with the
/// methods named after the fields, or with the fields themselves. The engine chooses absent
/// properties. Values are validated by the engine, not by this crate: a check here would refuse
/// values that a newer engine supports.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(default))]
#[non_exhaustive]
pub struct Properties {
    /// `name`: the name for dialling a private tunnel; also the stem of a published address.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub name: Option<String>,
    /// `type`: bytes or datagrams.
    #[cfg_attr(
        feature = "serde",
        serde(rename = "type", skip_serializing_if = "Option::is_none")
    )]
    pub kind: Option<TunnelKind>,
    /// `publish`: true for a public address. Default: true.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub publish: Option<bool>,
    /// `protocol` of visitors.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub protocol: Option<Protocol>,
    /// `labels` of the tunnel.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "BTreeMap::is_empty"))]
    pub labels: BTreeMap<String, String>,
    /// `geo_ip`: countries of visitors, ISO 3166-1 alpha-2.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Vec::is_empty"))]
    pub geo_ip: Vec<String>,
    /// `trusted_ips`: addresses and networks of visitors.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Vec::is_empty"))]
    pub trusted_ips: Vec<String>,
    /// `tls_mode`: the endpoint that terminates TLS.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub tls_mode: Option<TlsMode>,
    /// `tls_alpns` offered to visitors.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Vec::is_empty"))]
    pub tls_alpns: Vec<String>,
    /// `tls_min_version` of visitors.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub tls_min_version: Option<TlsVersion>,
    /// `mtls_auth`: visitors authenticate with a client certificate.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub mtls_auth: Option<bool>,
    /// `http_version` towards the service.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub http_version: Option<HttpVersion>,
    /// `token_auth`: visitors authenticate with a token.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub token_auth: Option<bool>,
    /// `svc_auth`: visitors sign in with a browser session.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub svc_auth: Option<bool>,
    /// `challenge_mode`: visitors must pass a challenge first.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub challenge_mode: Option<bool>,
    /// `basic_auth`: visitors may authenticate with one of the
    /// [`link_passwords`](field@Self::link_passwords). Set by the engine.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub basic_auth: Option<bool>,
    /// Names and hashed passwords of visitors without an account, at most 16. The engine checks them
    /// (HTTP Basic authentication), and does not return them. An engine that does not support them
    /// is refused.
    #[cfg_attr(feature = "serde", serde(skip))]
    pub link_passwords: Vec<LinkPassword>,
    /// `hostname`: the public host name, requested or granted.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub hostname: Option<String>,
    /// `port`: the public port, requested or granted.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub port: Option<u16>,
    /// `upstream_tls`: the edge uses TLS to the service.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub upstream_tls: Option<bool>,
    /// `allow_cross_region_routing`.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub allow_cross_region_routing: Option<bool>,
    /// `share`: agents of one identity may serve the name together, if all of them set it.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub share: Option<bool>,
    /// `allowed_origins`: origins of other pages that may use visitors' sessions, and whose CORS
    /// preflights the edge answers.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Vec::is_empty"))]
    pub allowed_origins: Vec<String>,
    /// `pass_headers`: headers of proxies that visitors may send.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Vec::is_empty"))]
    pub pass_headers: Vec<String>,
    /// `identity`: headers with the identity of signed-in visitors, such as `email` or
    /// `email=remote-user`. An engine that does not support them is refused.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Vec::is_empty"))]
    pub identity: Vec<String>,
    /// `time_to_first_byte_seconds`: time that the service may take until the first byte of its
    /// response, within the limit of the engine. An older engine ignores it.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub time_to_first_byte_seconds: Option<u16>,
    /// `id`: set by the engine; ignored in requests.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub id: Option<String>,
    /// `host`: the public authority (host and port), set by the engine; ignored in requests.
    #[cfg_attr(feature = "serde", serde(skip_serializing_if = "Option::is_none"))]
    pub host: Option<String>,
}

impl Properties {
    /// A published HTTP tunnel.
    pub fn http() -> Self {
        Self::published(Protocol::Http)
    }

    /// A published TLS tunnel.
    pub fn tls() -> Self {
        Self::published(Protocol::Tls)
    }

    /// A published TCP tunnel.
    pub fn tcp() -> Self {
        Self::published(Protocol::Tcp)
    }

    /// A private byte stream, dialled by its name.
    pub fn private(name: impl Into<String>) -> Self {
        Self {
            name: Some(name.into()),
            kind: Some(TunnelKind::Bytestream),
            publish: Some(false),
            ..Self::default()
        }
    }

    /// Sets the name.
    #[must_use]
    pub fn named(self, name: impl Into<String>) -> Self {
        Self {
            name: Some(name.into()),
            ..self
        }
    }

    /// Adds a label.
    #[must_use]
    pub fn label(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.labels.insert(key.into(), value.into());
        self
    }

    /// The address for visitors: `https://…`, `host:port`, or `svc://…` of a private tunnel.
    ///
    /// `engine_port` is the port on which the agent reached the engine. It is used if the engine
    /// did not return a port.
    pub fn forwarding(&self, engine_port: u16) -> String {
        let published = self.publish.unwrap_or(true);
        let Some(hostname) = self.hostname.as_ref().filter(|_| published) else {
            let name = self.name.as_ref().or(self.id.as_ref());
            return format!("svc://{}", name.map_or("", String::as_str));
        };
        let port = self.port.unwrap_or(engine_port);
        match self.protocol {
            Some(Protocol::Http) if port == 443 => format!("https://{hostname}"),
            Some(Protocol::Http) => format!("https://{hostname}:{port}"),
            _ => format!("{hostname}:{port}"),
        }
    }

    /// The request message; fields that only the engine sets are left out.
    pub(crate) fn to_wire(&self) -> TunnelProperties {
        TunnelProperties {
            name: self.name.as_deref().map(Into::into),
            r#type: self.kind.as_ref().map(|word| word.as_str().into()),
            publish: self.publish.map(Into::into),
            protocol: self.protocol.as_ref().map(|word| word.as_str().into()),
            labels: self.labels.clone(),
            geoip: self.geo_ip.clone(),
            trusted_ips: self.trusted_ips.clone(),
            allowed_origins: self.allowed_origins.clone(),
            tls_mode: self.tls_mode.as_ref().map(|word| word.as_str().into()),
            tls_alpns: self.tls_alpns.clone(),
            tls_min_version: self
                .tls_min_version
                .as_ref()
                .map(|word| word.as_str().into()),
            mtls_auth: self.mtls_auth.map(Into::into),
            http_version: self.http_version.as_ref().map(|word| word.as_str().into()),
            token_auth: self.token_auth.map(Into::into),
            svc_auth: self.svc_auth.map(Into::into),
            challenge_mode: self.challenge_mode.map(Into::into),
            basic_auth: self.basic_auth_users(),
            hostname: self.hostname.as_deref().map(Into::into),
            port: self.port.map(|port| u32::from(port).into()),
            upstream_tls: self.upstream_tls.map(Into::into),
            share: self.share.map(Into::into),
            pass_headers: self.pass_headers.clone(),
            identity: self.identity.clone(),
            time_to_first_byte_seconds: self
                .time_to_first_byte_seconds
                .map(|seconds| u32::from(seconds).into()),
            allow_cross_region_routing: self.allow_cross_region_routing.map(Into::into),
            ..TunnelProperties::default()
        }
    }

    /// The properties in the engine's response.
    pub(crate) fn from_wire(wire: &TunnelProperties) -> Self {
        let owned = |value| text(value).map(str::to_owned);
        Self {
            name: owned(wire.name.as_ref()),
            kind: text(wire.r#type.as_ref()).map(Into::into),
            publish: wire.publish.map(|flag| flag.value),
            protocol: text(wire.protocol.as_ref()).map(Into::into),
            labels: wire.labels.clone(),
            geo_ip: wire.geoip.clone(),
            trusted_ips: wire.trusted_ips.clone(),
            allowed_origins: wire.allowed_origins.clone(),
            tls_mode: text(wire.tls_mode.as_ref()).map(Into::into),
            tls_alpns: wire.tls_alpns.clone(),
            tls_min_version: text(wire.tls_min_version.as_ref()).map(Into::into),
            mtls_auth: wire.mtls_auth.map(|flag| flag.value),
            http_version: text(wire.http_version.as_ref()).map(Into::into),
            token_auth: wire.token_auth.map(|flag| flag.value),
            svc_auth: wire.svc_auth.map(|flag| flag.value),
            challenge_mode: wire.challenge_mode.map(|flag| flag.value),
            basic_auth: (!wire.basic_auth.is_empty()).then_some(true),
            link_passwords: Vec::new(),
            hostname: owned(wire.hostname.as_ref()),
            port: wire.port.and_then(|port| u16::try_from(port.value).ok()),
            upstream_tls: wire.upstream_tls.map(|flag| flag.value),
            allow_cross_region_routing: wire.allow_cross_region_routing.map(|flag| flag.value),
            share: wire.share.map(|flag| flag.value),
            pass_headers: wire.pass_headers.clone(),
            identity: wire.identity.clone(),
            time_to_first_byte_seconds: wire
                .time_to_first_byte_seconds
                .and_then(|seconds| u16::try_from(seconds.value).ok()),
            id: owned(wire.id.as_ref()),
            host: owned(wire.host.as_ref()),
        }
    }

    /// The link passwords. The engine refuses an entry without a hash, so a request for link
    /// passwords without any never publishes an open tunnel.
    fn basic_auth_users(&self) -> Vec<BasicAuthUser> {
        let passwords = self.link_passwords.iter();
        let mut users: Vec<_> = passwords.map(LinkPassword::to_wire).collect();
        if users.is_empty() && self.basic_auth == Some(true) {
            users.push(BasicAuthUser::default());
        }
        users
    }

    /// True if the engine has to check link passwords.
    pub(crate) fn requires_link_password(&self) -> bool {
        self.basic_auth == Some(true) || !self.link_passwords.is_empty()
    }

    fn published(protocol: Protocol) -> Self {
        Self {
            publish: Some(true),
            protocol: Some(protocol),
            ..Self::default()
        }
    }
}

/// A setter for each property.
macro_rules! setters {
    ($($name:ident: $argument:ty => $value:expr,)+) => {
        impl Properties {$(
            #[doc = concat!("The same with [`", stringify!($name), "`](field@Self::", stringify!($name), ").")]
            #[must_use]
            pub fn $name(mut self, $name: $argument) -> Self {
                self.$name = $value;
                self
            }
        )+}
    };
}

setters! {
    kind: impl Into<TunnelKind> => Some(kind.into()),
    publish: bool => Some(publish),
    protocol: impl Into<Protocol> => Some(protocol.into()),
    labels: BTreeMap<String, String> => labels,
    geo_ip: Vec<String> => geo_ip,
    trusted_ips: Vec<String> => trusted_ips,
    tls_mode: impl Into<TlsMode> => Some(tls_mode.into()),
    tls_alpns: Vec<String> => tls_alpns,
    tls_min_version: impl Into<TlsVersion> => Some(tls_min_version.into()),
    mtls_auth: bool => Some(mtls_auth),
    http_version: impl Into<HttpVersion> => Some(http_version.into()),
    token_auth: bool => Some(token_auth),
    svc_auth: bool => Some(svc_auth),
    challenge_mode: bool => Some(challenge_mode),
    link_passwords: Vec<LinkPassword> => link_passwords,
    hostname: impl Into<String> => Some(hostname.into()),
    port: u16 => Some(port),
    upstream_tls: bool => Some(upstream_tls),
    allow_cross_region_routing: bool => Some(allow_cross_region_routing),
    share: bool => Some(share),
    allowed_origins: Vec<String> => allowed_origins,
    pass_headers: Vec<String> => pass_headers,
    identity: Vec<String> => identity,
    time_to_first_byte_seconds: u16 => Some(time_to_first_byte_seconds),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_for_visitors_follows_from_the_protocol() {
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
        let properties = Properties {
            labels: [("a".to_owned(), "b".to_owned())].into(),
            trusted_ips: vec!["127.0.0.0/8".to_owned()],
            allowed_origins: vec!["https://app.example.com".to_owned()],
            token_auth: Some(false),
            pass_headers: vec!["x-original-url".to_owned()],
            identity: vec!["email=remote-user".to_owned()],
            time_to_first_byte_seconds: Some(90),
            port: Some(20_001),
            ..Properties::tcp().named("db")
        };
        assert_eq!(Properties::from_wire(&properties.to_wire()), properties);
    }

    #[test]
    fn link_passwords_are_sent_and_never_printed_or_read_back() {
        let entry = LinkPassword::new("ann", "$argon2id$secret");
        let properties = Properties::http().link_passwords(vec![entry]);
        assert!(!format!("{properties:?}").contains("secret"));
        assert!(!serde_json::to_string(&properties).unwrap().contains("ann"));
        let wire = properties.to_wire();
        assert_eq!(wire.basic_auth.len(), 1);
        let read = Properties::from_wire(&wire);
        assert_eq!(read.basic_auth, Some(true));
        assert!(read.link_passwords.is_empty());
        // A request without a password is not a request for an open tunnel.
        assert_eq!(read.to_wire().basic_auth, [BasicAuthUser::default()]);
    }

    #[test]
    fn properties_have_the_names_of_the_engine_api() {
        let text = r#"{"name":"demo","type":"bytestream","publish":true,"geo_ip":["CH"]}"#;
        let properties: Properties = serde_json::from_str(text).unwrap();
        assert_eq!(serde_json::to_string(&properties).unwrap(), text);
    }
}
