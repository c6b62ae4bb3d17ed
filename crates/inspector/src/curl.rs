//! A request as a command line for curl, for a POSIX shell.

use crate::exchange::{Exchange, Version, content};
use crate::mask;
use crate::view::{FORM, Secrets, pairs, url};

/// The command that repeats the request, to the address that the visitor used.
pub(crate) fn command(exchange: &Exchange, secrets: Secrets) -> String {
    let request = &exchange.request;
    let body = &exchange.request_body;
    // Disables globbing of brackets in the address, and keeps the path as the visitor wrote it.
    let mut words = vec!["curl --globoff --path-as-is".to_owned()];
    let usual = if body.size > 0 { "POST" } else { "GET" };
    match request.method.as_str() {
        "HEAD" => words.push("--head".to_owned()),
        method if method != usual => words.push(format!("-X {}", quoted(method))),
        _ => {}
    }
    let url = url(exchange, secrets);
    words.push(quoted(&url));
    // With TLS, ALPN negotiates the version automatically.
    if request.version == Version::Http2 && url.starts_with("http:") {
        words.push("--http2-prior-knowledge".to_owned());
    }
    for (name, value) in pairs(&request.fields, secrets) {
        // Leaves out headers that curl sets itself, and those that the engine added.
        if !is_left_out(&name) {
            let header = if value.is_empty() {
                format!("{name};")
            } else {
                format!("{name}: {value}")
            };
            words.push(format!("-H {}", quoted(&header)));
        }
    }
    if request.fields.get("accept-encoding").is_some() {
        words.push("--compressed".to_owned());
    }
    let encoded = request.fields.get("content-encoding").is_some();
    if body.size > 0 && !encoded {
        let shown = content::decode_body(&request.fields, body);
        match String::from_utf8(shown.bytes) {
            Ok(text) => {
                let form = secrets == Secrets::Masked && request.fields.content_type() == FORM;
                let text = if form {
                    mask::query(&text).into_owned()
                } else {
                    text
                };
                // `--data-binary` would send a file if the text starts with `@`.
                words.push(format!("--data-raw {}", quoted(&text)));
            }
            Err(_) => words.push("--data-binary @body.bin".to_owned()),
        }
    } else if body.size > 0 {
        words.push("--data-binary @body.bin".to_owned());
    }
    words.join(" \\\n  ")
}

fn is_left_out(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    LEFT_OUT.contains(&name.as_str())
        || name.starts_with("x-forwarded-")
        || name.starts_with("svc-")
}

/// The word in single quotes if needed; in them only the quote itself is special.
fn quoted(word: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./:=@%+,".contains(&byte);
    if !word.is_empty() && word.bytes().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

const LEFT_OUT: &[&str] = &[
    "host",
    "content-length",
    "transfer-encoding",
    "connection",
    "accept-encoding",
    "te",
    "forwarded",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shell_reads_a_quoted_word_unchanged() {
        for (word, shown) in [
            ("http://a/b", "http://a/b"),
            ("a b", "'a b'"),
            ("it's", r"'it'\''s'"),
            ("$(id)", "'$(id)'"),
            ("", "''"),
            ("a\nb", "'a\nb'"),
        ] {
            assert_eq!(quoted(word), shown);
        }
    }
}
