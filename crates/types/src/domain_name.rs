//! Names of custom domains: host names outside the hosts of a platform or an engine under which
//! tunnels are published.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use idna::AsciiDenyList;
use idna::uts46::{DnsLength, Hyphens, Uts46};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A custom domain: a host name (`app.example.com`), or all names directly below one
/// (`*.app.example.com`).
///
/// It consists of A-labels in lower case without a trailing dot (RFC 5890), so that equal names
/// have equal texts. It is parsed from A-labels or Unicode (UTS 46). It is never an address, a
/// single label or a public suffix, and the records that prove its control fit in front of it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DomainName(String);

/// The reason that a text is not a [`DomainName`]. It does not repeat the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DomainNameError {
    /// Not a host name.
    #[error("this is not a host name such as app.example.com, or *.example.com")]
    Invalid,
    /// The name is too long for the records that prove its control.
    #[error("the name is too long: at most {MAX_BASE_BYTES} characters are possible")]
    TooLong,
    /// A scheme, a path or a user name.
    #[error("this is a URL; enter only its host name")]
    Url,
    /// A port.
    #[error("the name has a port; enter it without the port")]
    Port,
    /// An IP address.
    #[error("this is an IP address; enter a host name such as app.example.com")]
    Address,
    /// One label only.
    #[error("the name has one label only; enter a complete name such as app.example.com")]
    SingleLabel,
    /// A `*` that is not the whole first label.
    #[error("`*` is possible as the whole first label only, as in *.example.com")]
    MisplacedWildcard,
    /// Different parties register names below it.
    #[error(
        "the name is a public suffix, below which different parties register names; enter a name \
         that you have registered"
    )]
    PublicSuffix,
}

impl DomainNameError {
    /// Stable code in `snake_case`.
    pub const fn code(self) -> &'static str {
        match self {
            Self::Invalid | Self::TooLong | Self::Url | Self::Port => "invalid_domain",
            Self::Address => "domain_is_address",
            Self::SingleLabel => "domain_is_single_label",
            Self::MisplacedWildcard => "domain_wildcard_misplaced",
            Self::PublicSuffix => "domain_is_public_suffix",
        }
    }
}

impl DomainName {
    /// The name with the `*.` of a wildcard.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The host name without the `*.` of a wildcard.
    pub fn base(&self) -> &str {
        self.0.strip_prefix(WILDCARD).unwrap_or(&self.0)
    }

    /// True if it stands for all names directly below [`Self::base`].
    pub fn is_wildcard(&self) -> bool {
        self.0.starts_with(WILDCARD)
    }

    /// The wildcard of this name, or the name itself if it is a wildcard.
    #[must_use]
    pub fn to_wildcard(&self) -> Self {
        Self(format!("{WILDCARD}{}", self.base()))
    }

    /// True if the name equals `host`, or all names that it stands for are below it. `host` is in
    /// lower case, without a trailing dot.
    pub fn is_within(&self, host: &str) -> bool {
        let above = self.base().strip_suffix(host);
        above.is_some_and(|above| above.is_empty() || above.ends_with('.'))
    }
}

impl FromStr for DomainName {
    type Err = DomainNameError;

    fn from_str(text: &str) -> Result<Self, DomainNameError> {
        if text.len() > MAX_TEXT_BYTES {
            return Err(DomainNameError::TooLong);
        }
        let (prefix, name) = match text.strip_prefix(WILDCARD) {
            Some(name) => (WILDCARD, name),
            None => ("", text),
        };
        refuse_other_kinds(name)?;
        let name = name.strip_suffix('.').unwrap_or(name);
        let ascii = Uts46::new()
            .to_ascii(
                name.as_bytes(),
                AsciiDenyList::STD3,
                Hyphens::CheckFirstLast,
                DnsLength::Verify,
            )
            .map_err(|_| DomainNameError::Invalid)?;
        // The conversion also maps other forms of digits and dots.
        if ascii.parse::<Ipv4Addr>().is_ok() || ends_in_a_number(&ascii) {
            return Err(DomainNameError::Address);
        }
        if !ascii.contains('.') {
            return Err(DomainNameError::SingleLabel);
        }
        if ascii.len() > MAX_BASE_BYTES {
            return Err(DomainNameError::TooLong);
        }
        // A suffix that is not in the list is a public one only if it is a single label.
        if psl::domain_str(&ascii).is_none() {
            return Err(DomainNameError::PublicSuffix);
        }
        Ok(Self(format!("{prefix}{ascii}")))
    }
}

