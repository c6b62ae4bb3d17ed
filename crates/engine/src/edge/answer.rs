//! Answers of our own on a tunnel's host: JSON for programs, a small page for people.

use types::problem::{MEDIA_TYPE, Problem};

use crate::browser::Page;

/// An answer, independent of the HTTP version that carries it.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    /// Name and value; the length is the body's.
    pub(crate) fields: Vec<(&'static str, String)>,
    pub(crate) body: String,
}

impl Answer {
    /// Renders a problem. `html`: a person's browser asks.
    pub(crate) fn problem(problem: &Problem, html: bool) -> Self {
        let (media_type, body) = if html {
            ("text/html; charset=utf-8", page(problem))
        } else {
            (MEDIA_TYPE, problem.to_json())
        };
        let mut fields = vec![
            ("content-type", media_type.to_owned()),
            ("cache-control", "no-store".to_owned()),
        ];
        if let Some(challenge) = problem.www_authenticate(None) {
            fields.push(("www-authenticate", challenge));
        }
        if let Some(seconds) = problem.retry_after {
            fields.push(("retry-after", seconds.to_string()));
        }
        if let Some(methods) = problem.allow {
            fields.push(("allow", methods.to_owned()));
        }
        if let Some(reference) = &problem.reference {
            fields.push(("svc-reference", reference.clone()));
        }
        if html {
            fields.push(("content-security-policy", PAGE_POLICY.to_owned()));
        }
        Self {
            status: problem.status,
            fields,
            body,
        }
    }

    /// A page of ours.
    pub(crate) fn page(page: Page) -> Self {
        Self {
            status: 200,
            fields: vec![
                ("content-type", "text/html; charset=utf-8".to_owned()),
                ("cache-control", "no-store".to_owned()),
                ("content-security-policy", page.policy.to_owned()),
                // With none, forms would say that they come from nowhere (`Origin: null`).
                ("referrer-policy", "same-origin".to_owned()),
            ],
            body: page.html,
        }
    }

    /// Sends a browser elsewhere, with a `GET`.
    pub(crate) fn redirect(status: u16, location: String) -> Self {
        Self {
            status,
            fields: vec![
                ("location", location),
                ("cache-control", "no-store".to_owned()),
                // Addresses of ours that hold codes are nobody's to learn.
                ("referrer-policy", "no-referrer".to_owned()),
            ],
            body: String::new(),
        }
    }

    /// A value for programs.
    pub(crate) fn json(value: &impl serde::Serialize) -> Self {
        Self {
            status: 200,
            fields: vec![
                ("content-type", "application/json".to_owned()),
                ("cache-control", "no-store".to_owned()),
            ],
            // Only shapes of ours, which always serialise.
            body: serde_json::to_string(value).unwrap_or_default(),
        }
    }

    /// Nothing to say.
    pub(crate) fn no_content() -> Self {
        Self {
            status: 204,
            fields: vec![("cache-control", "no-store".to_owned())],
            body: String::new(),
        }
    }

    /// The answer with a further field.
    #[must_use]
    pub(crate) fn with(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.fields.push((name, value.into()));
        self
    }

    /// The whole answer as HTTP/1.1. `head`: it answers a `HEAD` request.
    pub(crate) fn to_http1(&self, head: bool, close: bool) -> Vec<u8> {
        let mut out = Vec::with_capacity(256 + self.body.len());
        http1::write_status_line(&mut out, self.status, reason(self.status));
        for (name, value) in &self.fields {
            http1::write_field(&mut out, name.as_bytes(), value.as_bytes());
        }
        // RFC 9110, 8.6: none with 204.
        if self.status != 204 {
            let length = self.body.len().to_string();
            http1::write_field(&mut out, b"content-length", length.as_bytes());
        }
        if close {
            http1::write_field(&mut out, b"connection", b"close");
        }
        out.extend_from_slice(http1::HEAD_END);
        if !head {
            out.extend_from_slice(self.body.as_bytes());
        }
        out
    }
}

