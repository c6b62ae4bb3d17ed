//! The reserved query parameter for credentials: finding it, checking its form, removing it (ED-1a,
//! ED-1b).
//!
//! A query consists of pieces. Only `&` separates them; `;` does not. The name of a piece ends at
//! its first `=`, is percent-decoded once and compared case-sensitively. A matching piece is
//! removed together with one adjacent `&`. All other bytes stay unchanged, because the upstream may
//! have signed them.

use std::borrow::Cow;
use std::fmt;

/// The query credential and the query without it.
#[derive(Clone, PartialEq, Eq)]
pub struct ExtractedCredential {
    /// The token, decoded: three non-empty base64url parts, not verified.
    pub token: String,
    /// All other bytes of the query, unchanged. If it is empty, the target needs no `?`.
    pub rest: String,
}

impl fmt::Debug for ExtractedCredential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExtractedCredential")
            .finish_non_exhaustive()
    }
}

/// The credential is empty, malformed or repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the query credential is empty, malformed or repeated")]
pub struct MalformedCredential;

/// The reserved parameter of svc.
pub const NAME: &str = "svc.token";
/// The reserved parameters without the configuration key `compat.rstream`, which accepts rstream
/// clients.
pub const NAMES: &[&str] = &[NAME];
/// The reserved parameters with `compat.rstream`; they are counted together.
pub const COMPAT_NAMES: &[&str] = &[NAME, "rstream.token"];

/// Extracts the credential from a raw query (without `?`). `None` without a credential.
pub fn extract(
    query: &str,
    names: &[&str],
) -> Result<Option<ExtractedCredential>, MalformedCredential> {
    let mut matched = pieces(query.as_bytes()).filter(|piece| is_reserved(piece, names));
    let Some(piece) = matched.next() else {
        return Ok(None);
    };
    if matched.next().is_some() {
        return Err(MalformedCredential);
    }
    let equals = piece.iter().position(|byte| *byte == b'=');
    let value = equals.and_then(|place| piece.get(place + 1..));
    let value = value.ok_or(MalformedCredential)?;
    let token = percent_decode(value)
        .and_then(|bytes| String::from_utf8(bytes).ok())
        .ok_or(MalformedCredential)?;
    if !has_token_form(&token) {
        return Err(MalformedCredential);
    }
    // Pieces are cut only at ASCII bytes, so the rest is still valid UTF-8.
    let rest = String::from_utf8(without_reserved(query.as_bytes(), names));
    let rest = rest.map_err(|_| MalformedCredential)?;
    Ok(Some(ExtractedCredential { token, rest }))
}

/// True if any reserved parameter is present, in any form.
pub fn is_present(query: &str, names: &[&str]) -> bool {
    pieces(query.as_bytes()).any(|piece| is_reserved(piece, names))
}

/// Returns a `Referer` without its reserved parameters, or `None` if it has none. The header is
/// bytes and not text: invalid UTF-8 must not hide a credential.
pub fn strip_referer(referer: &[u8], names: &[&str]) -> Option<Vec<u8>> {
    let end = referer.iter().position(|byte| *byte == b'#');
    let (address, fragment) = referer.split_at_checked(end.unwrap_or(referer.len()))?;
    let mark = address.iter().position(|byte| *byte == b'?')?;
    let (base, query) = address.split_at_checked(mark)?;
    let query = query.get(1..)?;
    if !pieces(query).any(|piece| is_reserved(piece, names)) {
        return None;
    }
    let rest = without_reserved(query, names);
    let mark: &[u8] = if rest.is_empty() { b"" } else { b"?" };
    Some([base, mark, &rest, fragment].concat())
}

/// Returns the path as it may be logged: `[redacted]` replaces everything from the first reserved
/// name on. Case and percent-encoding of the name do not matter. Credentials do not belong in a
/// path, but a user may have put one there by mistake.
pub fn redact_path(path: &str) -> Cow<'_, str> {
    match find_name(path.as_bytes()).and_then(|start| path.get(..start)) {
        Some(kept) => Cow::Owned([kept, REDACTED].concat()),
        None => Cow::Borrowed(path),
    }
}

/// Replaces the removed part of a path.
const REDACTED: &str = "[redacted]";

/// Position of a reserved name.
fn find_name(path: &[u8]) -> Option<usize> {
    (0..path.len()).find(|start| {
        let rest = path.get(*start..).unwrap_or_default();
        matches!(rest.first(), Some(b's' | b'S' | b'r' | b'R' | b'%'))
            && COMPAT_NAMES.iter().any(|name| begins_with(rest, name))
    })
}

/// True if the text starts with the name, in any case and with any number of percent-encoding
/// layers.
fn begins_with(mut text: &[u8], name: &str) -> bool {
    name.bytes().all(|expected| {
        let Some((byte, rest)) = take_byte(text) else {
            return false;
        };
        text = rest;
        byte.eq_ignore_ascii_case(&expected)
    })
}

