//! Responses of the metrics listener.

use std::borrow::Cow;

use bytes::Bytes;
use http::header::{ALLOW, AUTHORIZATION, CACHE_CONTROL, CONTENT_TYPE, WWW_AUTHENTICATE};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode};
use metrics_exporter_prometheus::PrometheusHandle;
use subtle::ConstantTimeEq;

use super::{MetricsPath, Readiness};
use crate::config::SecretString;
use crate::small_http;

pub(super) const HEALTH_PATH: &str = "/healthz";
pub(super) const READY_PATH: &str = "/readyz";

/// Everything that a response depends on.
pub(super) struct MetricsResponder {
    /// `None` for a listener with the health routes only.
    pub(super) scrapes: Option<Scrapes>,
    pub(super) readiness: Readiness,
}

/// The route of the metrics.
pub(super) struct Scrapes {
    pub(super) path: MetricsPath,
    pub(super) bearer_token: Option<SecretString>,
    pub(super) recorder: PrometheusHandle,
}

impl small_http::Responder for MetricsResponder {
    fn run_upkeep(&self) {
        if let Some(scrapes) = &self.scrapes {
            scrapes.recorder.run_upkeep();
        }
    }

    fn respond(&self, request: &Parts) -> Response<Bytes> {
        let path = request.uri.path();
        let scrapes = self.scrapes.as_ref();
        let scrapes = scrapes.filter(|scrapes| path == scrapes.path.as_str());
        if scrapes.is_none() && ![HEALTH_PATH, READY_PATH].contains(&path) {
            return text(StatusCode::NOT_FOUND, "not found\n");
        }
        if ![Method::GET, Method::HEAD].contains(&request.method) {
            let mut response = text(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD\n");
            response
                .headers_mut()
                .insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
            return response;
        }
        if let Some(scrapes) = scrapes {
            return match scrapes.authorize(&request.headers) {
                Ok(()) => metrics(scrapes.recorder.render()),
                Err(challenge) => unauthorized(challenge),
            };
        }
        if path == READY_PATH {
            return match self.readiness.not_ready_reason() {
                Some(obstacle) => text(StatusCode::SERVICE_UNAVAILABLE, obstacle),
                None => text(StatusCode::OK, self.readiness.ready_text()),
            };
        }
        text(StatusCode::OK, "ok\n")
    }
}

impl Scrapes {
    /// Checks that a scrape is allowed (MX-3), or returns the challenge (RFC 6750 section 3).
    fn authorize(&self, headers: &HeaderMap) -> Result<(), &'static str> {
        let Some(expected) = &self.bearer_token else {
            return Ok(());
        };
        let mut presented = headers.get_all(AUTHORIZATION).iter();
        let (Some(value), None) = (presented.next(), presented.next()) else {
            return Err("Bearer");
        };
        let token = value
            .as_bytes()
            .split_at_checked("Bearer ".len())
            .and_then(|(scheme, token)| scheme.eq_ignore_ascii_case(b"Bearer ").then_some(token));
        // The duration of the comparison reveals only the length of the token.
        match token {
            Some(token) if bool::from(token.ct_eq(expected.expose().as_bytes())) => Ok(()),
            _ => Err("Bearer error=\"invalid_token\""),
        }
    }
}

fn metrics(body: String) -> Response<Bytes> {
    let mut response = Response::new(Bytes::from(body));
    response.headers_mut().insert(
        CONTENT_TYPE,
        HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8"),
    );
    response
}

fn unauthorized(challenge: &'static str) -> Response<Bytes> {
    let mut response = text(StatusCode::UNAUTHORIZED, "unauthorized\n");
    response
        .headers_mut()
        .insert(WWW_AUTHENTICATE, HeaderValue::from_static(challenge));
    response
}

fn text(status: StatusCode, body: impl Into<Cow<'static, str>>) -> Response<Bytes> {
    let body: Cow<'static, str> = body.into();
    let mut response = Response::new(Bytes::from(body.into_owned()));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(
        CONTENT_TYPE,
        HeaderValue::from_static("text/plain; charset=utf-8"),
    );
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
