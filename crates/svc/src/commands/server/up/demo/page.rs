//! The demo's page: the request as it arrived, a live clock, an echo.

use std::fmt::Write as _;

use http::Request;

use super::pairs;

/// The page for one request.
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

/// What a visitor sent, as text and never as markup.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            // A value must not take part in the placeholders of the page.
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
    fn what_a_visitor_sends_is_shown_and_not_run() {
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
