//! Answers of our own on a tunnel's host: JSON for programs, a small page for people.

use types::problem::{MEDIA_TYPE, Problem};

use super::form::Form;
use crate::browser::{Page, in_text};

/// An answer, independent of the HTTP version that carries it.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    /// Name and value; the length is the body's.
    pub(crate) fields: Vec<(&'static str, String)>,
    pub(crate) body: String,
}

impl Answer {
    /// Renders a problem in the form that the visitor asked for.
    pub(crate) fn problem(problem: &Problem, form: Form) -> Self {
        let (media_type, body, policy) = match form {
            Form::Page => {
                let page = Page::problem(problem);
                (HTML, page.html, Some(page.policy))
            }
            Form::Text => ("text/plain; charset=utf-8", in_text(problem), None),
            Form::Json => (MEDIA_TYPE, problem.to_json(), None),
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
        if let Some(policy) = policy {
            fields.push(("content-security-policy", policy.to_owned()));
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
                ("content-type", HTML.to_owned()),
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

const HTML: &str = "text/html; charset=utf-8";

/// The registered reason phrase; empty for a status without one.
pub(crate) fn reason(status: u16) -> &'static str {
    http::StatusCode::from_u16(status)
        .ok()
        .and_then(|status| status.canonical_reason())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_browser_gets_a_page_and_a_program_gets_json() {
        let problem = Problem::tunnel_offline(5);
        let page = Answer::problem(&problem, Form::Page);
        assert!(page.body.starts_with("<!doctype html>"));
        assert!(page.fields.contains(&("retry-after", "5".to_owned())));
        let text = Answer::problem(&problem, Form::Text);
        assert!(
            text.body
                .starts_with("503 Service Unavailable: The tunnel is offline;")
        );
        let json = Answer::problem(&problem, Form::Json);
        assert!(json.body.contains("\"tunnel_offline\""));
        let head = String::from_utf8(json.to_http1(true, true)).unwrap();
        assert!(head.starts_with("HTTP/1.1 503 Service Unavailable\r\n"));
        assert!(head.ends_with("connection: close\r\n\r\n"));
    }
}
