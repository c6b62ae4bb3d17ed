//! Error responses of the OAuth endpoints (RFC 6749 section 5.2, RFC 8628 section 3.5).

use api::control::oauth::OauthError as Body;
use axum::Json;
use axum::response::{IntoResponse, Response};
use http::header::{CACHE_CONTROL, PRAGMA, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderValue, StatusCode};
use types::form::BadForm;

use crate::http_api::problem::Refusal;

/// An error response of an endpoint.
#[derive(Debug)]
pub(super) struct OauthError {
    code: Code,
    description: String,
    retry_after: Option<u32>,
}

/// Error codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Code {
    InvalidRequest,
    InvalidClient,
    /// The client sent credentials in the `Authorization` header.
    InvalidClientAuthentication,
    InvalidGrant,
    UnauthorizedClient,
    UnsupportedGrantType,
    UnsupportedResponseType,
    InvalidScope,
    InvalidTarget,
    AccessDenied,
    LoginRequired,
    ConsentRequired,
    AuthorizationPending,
    SlowDown,
    ExpiredToken,
    TemporarilyUnavailable,
    ServerError,
}

impl Code {
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::InvalidRequest => "invalid_request",
            Self::InvalidClient | Self::InvalidClientAuthentication => "invalid_client",
            Self::InvalidGrant => "invalid_grant",
            Self::UnauthorizedClient => "unauthorized_client",
            Self::UnsupportedGrantType => "unsupported_grant_type",
            Self::UnsupportedResponseType => "unsupported_response_type",
            Self::InvalidScope => "invalid_scope",
            // RFC 8707 section 2.
            Self::InvalidTarget => "invalid_target",
            Self::AccessDenied => "access_denied",
            // OpenID Connect Core section 3.1.2.6, for `prompt=none`.
            Self::LoginRequired => "login_required",
            Self::ConsentRequired => "consent_required",
            // RFC 8628 section 3.5.
            Self::AuthorizationPending => "authorization_pending",
            Self::SlowDown => "slow_down",
            Self::ExpiredToken => "expired_token",
            Self::TemporarilyUnavailable => "temporarily_unavailable",
            Self::ServerError => "server_error",
        }
    }

    const fn status(self) -> StatusCode {
        match self {
            Self::InvalidClientAuthentication => StatusCode::UNAUTHORIZED,
            Self::TemporarilyUnavailable => StatusCode::SERVICE_UNAVAILABLE,
            Self::ServerError => StatusCode::INTERNAL_SERVER_ERROR,
            _ => StatusCode::BAD_REQUEST,
        }
    }

    /// Creates the error with a description for the developer of the client.
    pub(super) fn with_description(self, description: impl Into<String>) -> OauthError {
        OauthError {
            code: self,
            description: description.into(),
            retry_after: None,
        }
    }
}

impl OauthError {
    pub(super) fn code(&self) -> Code {
        self.code
    }

    pub(super) fn description(&self) -> &str {
        &self.description
    }

    pub(super) fn with_retry_after(mut self, seconds: u32) -> Self {
        self.retry_after = Some(seconds);
        self
    }
}

impl From<BadForm> for OauthError {
    fn from(bad: BadForm) -> Self {
        Code::InvalidRequest.with_description(description(&bad))
    }
}

/// Converts a text to the characters that RFC 6749 allows in `error_description` (section 5.2). The
/// text may repeat an untrusted name.
pub(super) fn description(error: &impl ToString) -> String {
    let is_plain =
        |character: &char| matches!(character, ' '..='~') && !matches!(character, '"' | '\\');
    error.to_string().chars().filter(is_plain).collect()
}

impl<R: Into<Refusal>> From<R> for OauthError {
    fn from(refusal: R) -> Self {
        let refusal = refusal.into();
        let problem = refusal.problem();
        let code = match problem.status {
            503 => Code::TemporarilyUnavailable,
            400..500 => Code::InvalidRequest,
            _ => Code::ServerError,
        };
        Self {
            code,
            description: description(&problem.detail),
            retry_after: problem.retry_after,
        }
    }
}

impl IntoResponse for OauthError {
    fn into_response(self) -> Response {
        let body = Body {
            error: self.code.as_str().to_owned(),
            error_description: self.description,
        };
        let mut response = no_store((self.code.status(), Json(body)).into_response());
        let headers = response.headers_mut();
        if self.code == Code::InvalidClientAuthentication {
            // RFC 6749 section 5.2 requires the scheme that the client tried. No scheme is
            // supported, so this is only a formality.
            let challenge = HeaderValue::from_static("Basic realm=\"svc\"");
            headers.insert(WWW_AUTHENTICATE, challenge);
        }
        if let Some(seconds) = self.retry_after {
            headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }
}

/// Responses with tokens and codes must not be stored (RFC 6749 section 5.1).
pub(super) fn no_store(mut response: Response) -> Response {
    let headers = response.headers_mut();
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(PRAGMA, HeaderValue::from_static("no-cache"));
    response
}
