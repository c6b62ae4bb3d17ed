//! Problem responses: RFC 9457 bodies and RFC 6750 challenges.
//!
//! A problem contains only information that the caller may have. Internal details are written to
//! the log instead, and nothing in this type contains a secret.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::filter::ParamError;
use crate::tunnel::PropertyError;

/// A refusal or failure that is sent to the caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// HTTP status.
    pub status: u16,
    /// Stable `snake_case` code.
    pub code: &'static str,
    /// Description as display text.
    pub detail: Cow<'static, str>,
    /// Dotted path of the invalid input.
    pub field: Option<String>,
    /// Space-separated permissions that are missing (403) or required.
    pub scope: Option<String>,
    /// Page where the user can continue, for example to pay.
    pub url: Option<String>,
    /// Seconds until a retry is useful (`Retry-After`).
    pub retry_after: Option<u32>,
    /// Allowed methods of the route (`Allow`), if the request used another one.
    pub allow: Option<&'static str>,
    /// Id of the visit, for `svc explain <reference>`.
    pub reference: Option<String>,
    /// The service also accepts a bearer token instead of the link password.
    pub accepts_token: bool,
}

/// The JSON body of a problem, `application/problem+json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = Problem)]
pub struct ProblemBody {
    /// Type of the problem as a URI; `about:blank` means that the status describes it (RFC 9457
    /// section 4.2.1).
    #[serde(rename = "type")]
    pub kind: String,
    /// Reason phrase of the status.
    pub title: String,
    /// HTTP status.
    pub status: u16,
    /// Description as display text.
    pub detail: String,
    /// Stable code.
    pub code: String,
    /// The same text as `detail`, for older SDKs.
    pub error: String,
    /// Dotted path of the invalid input, for example `filters.name`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub field: Option<String>,
    /// Space-separated permissions that are missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub scope: Option<String>,
    /// Page where the user can continue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub url: Option<String>,
    /// Id of the refused visit, for `svc explain`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub reference: Option<String>,
}

/// The challenge for a bearer token.
const BEARER: &str = "Bearer realm=\"svc\"";

/// Media type of a problem body (RFC 9457 section 3).
pub const MEDIA_TYPE: &str = "application/problem+json";

