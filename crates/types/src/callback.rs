//! Callbacks of OAuth clients: the addresses that a browser is redirected to with a code.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};

use crate::form;
use crate::query_credential::percent_decode;

/// A callback that may be registered: an `https` address, or `http` on this machine (RFC 8252
/// section 7.3). It is stored as it was written, and compared byte for byte (RFC 9700 section 2.1).
/// It has no pattern, fragment, user or dot segments, and nothing that two URL parsers could
/// interpret differently.
#[derive(Clone, PartialEq, Eq)]
pub struct Callback {
    text: String,
    authority: (usize, usize),
}

impl Callback {
    /// Parses a callback from a configuration.
    ///
    /// # Errors
    /// The reason, in words that complete the sentence "this callback …".
    pub fn parse(text: &str) -> Result<Self, BadCallback> {
        let refused = |why| Err(BadCallback(why));
        if text.len() > MAX_CALLBACK_BYTES {
            return refused("is too long");
        }
        let (is_plain, start) = if text.starts_with("https://") {
            (false, 8)
        } else if text.starts_with("http://") {
            (true, 7)
        } else {
            return refused("must start with https://, or with http:// on this machine");
        };
        if text.contains('#') {
            return refused("has a fragment");
        }
        if text.contains('*') {
            return refused("has a wildcard; callbacks are compared byte for byte");
        }
        // RFC 3986 appendix A: the other characters of a URI.
        let is_plain_byte =
            |byte: u8| byte.is_ascii_alphanumeric() || b"-._~:/?[]@!$&'()+,;=%".contains(&byte);
        if !text.bytes().all(is_plain_byte) {
            return refused("contains characters that are not allowed in an address");
        }
        let rest = text.get(start..).unwrap_or_default();
        let length = rest.find(['/', '?']).unwrap_or(rest.len());
        let (authority, target) = rest.split_at_checked(length).unwrap_or((rest, ""));
        let host = host(authority).ok_or(BadCallback("has no valid host and port"))?;
        if is_plain && !host.is_this_machine() {
            return refused("must be https: with http a code would be sent unencrypted");
        }
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        if path.contains(['[', ']']) || query.contains(['[', ']']) {
            return refused("contains brackets after the host");
        }
        if percent_decode(target.as_bytes()).is_none() {
            return refused("contains an invalid escape");
        }
        let is_dots = |segment: &str| {
            let segment = segment.to_ascii_lowercase().replace("%2e", ".");
            segment == "." || segment == ".."
        };
        if path.split('/').any(is_dots) {
            return refused("contains dot segments, which browsers resolve");
        }
        match form::Form::parse(query) {
            Err(_) => return refused("has a query that cannot be parsed"),
            // The query must not already have a parameter with a name that the response adds, not
            // even an empty one.
            Ok(query) => {
                if RESPONSE.into_iter().any(|name| query.has(name)) {
                    return refused("has a query parameter with the name of a response parameter");
                }
                if !query.has_room_for(RESPONSE.len()) {
                    return refused(
                        "has so many parameters that the response parameters do not fit",
                    );
                }
            }
        }
        Ok(Self {
            text: text.to_owned(),
            authority: (start, start + length),
        })
    }

    /// Returns the address as it was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Host, with the port if there is one, as it is displayed to users.
    pub fn host(&self) -> &str {
        let (start, end) = self.authority;
        self.text.get(start..end).unwrap_or_default()
    }

    /// True if the response stays on the user's own machine.
    pub fn is_this_machine(&self) -> bool {
        host(self.host()).is_some_and(|host| host.is_this_machine())
    }

    /// True if this is `http` on this machine, and `other` differs from it in nothing but the port
    /// (RFC 8252 section 7.3).
    pub fn is_loopback_with_any_port(&self, other: &Self) -> bool {
        let is_plain = |callback: &Self| callback.text.starts_with("http://");
        is_plain(self)
            && is_plain(other)
            && self.is_this_machine()
            && without_port(self.host()) == without_port(other.host())
            && self.target() == other.target()
    }