/// The registered reason phrase; empty for a status without one.
pub(crate) fn reason(status: u16) -> &'static str {
    http::StatusCode::from_u16(status)
        .ok()
        .and_then(|status| status.canonical_reason())
        .unwrap_or_default()
}

/// Whether `Accept` says that a person looks at the answer.
pub(crate) fn wants_html(accept: Option<&[u8]>) -> bool {
    accept.is_some_and(|accept| {
        accept
            .to_ascii_lowercase()
            .windows(HTML.len())
            .any(|window| window == HTML)
    })
}

const HTML: &[u8] = b"text/html";

/// The page loads nothing and runs nothing.
const PAGE_POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'; \
                           base-uri 'none'; form-action 'none'";

fn page(problem: &Problem) -> String {
    let (title, hint) = words(problem);
    format!(
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <meta name=\"color-scheme\" content=\"light dark\"><title>{title}</title><style>\
         :root{{font:1rem/1.6 system-ui,sans-serif}}\
         body{{box-sizing:border-box;min-height:100vh;display:grid;place-content:center;margin:0;padding:1.5rem}}\
         main{{max-width:34rem}}h1{{font-size:1.5rem;line-height:1.25;margin:0 0 .5rem}}\
         p{{margin:.25rem 0}}small{{opacity:.7}}code{{font-family:ui-monospace,monospace}}\
         </style></head><body><main><h1>{title}</h1><p>{hint}</p>\
         <p><small>{status} <code>{code}</code>{reference}</small></p></main></body></html>\n",
        status = problem.status,
        code = problem.code,
        reference = problem
            .reference
            .as_ref()
            .map_or_else(String::new, |reference| {
                // Hexadecimal digits of ours.
                format!(" · reference <code>{reference}</code>")
            }),
    )
}

/// What a page says: nothing of the request is in it, so there is nothing to escape.
fn words(problem: &Problem) -> (&'static str, &'static str) {
    match problem.code {
        "tunnel_not_found" => (
            "There is no tunnel here",
            "The name in the address is not in use. Check its spelling with whoever gave it to you.",
        ),
        "tunnel_offline" => (
            "This tunnel is offline",
            "It was here a short while ago. Its agent may be restarting: try again in a moment.",
        ),
        "upstream_unreachable" => (
            "The service does not answer",
            "The tunnel is there, but the service behind it cannot be reached.",
        ),
        "upstream_timeout" => (
            "The service takes too long",
            "The tunnel is there, but the service behind it did not answer in time.",
        ),
        "sign_in_failed" => (
            "Signing in did not work",
            "It was not begun in this browser, or took too long. Cookies may be switched off. Open \
             the address that you wanted again.",
        ),
        "not_a_member" => (
            "This is not open to you",
            "You are signed in, but not among those who may use the project behind this address.",
        ),
        "misdirected_request" => (
            "This connection belongs to another name",
            "Reload the page: your browser will open a new connection.",
        ),
        _ if problem.status == 401 => (
            "Sign-in needed",
            "This tunnel is for those who have a token for it.",
        ),
        _ if problem.status == 403 => (
            "Not allowed",
            "You are not among those who may open this address.",
        ),
        _ => (
            "The request was not accepted",
            "The tunnel could not serve this request.",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_browser_gets_a_page_and_a_program_gets_json() {
        assert!(wants_html(Some(b"text/html,application/xhtml+xml;q=0.9")));
        assert!(!wants_html(Some(b"*/*")));
        assert!(!wants_html(None));
        let problem = Problem::tunnel_offline(5);
        let page = Answer::problem(&problem, true);
        assert!(page.body.contains("This tunnel is offline"));
        assert!(page.fields.contains(&("retry-after", "5".to_owned())));
        let json = Answer::problem(&problem, false);
        assert!(json.body.contains("\"tunnel_offline\""));
        let head = String::from_utf8(json.to_http1(true, true)).unwrap();
        assert!(head.starts_with("HTTP/1.1 503 Service Unavailable\r\n"));
        assert!(head.ends_with("connection: close\r\n\r\n"));
    }
}
