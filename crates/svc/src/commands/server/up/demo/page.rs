//! The demo page: the received request, a live clock, and an echo.

use std::fmt::Write as _;

use http::Request;

use super::pairs;

/// Renders the page for one request.
pub(super) fn render<B>(request: &Request<B>) -> String {
    let mut rows = String::new();
    for (name, value) in pairs(request.headers()) {
        // Writing to a `String` cannot fail.
        writeln!(
            rows,
            "<tr><th>{}</th><td>{}</td></tr>",
            escaped(&name),
            escaped(&value)
        )
        .unwrap_or_default();
    }
    let line = format!(
        "{} {} {:?}",
        request.method(),
        request.uri(),
        request.version()
    );
    include_str!("page.html")
        .replace("{{line}}", &escaped(&line))
        .replace("{{rows}}", &rows)
}

/// Escapes visitor input, so that it is never markup.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            // A value must not be treated as a placeholder of the page.
            '{' => out.push_str("&#123;"),
            other => out.push(other),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn visitor_input_is_escaped() {
        let request = Request::get("/%3Cb%3E?x={{rows}}")
            .header("x-test", "<script>alert('1')</script>")
            .body(())
            .unwrap();
        let page = render(&request);
        assert!(page.contains("&lt;script&gt;alert(&#39;1&#39;)&lt;/script&gt;"));
        assert!(!page.contains("<script>alert"));
        assert!(page.contains("GET /%3Cb%3E?x=&#123;&#123;rows}} HTTP/1.1"));
    }
}
