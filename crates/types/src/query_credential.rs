//! The reserved query parameter: found, judged by form, cut out (ED-1a, ED-1b).
//!
//! A query is pieces between `&`; nothing else separates. The name of a piece ends at its first
//! `=`, is percent-decoded once and compared with case. A matched piece is cut together with one
//! `&` next to it, and every other byte stays as it came: the upstream may have signed them.

use std::fmt;

/// The query credential and the query without it.
#[derive(Clone, PartialEq, Eq)]
pub struct Extracted {
    /// The token, decoded: three non-empty base64url parts, not verified.
    pub token: String,
    /// All other bytes of the query, as they came. Where it is empty, the target needs no `?`.
    pub rest: String,
}

impl fmt::Debug for Extracted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Extracted").finish_non_exhaustive()
    }
}

/// The credential is empty, malformed or there more than once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the query credential is empty, malformed or repeated")]
pub struct Malformed;

/// Our reserved parameter.
pub const NAME: &str = "svc.token";
/// The reserved parameters without `compat.rstream`.
pub const NAMES: &[&str] = &[NAME];
/// The reserved parameters with it; counted together.
pub const COMPAT_NAMES: &[&str] = &[NAME, "rstream.token"];

/// Takes the credential out of a raw query (without `?`). Nothing where there is none.
pub fn extract(query: &str, names: &[&str]) -> Result<Option<Extracted>, Malformed> {
    let mut matched = query.split('&').filter(|piece| is_reserved(piece, names));
    let Some(piece) = matched.next() else {
        return Ok(None);
    };
    if matched.next().is_some() {
        return Err(Malformed);
    }
    let (_, value) = piece.split_once('=').ok_or(Malformed)?;
    let token = percent_decode(value)
        .and_then(|bytes| String::from_utf8(bytes).ok())
        .ok_or(Malformed)?;
    if !has_token_form(&token) {
        return Err(Malformed);
    }
    Ok(Some(Extracted {
        token,
        rest: without_reserved(query, names),
    }))
}

/// Whether any reserved parameter is there, in whatever form.
pub fn is_present(query: &str, names: &[&str]) -> bool {
    query.split('&').any(|piece| is_reserved(piece, names))
}

/// A `Referer` without its reserved parameters, or nothing where it has none.
pub fn strip_referer(referer: &str, names: &[&str]) -> Option<String> {
    let (address, fragment) = split_before(referer, '#');
    let (base, query) = address.split_once('?')?;
    if !is_present(query, names) {
        return None;
    }
    let rest = without_reserved(query, names);
    let mark = if rest.is_empty() { "" } else { "?" };
    Some(format!("{base}{mark}{rest}{fragment}"))
}

fn is_reserved(piece: &str, names: &[&str]) -> bool {
    let (name, _) = split_before(piece, '=');
    // The common query has neither an escape nor a name of ours; decoding is for the rest.
    if name.contains('%') {
        percent_decode(name)
            .is_some_and(|decoded| names.iter().any(|reserved| reserved.as_bytes() == decoded))
    } else {
        names.contains(&name)
    }
}

/// Joining what is left takes exactly one `&` away with each piece that was cut.
fn without_reserved(query: &str, names: &[&str]) -> String {
    let mut rest = String::with_capacity(query.len());
    let mut first = true;
    for piece in query.split('&').filter(|piece| !is_reserved(piece, names)) {
        if !std::mem::take(&mut first) {
            rest.push('&');
        }
        rest.push_str(piece);
    }
    rest
}

/// RFC 7515 section 7.1, by form alone: three parts of RFC 4648 section 5 without padding.
fn has_token_form(token: &str) -> bool {
    let is_part = |part: &str| {
        !part.is_empty()
            && part
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
    };
    token.split('.').count() == 3 && token.split('.').all(is_part)
}

/// RFC 3986 section 2.1, once; nothing where an escape is broken. `+` is itself: no form is read.
pub(crate) fn percent_decode(text: &str) -> Option<Vec<u8>> {
    let mut decoded = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
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

fn split_before(text: &str, mark: char) -> (&str, &str) {
    text.find(mark)
        .and_then(|place| text.split_at_checked(place))
        .unwrap_or((text, ""))
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

    /// ED-1a: the credential is cut with one `&`, all other bytes stay.
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
    fn what_is_not_the_name_is_data() {
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
            assert_eq!(extract(query, NAMES), Err(Malformed), "{query}");
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
            Err(Malformed)
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
                strip_referer(referer, NAMES).as_deref(),
                stripped,
                "{referer}"
            );
        }
    }

    proptest! {
        /// ED-1a.
        #[test]
        fn ed_1a_cutting_gives_back_what_was_there_before(
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
        fn any_text_is_answered(query in ".{0,64}") {
            let present = is_present(&query, COMPAT_NAMES);
            prop_assert_eq!(present, extract(&query, COMPAT_NAMES) != Ok(None));
            if let Ok(Some(extracted)) = extract(&query, COMPAT_NAMES) {
                prop_assert!(!is_present(&extracted.rest, COMPAT_NAMES));
            }
        }
    }
}
