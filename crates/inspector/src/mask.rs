//! Secrets are not shown unless somebody asks: credentials in fields, and in queries.
//!
//! What is masked is told by names. A value keeps what is not secret in it: the scheme of a
//! credential, the names and attributes of cookies.

use std::borrow::Cow;

/// What stands for a secret.
pub(crate) const MASK: &str = "[masked]";

/// A field's value, fit to be shown.
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
        // Addresses, whose queries may have secrets.
        "referer" | "location" | "content-location" | "x-original-uri" | "x-forwarded-uri" => {
            path(value)
        }
        // Challenges and their answers, which say how to authenticate and with what not.
        "www-authenticate" | "proxy-authenticate" | "sec-websocket-key" => value.into(),
        name if is_secret(name) => MASK.into(),
        _ => value.into(),
    }
}

/// A path with its query, or an address with one, fit to be shown.
pub(crate) fn path(path: &str) -> Cow<'_, str> {
    let Some((before, query)) = path.split_once('?') else {
        return path.into();
    };
    match self::query(query) {
        Cow::Borrowed(_) => path.into(),
        Cow::Owned(query) => format!("{before}?{query}").into(),
    }
}

/// A query, or a form of that shape, fit to be shown.
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

/// A value that somebody has edited, with what was masked in it as it was.
pub(crate) fn restore_field(name: &str, edited: &str, was: &[&str]) -> String {
    if !edited.contains(MASK) {
        return edited.to_owned();
    }
    let unchanged = was.iter().find(|was| field(name, was) == edited);
    unchanged.map_or_else(|| edited.to_owned(), ToString::to_string)
}

/// A path that somebody has edited, with the values that were masked in its query.
pub(crate) fn restore_path(edited: &str, was: &str) -> String {
    let (Some((before, query)), Some((_, known))) = (edited.split_once('?'), was.split_once('?'))
    else {
        return edited.to_owned();
    };
    format!("{before}?{}", restore_query(query, known))
}

/// The same of a query, or of a form of that shape.
pub(crate) fn restore_query(edited: &str, was: &str) -> String {
    let mut known: Vec<_> = was
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

/// Whether what has this name is not to be shown: words that credentials are called by.
fn is_secret(name: &str) -> bool {
    let name = name.to_ascii_lowercase().replace(['-', '.', '[', ']'], "_");
    let words = || name.split('_').filter(|word| !word.is_empty());
    let compact: String = words().collect();
    words().any(|word| WORDS.contains(&word)) || PARTS.iter().any(|part| compact.contains(part))
}

/// Percent-decoded, as far as it can be.
fn decoded(name: &str) -> Cow<'_, str> {
    if !name.contains('%') {
        return name.into();
    }
    let mut bytes = name.bytes();
    let mut out = Vec::with_capacity(name.len());
    while let Some(byte) = bytes.next() {
        let mut ahead = bytes.clone();
        let digit = |byte: Option<u8>| char::from(byte?).to_digit(16);
        match (byte, digit(ahead.next()), digit(ahead.next())) {
            (b'%', Some(high), Some(low)) => {
                out.push(u8::try_from(high << 4 | low).unwrap_or(b'?'));
                bytes = ahead;
            }
            _ => out.push(byte),
        }
    }
    String::from_utf8_lossy(&out).into_owned().into()
}

fn is_token(scheme: &str) -> bool {
    !scheme.is_empty()
        && scheme
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
}

/// Words of a name that make it a secret's.
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

/// Parts of a name that do, however it is written.
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
    fn what_is_secret_in_a_field_is_masked_and_no_more() {
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
    fn what_was_masked_is_sent_as_it_was_and_what_was_edited_as_edited() {
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
