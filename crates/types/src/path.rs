//! Normalised paths for path boundaries (ED-7).
//!
//! A path boundary is effective only if the upstream interprets the path in the same way as the
//! engine. The engine therefore converts a path to one normal form, checks that form, and forwards
//! exactly that form. A path that two parsers could interpret differently is refused.

/// A path in its normal form, which is checked and forwarded: unreserved characters are decoded,
/// dot segments are removed (RFC 3986 sections 6.2.2.2 and 6.2.2.3), and nothing in it is
/// ambiguous.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NormalPath(String);

impl NormalPath {
    /// Normalises the path of a request target, without its query.
    pub fn parse(raw_target_path: &str) -> Result<Self, PathRefusal> {
        if !raw_target_path.starts_with('/') {
            return Err(PathRefusal::NotAPath);
        }
        let decoded = decode_unreserved(raw_target_path)?;
        let path = remove_dot_segments(&decoded)?;
        // Checked before and after: a browser, a proxy and a router interpret `//host/x`
        // differently.
        if raw_target_path.starts_with("//") || path.starts_with("//") {
            return Err(PathRefusal::LeadingDoubleSlash);
        }
        Ok(Self(path))
    }

    /// Returns the checked path, which is forwarded exactly like this.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Reason why a path is refused. It is written to the log; the caller gets 403
/// `insufficient_scope`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PathRefusal {
    /// `*`, an empty path, one that does not start with a slash, or one with a query or fragment.
    #[error("the target is not a path")]
    NotAPath,
    /// `%` without two hex digits.
    #[error("a broken escape")]
    BrokenEscape,
    /// `%2F`: some servers treat it as a separator, others as a character.
    #[error("an encoded slash")]
    EncodedSlash,
    /// `\` or `%5C`: some servers treat it as a separator.
    #[error("a backslash")]
    Backslash,
    /// A control character, raw or encoded.
    #[error("a control character")]
    Control,
    /// `%25`: the following characters become an escape if a server decodes twice.
    #[error("a second layer of encoding")]
    DoubleEncoding,
    /// Raw or decoded bytes that are not UTF-8 in its shortest form, or raw bytes beyond ASCII.
    #[error("not plain ASCII and encoded UTF-8")]
    NotUtf8,
    /// `//` at the start, in the original or after removing dot segments.
    #[error("two slashes at the start")]
    LeadingDoubleSlash,
    /// `..;`, `.;` or `..%20`: a dot segment for servers that strip path parameters or spaces.
    #[error("a dot segment with parameters or spaces")]
    DotSegmentParameters,
}

/// Checks every byte, decodes the escapes of unreserved characters (RFC 3986 section 2.3) and keeps
/// all other escapes.
fn decode_unreserved(raw: &str) -> Result<String, PathRefusal> {
    let mut path = String::with_capacity(raw.len());
    let mut bytes = Vec::with_capacity(raw.len());
    let mut rest = raw.as_bytes();
    while let [first, after @ ..] = rest {
        let (byte, escape) = match (*first, after) {
            (b'%', [high, low, after @ ..]) => {
                let value = crate::id::hex_value(*high).zip(crate::id::hex_value(*low));
                let (high_value, low_value) = value.ok_or(PathRefusal::BrokenEscape)?;
                rest = after;
                (high_value << 4 | low_value, Some([b'%', *high, *low]))
            }
            (b'%', _) => return Err(PathRefusal::BrokenEscape),
            (byte, after) => {
                rest = after;
                (byte, None)
            }
        };
        match (byte, escape) {
            (b'\\', _) => return Err(PathRefusal::Backslash),
            (b'/', Some(_)) => return Err(PathRefusal::EncodedSlash),
            (b'%', Some(_)) => return Err(PathRefusal::DoubleEncoding),
            (0..=0x1f | 0x7f, _) => return Err(PathRefusal::Control),
            (b' ' | b'?' | b'#', None) => return Err(PathRefusal::NotAPath),
            (0x80.., None) => return Err(PathRefusal::NotUtf8),
            (byte, Some(escape)) if !is_unreserved(byte) => path.extend(escape.map(char::from)),
            (byte, _) => path.push(char::from(byte)),
        }
        bytes.push(byte);
    }
    let text = std::str::from_utf8(&bytes).map_err(|_| PathRefusal::NotUtf8)?;
    // The C1 controls are two bytes in UTF-8.
    if text.chars().any(char::is_control) {
        return Err(PathRefusal::Control);
    }
    Ok(path)
}

/// RFC 3986 section 5.2.4 for a path that starts with a slash.
fn remove_dot_segments(path: &str) -> Result<String, PathRefusal> {
    let mut kept: Vec<&str> = Vec::new();
    let mut segments = path.split('/').skip(1).peekable();
    while let Some(segment) = segments.next() {
        let is_last = segments.peek().is_none();
        match segment {
            "." | ".." => {
                if segment == ".." {
                    kept.pop();
                }
                // A dot segment at the end leaves a directory: `/a/.` becomes `/a/`.
                if is_last {
                    kept.push("");
                }
            }
            _ if has_dot_segment_with_parameters(segment) => {
                return Err(PathRefusal::DotSegmentParameters);
            }
            _ => kept.push(segment),
        }
    }
    Ok(kept
        .iter()
        .fold(String::with_capacity(path.len()), |path, segment| {
            path + "/" + segment
        }))
}