macro_rules! problems {
    ($($(#[$doc:meta])* $name:ident $status:literal $code:literal $detail:literal)*) => {
        impl Problem {
            $($(#[$doc])* pub const fn $name() -> Self { Self::new($status, $code, $detail) })*
        }
    };
}

problems! {
    /// No credential was sent: a challenge without `error` (RFC 6750 section 3.1).
    unauthenticated 401 "unauthenticated" "A bearer token is needed."
    /// A credential was sent and is not valid; only the log states the reason.
    invalid_token 401 "invalid_token" "The token is not valid."
    /// A tunnel with a link password was requested without a credential.
    password_required 401 "password_required" "A password is needed."
    /// The link password of a request is not valid; only the log states the reason.
    invalid_password 401 "invalid_password" "The user name or the password is wrong."
    /// Certificate and token, or certificate and session (ED-5).
    ambiguous_credentials 400 "ambiguous_credentials" "Send only one credential."
    /// An empty, malformed or repeated query credential (ED-1b).
    malformed_query_credential 400 "invalid_request" "The query credential is malformed."
    /// A reserved query credential on the plain listener (ED-1e).
    token_in_clear 400 "invalid_request" "A token in the address needs https."
    /// A method other than GET and HEAD on the plain listener.
    https_required 403 "https_required" "Use https."
    /// A request that is not a navigation, on a tunnel that challenges browsers (ED-6).
    challenge_required 403 "challenge_required" "A browser has to pass the challenge first."
    /// The object does not exist, or is not visible to the caller.
    not_found 404 "not_found" "Nothing was found at this address."
    /// No tunnel has this name.
    tunnel_not_found 404 "tunnel_not_found" "No tunnel has this name."
    /// The path exists, but not for this method.
    method_not_allowed 405 "method_not_allowed" "The method is not allowed here."
    /// The current state does not allow the operation.
    conflict 409 "conflict" "This conflicts with the current state."
    /// The preview is no longer current (CP-4b).
    creation_preview_stale 409 "creation_preview_stale" "The preview is no longer current; fetch it again."
    /// The body is larger than the route accepts.
    content_too_large 413 "content_too_large" "The body is too large."
    /// The request target is too long.
    uri_too_long 414 "uri_too_long" "The request target is too long."
    /// The host is not served on this connection.
    misdirected_request 421 "misdirected_request" "This host is not served on this connection."
    /// The key was already used with another body (CP-4a).
    idempotency_key_reused 422 "idempotency_key_reused" "The idempotency key belongs to another request."
    /// A WebSocket route was requested without an upgrade.
    upgrade_required 426 "upgrade_required" "This route requires a WebSocket."
    /// The caller exceeds its rate limit.
    too_many_requests 429 "too_many_requests" "Too many requests."
    /// The header section is too large.
    header_fields_too_large 431 "request_header_fields_too_large" "The request head is too large."
    /// A defect of this server; the log has details.
    internal 500 "internal_error" "Something went wrong on our side."
    /// A method that is not supported at all, such as CONNECT.
    not_implemented 501 "not_implemented" "The method is not offered."
    /// The agent, or the service behind it, did not accept the request.
    upstream_unreachable 502 "upstream_unreachable" "The service behind this name cannot be reached."
    /// The service's response is ambiguous or malformed.
    upstream_invalid_response 502 "upstream_invalid_response" "The service sent an invalid response."
    /// The server is draining, or short of a resource.
    unavailable 503 "service_unavailable" "The service cannot take this request now."
    /// The upstream's response did not start in time.
    upstream_timeout 504 "upstream_timeout" "The service behind this name did not answer in time."
    /// An HTTP version that is not supported.
    http_version_not_supported 505 "http_version_not_supported" "This HTTP version is not supported here."
    /// The request reached the edge repeatedly (RFC 5842 section 7.2, RFC 8586).
    loop_detected 508 "loop_detected" "The request is in a loop: the service of this name sends requests back to it."
}

impl Problem {
    /// Creates a problem with a status, a stable code and a display text.
    pub const fn new(status: u16, code: &'static str, detail: &'static str) -> Self {
        Self {
            status,
            code,
            detail: Cow::Borrowed(detail),
            field: None,
            scope: None,
            url: None,
            retry_after: None,
            allow: None,
            reference: None,
            accepts_token: false,
        }
    }

    /// 400 `invalid_request`: malformed, or out of range.
    pub fn invalid_request(detail: impl Into<Cow<'static, str>>) -> Self {
        Self::new(400, "invalid_request", "").with_detail(detail)
    }

    /// 400 `feature_unavailable`: an option that this edition does not support (EN-11), by name.
    pub fn feature_unavailable(option: &str) -> Self {
        Self::new(400, "feature_unavailable", "")
            .with_detail(format!("{option} is not available here"))
            .with_field(option)
    }

    /// 402 `payment_required`: a hosted step at `url` is required first.
    pub fn payment_required(url: impl Into<String>) -> Self {
        let mut problem = Self::new(
            402,
            "payment_required",
            "A payment step must be completed first.",
        );
        problem.url = Some(url.into());
        problem
    }

    /// 403 `insufficient_scope`: the caller is authenticated, but a permission or boundary is
    /// missing (RFC 6750 section 3.1); `scope` names it.
    #[expect(
        clippy::needless_pass_by_value,
        reason = "a permission or a set of them, both `Copy`"
    )]
    pub fn insufficient_scope(scope: impl ToString) -> Self {
        let mut problem = Self::new(403, "insufficient_scope", "The token does not allow this.");
        problem.scope = Some(scope.to_string());
        problem
    }

    /// 503 `tunnel_offline`: the name is registered, but its agent is offline.
    pub fn tunnel_offline(retry_after_seconds: u32) -> Self {
        Self::new(
            503,
            "tunnel_offline",
            "The tunnel is offline; its agent is not connected.",
        )
        .with_retry_after(retry_after_seconds)
    }

    /// 503 `tunnel_offline` of an engine that has just started: it has not received yet which names
    /// have agents.
    pub fn tunnel_starting(retry_after_seconds: u32) -> Self {
        Self::new(
            503,
            "tunnel_offline",
            "The engine has just started, and no agent has connected with this name yet.",
        )
        .with_retry_after(retry_after_seconds)
    }

    /// 405 `method_not_allowed`, with the allowed methods in the form of `Allow` (RFC 9110 section
    /// 15.5.6).
    pub const fn only_allowed(methods: &'static str) -> Self {
        let mut problem = Self::method_not_allowed();
        problem.allow = Some(methods);
        problem
    }

    /// Replaces the description.
    #[must_use]
    pub fn with_detail(mut self, detail: impl Into<Cow<'static, str>>) -> Self {
        self.detail = detail.into();
        self
    }

    /// Sets the invalid field.
    #[must_use]
    pub fn with_field(mut self, field: impl Into<String>) -> Self {
        self.field = Some(field.into());
        self
    }

    /// Sets the time after which a retry is useful.
    #[must_use]
    pub fn with_retry_after(mut self, seconds: u32) -> Self {
        self.retry_after = Some(seconds);
        self
    }

    /// Sets the id of the visit that the problem ended.
    #[must_use]
    pub fn with_reference(mut self, reference: impl Into<String>) -> Self {
        self.reference = Some(reference.into());
        self
    }

    /// Reason phrase of the status (RFC 9110 section 15, RFC 6585).
    pub const fn title(&self) -> &'static str {
        match self.status {
            400 => "Bad Request",
            401 => "Unauthorized",
            402 => "Payment Required",
            403 => "Forbidden",
            404 => "Not Found",
            405 => "Method Not Allowed",
            409 => "Conflict",
            413 => "Content Too Large",
            414 => "URI Too Long",
            421 => "Misdirected Request",
            422 => "Unprocessable Content",
            426 => "Upgrade Required",
            429 => "Too Many Requests",
            431 => "Request Header Fields Too Large",
            500 => "Internal Server Error",
            501 => "Not Implemented",
            502 => "Bad Gateway",
            503 => "Service Unavailable",
            504 => "Gateway Timeout",
            505 => "HTTP Version Not Supported",
            508 => "Loop Detected",
            _ => "Error",
        }
    }

    /// The body as a value.
    pub fn body(&self) -> ProblemBody {
        ProblemBody {
            kind: "about:blank".to_owned(),
            title: self.title().to_owned(),
            status: self.status,
            detail: self.detail.to_string(),
            code: self.code.to_owned(),
            error: self.detail.to_string(),
            field: self.field.clone(),
            scope: self.scope.clone(),
            url: self.url.clone(),
            reference: self.reference.clone(),
        }
    }

    /// The body as JSON, of media type [`MEDIA_TYPE`].
    pub fn to_json(&self) -> String {
        // Strings and numbers always serialise.
        serde_json::to_string(&self.body()).unwrap_or_default()
    }

    /// Value of a second `WWW-Authenticate`, behind that of a link password: browsers use the first
    /// challenge that they support, and programs find that of their credential (RFC 9110 section
    /// 11.6.1).
    pub fn token_challenge(&self) -> Option<&'static str> {
        let is_offered = self.accepts_token && self.needs_password();
        is_offered.then_some(BEARER)
    }

    fn needs_password(&self) -> bool {
        matches!(self.code, "password_required" | "invalid_password")
    }

    /// Value of `WWW-Authenticate` (RFC 6750 section 3): on 401, and on 403 if a permission or
    /// boundary is missing. For a link password it is the challenge of RFC 7617.
    /// `resource_metadata` is the address of RFC 9728 section 5.1, if the
    /// service has one.
    pub fn www_authenticate(&self, resource_metadata: Option<&str>) -> Option<String> {
        if self.needs_password() {
            return Some("Basic realm=\"svc\", charset=\"UTF-8\"".to_owned());
        }
        let mut challenge = BEARER.to_owned();
        match (self.status, self.code) {
            (401, "invalid_token") | (403, "insufficient_scope") => {
                push_parameter(&mut challenge, "error", self.code);
                push_parameter(&mut challenge, "error_description", &self.detail);
            }
            (401, _) => {}
            _ => return None,
        }
        if let Some(scope) = &self.scope {
            push_parameter(&mut challenge, "scope", scope);
        }
        if let Some(address) = resource_metadata {
            push_parameter(&mut challenge, "resource_metadata", address);
        }
        Some(challenge)
    }
}

