//! Names of protocols that a connection is upgraded to.

use std::fmt;

use crate::token::is_token;

/// The name of a protocol, and its version if there is one (RFC 9110 §7.8): a member of `Upgrade`,
/// or the `:protocol` of an extended CONNECT (RFC 8441 §4).
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Protocol<'b>(&'b str);

/// The value of `Upgrade`: one protocol, or several from which the peer chooses.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Protocols<'b>(&'b str);

impl<'b> Protocol<'b> {
    /// Parses `token ["/" token]`.
    pub fn parse(bytes: &'b [u8]) -> Option<Self> {
        let text = std::str::from_utf8(bytes).ok()?;
        let (name, version) = split(text);
        let is_valid =
            is_token(name.as_bytes()) && version.is_none_or(|version| is_token(version.as_bytes()));
        is_valid.then_some(Self(text))
    }

    /// The text as the peer sent it.
    pub fn as_str(self) -> &'b str {
        self.0
    }

    /// The name without the version. Names are compared ignoring case.
    pub fn name(self) -> &'b str {
        split(self.0).0
    }
}

impl<'b> Protocols<'b> {
    /// Parses a list with at least one member. Empty members are ignored (RFC 9110 §5.6.1.2).
    pub fn parse(bytes: &'b [u8]) -> Option<Self> {
        let all = Self(std::str::from_utf8(bytes).ok()?);
        let mut members = all.members().peekable();
        members.peek()?;
        members
            .all(|member| Protocol::parse(member.as_bytes()).is_some())
            .then_some(all)
    }

    /// The protocol, if it is the only one.
    pub fn only(self) -> Option<Protocol<'b>> {
        let mut members = self.members();
        let only = members.next()?;
        members.next().is_none().then_some(Protocol(only))
    }

    /// The text as the peer sent it.
    pub fn as_str(self) -> &'b str {
        self.0
    }

    fn members(self) -> impl Iterator<Item = &'b str> {
        self.0
            .split(',')
            .map(|member| member.trim_matches([' ', '\t']))
            .filter(|member| !member.is_empty())
    }
}

impl fmt::Debug for Protocol<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl fmt::Debug for Protocols<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

fn split(text: &str) -> (&str, Option<&str>) {
    text.split_once('/')
        .map_or((text, None), |(name, version)| (name, Some(version)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_protocol_is_a_token_with_an_optional_version() {
        for text in ["websocket", "IRC/6.9", "x!"] {
            assert_eq!(Protocol::parse(text.as_bytes()).unwrap().as_str(), text);
        }
        for text in [
            "",
            "a b",
            "a,b",
            "/1",
            "a/",
            "a/1/2",
            "websocket\r\nsvc-user-id: usr_admin",
            "websocket\r\n\r\nPOST /admin HTTP/1.1",
            "a\0",
            "a\t",
            "ä",
        ] {
            assert_eq!(Protocol::parse(text.as_bytes()), None, "{text:?}");
        }
        assert_eq!(Protocol::parse(b"h2c/1").unwrap().name(), "h2c");
    }

    #[test]
    fn a_list_may_have_one_member() {
        let only = |text: &'static str| Protocols::parse(text.as_bytes()).map(Protocols::only);
        assert_eq!(only("websocket"), Some(Some(Protocol("websocket"))));
        assert_eq!(only(" ,websocket,"), Some(Some(Protocol("websocket"))));
        assert_eq!(only("websocket, a/1"), Some(None));
        for text in ["", ",", "a b", "a;b", "a,\rb"] {
            assert_eq!(only(text), None, "{text:?}");
        }
    }
}
