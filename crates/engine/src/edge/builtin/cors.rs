//! CORS at tunnels that need a credential (Fetch, "CORS protocol").
//!
//! A browser sends a preflight without a credential, so the tunnel would refuse each one. For pages
//! of the origins that the tunnel lists, the edge answers preflights itself; nothing reaches the
//! service before the decision. The edge's refusals have the fields that let those pages read them.
//! The responses of the service are its own. The layer of `tower-http` cannot be used: the origins
//! are those of one tunnel, and the edge has no layers.

use http::HeaderValue;
use http::header::{
    ACCESS_CONTROL_ALLOW_CREDENTIALS, ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS,
    ACCESS_CONTROL_ALLOW_ORIGIN, ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, VARY,
};

use super::cross_site::{SingleValue, is_listed};
use crate::access::TunnelPolicy;
use crate::edge::response::local_response::EdgeResponse;
use crate::edge::routing::{HeaderFields, RequestInfo};

/// The origin of a page that the tunnel lists.
#[derive(Debug, Clone)]
pub(in crate::edge) struct ListedOrigin(HeaderValue);

impl ListedOrigin {
    /// Finds the origin of the page that sent a request. `None` if the tunnel does not list it, or
    /// if the request has several.
    pub(in crate::edge) fn of_request<H: HeaderFields>(
        headers: &H,
        policy: &TunnelPolicy,
    ) -> Option<Self> {
        let allowed = policy.allowed_origins();
        if allowed.is_empty() {
            return None;
        }
        let SingleValue::One(origin) = SingleValue::of(headers, "origin") else {
            return None;
        };
        if !is_listed(origin, allowed) {
            return None;
        }
        HeaderValue::from_bytes(origin).ok().map(Self)
    }

    /// Answers a preflight for a tunnel whose visitors need a credential or pass a challenge. The
    /// caller has checked the origin. `None` if the request is not a preflight, or if the service
    /// answers preflights of this tunnel.
    pub(in crate::edge) fn answer_preflight<H: HeaderFields>(
        inbound: &RequestInfo<'_>,
        headers: &H,
        policy: &TunnelPolicy,
    ) -> Option<EdgeResponse> {
        let required = policy.required_proofs();
        if inbound.method.as_str() != "OPTIONS"
            || !(required.requires_identity() || required.challenge || required.password)
        {
            return None;
        }
        let method = SingleValue::of(headers, "access-control-request-method");
        let names = SingleValue::of(headers, "access-control-request-headers");
        let SingleValue::One(method) = method else {
            return None;
        };
        if !is_token(method) || names == SingleValue::Several {
            return None;
        }
        let answer = EdgeResponse::empty(204)
            .with_header(ACCESS_CONTROL_ALLOW_METHODS, method)
            .with_header(ACCESS_CONTROL_MAX_AGE, MAX_AGE);
        Some(match names {
            SingleValue::One(names) if is_list_of_names(names) => {
                answer.with_header(ACCESS_CONTROL_ALLOW_HEADERS, names)
            }
            _ => answer,
        })
    }

    /// Lets the page read a response of the edge. The page may send a session's cookie, as the
    /// tunnel lists its origin.
    pub(in crate::edge) fn allow(self, answer: EdgeResponse) -> EdgeResponse {
        answer
            .with_header(ACCESS_CONTROL_ALLOW_ORIGIN, self.0)
            .with_header(ACCESS_CONTROL_ALLOW_CREDENTIALS, "true")
            .with_header(ACCESS_CONTROL_EXPOSE_HEADERS, READABLE)
            .with_header(VARY, "Origin")
    }
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
