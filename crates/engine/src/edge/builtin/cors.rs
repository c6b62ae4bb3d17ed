//! CORS at tunnels that need a credential (Fetch, "CORS protocol").
//!
//! A browser sends a preflight without a credential, so the tunnel would refuse each one. For pages of
//! the origins that the tunnel lists, the edge answers preflights itself; nothing reaches the service
//! before the decision. The edge's refusals have the fields that let those pages read them. The
//! responses of the service are its own.

use http::HeaderValue;
use http::header::{
    ACCESS_CONTROL_ALLOW_CREDENTIALS, ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS,
    ACCESS_CONTROL_ALLOW_ORIGIN, ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, VARY,
};
use http1::FieldValue;
use types::tunnel::WebOrigin;

use crate::access::TunnelPolicy;
use crate::edge::response::local_response::Answer;
use crate::edge::routing::{HeaderFields, RequestInfo};

/// The origin of a page that the tunnel lists.
#[derive(Debug, Clone)]
pub(in crate::edge) struct ListedOrigin(HeaderValue);

impl ListedOrigin {
    /// Finds the origin of the page that sent a request. `None` if the tunnel does not list it, or if
    /// the request has several.
    pub(in crate::edge) fn of_request<H: HeaderFields>(
        headers: &H,
        policy: &TunnelPolicy,
    ) -> Option<Self> {
        let allowed = policy.allowed_origins();
        if allowed.is_empty() {
            return None;
        }
        let origin = only(headers, "origin")?;
        let is_listed = |listed: &WebOrigin| origin.as_bytes() == listed.as_str().as_bytes();
        let is_listed = allowed.iter().any(is_listed);
        let value = HeaderValue::from_bytes(origin.as_bytes()).ok();
        value.filter(|_| is_listed).map(Self)
    }

    /// Answers a preflight for a tunnel whose visitors need a credential or pass a challenge. The
    /// caller has checked the origin. `None` if the request is no preflight, or if the service answers
    /// preflights of this tunnel.
    pub(in crate::edge) fn answer_preflight<H: HeaderFields>(
        inbound: &RequestInfo<'_>,
        headers: &H,
        policy: &TunnelPolicy,
    ) -> Option<Answer> {
        let required = policy.required_proofs();
        if inbound.method.as_str() != "OPTIONS"
            || !(required.requires_identity() || required.challenge)
        {
            return None;
        }
        let method = only(headers, "access-control-request-method")?;
        let method = Some(method).filter(|method| is_token(method.as_bytes()))?;
        let names = match count(headers, "access-control-request-headers") {
            0 => None,
            1 => Some(only(headers, "access-control-request-headers")?),
            _ => return None,
        };
        let names = names.filter(|names| is_list_of_names(names.as_bytes()));
        let answer = Answer::empty(204)
            .with_header(ACCESS_CONTROL_ALLOW_METHODS, method.as_bytes())
            .with_header(ACCESS_CONTROL_MAX_AGE, MAX_AGE);
        Some(match names {
            Some(names) => answer.with_header(ACCESS_CONTROL_ALLOW_HEADERS, names.as_bytes()),
            None => answer,
        })
    }

    /// Lets the page read a response of the edge. The page may send a session's cookie, as the tunnel
    /// lists its origin.
    pub(in crate::edge) fn allow(self, answer: Answer) -> Answer {
        answer
            .with_header(ACCESS_CONTROL_ALLOW_ORIGIN, self.0)
            .with_header(ACCESS_CONTROL_ALLOW_CREDENTIALS, "true")
            .with_header(ACCESS_CONTROL_EXPOSE_HEADERS, READABLE)
            .with_header(VARY, "Origin")
    }
}

/// The value of a field that occurs once.
fn only<'h, H: HeaderFields>(headers: &'h H, name: &'static str) -> Option<FieldValue<'h>> {
    let mut fields = headers.fields().filter(move |field| field.is(name));
    let first = fields.next()?;
    fields.next().is_none().then_some(first.value)
}

fn count<H: HeaderFields>(headers: &H, name: &str) -> usize {
    headers.fields().filter(|field| field.is(name)).count()
}

/// RFC 9110 section 5.6.2.
fn is_token(bytes: &[u8]) -> bool {
    let is_tchar = |byte: &u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(byte);
    !bytes.is_empty() && bytes.len() <= MAX_LIST_BYTES && bytes.iter().all(is_tchar)
}

/// Names of fields, with commas and spaces between.
fn is_list_of_names(bytes: &[u8]) -> bool {
    let mut names = bytes.split(|byte| *byte == b',').map(<[u8]>::trim_ascii);
    bytes.len() <= MAX_LIST_BYTES && names.all(is_token)
}

/// Fields of a refusal that a page reads: the challenge, the reference, and the time of a retry.
const READABLE: &str = "www-authenticate, svc-reference, retry-after";
/// Seconds for which a browser keeps the answer. A change of the tunnel takes effect after that.
const MAX_AGE: &str = "600";
/// Limit of a list of names, in bytes: more than any page sends.
const MAX_LIST_BYTES: usize = 2048;
