//! Masking of secrets in header fields and queries, until the user reveals them.
//!
//! Secrets are recognised by name. The parts of a value that are not secret stay visible: the
//! scheme of a credential, the names and attributes of cookies.

use std::borrow::Cow;

use percent_encoding::percent_decode_str;

/// Replaces a secret.
pub(crate) const MASK: &str = "[masked]";

/// A field's value for display.
pub(crate) fn field<'v>(name: &str, value: &'v str) -> Cow<'v, str> {
    let name = name.to_ascii_lowercase();
    match name.as_str() {
        "authorization" | "proxy-authorization" => match value.split_once(' ') {
            Some((scheme, _)) if is_token(scheme) => format!("{scheme} {MASK}").into(),
            _ => MASK.into(),
        },
        "cookie" => {
            let cookies = value.split(';').map(|one| assigned(one.trim()));
            cookies.collect::<Vec<_>>().join("; ").into()
        }
        "set-cookie" => match value.split_once(';') {
            Some((cookie, attributes)) => format!("{};{attributes}", assigned(cookie)).into(),
            None => assigned(value).into(),
        },
        // Addresses, whose queries may contain secrets.
        "referer" | "location" | "content-location" | "x-original-uri" | "x-forwarded-uri" => {
            path(value)
        }
        // Challenges and similar fields, which contain no credentials.
        "www-authenticate" | "proxy-authenticate" | "sec-websocket-key" => value.into(),
        name if is_secret(name) => MASK.into(),
        _ => value.into(),
    }
}

/// A path with its query, or an address with one, for display.
pub(crate) fn path(path: &str) -> Cow<'_, str> {
    let Some((before, query)) = path.split_once('?') else {
        return path.into();
    };
    match self::query(query) {
        Cow::Borrowed(_) => path.into(),
        Cow::Owned(query) => format!("{before}?{query}").into(),
    }
}

/// A query, or a form of that format, for display.
pub(crate) fn query(query: &str) -> Cow<'_, str> {
    if !query.split('&').any(is_secret_piece) {
        return query.into();
    }
    let pieces = query.split('&').map(|piece| match piece.split_once('=') {
        Some((name, _)) if is_secret_piece(piece) => format!("{name}={MASK}").into(),
        _ => Cow::Borrowed(piece),
    });
    pieces.collect::<Vec<_>>().join("&").into()
}

/// A value edited by the user, with masked parts replaced by the original ones.
pub(crate) fn restore_field(name: &str, edited: &str, original_values: &[&str]) -> String {
    if !edited.contains(MASK) {
        return edited.to_owned();
    }
    let unchanged = original_values
        .iter()
        .find(|was| field(name, was) == edited);
    unchanged.map_or_else(|| edited.to_owned(), ToString::to_string)
}

/// A path edited by the user, with masked query values replaced by the original ones.
pub(crate) fn restore_path(edited: &str, original: &str) -> String {
    let (Some((before, query)), Some((_, known))) =
        (edited.split_once('?'), original.split_once('?'))
    else {
        return edited.to_owned();
    };
    format!("{before}?{}", restore_query(query, known))
}

/// A query or form edited by the user, with masked values replaced by the original ones.
pub(crate) fn restore_query(edited: &str, original: &str) -> String {
    let mut known: Vec<_> = original
        .split('&')
        .filter_map(|one| one.split_once('='))
        .collect();
    let pieces = edited.split('&').map(|piece| {
        let masked = piece.split_once('=').filter(|(_, value)| *value == MASK);
        let at = masked.and_then(|(name, _)| known.iter().position(|(known, _)| *known == name));
        match at {
            Some(at) => {
                let (name, value) = known.remove(at);
                format!("{name}={value}")
            }
            None => piece.to_owned(),
        }
    });
    pieces.collect::<Vec<_>>().join("&")
}

fn assigned(cookie: &str) -> String {
    match cookie.split_once('=') {
        Some((name, _)) => format!("{name}={MASK}"),
        None => MASK.to_owned(),
    }
}

fn is_secret_piece(piece: &str) -> bool {
    piece
        .split_once('=')
        .is_some_and(|(name, value)| !value.is_empty() && is_secret(&decoded(name)))
}

/// True if the name contains a word that is used for credentials.
fn is_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase().replace(['-', '.', '[', ']'], "_");
    let words = || name.split('_').filter(|word| !word.is_empty());
    let compact: String = words().collect();
    words().any(|word| WORDS.contains(&word)) || PARTS.iter().any(|part| compact.contains(part))
}

/// Percent-decoded, as far as possible.
fn decoded(name: &str) -> Cow<'_, str> {
    percent_decode_str(name).decode_utf8_lossy()
}

fn is_token(scheme: &str) -> bool {
    !scheme.is_empty()
        && scheme
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
}

/// Whole words of a name that indicate a secret.
const WORDS: &[&str] = &[
    "auth",
    "code",
    "credential",
    "credentials",
    "jwt",
    "key",
    "otp",
    "pass",
    "pin",
    "pwd",
    "sid",
    "sig",
    "ticket",
];

/// Parts of a name that indicate a secret, in any spelling.
const PARTS: &[&str] = &[
    "apikey",
    "assertion",
    "authorization",
    "authkey",
    "csrf",
    "passwd",
    "password",
    "secret",
    "session",
    "signature",
    "token",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_secret_part_of_a_field_is_masked() {
        for (name, value, shown) in [
            ("Authorization", "Bearer abc.def", "Bearer [masked]"),
            ("authorization", "abc", "[masked]"),
            (
                "Cookie",
                "sid=1; theme=dark",
                "sid=[masked]; theme=[masked]",
            ),
            (
                "Set-Cookie",
                "sid=1; Path=/; Secure",
                "sid=[masked]; Path=/; Secure",
            ),
            ("X-API-Key", "k", "[masked]"),
            ("x-csrftoken", "k", "[masked]"),
            (
                "Referer",
                "http://a/b?token=1&c=2",
                "http://a/b?token=[masked]&c=2",
            ),
            ("Content-Type", "text/html", "text/html"),
            ("X-Keyboard", "us", "us"),
            ("Accept", "*/*", "*/*"),
        ] {
            assert_eq!(field(name, value), shown, "{name}");
        }
    }

    #[test]
    fn tokens_in_queries_are_masked_by_name() {
        for (path, shown) in [
            ("/a?svc.token=x.y.z&b=1", "/a?svc.token=[masked]&b=1"),
            ("/a?svc%2Etoken=x", "/a?svc%2Etoken=[masked]"),
            (
                "/a?access_token=x&api-key=y&code=z",
                "/a?access_token=[masked]&api-key=[masked]&code=[masked]",
            ),
            ("/a?X-Amz-Signature=x", "/a?X-Amz-Signature=[masked]"),
            ("/a?token=&q=token", "/a?token=&q=token"),
            ("/token/x", "/token/x"),
            ("/a?user[password]=x", "/a?user[password]=[masked]"),
        ] {
            assert_eq!(super::path(path), shown, "{path}");
        }
    }

    #[test]
    fn masked_values_are_restored_and_edited_ones_kept() {
        let was = "/a?token=one&token=two&b=1";
        assert_eq!(
            restore_path("/a?token=[masked]&token=[masked]&b=2", was),
            "/a?token=one&token=two&b=2"
        );
        assert_eq!(restore_path("/a?token=new", was), "/a?token=new");
        assert_eq!(restore_field("Cookie", "sid=[masked]", &["sid=1"]), "sid=1");
        assert_eq!(restore_field("Cookie", "sid=2", &["sid=1"]), "sid=2");
    }
}