    /// Path and query, as they were written.
    fn target(&self) -> &str {
        let (_, end) = self.authority;
        self.text.get(end..).unwrap_or_default()
    }

    /// Returns the address with parameters added to its query.
    pub fn with<'a>(&self, parameters: impl IntoIterator<Item = (&'a str, &'a str)>) -> String {
        let mark = if !self.text.contains('?') {
            "?"
        } else if self.text.ends_with(['?', '&']) {
            ""
        } else {
            "&"
        };
        format!("{}{mark}{}", self.text, form::encode(parameters))
    }
}

impl fmt::Debug for Callback {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// A callback that cannot be registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this callback {0}")]
pub struct BadCallback(&'static str);

/// Browsers and proxies accept an address of this length with the response parameters added.
const MAX_CALLBACK_BYTES: usize = 1024;

/// Parameters of an authorization response (RFC 6749 section 4.1.2, RFC 9207).
const RESPONSE: [&str; 6] = [
    "code",
    "state",
    "iss",
    "error",
    "error_description",
    "error_uri",
];

/// The host of an authority, with its brackets if it is an IPv6 address.
fn without_port(authority: &str) -> &str {
    let end = match authority.rfind(']') {
        Some(bracket) => bracket + 1,
        None => authority.find(':').unwrap_or(authority.len()),
    };
    authority.get(..end).unwrap_or(authority)
}

enum Host<'a> {
    V4(Ipv4Addr),
    V6(Ipv6Addr),
    Name(&'a str),
}

impl Host<'_> {
    /// RFC 8252 section 7.3 prefers the address literals; many clients use `localhost`.
    fn is_this_machine(&self) -> bool {
        match self {
            Self::V4(address) => address.is_loopback(),
            Self::V6(address) => address.is_loopback(),
            Self::Name(name) => name.eq_ignore_ascii_case("localhost"),
        }
    }
}

fn host(authority: &str) -> Option<Host<'_>> {
    let (host, port) = if let Some(rest) = authority.strip_prefix('[') {
        let (address, after) = rest.split_once(']')?;
        let port = match after {
            "" => None,
            port => Some(port.strip_prefix(':')?),
        };
        (Host::V6(address.parse().ok()?), port)
    } else {
        let (host, port) = match authority.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (authority, None),
        };
        let host = match host.parse() {
            Ok(address) => Host::V4(address),
            Err(_) => Host::Name(Some(host).filter(|host| is_name(host))?),
        };
        (host, port)
    };
    let is_port = |port: &str| {
        port.bytes().all(|byte| byte.is_ascii_digit())
            && port.parse::<u16>().is_ok_and(|port| port > 0)
    };
    port.is_none_or(is_port).then_some(host)
}

