//! Client of the platform's authorization server, as a public client without a secret.

use std::path::Path;

use api::control::oauth::{
    AUTHORIZATION_SERVER, AuthorizationServerMetadata, DeviceAuthorization, OauthError,
    TokenResponse,
};
use client::{Proxies, Token};
use http::header::CONTENT_TYPE;
use reqwest::{Client, RequestBuilder};
use serde::de::DeserializeOwned;
use types::{form, permission::Permissions};

use super::{ApiUrl, PlatformError, ReadError, connection, read};
use crate::failure::{Code, Failure};

/// The client id of the command line at every platform.
const CLIENT_ID: &str = "svc-cli";

/// RFC 8628 section 3.4.
const DEVICE_GRANT: &str = "urn:ietf:params:oauth:grant-type:device_code";

/// An authorization server with its discovered endpoints.
#[derive(Debug)]
pub(crate) struct AuthorizationServer {
    http: Client,
    address: ApiUrl,
    proxies: Proxies,
    metadata: AuthorizationServerMetadata,
}

/// Failure of an endpoint.
#[derive(Debug)]
pub(crate) enum OauthFailure {
    /// An error response of RFC 6749.
    Refused(OauthError),
    /// The server is unreachable, or the response is invalid.
    Platform(PlatformError),
}

impl AuthorizationServer {
    /// Fetches the platform's metadata (RFC 8414). Endpoints on other hosts are rejected, because
    /// codes and tokens are sent to them.
    pub(crate) async fn discover(
        address: ApiUrl,
        ca_file: Option<&Path>,
        proxies: Proxies,
    ) -> Result<Self, Failure> {
        let http = connection(&address, ca_file, &proxies)?;
        let url = format!("{address}{}", AUTHORIZATION_SERVER.path);
        let body = send(&address, &proxies, http.get(url)).await?;
        let metadata: AuthorizationServerMetadata = parse(&body)?;
        let origin = address.to_string();
        if metadata.issuer != origin {
            // RFC 8414 section 3.3.
            let issuer: String = metadata
                .issuer
                .chars()
                .filter(|c| !c.is_control())
                .collect();
            let message = format!("the platform at {origin} calls itself {issuer}");
            return Err(Failure::usage(message).hint("give its own address with --api-url"));
        }
        for endpoint in [
            &metadata.device_authorization_endpoint,
            &metadata.token_endpoint,
            &metadata.revocation_endpoint,
        ] {
            if !is_within(&origin, endpoint) {
                return Err(
                    unexpected("its metadata contains an endpoint on another origin").into(),
                );
            }
        }
        Ok(Self {
            http,
            address,
            proxies,
            metadata,
        })
    }

    /// Requests a code for the user's approval (RFC 8628 section 3.1). `source` describes this
    /// device, as JSON.
    pub(crate) async fn authorize_device(
        &self,
        scope: Permissions,
        source: &str,
    ) -> Result<DeviceAuthorization, OauthFailure> {
        let scope = scope.to_string();
        let fields = [
            ("client_id", CLIENT_ID),
            ("scope", &scope),
            ("svc_source", source),
        ];
        let endpoint = &self.metadata.device_authorization_endpoint;
        let given: DeviceAuthorization = parse(&self.post(endpoint, &fields).await?)?;
        // Both URLs are shown to the user, and one is opened in a browser.
        let origin = self.address.to_string();
        let is_plain = |text: &str| text.chars().all(|c| c.is_ascii_graphic());
        let addresses = [&given.verification_uri, &given.verification_uri_complete];
        let are_within_origin = addresses
            .iter()
            .all(|text| is_within(&origin, text) && is_plain(text));
        if !are_within_origin || !is_plain(&given.user_code) {
            return Err(unexpected("its response contains an address on another origin").into());
        }
        Ok(given)
    }

    /// Polls for the approval (RFC 8628 section 3.4).
    pub(crate) async fn redeem(&self, device_code: &str) -> Result<TokenResponse, OauthFailure> {
        let fields = [
            ("grant_type", DEVICE_GRANT),
            ("client_id", CLIENT_ID),
            ("device_code", device_code),
        ];
        let endpoint = &self.metadata.token_endpoint;
        Ok(parse(&self.post(endpoint, &fields).await?)?)
    }

