//! A tunnel: the requested properties ([`TunnelProperties`]) and the API object ([`Tunnel`]).

mod identity;
pub mod labels;
mod names;
mod origin;
mod properties;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

pub use self::identity::{BadIdentityField, IdentityClaim, IdentityField};
pub use self::names::{BadName, Country, Hostname, IpRange, TunnelName};
pub use self::origin::{BadOrigin, WebOrigin};
pub use self::properties::{
    MAX_LIST_LENGTH, MAX_TIME_TO_FIRST_BYTE_SECONDS, PropertyError, TunnelProperties,
};
use crate::id::{ClientId, TunnelId};
pub use crate::words::UnknownWord;

/// Id of the one project that a community engine serves.
pub const COMMUNITY_PROJECT: &str = "default";

/// A live tunnel. Fields that have no value, or that the caller's boundary does not select, are
/// left out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = TunnelListItem)]
pub struct Tunnel {
    /// Server-assigned id.
    #[schema(value_type = String, example = "tun_01h455vb4pex5vsknk084sn02q", required = false)]
    pub id: TunnelId,
    /// Client that provides the tunnel.
    #[schema(value_type = String, example = "cli_01h455vb4pex5vsknk084sn02q", required = false)]
    pub client_id: ClientId,
    /// Status: an online tunnel accepts new streams.
    #[schema(required = false)]
    pub status: Status,
    /// Time when the tunnel was opened.
    #[serde(
        default,
        with = "crate::timestamp::optional",
        skip_serializing_if = "Option::is_none"
    )]
    #[schema(value_type = String, format = DateTime, required = false)]
    pub creation_date: Option<Timestamp>,
    /// Owner: the user of the agent's credential.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub user_id: Option<String>,
    /// Workspace of the project, on managed engines.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub workspace_id: Option<String>,
    /// Project that the tunnel belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub project_id: Option<String>,
    /// Cluster that serves the tunnel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub cluster_id: Option<String>,
    /// Plan of the project.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub plan: Option<String>,
    /// Provider of the project.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub provider: Option<String>,
    /// Region of the project.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub region: Option<String>,
    /// Authority (`host` or `host:port`) at which visitors reach the tunnel. Deprecated: read
    /// `hostname` and `port`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub host: Option<String>,
    /// The requested properties, with defaults filled in.
    #[serde(flatten)]
    pub properties: TunnelProperties,
}

impl Tunnel {
    /// Returns an online tunnel of a client, without information about its owner.
    pub fn online(id: TunnelId, client_id: ClientId, properties: TunnelProperties) -> Self {
        Self {
            id,
            client_id,
            status: Status::Online,
            creation_date: None,
            user_id: None,
            workspace_id: None,
            project_id: None,
            cluster_id: None,
            plan: None,
            provider: None,
            region: None,
            host: None,
            properties,
        }
    }

    /// The object of the Engine API; with `compat`, it has `rstream_auth` in addition to
    /// `svc_auth`.
    pub fn to_json(&self, compat: bool) -> serde_json::Value {
        // Strings, numbers and maps with string keys always serialise.
        let mut object = serde_json::to_value(self).unwrap_or_default();
        if compat
            && let Some(fields) = object.as_object_mut()
            && let Some(session) = fields.get("svc_auth").cloned()
        {
            fields.insert("rstream_auth".to_owned(), session);
        }
        object
    }
}

crate::words::words! {
    /// Kind of traffic in a tunnel.
    TunnelType {
        /// A reliable stream of bytes.
        Bytestream = "bytestream",
        /// Separate datagrams.
        Datagram = "datagram",
    }
    /// Protocol between visitor and edge.
    Protocol {
        /// HTTP, terminated and understood by the edge.
        Http = "http",
        /// TLS, terminated at the edge or passed through by SNI.
        Tls = "tls",
        /// Plain TCP on a dedicated port.
        Tcp = "tcp",
        /// DTLS datagrams.
        Dtls = "dtls",
        /// QUIC, passed through.
        Quic = "quic",
        /// The protocol of remote terminals.
        Webtty = "webtty",
    }
    /// Endpoint that terminates TLS.
    TlsMode {
        /// The edge.
        Terminated = "terminated",
        /// The upstream; the edge routes by SNI.
        Passthrough = "passthrough",
    }
    /// A TLS version as a lower bound.
    TlsVersion {
        /// RFC 5246.
        Tls12 = "tls1.2",
        /// RFC 8446.
        Tls13 = "tls1.3",
    }
    /// HTTP version towards the upstream.
    HttpVersion {
        /// HTTP/1.1.
        Http11 = "http/1.1",
        /// HTTP/2 over TLS.
        H2 = "h2",
        /// HTTP/2 with prior knowledge, without TLS.
        H2c = "h2c",
        /// HTTP/3.
        H3 = "h3",
    }
    /// A header that applications trust as a proxy's information about the request.
    ProxyHeader {
        /// The requested address, before a rewrite.
        XOriginalUrl = "x-original-url",
        /// The same.
        XRewriteUrl = "x-rewrite-url",
        /// The requested port.
        XForwardedPort = "x-forwarded-port",
        /// The prefix that a proxy removed from the path.
        XForwardedPrefix = "x-forwarded-prefix",
        /// The certificate of the client.
        XClientCert = "x-client-cert",
        /// The address of the client.
        TrueClientIp = "true-client-ip",
        /// The same.
        CfConnectingIp = "cf-connecting-ip",
    }
    /// Availability of an object.
    Status {
        /// Reachable.
        Online = "online",
        /// Registered, but not reachable.
        Offline = "offline",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_round_trip() {
        for protocol in Protocol::ALL {
            assert_eq!(protocol.to_string().parse(), Ok(*protocol));
        }
        let error = "HTTP".parse::<TlsMode>().unwrap_err();
        assert_eq!(
            error.to_string(),
            "expected one of `terminated` `passthrough`"
        );
    }

    #[test]
    fn json_omits_absent_values() {
        let tunnel = Tunnel::online(
            TunnelId::new(1, [1; 10]),
            ClientId::new(2, [2; 10]),
            TunnelProperties::default(),
        );
        insta::assert_json_snapshot!("bare", tunnel.to_json(true));
    }

    #[test]
    fn json_is_flat_and_reads_back() {
        let properties = TunnelProperties {
            name: Some("web".parse().unwrap()),
            hostname: Some("web.t.example.com".parse().unwrap()),
            trusted_ips: vec![
                "192.0.2.0/24".parse().unwrap(),
                "2001:db8::1".parse().unwrap(),
            ],
            geo_ip: vec!["de".parse().unwrap()],
            labels: [("team".to_owned(), "a".to_owned())].into(),
            token_auth: Some(true),
            svc_auth: Some(false),
            ..TunnelProperties::default()
        };
        let mut tunnel = Tunnel::online(
            TunnelId::new(1, [1; 10]),
            ClientId::new(2, [2; 10]),
            properties.resolve().unwrap(),
        );
        tunnel.creation_date = Some("2026-01-02T03:04:05.678901Z".parse().unwrap());
        tunnel.host = Some("web.t.example.com".to_owned());
        tunnel.user_id = Some("u1".to_owned());
        tunnel.project_id = Some("default".to_owned());
        insta::assert_json_snapshot!("full", tunnel.to_json(false));
        let compat = tunnel.to_json(true);
        assert_eq!(compat.get("rstream_auth"), Some(&serde_json::json!(false)));
        tunnel.creation_date = Some("2026-01-02T03:04:05.678Z".parse().unwrap());
        assert_eq!(serde_json::from_value::<Tunnel>(compat).unwrap(), tunnel);
    }
}