/// Refuses texts that are more than a name, so that the reason names the part.
fn refuse_other_kinds(name: &str) -> Result<(), DomainNameError> {
    if name.contains('*') {
        return Err(DomainNameError::MisplacedWildcard);
    }
    if name.contains(['/', '@', '?', '#']) {
        return Err(DomainNameError::Url);
    }
    if name.starts_with('[') || name.parse::<Ipv6Addr>().is_ok() {
        return Err(DomainNameError::Address);
    }
    if name.contains(':') {
        return Err(DomainNameError::Port);
    }
    Ok(())
}

/// True if browsers would read the host as an IPv4 address (WHATWG URL standard, section 3.5).
fn ends_in_a_number(name: &str) -> bool {
    let last = name.rsplit('.').next().unwrap_or(name);
    let hex = last.strip_prefix("0x");
    let is_hex = hex.is_some_and(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()));
    is_hex || (!last.is_empty() && last.bytes().all(|byte| byte.is_ascii_digit()))
}

/// The registered name of a host: its public suffix and one label more. The host itself if it has
/// none.
pub fn registered_name(host: &str) -> &str {
    psl::domain_str(host).unwrap_or(host)
}

impl fmt::Display for DomainName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl fmt::Debug for DomainName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl AsRef<str> for DomainName {
    fn as_ref(&self) -> &str {
        self.as_str()
    }
}

impl Serialize for DomainName {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for DomainName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

const WILDCARD: &str = "*.";

/// Prefix of the name of the record that proves the control of a domain to a platform.
pub const CHALLENGE_PREFIX: &str = "_svc-challenge.";

/// Prefix of the name of the record that proves it to an authority (RFC 8555 section 8.4).
const ACME_PREFIX: &str = "_acme-challenge.";

/// Maximum bytes of a DNS name (RFC 1035 section 2.3.4).
const MAX_NAME_BYTES: usize = 253;

/// Maximum bytes of a name without `*.`, so that the longest record fits in front of it.
const MAX_BASE_BYTES: usize = MAX_NAME_BYTES - ACME_PREFIX.len();

/// Maximum bytes before the conversion. A character of Unicode has four bytes at most, and each
/// character adds at least one byte to the A-label.
const MAX_TEXT_BYTES: usize = 4 * MAX_NAME_BYTES;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::tunnel::Hostname;

    fn parse(text: &str) -> Result<String, DomainNameError> {
        let parsed = text.parse::<DomainName>();
        parsed.map(|name| name.as_str().to_owned())
    }

    #[test]
    fn equal_names_have_equal_texts() {
        for (text, expected) in [
            ("app.example.com", "app.example.com"),
            ("APP.Example.COM.", "app.example.com"),
            ("*.app.example.com", "*.app.example.com"),
            ("*.APP.example.com.", "*.app.example.com"),
            ("bücher.example", "xn--bcher-kva.example"),
            ("BÜCHER.example", "xn--bcher-kva.example"),
            ("XN--bcher-KVA.example", "xn--bcher-kva.example"),
            ("*.bücher.example", "*.xn--bcher-kva.example"),
            ("app\u{3002}example\u{3002}com", "app.example.com"),
            ("a--b.example.com", "a--b.example.com"),
            ("example.co.uk", "example.co.uk"),
            ("user.github.io", "user.github.io"),
            ("www.ck", "www.ck"),
            ("app.localhost", "app.localhost"),
            ("app.corp.internal", "app.corp.internal"),
            ("corp.internal", "corp.internal"),
        ] {
            assert_eq!(parse(text).as_deref(), Ok(expected), "{text}");
            let name: DomainName = text.parse().unwrap();
            assert_eq!(name.is_wildcard(), expected.starts_with("*."), "{text}");
        }
    }