/// The first byte of a text and the rest of it: `s`, `%73`, `%2573`, …
fn take_byte(text: &[u8]) -> Option<(u8, &[u8])> {
    let (first, mut rest) = text.split_first()?;
    if *first != b'%' {
        return Some((*first, rest));
    }
    while let [b'2', b'5', after @ ..] = rest {
        rest = after;
    }
    let [high, low, rest @ ..] = rest else {
        return None;
    };
    let byte = crate::id::hex_value(*high)? << 4 | crate::id::hex_value(*low)?;
    Some((byte, rest))
}

fn pieces(query: &[u8]) -> impl Iterator<Item = &[u8]> {
    query.split(|byte| *byte == b'&')
}

fn is_reserved(piece: &[u8], names: &[&str]) -> bool {
    let name = piece.split(|byte| *byte == b'=').next().unwrap_or_default();
    let is = |name: &[u8]| names.iter().any(|reserved| reserved.as_bytes() == name);
    // Decoding allocates, and most names have no escape.
    if name.contains(&b'%') {
        percent_decode(name).is_some_and(|decoded| is(&decoded))
    } else {
        is(name)
    }
}

/// The query without its reserved pieces. Joining the other pieces removes exactly one `&` with
/// each removed piece.
fn without_reserved(query: &[u8], names: &[&str]) -> Vec<u8> {
    let mut rest = Vec::with_capacity(query.len());
    let mut first = true;
    for piece in pieces(query).filter(|piece| !is_reserved(piece, names)) {
        if !std::mem::take(&mut first) {
            rest.push(b'&');
        }
        rest.extend_from_slice(piece);
    }
    rest
}

/// RFC 7515 section 7.1, form only: three parts of RFC 4648 section 5 without padding.
fn has_token_form(token: &str) -> bool {
    let is_part = |part: &str| {
        !part.is_empty()
            && part
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
    };
    token.split('.').count() == 3 && token.split('.').all(is_part)
}

