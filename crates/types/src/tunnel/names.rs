//! Names that clients choose. A value of these types is always valid.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::id::TunnelId;

/// A name that breaks the rules of its kind. It does not repeat the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BadName(&'static str);

macro_rules! checked_text {
    ($($(#[$doc:meta])* $name:ident)*) => {$(
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, ToSchema)]
        #[schema(value_type = String)]
        pub struct $name(String);

        impl $name {
            /// The text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&self.0, f)
            }
        }

        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }

        impl std::borrow::Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        impl From<$name> for String {
            fn from(name: $name) -> Self {
                name.0
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let given = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
                given.parse().map_err(serde::de::Error::custom)
            }
        }
    )*};
}

checked_text! {
    /// Name of a tunnel, unique in its project. It is also the dial key of a private tunnel
    /// (`svc://<name>`): 1 to 128 letters, digits and `. _ - : @ +`, case-sensitive, not in the
    /// form of a tunnel id.
    TunnelName

    /// Host name in lower case without a trailing dot (RFC 952, RFC 1123 section 2.1), one or
    /// more labels; never an IP address.
    Hostname

    /// ISO 3166-1 alpha-2 country code in upper case.
    Country
}

impl FromStr for TunnelName {
    type Err = BadName;

    fn from_str(given: &str) -> Result<Self, BadName> {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._-:@+".contains(&byte);
        if !(1..=MAX_NAME_BYTES).contains(&given.len()) || !given.bytes().all(allowed) {
            return Err(BadName("expected 1 to 128 letters, digits and . _ - : @ +"));
        }
        if given.parse::<TunnelId>().is_ok() {
            return Err(BadName("a name may not have the form of a tunnel id"));
        }
        Ok(Self(given.to_owned()))
    }
}

impl Hostname {
    /// First label, for example `web` of `web.t.example.com`.
    pub fn first_label(&self) -> &str {
        self.0
            .split_once('.')
            .map_or(self.as_str(), |(label, _)| label)
    }

    /// True if the name is a single label, which requests a stable name.
    pub fn is_label(&self) -> bool {
        !self.0.contains('.')
    }

    /// Returns the label before `.{domain}` if this name is exactly one label below `domain`.
    pub fn label_below(&self, domain: &Self) -> Option<&str> {
        let (label, rest) = self.0.split_once('.')?;
        (rest == domain.0).then_some(label)
    }

    /// Returns `label.domain` if it is a valid host name.
    pub fn below(label: &str, domain: &Self) -> Result<Self, BadName> {
        format!("{label}.{domain}").parse()
    }
}

impl FromStr for Hostname {
    type Err = BadName;

    fn from_str(given: &str) -> Result<Self, BadName> {
        const INVALID_HOSTNAME: BadName =
            BadName("expected a host name of letters, digits, dashes and dots");
        // A trailing dot does not change the name, but routing needs a single spelling.
        let name = given.strip_suffix('.').unwrap_or(given);
        if !(1..=MAX_HOSTNAME_BYTES).contains(&name.len()) {
            return Err(INVALID_HOSTNAME);
        }
        let label_fits = |label: &str| {
            (1..=MAX_HOST_LABEL_BYTES).contains(&label.len())
                && label
                    .bytes()
                    .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
                && !label.starts_with('-')
                && !label.ends_with('-')
        };
        if !name.split('.').all(label_fits) {
            return Err(INVALID_HOSTNAME);
        }
        // Resolvers and URL parsers treat a name with a numeric last label as an IPv4 address.
        let last = name.rsplit('.').next().unwrap_or_default();
        if name.contains('.') && last.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(BadName("an IP address is not a host name"));
        }
        Ok(Self(name.to_ascii_lowercase()))
    }
}

impl FromStr for Country {
    type Err = BadName;

    fn from_str(given: &str) -> Result<Self, BadName> {
        if given.len() != 2 || !given.bytes().all(|byte| byte.is_ascii_alphabetic()) {
            return Err(BadName(
                "expected a country code of two letters (ISO 3166-1 alpha-2)",
            ));
        }
        Ok(Self(given.to_ascii_uppercase()))
    }
}

/// Address range of trusted visitors: an address or CIDR block, IPv4 or IPv6. Bits after the prefix
/// are cleared; a single address is written without a prefix.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, ToSchema)]
#[schema(value_type = String, example = "192.0.2.0/24")]
pub struct IpRange(IpNet);