    #[test]
    fn other_texts_are_refused_with_their_reason() {
        use DomainNameError as Error;

        let long_label = format!("{}.example.com", "a".repeat(64));
        let long_text = "ä".repeat(1_000);
        for (text, expected) in [
            ("", Error::Invalid),
            (".", Error::Invalid),
            ("*.", Error::Invalid),
            ("-a.example.com", Error::Invalid),
            ("a-.example.com", Error::Invalid),
            ("a_b.example.com", Error::Invalid),
            ("a..example.com", Error::Invalid),
            (".example.com", Error::Invalid),
            ("app.example.com..", Error::Invalid),
            ("a b.example.com", Error::Invalid),
            (" app.example.com", Error::Invalid),
            ("app.example.com\n", Error::Invalid),
            ("a\0.example.com", Error::Invalid),
            ("xn--a.example.com", Error::Invalid),
            (&long_label, Error::Invalid),
            (&long_text, Error::TooLong),
            ("*", Error::MisplacedWildcard),
            ("*.*.example.com", Error::MisplacedWildcard),
            ("a*.example.com", Error::MisplacedWildcard),
            ("app.*.example.com", Error::MisplacedWildcard),
            ("https://app.example.com", Error::Url),
            ("app.example.com/", Error::Url),
            ("app.example.com:443", Error::Port),
            ("192.0.2.1", Error::Address),
            ("192.0.2.1.", Error::Address),
            ("127.1", Error::Address),
            ("0x7f.0x1", Error::Address),
            ("app.123", Error::Address),
            ("*.1.2.3.4", Error::Address),
            ("\u{ff11}.2.3.4", Error::Address),
            ("2001:db8::1", Error::Address),
            ("[2001:db8::1]", Error::Address),
            ("localhost", Error::SingleLabel),
            ("*.com", Error::SingleLabel),
            ("co.uk", Error::PublicSuffix),
            ("*.co.uk", Error::PublicSuffix),
            ("公司.cn", Error::PublicSuffix),
            ("github.io", Error::PublicSuffix),
            ("*.github.io", Error::PublicSuffix),
            ("anything.ck", Error::PublicSuffix),
        ] {
            assert_eq!(parse(text), Err(expected), "{text:?}");
        }
    }

    #[test]
    fn the_challenge_record_fits_in_front_of_the_longest_name() {
        let label = "a".repeat(63);
        let name = |rest| format!("{label}.{label}.{label}.{}.example", "a".repeat(rest));
        for prefix in [ACME_PREFIX, CHALLENGE_PREFIX, WILDCARD] {
            assert!(prefix.len() + MAX_BASE_BYTES <= MAX_NAME_BYTES);
        }
        assert_eq!(name(37).len(), MAX_BASE_BYTES);
        assert!(parse(&name(37)).is_ok());
        assert_eq!(parse(&name(38)), Err(DomainNameError::TooLong));
    }

    #[test]
    fn relations_of_names_respect_labels() {
        let name: DomainName = "app.example.com".parse().unwrap();
        for host in ["app.example.com", "example.com"] {
            assert!(name.is_within(host), "{host}");
            assert!(name.to_wildcard().is_within(host), "{host}");
        }
        for host in ["pp.example.com", "a.app.example.com"] {
            assert!(!name.is_within(host), "{host}");
        }
        let wildcard = name.to_wildcard();
        assert_eq!(wildcard.as_str(), "*.app.example.com");
        assert_eq!(wildcard.to_wildcard(), wildcard);
        assert_eq!(registered_name("a.b.example.co.uk"), "example.co.uk");
        assert_eq!(registered_name("co.uk"), "co.uk");
    }

    #[test]
    fn it_is_a_string_in_json() {
        let name: DomainName = serde_json::from_str("\"Bücher.example\"").unwrap();
        let json = serde_json::to_string(&name).unwrap();
        assert_eq!(json, "\"xn--bcher-kva.example\"");
        assert!(serde_json::from_str::<DomainName>("\"com\"").is_err());
    }

    proptest! {
        #[test]
        fn a_parsed_name_is_in_its_normal_form(text in "\\PC{0,80}") {
            if let Ok(name) = text.parse::<DomainName>() {
                prop_assert_eq!(parse(name.as_str()), Ok(name.as_str().to_owned()));
                prop_assert!(name.base().len() <= MAX_BASE_BYTES);
                prop_assert!(name.base().parse::<Hostname>().is_ok());
                prop_assert!(name.base().contains('.'));
                prop_assert_eq!(name.base().to_ascii_lowercase(), name.base());
            }
        }

        #[test]
        fn plain_names_are_accepted(labels in proptest::collection::vec("[a-z][a-z0-9]{0,20}", 1..5)) {
            let text = format!("{}.example.com", labels.join("."));
            prop_assert_eq!(parse(&text), Ok(text.clone()));
            let upper = text.to_uppercase();
            prop_assert_eq!(parse(&upper), Ok(text));
        }
    }
}