impl From<ParamError> for Problem {
    fn from(error: ParamError) -> Self {
        let problem = Self::invalid_request(error.to_string());
        if error.field.is_empty() {
            problem
        } else {
            problem.with_field(error.field)
        }
    }
}

impl From<PropertyError> for Problem {
    fn from(error: PropertyError) -> Self {
        Self::invalid_request(error.to_string()).with_field(error.field)
    }
}

/// Adds a quoted parameter. Characters that are not allowed in a quoted string of RFC 6750 section
/// 3 are left out, so that no value can end the string or the header.
fn push_parameter(challenge: &mut String, name: &str, value: &str) {
    let printable =
        |character: &char| matches!(character, ' '..='~') && !matches!(character, '"' | '\\');
    let value: String = value.chars().filter(printable).collect();
    for part in [", ", name, "=\"", &value, "\""] {
        challenge.push_str(part);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::permission::Permission;

    #[test]
    fn body_is_rfc_9457_with_the_older_member() {
        let error = ParamError::new("filters.name", "expected a string");
        insta::assert_json_snapshot!("field", Problem::from(error).body());
        insta::assert_json_snapshot!("bare", Problem::tunnel_not_found().body());
        let body: ProblemBody = serde_json::from_str(&Problem::internal().to_json()).unwrap();
        assert_eq!(body.error, body.detail);
    }

    #[test]
    fn a_token_is_offered_beside_a_link_password() {
        for (mut problem, expected) in [
            (Problem::password_required(), Some("Bearer realm=\"svc\"")),
            (Problem::invalid_password(), Some("Bearer realm=\"svc\"")),
            (Problem::unauthenticated(), None),
            (Problem::too_many_requests(), None),
        ] {
            assert_eq!(problem.token_challenge(), None, "{}", problem.code);
            problem.accepts_token = true;
            assert_eq!(problem.token_challenge(), expected, "{}", problem.code);
        }
    }

    #[test]
    fn challenges_are_rfc_6750() {
        let metadata = Some("https://svc.example/.well-known/oauth-protected-resource");
        for (problem, metadata, value) in [
            (
                Problem::unauthenticated(),
                None,
                Some("Bearer realm=\"svc\""),
            ),
            (
                Problem::invalid_token(),
                None,
                Some(
                    "Bearer realm=\"svc\", error=\"invalid_token\", error_description=\"The token is not valid.\"",
                ),
            ),
            (
                Problem::insufficient_scope(Permission::TunnelsResourcesReadOnly),
                None,
                Some(
                    "Bearer realm=\"svc\", error=\"insufficient_scope\", \
                     error_description=\"The token does not allow this.\", scope=\"tunnels.resources.read-only\"",
                ),
            ),
            (
                Problem::unauthenticated(),
                metadata,
                Some(
                    "Bearer realm=\"svc\", \
                     resource_metadata=\"https://svc.example/.well-known/oauth-protected-resource\"",
                ),
            ),
            (
                Problem::password_required(),
                metadata,
                Some("Basic realm=\"svc\", charset=\"UTF-8\""),
            ),
            (
                Problem::invalid_password(),
                None,
                Some("Basic realm=\"svc\", charset=\"UTF-8\""),
            ),
            (Problem::challenge_required(), None, None),
            (Problem::not_found(), metadata, None),
        ] {
            assert_eq!(
                problem.www_authenticate(metadata).as_deref(),
                value,
                "{}",
                problem.code
            );
        }
    }

    #[test]
    fn a_value_cannot_escape_its_quotes() {
        let problem = Problem::insufficient_scope("a\", error=\"x\r\nSet-Cookie: y");
        let value = problem.www_authenticate(None).unwrap();
        assert!(
            value.ends_with(", scope=\"a, error=xSet-Cookie: y\""),
            "{value}"
        );
    }

    /// EN-11: the option is named by the word that users search for.
    #[test]
    fn en_11_an_unavailable_option_is_named() {
        let problem = Problem::feature_unavailable("challenge_mode");
        assert_eq!((problem.status, problem.code), (400, "feature_unavailable"));
        assert_eq!(problem.detail, "challenge_mode is not available here");
        assert_eq!(problem.field.as_deref(), Some("challenge_mode"));
    }

    #[test]
    fn every_status_has_its_phrase() {
        let problems = [
            Problem::payment_required("https://pay.example"),
            Problem::tunnel_offline(5),
            Problem::conflict(),
        ];
        for problem in problems {
            assert_ne!(problem.title(), "Error");
        }
        assert_eq!(Problem::tunnel_offline(5).retry_after, Some(5));
    }
}
