//! Forms that programs send to the OAuth endpoints.

use std::sync::Arc;

use axum::extract::{FromRequest, Request};
use http::header::{AUTHORIZATION, CONTENT_TYPE};
use types::form::Form;

use super::clients::Client;
use super::error::{Code, OauthError};
use crate::app::App;
use crate::http_api::extract::read_body;

/// A form from a client. Clients are public. Client secrets are refused, so that no client assumes
/// that they were verified.
#[derive(Debug)]
pub(super) struct ClientForm(Form);

impl ClientForm {
    /// Removes and returns a parameter.
    pub(super) fn take(&mut self, name: &str) -> Option<String> {
        self.0.take(name)
    }

    /// Removes and returns a required parameter.
    pub(super) fn take_required(&mut self, name: &str) -> Result<String, OauthError> {
        self.take(name)
            .ok_or_else(|| Code::InvalidRequest.with_description(format!("{name} is missing")))
    }

    /// The client that the form names.
    pub(super) fn client(&mut self, app: &App) -> Result<Client, OauthError> {
        let id = self.take_required("client_id")?;
        named(app, &id)
    }

    /// The client that the form names, if it names one.
    pub(super) fn optional_client(&mut self, app: &App) -> Result<Option<Client>, OauthError> {
        self.take("client_id").map(|id| named(app, &id)).transpose()
    }
}

fn named(app: &App, id: &str) -> Result<Client, OauthError> {
    let client = app.config.oauth.named(id);
    client.ok_or_else(|| Code::InvalidClient.with_description("this client is not registered"))
}

impl FromRequest<Arc<App>> for ClientForm {
    type Rejection = OauthError;

    async fn from_request(request: Request, _: &Arc<App>) -> Result<Self, OauthError> {
        let (parts, body) = request.into_parts();
        let tried = parts.headers.get_all(AUTHORIZATION).iter();
        let is_bearer = |field: &http::HeaderValue| {
            let scheme = field
                .as_bytes()
                .split(|byte| matches!(byte, b' ' | b'\t'))
                .next();
            scheme.is_some_and(|scheme| scheme.eq_ignore_ascii_case(b"bearer"))
        };
        // A bearer token does not authenticate a client. It is ignored, as on every endpoint that
        // does not require one.
        if !tried.into_iter().all(is_bearer) {
            let description = "clients are public and have no secret: send client_id in the form";
            return Err(Code::InvalidClientAuthentication.with_description(description));
        }
        let declared = parts.headers.get(CONTENT_TYPE);
        let kind = declared.and_then(|kind| kind.to_str().ok()).unwrap_or("");
        let kind = kind.split(';').next().unwrap_or_default().trim();
        if !kind.eq_ignore_ascii_case("application/x-www-form-urlencoded") {
            let description = "the body must be application/x-www-form-urlencoded";
            return Err(Code::InvalidRequest.with_description(description));
        }
        let bytes = read_body(body, MAX_FORM_BYTES).await.map_err(|_| {
            Code::InvalidRequest.with_description("the form is too large, or incomplete")
        })?;
        let text = std::str::from_utf8(&bytes)
            .map_err(|_| Code::InvalidRequest.with_description("the form is not UTF-8"))?;
        let mut form = Form::parse(text)?;
        for name in ["client_secret", "client_assertion", "client_assertion_type"] {
            if form.take(name).is_some() {
                let description = "clients are public and have no secret";
                return Err(Code::InvalidClient.with_description(description));
            }
        }
        Ok(Self(form))
    }
}

/// The longest forms contain a token to revoke or a device's description of itself.
const MAX_FORM_BYTES: usize = 16 * 1024;
