//! Properties with a fixed set of values.

use std::fmt;

/// Defines string enums: names, parsing and printing from one list. An unknown value is kept
/// unchanged, because the engine may be newer than this library.
macro_rules! words {
    ($($(#[doc = $doc:literal])* $name:ident { $($(#[doc = $word_doc:literal])* $variant:ident = $word:literal,)+ })*) => {$(
        $(#[doc = $doc])*
        #[derive(Clone, Debug, PartialEq, Eq, Hash)]
        #[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
        #[cfg_attr(feature = "serde", serde(from = "String", into = "String"))]
        #[non_exhaustive]
        pub enum $name {
            $($(#[doc = $word_doc])* $variant,)+
            /// A value that this version of the library does not have. Create it with `From`, which
            /// returns the known variants for known values.
            #[non_exhaustive]
            Other(String),
        }

        impl $name {
            /// The value in the Engine API.
            pub fn as_str(&self) -> &str {
                match self {
                    $(Self::$variant => $word,)+
                    Self::Other(word) => word,
                }
            }
        }

        impl From<&str> for $name {
            fn from(word: &str) -> Self {
                match word {
                    $($word => Self::$variant,)+
                    other => Self::Other(other.to_owned()),
                }
            }
        }

        impl From<String> for $name {
            fn from(word: String) -> Self {
                Self::from(word.as_str())
            }
        }

        impl From<$name> for String {
            fn from(word: $name) -> Self {
                word.as_str().to_owned()
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
    /// The kind of traffic that a tunnel carries.
    TunnelKind {
        /// Streams of bytes.
        Bytestream = "bytestream",
        /// Datagrams.
        Datagram = "datagram",
    }

    /// The protocol of the visitors of a published tunnel.
    Protocol {
        /// HTTP, which the edge reads.
        Http = "http",
        /// TLS, routed by its server name.
        Tls = "tls",
        /// Bytes, on a dedicated port.
        Tcp = "tcp",
        /// DTLS.
        Dtls = "dtls",
        /// QUIC.
        Quic = "quic",
        /// Terminals.
        Webtty = "webtty",
    }

    /// The endpoint that terminates TLS of a `tls` tunnel.
    TlsMode {
        /// At the edge.
        Terminated = "terminated",
        /// At the service.
        Passthrough = "passthrough",
    }

    /// The minimum TLS version of visitors.
    TlsVersion {
        /// TLS 1.2.
        Tls12 = "tls1.2",
        /// TLS 1.3.
        Tls13 = "tls1.3",
    }

    /// The HTTP version between the edge and the service of an `http` tunnel.
    HttpVersion {
        /// HTTP/1.1.
        Http11 = "http/1.1",
        /// HTTP/2 over TLS.
        H2 = "h2",
        /// HTTP/2 without TLS.
        H2c = "h2c",
        /// HTTP/3.
        H3 = "h3",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_and_unknown_values_round_trip() {
        assert_eq!(Protocol::from("tcp"), Protocol::Tcp);
        assert_eq!(Protocol::Tcp.to_string(), "tcp");
        assert_eq!(String::from(HttpVersion::from("h9")), "h9");
        assert_eq!(
            serde_json::from_str::<HttpVersion>("\"http/1.1\"").unwrap(),
            HttpVersion::Http11
        );
        assert_eq!(
            serde_json::to_string(&TlsVersion::from("tls2")).unwrap(),
            "\"tls2\""
        );
    }
}