    /// Revokes a token (RFC 7009). A token that was not issued to the command line stays valid.
    pub(crate) async fn revoke(&self, token: &Token) -> Result<(), OauthFailure> {
        let fields = [("client_id", CLIENT_ID), ("token", token.expose())];
        let endpoint = &self.metadata.revocation_endpoint;
        self.post(endpoint, &fields).await.map(drop)
    }

    async fn post(&self, url: &str, fields: &[(&str, &str)]) -> Result<Vec<u8>, OauthFailure> {
        let request = self
            .http
            .post(url)
            .header(CONTENT_TYPE, "application/x-www-form-urlencoded")
            .body(form::encode(fields.iter().copied()));
        send(&self.address, &self.proxies, request).await
    }
}

impl OauthFailure {
    /// The error code of a refusal (RFC 6749 section 5.2, RFC 8628 section 3.5).
    pub(crate) fn code(&self) -> Option<&str> {
        match self {
            Self::Refused(refusal) => Some(&refusal.error),
            Self::Platform(_) => None,
        }
    }

    /// True if the same request could succeed later.
    pub(crate) fn is_transient(&self) -> bool {
        match self {
            Self::Refused(refusal) => {
                matches!(
                    refusal.error.as_str(),
                    "temporarily_unavailable" | "server_error"
                )
            }
            Self::Platform(error) => error.is_transient(),
        }
    }
}

impl From<PlatformError> for OauthFailure {
    fn from(error: PlatformError) -> Self {
        Self::Platform(error)
    }
}

impl From<OauthFailure> for Failure {
    fn from(failure: OauthFailure) -> Self {
        let refusal = match failure {
            OauthFailure::Platform(error) => return error.into(),
            OauthFailure::Refused(refusal) => refusal,
        };
        let code = match refusal.error.as_str() {
            "access_denied" | "invalid_client" | "unauthorized_client" => Code::Refused,
            "invalid_scope" | "invalid_request" => Code::Usage,
            _ => Code::Failed,
        };
        let text = format!("{} ({})", refusal.error_description, refusal.error);
        let text: String = text.chars().filter(|c| !c.is_control()).collect();
        Self::new(code, format!("the platform refuses: {text}"))
    }
}

async fn send(
    address: &ApiUrl,
    proxies: &Proxies,
    request: RequestBuilder,
) -> Result<Vec<u8>, OauthFailure> {
    let unreachable = |source| PlatformError::unreachable(address, proxies, source);
    let response = request.send().await.map_err(unreachable)?;
    let status = response.status();
    let body = read(response).await.map_err(|error| match error {
        ReadError::Network(source) => unreachable(source),
        ReadError::TooLarge => unexpected("it is too large"),
    })?;
    if status.is_success() {
        return Ok(body);
    }
    Err(match serde_json::from_slice(&body) {
        Ok(refusal) => OauthFailure::Refused(refusal),
        Err(_other) => PlatformError::from_response(status.as_u16(), &body).into(),
    })
}

fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T, PlatformError> {
    serde_json::from_slice(body)
        .map_err(|error| unexpected(&format!("unexpected content: {error}")))
}

fn unexpected(what: &str) -> PlatformError {
    PlatformError::Unexpected(what.to_owned())
}

/// True if the URL belongs to this origin.
fn is_within(origin: &str, url: &str) -> bool {
    url.strip_prefix(origin)
        .is_some_and(|path| path.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_of_another_host_is_not_within() {
        let origin = "https://svc.example.com";
        assert!(is_within(origin, "https://svc.example.com/device"));
        for other in [
            "https://svc.example.com",
            "https://svc.example.com.evil.example/device",
            "https://svc.example.com:8443/device",
            "https://svc.example.com@evil.example/device",
            "http://svc.example.com/device",
        ] {
            assert!(!is_within(origin, other), "{other}");
        }
    }
}