impl IpRange {
    /// True if the address is in the range. An IPv4-mapped IPv6 address counts as IPv4.
    pub fn contains(&self, address: IpAddr) -> bool {
        self.0.contains(&address.to_canonical())
    }

    /// Returns the range as a network.
    pub fn net(&self) -> IpNet {
        self.0
    }
}

impl FromStr for IpRange {
    type Err = BadName;

    fn from_str(given: &str) -> Result<Self, BadName> {
        let net: Option<IpNet> = match given.parse::<IpAddr>() {
            Ok(address) => Some(address.to_canonical().into()),
            Err(_) => given.parse().ok(),
        };
        let net = net.ok_or(BadName("expected an IP address or a CIDR block"))?;
        Ok(Self(net.trunc()))
    }
}

impl fmt::Display for IpRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.prefix_len() == self.0.max_prefix_len() {
            fmt::Display::fmt(&self.0.addr(), f)
        } else {
            fmt::Display::fmt(&self.0, f)
        }
    }
}

impl fmt::Debug for IpRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for IpRange {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for IpRange {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let given = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        given.parse().map_err(serde::de::Error::custom)
    }
}

/// Keeps names readable in lists and short in frames.
const MAX_NAME_BYTES: usize = 128;
/// RFC 1035 section 2.3.4, in text form.
const MAX_HOSTNAME_BYTES: usize = 253;
/// RFC 1035 section 2.3.4.
const MAX_HOST_LABEL_BYTES: usize = 63;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tunnel_name_keeps_its_case_and_refuses_characters_unsafe_in_urls() {
        assert_eq!(
            "Web-1.a_b:c@d+e".parse::<TunnelName>().unwrap().as_str(),
            "Web-1.a_b:c@d+e"
        );
        let long = "n".repeat(129);
        for bad in [
            "",
            "a b",
            "a/b",
            "ü",
            "a\n",
            long.as_str(),
            "tun_01h455vb4pex5vsknk084sn02q",
        ] {
            assert!(bad.parse::<TunnelName>().is_err(), "{bad}");
        }
    }

    #[test]
    fn hostname_has_one_spelling() {
        for (given, kept) in [
            ("Web.T.Example.COM", "web.t.example.com"),
            ("example.com.", "example.com"),
            ("web", "web"),
            ("1a", "1a"),
            ("xn--bcher-kva.example", "xn--bcher-kva.example"),
        ] {
            assert_eq!(given.parse::<Hostname>().unwrap().as_str(), kept);
        }
        let long_label = format!("{}.example", "a".repeat(64));
        let long_name = format!("{}a", "abcdefg.".repeat(32));
        for bad in [
            "",
            ".",
            "a..b",
            "a.b..",
            "-a.b",
            "a-.b",
            "a_b",
            "a b",
            "bücher.example",
            "192.0.2.1",
            "[::1]",
            "a:443",
            long_label.as_str(),
            long_name.as_str(),
        ] {
            assert!(bad.parse::<Hostname>().is_err(), "{bad}");
        }
    }

    #[test]
    fn hostname_is_split_below_a_domain() {
        let domain: Hostname = "t.example.com".parse().unwrap();
        let name = Hostname::below("Web", &domain).unwrap();
        assert_eq!(name.label_below(&domain), Some("web"));
        assert_eq!(name.first_label(), "web");
        let deep: Hostname = "a.web.t.example.com".parse().unwrap();
        assert_eq!(deep.label_below(&domain), None);
        assert!(Hostname::below("a/b", &domain).is_err());
    }

    #[test]
    fn ip_range_is_an_address_or_a_block() {
        for (given, kept) in [
            ("192.0.2.7", "192.0.2.7"),
            ("192.0.2.7/24", "192.0.2.0/24"),
            ("2001:DB8::/32", "2001:db8::/32"),
            ("::ffff:192.0.2.7", "192.0.2.7"),
            ("0.0.0.0/0", "0.0.0.0/0"),
        ] {
            assert_eq!(given.parse::<IpRange>().unwrap().to_string(), kept);
        }
        for bad in [
            "",
            "192.0.2",
            "192.0.2.0/33",
            "example.com",
            "192.0.2.0/24 ",
        ] {
            assert!(bad.parse::<IpRange>().is_err(), "{bad}");
        }
        let range: IpRange = "192.0.2.0/24".parse().unwrap();
        assert!(range.contains("::ffff:192.0.2.9".parse().unwrap()));
        assert!(!range.contains("192.0.3.1".parse().unwrap()));
    }
}
