//! A tunnel: what a client asks for ([`TunnelProperties`]) and what the API shows ([`Tunnel`]).

mod names;
mod properties;

use std::fmt;
use std::str::FromStr;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

pub use self::names::{BadName, Country, Hostname, IpRange, TunnelName};
pub use self::properties::{MAX_LIST_LENGTH, PropertyError, TunnelProperties};
use crate::id::{ClientId, TunnelId};

/// A live tunnel. Fields without a value are left out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Tunnel {
    /// Server-assigned id.
    #[schema(value_type = String, example = "tun_01h455vb4pex5vsknk084sn02q")]
    pub id: TunnelId,
    /// Client that holds the tunnel.
    #[schema(value_type = String, example = "cli_01h455vb4pex5vsknk084sn02q")]
    pub client_id: ClientId,
    /// Whether the tunnel takes new streams.
    pub status: Status,
    /// When the tunnel was opened.
    #[serde(
        default,
        with = "crate::timestamp::optional",
        skip_serializing_if = "Option::is_none"
    )]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub creation_date: Option<Timestamp>,
    /// Owner: the user of the agent's credential.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user_id: Option<String>,
    /// Workspace of the project, on managed engines.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace_id: Option<String>,
    /// Project that the tunnel belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project_id: Option<String>,
    /// Cluster that serves the tunnel.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster_id: Option<String>,
    /// Plan of the project.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<String>,
    /// Provider of the project.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
    /// Region of the project.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub region: Option<String>,
    /// Authority (`host` or `host:port`) at which a visitor finds the tunnel. Deprecated: read
    /// `hostname` and `port`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// What was asked for, with the defaults filled in.
    #[serde(flatten)]
    pub properties: TunnelProperties,
}

impl Tunnel {
    /// An online tunnel of a client, with nothing known of its owner yet.
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

    /// The object of the Engine API; with `compat`, `rstream_auth` stands beside `svc_auth`.
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

/// A word that is none of those that a field takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected one of {expected}")]
pub struct UnknownWord {
    expected: &'static str,
}

macro_rules! words {
    ($($(#[$doc:meta])* $name:ident { $($(#[$word_doc:meta])* $variant:ident = $word:literal),+ $(,)? })*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
        pub enum $name {
            $($(#[$word_doc])* #[serde(rename = $word)] $variant),+
        }

        impl $name {
            /// Every value.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// The word on the wire.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $word),+ }
            }
        }

        impl FromStr for $name {
            type Err = UnknownWord;

            fn from_str(given: &str) -> Result<Self, UnknownWord> {
                match given {
                    $($word => Ok(Self::$variant),)+
                    _ => Err(UnknownWord { expected: concat!($("`", $word, "` "),+).trim_ascii_end() }),
                }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(self.as_str())
            }
        }
    )*};
}

words! {
    /// What travels through a tunnel.
    TunnelType {
        /// A reliable stream of bytes.
        Bytestream = "bytestream",
        /// Separate datagrams.
        Datagram = "datagram",
    }
    /// What the visitor speaks to the edge.
    Protocol {
        /// HTTP, terminated and understood by the edge.
        Http = "http",
        /// TLS, terminated at the edge or passed through by SNI.
        Tls = "tls",
        /// Plain TCP on a port of its own.
        Tcp = "tcp",
        /// DTLS datagrams.
        Dtls = "dtls",
        /// QUIC, passed through.
        Quic = "quic",
        /// The protocol of remote terminals.
        Webtty = "webtty",
    }
    /// Where TLS ends.
    TlsMode {
        /// At the edge.
        Terminated = "terminated",
        /// At the upstream; the edge routes by SNI.
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
        /// HTTP/2 with prior knowledge, in clear.
        H2c = "h2c",
        /// HTTP/3.
        H3 = "h3",
    }
    /// Whether an object is reachable now.
    Status {
        /// Reachable.
        Online = "online",
        /// Known, but not reachable.
        Offline = "offline",
    }
}