/// Some servers strip `;…` or spaces from a segment before they look for dots. Encoded forms count
/// as well, because a server may decode first.
fn has_dot_segment_with_parameters(segment: &str) -> bool {
    let trimmed = segment.trim_start_matches("%20");
    let tail = trimmed
        .strip_prefix("..")
        .or_else(|| trimmed.strip_prefix('.'));
    let Some(tail) = tail else { return false };
    let is_cut = |cut: &str| cut.eq_ignore_ascii_case("%3b") || cut == "%20";
    let spaced = trimmed.len() < segment.len() && tail.is_empty();
    spaced || tail.starts_with(';') || tail.get(..3).is_some_and(is_cut)
}

fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~".contains(&byte)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// ED-7.
    #[test]
    fn ed_7_a_path_has_one_form() {
        for (raw, normal) in [
            ("/", "/"),
            ("/api/x", "/api/x"),
            ("/api/%78", "/api/x"),
            ("/%61%2D%2e%5F%7e", "/a-._~"),
            ("/a/./b/../c", "/a/c"),
            ("/a/%2e%2E/c", "/c"),
            ("/../../etc", "/etc"),
            ("/a/..", "/"),
            ("/a/b/.", "/a/b/"),
            ("/a/b/..", "/a/"),
            ("/a//b", "/a//b"),
            ("/a//../b", "/a/b"),
            ("/a/.../b", "/a/.../b"),
            ("/a;x=1/b", "/a;x=1/b"),
            ("/caf%C3%A9", "/caf%C3%A9"),
            ("/caf%c3%a9", "/caf%c3%a9"),
            ("/a%20b%3Fc%23d", "/a%20b%3Fc%23d"),
            ("/a+b@c:d!$&'()*,=", "/a+b@c:d!$&'()*,="),
        ] {
            assert_eq!(
                NormalPath::parse(raw).map(|path| path.0).as_deref(),
                Ok(normal),
                "{raw}"
            );
        }
    }

    /// ED-7.
    #[test]
    fn ed_7_ambiguous_paths_are_refused() {
        use PathRefusal::{
            Backslash, BrokenEscape, Control, DotSegmentParameters, DoubleEncoding, EncodedSlash,
            LeadingDoubleSlash, NotAPath, NotUtf8,
        };
        for (raw, why) in [
            ("*", NotAPath),
            ("", NotAPath),
            ("api", NotAPath),
            ("/a?b", NotAPath),
            ("/a#b", NotAPath),
            ("/a b", NotAPath),
            ("/a%2Fb", EncodedSlash),
            ("/a%2f..%2fb", EncodedSlash),
            ("/a\\b", Backslash),
            ("/a%5Cb", Backslash),
            ("/a%5c..", Backslash),
            ("/a\nb", Control),
            ("/a\u{7f}", Control),
            ("/a%00", Control),
            ("/a%0d%0a", Control),
            ("/a%7F", Control),
            ("/a%C2%85", Control),
            ("/%252e%252e/x", DoubleEncoding),
            ("/a%25", DoubleEncoding),
            ("/%25%32%65", DoubleEncoding),
            ("/a%", BrokenEscape),
            ("/a%2", BrokenEscape),
            ("/a%zz", BrokenEscape),
            ("/a%u002f", BrokenEscape),
            ("/%c0%ae%c0%ae/x", NotUtf8),
            ("/%c0%af", NotUtf8),
            ("/%ff", NotUtf8),
            ("/%ed%a0%80", NotUtf8),
            ("/é", NotUtf8),
            ("//host/x", LeadingDoubleSlash),
            ("/.//x", LeadingDoubleSlash),
            ("/a/..//x", LeadingDoubleSlash),
            ("/a/..;/x", DotSegmentParameters),
            ("/a/.;v=1/x", DotSegmentParameters),
            ("/a/%2e%2e;/x", DotSegmentParameters),
            ("/a/..%3Bx", DotSegmentParameters),
            ("/public/..%20/admin", DotSegmentParameters),
            ("/public/%2e%2e%20", DotSegmentParameters),
            ("/public/.%20/admin", DotSegmentParameters),
            ("/public/%20../admin", DotSegmentParameters),
            ("/public/%20..%20;a/admin", DotSegmentParameters),
        ] {
            assert_eq!(NormalPath::parse(raw), Err(why), "{raw:?}");
        }
    }

    proptest! {
        /// ED-7.
        #[test]
        fn ed_7_normalising_is_idempotent(raw in "/([a-c./;%]|%2[eE]|%41|%C3%A9|%3b|\\.\\.){0,16}") {
            if let Ok(path) = NormalPath::parse(&raw) {
                prop_assert_eq!(NormalPath::parse(path.as_str()), Ok(path.clone()));
                prop_assert!(!path.as_str().split('/').any(|segment| matches!(segment, "." | "..")));
                prop_assert!(path.as_str().starts_with('/') && !path.as_str().starts_with("//"));
            }
        }

        #[test]
        fn any_text_is_answered(raw in ".{0,64}") {
            if let Ok(path) = NormalPath::parse(&raw) {
                prop_assert!(path.as_str().is_ascii() && path.as_str().len() <= raw.len());
            }
        }
    }
}