/// True for a DNS name. Browsers would parse a name whose last label is a number as an IP address
/// (WHATWG URL, "ends in a number checker").
fn is_name(host: &str) -> bool {
    let label = |label: &str| {
        (1..=63).contains(&label.len())
            && label
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    let last = host.rsplit('.').next().unwrap_or_default();
    let is_number = last
        .bytes()
        .next()
        .is_some_and(|byte| byte.is_ascii_digit());
    host.len() <= 253 && host.split('.').all(label) && !is_number
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn callbacks_are_registered_as_written() {
        for (text, host, is_this_machine) in [
            ("https://client.example/cb", "client.example", false),
            ("https://client.example", "client.example", false),
            (
                "https://client.example:8443/a/b?x=1",
                "client.example:8443",
                false,
            ),
            ("http://127.0.0.1:49152/callback", "127.0.0.1:49152", true),
            ("http://[::1]:1/cb", "[::1]:1", true),
            ("http://localhost:3000/", "localhost:3000", true),
            ("https://192.0.2.1/cb", "192.0.2.1", false),
        ] {
            let callback = Callback::parse(text).unwrap();
            assert_eq!(callback.as_str(), text);
            assert_eq!(
                (callback.host(), callback.is_this_machine()),
                (host, is_this_machine)
            );
        }
    }

    #[test]
    fn ambiguous_addresses_are_refused() {
        for bad in [
            "",
            "client.example/cb",
            "javascript:alert(1)",
            "com.example.app:/cb",
            "HTTPS://client.example/cb",
            "http://client.example/cb",
            "http://127.0.0.1.example/cb",
            "http://localhost.example/cb",
            "https://user@client.example/cb",
            "http://127.0.0.1@evil.example/cb",
            "https://client.example/cb#x",
            "https://*.client.example/cb",
            "https://client.example/*",
            "https://client.example\\@evil.example/",
            "https://client.example/a/../b",
            "https://client.example/a/%2E%2e/b",
            "https://client.example/a/.",
            "https://client.example:0/cb",
            "https://client.example:65536/cb",
            "https://client.example:/cb",
            "https://client.example:+1/cb",
            "https:///cb",
            "https://a..b/cb",
            "https://-a.example/cb",
            "https://127.1/cb",
            "https://0x7f000001/cb",
            "https://[::1/cb",
            "https://[::1]x/cb",
            "https://client.example/c b",
            "https://client.example/ä",
            "https://client.example/%4",
            "https://client.example/?a=%ff",
            "https://client.example/?a=1&a=2",
            "https://client.example/?code=1",
            "https://client.example/?code=",
            "https://client.example/?code",
            "https://client.example/?a=1&st%61te",
            "https://client.example/?st%61te=1",
            "https://client.example/[",
            "https://client.example/\r\nx",
        ] {
            assert!(Callback::parse(bad).is_err(), "{bad:?}");
        }
        let long = format!("https://client.example/{}", "a".repeat(1024));
        assert!(Callback::parse(&long).is_err());
        let query = |parameters: usize| {
            let names: Vec<String> = (0..parameters).map(|n| format!("p{n}")).collect();
            format!("https://client.example/?{}", names.join("&"))
        };
        assert!(Callback::parse(&query(58)).is_ok());
        assert!(Callback::parse(&query(59)).is_err(), "the response has six");
    }

    #[test]
    fn response_parameters_are_added_to_the_query() {
        let with = |text| {
            Callback::parse(text)
                .unwrap()
                .with([("code", "a b"), ("iss", "https://i")])
        };
        let added = "code=a%20b&iss=https%3A%2F%2Fi";
        assert_eq!(with("https://c/cb"), format!("https://c/cb?{added}"));
        assert_eq!(
            with("https://c/cb?x=1"),
            format!("https://c/cb?x=1&{added}")
        );
        assert_eq!(with("https://c/cb?"), format!("https://c/cb?{added}"));
    }

    proptest! {
        /// For every request, the browser is redirected to the registered address. The response is
        /// in its query, can be parsed back, and adds no line break and no fragment.
        #[test]
        fn a_response_never_leaves_the_callback(
            path in "[a-z/]{0,8}",
            query in "(\\?x=[a-z]{0,4})?",
            state in "[^\\x00]{1,32}",
        ) {
            let text = format!("https://client.example/{path}{query}");
            let callback = Callback::parse(&text).unwrap();
            let address = callback.with([("state", state.as_str()), ("code", "c")]);
            prop_assert!(address.starts_with(&text));
            prop_assert!(address.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'#'));
            let (_, query) = address.split_once('?').unwrap();
            let mut form = form::Form::parse(query).unwrap();
            prop_assert_eq!(form.take("state"), Some(state));
            prop_assert_eq!(form.take("code"), Some("c".to_owned()));
        }

        #[test]
        fn any_text_is_read_or_refused(text in "(http|https)://.{0,48}") {
            if let Ok(callback) = Callback::parse(&text) {
                prop_assert_eq!(callback.as_str(), &text);
                prop_assert!(!callback.host().is_empty());
            }
        }
    }
}
