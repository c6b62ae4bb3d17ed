//! Responses of the edge itself on a tunnel's host: JSON for programs, HTML pages for browsers.

use http::header::{
    ALLOW, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, LOCATION, REFERRER_POLICY,
    RETRY_AFTER, SEC_WEBSOCKET_VERSION, WWW_AUTHENTICATE,
};
use http::{HeaderName, HeaderValue};
use http1::{FieldValue, FieldValueBuf, field_name, field_value, write_field};
use types::problem::{MEDIA_TYPE, Problem};

use crate::browser::{Page, PageFooter, in_text};
use crate::edge::headers::forwarding::CONNECTION;
use crate::edge::response::error_format::ErrorFormat;

/// A response of the edge, independent of the HTTP version.
#[derive(Debug)]
pub(crate) struct EdgeResponse {
    pub(crate) status: u16,
    /// Header fields without `Content-Length`, which follows from the body.
    pub(crate) fields: Vec<(HeaderName, HeaderValue)>,
    pub(crate) body: String,
}

impl EdgeResponse {
    /// Renders a problem in the negotiated format.
    pub(crate) fn problem(problem: &Problem, form: ErrorFormat, footer: &PageFooter) -> Self {
        let (media_type, body, policy) = match form {
            ErrorFormat::Page => {
                let page = Page::problem(problem, footer);
                (HTML, page.html, Some(page.policy))
            }
            ErrorFormat::Text => ("text/plain; charset=utf-8", in_text(problem, footer), None),
            ErrorFormat::Json => (MEDIA_TYPE, problem.to_json(), None),
        };
        let fields = vec![
            (CONTENT_TYPE, HeaderValue::from_static(media_type)),
            NO_STORE,
        ];
        let mut answer = Self {
            status: problem.status,
            fields,
            body,
        };
        if let Some(challenge) = problem.www_authenticate(None) {
            answer = answer.with_header(WWW_AUTHENTICATE, challenge);
        }
        if let Some(challenge) = problem.token_challenge() {
            answer = answer.with_header(WWW_AUTHENTICATE, challenge);
        }
        if let Some(seconds) = problem.retry_after {
            answer = answer.with_header(RETRY_AFTER, seconds.to_string());
        }
        if let Some(methods) = problem.allow {
            answer = answer.with_header(ALLOW, methods);
        }
        if let Some(reference) = &problem.reference {
            answer = answer.with_header(REFERENCE, reference.as_str());
        }
        if problem.status == UPGRADE_REQUIRED {
            // RFC 6455, 4.4.
            answer = answer.with_header(SEC_WEBSOCKET_VERSION, "13");
        }
        if let Some(policy) = policy {
            answer = answer.with_header(CONTENT_SECURITY_POLICY, policy);
        }
        answer
    }

    /// A page of the edge.
    pub(crate) fn page(page: Page) -> Self {
        let answer = Self {
            status: 200,
            fields: vec![(CONTENT_TYPE, HeaderValue::from_static(HTML)), NO_STORE],
            body: page.html,
        };
        answer
            .with_header(CONTENT_SECURITY_POLICY, page.policy)
            // With `no-referrer`, browsers would send `Origin: null` with forms.
            .with_header(REFERRER_POLICY, "same-origin")
    }

    /// Redirects a browser. The next request is a `GET`.
    pub(crate) fn redirect(status: u16, location: String) -> Self {
        Self::empty(status)
            .with_header(LOCATION, location)
            // Addresses of the edge may contain codes, which must not leak in `Referer`.
            .with_header(REFERRER_POLICY, "no-referrer")
    }

    /// A JSON response.
    pub(crate) fn json(value: &impl serde::Serialize) -> Self {
        Self {
            status: 200,
            fields: vec![(CONTENT_TYPE, JSON), NO_STORE],
            // The value is always one of our types, which serialise without errors.
            body: serde_json::to_string(value).unwrap_or_default(),
        }
    }

    /// A 204 response.
    pub(crate) fn no_content() -> Self {
        Self::empty(204)
    }

    /// A response without a body.
    pub(crate) fn empty(status: u16) -> Self {
        Self {
            status,
            fields: vec![NO_STORE],
            body: String::new(),
        }
    }

    /// Adds a header field. A value that a field cannot carry is left out.
    #[must_use]
    pub(crate) fn with_header(
        mut self,
        name: HeaderName,
        value: impl TryInto<HeaderValue>,
    ) -> Self {
        if let Ok(value) = value.try_into() {
            self.fields.push((name, value));
        }
        self
    }

    /// The whole response as HTTP/1.1. `head` is true for a response to a `HEAD` request.
    pub(crate) fn to_http1(&self, head: bool, close: bool) -> Vec<u8> {
        let mut out = Vec::with_capacity(256 + self.body.len());
        http1::write_status_line(&mut out, self.status, reason(self.status));
        for (name, value) in &self.fields {
            write_field(&mut out, name.into(), value.into());
        }
        // RFC 9110, 8.6: a 204 has no `Content-Length`.
        if self.status != 204 {
            let mut length = FieldValueBuf::new();
            length.push_number(self.body.len() as u64);
            write_field(&mut out, field_name!("content-length"), length.as_value());
        }
        if self.status == UPGRADE_REQUIRED {
            // RFC 9110, 15.5.22. HTTP/2 has no such fields.
            write_field(&mut out, CONNECTION, field_value!("Upgrade"));
            write_field(&mut out, field_name!("upgrade"), field_value!("websocket"));
        }
        if close {
            write_field(&mut out, CONNECTION, field_value!("close"));
        }
        out.extend_from_slice(http1::HEAD_END);
        if !head {
            out.extend_from_slice(self.body.as_bytes());
        }
        out
    }
}

const HTML: &str = "text/html; charset=utf-8";
/// The edge sends a 426 to require a WebSocket.
const UPGRADE_REQUIRED: u16 = 426;
const JSON: HeaderValue = HeaderValue::from_static("application/json");
const NO_STORE: (HeaderName, HeaderValue) = (CACHE_CONTROL, HeaderValue::from_static("no-store"));
const REFERENCE: HeaderName = HeaderName::from_static("svc-reference");

/// The registered reason phrase, or an empty one.
pub(crate) fn reason(status: u16) -> FieldValue<'static> {
    http::StatusCode::from_u16(status)
        .ok()
        .and_then(|status| status.canonical_reason())
        .and_then(|reason| FieldValue::parse(reason.as_bytes()))
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_browser_gets_a_page_and_a_program_gets_json() {
        let problem = Problem::tunnel_offline(5);
        let footer = PageFooter::default();
        let page = EdgeResponse::problem(&problem, ErrorFormat::Page, &footer);
        assert!(page.body.starts_with("<!doctype html>"));
        assert!(
            page.fields
                .contains(&(RETRY_AFTER, HeaderValue::from_static("5")))
        );
        let text = EdgeResponse::problem(&problem, ErrorFormat::Text, &footer);
        assert!(
            text.body
                .starts_with("503 Service Unavailable: The tunnel is offline;")
        );
        let json = EdgeResponse::problem(&problem, ErrorFormat::Json, &footer);
        assert!(json.body.contains("\"tunnel_offline\""));
        let head = String::from_utf8(json.to_http1(true, true)).unwrap();
        assert!(head.starts_with("HTTP/1.1 503 Service Unavailable\r\n"));
        assert!(head.ends_with("connection: close\r\n\r\n"));
    }
}