/// RFC 3986 section 2.1, decoded once; `None` for a broken escape. `+` stays as it is, because this
/// is not form decoding.
pub(crate) fn percent_decode(text: &[u8]) -> Option<Vec<u8>> {
    let mut decoded = Vec::with_capacity(text.len());
    let mut rest = text;
    while let [byte, after @ ..] = rest {
        rest = after;
        if *byte != b'%' {
            decoded.push(*byte);
            continue;
        }
        let [high, low, after @ ..] = rest else {
            return None;
        };
        decoded.push(crate::id::hex_value(*high)? << 4 | crate::id::hex_value(*low)?);
        rest = after;
    }
    Some(decoded)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn rest(query: &str) -> Option<String> {
        extract(query, NAMES).unwrap().map(|extracted| {
            assert_eq!(extracted.token, "aa.b-_.c0");
            extracted.rest
        })
    }

    /// ED-1a: the credential is removed with one `&`, all other bytes stay.
    #[test]
    fn ed_1a_every_other_byte_stays() {
        for (query, left) in [
            ("svc.token=aa.b-_.c0", ""),
            ("svc.token=aa.b-_.c0&a=1", "a=1"),
            ("a=1&svc.token=aa.b-_.c0", "a=1"),
            ("a=1&svc.token=aa.b-_.c0&b=%zz", "a=1&b=%zz"),
            ("&&svc.token=aa.b-_.c0&&", "&&&"),
            ("svc.token=aa.b-_.c0&", ""),
            ("&svc.token=aa.b-_.c0", ""),
            (
                "a=svc.token&svc%2Etoken=aa%2eb-_.c0&B=+%41",
                "a=svc.token&B=+%41",
            ),
            ("%73vc.token=a%61.b-_.c0&=&;", "=&;"),
        ] {
            assert_eq!(rest(query).as_deref(), Some(left), "{query}");
        }
    }

    #[test]
    fn other_names_are_data() {
        for query in [
            "",
            "&",
            "a=1",
            "SVC.TOKEN=a.b.c",
            "svc.token2=a.b.c",
            "svc%252Etoken=a.b.c",
            "a=1;svc.token=a.b.c",
            "svc.token%zz=a.b.c",
            "svc.token+=a.b.c",
            "xsvc.token=a.b.c",
            "a=?svc.token=a.b.c",
            "rstream.token=a.b.c",
        ] {
            assert_eq!(extract(query, NAMES), Ok(None), "{query}");
            assert!(!is_present(query, NAMES));
        }
    }

    #[test]
    fn a_referer_of_any_bytes_loses_its_credential() {
        for (referer, left) in [
            (
                &b"https://a/x?svc.token=a.b.c&q=1"[..],
                Some(&b"https://a/x?q=1"[..]),
            ),
            (b"https://a/\xff?svc.token=a.b.c", Some(b"https://a/\xff")),
            (b"/?q=\xe4&svc%2etoken=\xff#f", Some(b"/?q=\xe4#f")),
            (b"/?svc.token=a#svc.token=b", Some(b"/#svc.token=b")),
            (b"/\xff?q=1", None),
            (b"", None),
        ] {
            let stripped = strip_referer(referer, NAMES);
            assert_eq!(stripped.as_deref(), left, "{}", referer.escape_ascii());
        }
    }

    #[test]
    fn a_logged_path_has_no_credential() {
        for (path, kept) in [
            ("/", "/"),
            ("/service/tokens;v=1", "/service/tokens;v=1"),
            ("/x;svc.token=aa.b-_.c0", "/x;[redacted]"),
            ("/svc.token/a.b.c", "/[redacted]"),
            (
                "/x;svc.token=a.b.c/y;rstream.token=d.e.f/z",
                "/x;[redacted]",
            ),
            ("/x%3Bsvc%2Etoken%3Da.b.c/y", "/x%3B[redacted]"),
            ("/%2573vc.token=a", "/[redacted]"),
            ("/SVC.TOKEN=a", "/[redacted]"),
            ("/caf%C3%A9%", "/caf%C3%A9%"),
        ] {
            assert_eq!(redact_path(path), kept);
        }
    }

    /// ED-1b: exactly once, not empty, well formed.
    #[test]
    fn ed_1b_empty_malformed_and_repeated_are_refused() {
        for query in [
            "svc.token",
            "svc.token=",
            "svc.token=&a=1",
            "svc.token=a.b",
            "svc.token=a.b.c.d",
            "svc.token=a..c",
            "svc.token=.b.c",
            "svc.token=a.b.",
            "svc.token=a.b.c=",
            "svc.token=a.b.c+",
            "svc.token=a.b.c%2B",
            "svc.token=a.b.c%",
            "svc.token=a.b.c%2",
            "svc.token=a.b.%zz",
            "svc.token=a.b.c%ff",
            "svc.token=a.b.c%20",
            "svc.token==a.b.c",
            "svc.token=a%252eb.c.d",
            "svc.token=a.b.c&svc.token=a.b.c",
            "svc.token=a.b.c&svc.token",
            "svc.token=a.b.c&%73vc.token=",
            "svc.token=ä.b.c",
        ] {
            assert_eq!(extract(query, NAMES), Err(MalformedCredential), "{query}");
            assert!(is_present(query, NAMES));
        }
    }

    /// ED-1b with `compat.rstream`: both names are one credential.
    #[test]
    fn ed_1b_both_spellings_are_counted_together() {
        let one = extract("a&rstream.token=a.b.c", COMPAT_NAMES)
            .unwrap()
            .unwrap();
        assert_eq!((one.token.as_str(), one.rest.as_str()), ("a.b.c", "a"));
        assert_eq!(
            extract("svc.token=a.b.c&rstream.token=a.b.c", COMPAT_NAMES),
            Err(MalformedCredential)
        );
    }

    #[test]
    fn referer_loses_the_credential_and_nothing_else() {
        for (referer, stripped) in [
            (
                "https://a.example/p?svc.token=x",
                Some("https://a.example/p"),
            ),
            (
                "https://a.example/p?svc.token=x&svc%2etoken&a=%zz#f?",
                Some("https://a.example/p?a=%zz#f?"),
            ),
            ("https://a.example/p?a=1?svc.token=x", None),
            ("https://a.example/svc.token=x", None),
            ("https://a.example/#?svc.token=x", None),
        ] {
            assert_eq!(
                strip_referer(referer.as_bytes(), NAMES).as_deref(),
                stripped.map(str::as_bytes),
                "{referer}"
            );
        }
    }

    proptest! {
        /// ED-1a.
        #[test]
        fn ed_1a_extraction_restores_the_original_query(
            pieces in prop::collection::vec("[a-c=%;+.2Ee]{0,6}", 0..6),
            place in 0_usize..7,
        ) {
            let without = pieces.join("&");
            let mut with = pieces.clone();
            with.insert(place.min(pieces.len()), "svc%2Etoken=a.b.c".to_owned());
            let extracted = extract(&with.join("&"), NAMES).unwrap().unwrap();
            prop_assert_eq!(extracted.token, "a.b.c");
            prop_assert_eq!(extracted.rest, without);
        }

        #[test]
        fn extract_and_is_present_agree_on_any_text(query in ".{0,64}") {
            let present = is_present(&query, COMPAT_NAMES);
            prop_assert_eq!(present, extract(&query, COMPAT_NAMES) != Ok(None));
            if let Ok(Some(extracted)) = extract(&query, COMPAT_NAMES) {
                prop_assert!(!is_present(&extracted.rest, COMPAT_NAMES));
            }
        }
    }
}
