//! The path at which a browser continues after the sign-in: always one of the platform, so that no
//! form is an open redirect.

/// A path of the platform to continue at after signing in. It never leads to another host, however
/// a browser parses it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NextPath(String);

impl NextPath {
    /// Longest path, in bytes. Authorization requests pass through here, with a `state` of 4 KiB in
    /// which each byte may be percent-encoded.
    pub const MAX_BYTES: usize = 15 * 1024;

    /// The requested path, or the dashboard if it is not a path of the platform.
    pub fn parse(requested: &str) -> Self {
        Self::parse_or(requested, DEFAULT_NEXT)
    }

    /// The requested path, or another one if it is not a path of the platform.
    pub(super) fn parse_or(requested: &str, other: &str) -> Self {
        let mut bytes = requested.bytes();
        let rooted = bytes.next() == Some(b'/') && !matches!(bytes.next(), Some(b'/' | b'\\'));
        // Browsers drop tabs and line ends, and read a backslash as a slash.
        let plain = requested
            .bytes()
            .all(|byte| (0x21..=0x7e).contains(&byte) && byte != b'\\');
        if rooted && plain && requested.len() <= Self::MAX_BYTES {
            Self(requested.to_owned())
        } else {
            Self(other.to_owned())
        }
    }

    /// The path, with its query.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The dashboard.
const DEFAULT_NEXT: &str = "/";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redirects_lead_only_to_paths_of_the_platform() {
        for good in ["/", "/account", "/oauth/authorize?client_id=a&state=%2F%2F"] {
            assert_eq!(NextPath::parse(good).as_str(), good);
        }
        let long = format!("/{}", "a".repeat(NextPath::MAX_BYTES));
        for bad in [
            "",
            "account",
            "//evil.example",
            "/\\evil.example",
            "\\\\evil.example",
            "/a\\b",
            "https://evil.example",
            "/\t/evil.example",
            "/a\r\nSet-Cookie: x",
            " /account",
            "/ä",
            &long,
        ] {
            assert_eq!(NextPath::parse(bad).as_str(), "/", "{bad:?}");
        }
    }
}
