//! Names that belong to one owner in the whole cluster.

use std::borrow::Borrow;
use std::fmt;

/// A name that only one owner has at a time: a host name, or the name of a tunnel in its project.
///
/// Its text consists of segments with `/` between them. A segment contains letters, digits, `.`,
/// `-`, `_` and `*`; other bytes are written as `%` and two hexadecimal digits. No name is
/// therefore the beginning of another name and `/`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(Box<str>);

impl Name {
    /// A host name, in lower case, by which visitors reach a tunnel.
    pub fn of_host(hostname: &str) -> Self {
        Self::from_segments(HOST, [hostname])
    }

    /// The name of a tunnel in its project.
    pub fn of_tunnel(project: &str, tunnel: &str) -> Self {
        Self::from_segments(TUNNEL, [project, tunnel])
    }

    /// Reads the text of [`Name::as_str`]; `None` for any other text.
    pub fn parse(text: &str) -> Option<Self> {
        let mut segments = text.split('/');
        let count = match segments.next()? {
            HOST => 1,
            TUNNEL => 2,
            _ => return None,
        };
        let is_valid = segments.clone().count() == count && segments.all(is_segment);
        is_valid.then(|| Self(text.into()))
    }

    /// The host name, without escaped bytes, which host names do not have.
    pub fn hostname(&self) -> Option<&str> {
        let (kind, rest) = self.0.split_once('/')?;
        (kind == HOST && !rest.contains('%')).then_some(rest)
    }

    /// True for a host name.
    pub fn is_host(&self) -> bool {
        self.0.split('/').next() == Some(HOST)
    }

    /// The text, which is a part of keys in the store.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    fn from_segments<const N: usize>(kind: &str, segments: [&str; N]) -> Self {
        let mut text = kind.to_owned();
        for segment in segments {
            text.push('/');
            push_segment(&mut text, segment);
        }
        Self(text.into())
    }
}

impl Borrow<str> for Name {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Appends a segment with other bytes than those of [`is_plain`] escaped.
fn push_segment(text: &mut String, segment: &str) {
    for byte in segment.bytes() {
        if is_plain(byte) {
            text.push(char::from(byte));
        } else {
            text.push('%');
            for digit in [byte >> 4, byte & 15] {
                let digit = char::from_digit(u32::from(digit), 16);
                text.push(digit.unwrap_or('0'));
            }
        }
    }
}

fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_' | b'*')
}

fn is_segment(segment: &str) -> bool {
    segment.bytes().all(|byte| is_plain(byte) || byte == b'%')
}

const HOST: &str = "host";
const TUNNEL: &str = "tunnel";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_different_kinds_and_projects_differ() {
        let names = [
            Name::of_host("a"),
            Name::of_tunnel("p", "a"),
            Name::of_tunnel("p/a", "b"),
            Name::of_tunnel("p", "a/b"),
            Name::of_tunnel("p%2fa", "b"),
        ];
        for (place, name) in names.iter().enumerate() {
            assert_eq!(Name::parse(name.as_str()).as_ref(), Some(name));
            for other in &names[place + 1..] {
                assert_ne!(name, other);
                assert!(!other.as_str().starts_with(&format!("{name}/")));
            }
        }
        assert!(Name::of_host("a").is_host() && !Name::of_tunnel("host", "a").is_host());
        assert_eq!(Name::of_host("a.t.b").as_str(), "host/a.t.b");
        assert_eq!(Name::of_host("a.t.b").hostname(), Some("a.t.b"));
        assert_eq!(Name::of_host("a b").hostname(), None);
        assert_eq!(Name::of_tunnel("p", "a").hostname(), None);
        assert_eq!(Name::of_tunnel("p", "a b").as_str(), "tunnel/p/a%20b");
    }

    #[test]
    fn other_texts_are_refused() {
        for text in [
            "", "host", "host/a/b", "tunnel/a", "port/1", "host/a b", "host/é",
        ] {
            assert_eq!(Name::parse(text), None, "{text}");
        }
    }
}
