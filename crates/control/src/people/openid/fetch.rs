//! HTTP requests to the provider. Their time and size are limited, and redirects are not followed.

use std::path::Path;
use std::time::Duration;

use reqwest::{Client, RequestBuilder, redirect};
use serde::de::DeserializeOwned;

use super::provider::ProviderError;
use crate::runtime::authorities;

/// Creates an HTTP client for one provider.
///
/// # Errors
/// The file of authorities cannot be read or has no certificate. The text is a sentence for the
/// operator.
pub(super) fn client(ca_file: Option<&Path>) -> Result<Client, String> {
    let mut builder = Client::builder()
        .timeout(TIMEOUT)
        .connect_timeout(CONNECT_TIMEOUT)
        // A redirect must not send our secret to another server.
        .redirect(redirect::Policy::none())
        // The process takes its settings from the configuration only, not from the environment.
        .no_proxy();
    if let Some(path) = ca_file {
        builder = builder.tls_certs_merge(authorities::read(path)?);
    }
    builder.build().map_err(|error| error.to_string())
}

/// Sends a request and parses the JSON of a response with status 200. Other statuses are errors.
pub(super) async fn json<T: DeserializeOwned>(request: RequestBuilder) -> Result<T, ProviderError> {
    let mut response = request.send().await.map_err(quiet)?;
    let status = response.status().as_u16();
    if status != 200 {
        return Err(ProviderError::Status(status));
    }
    let mut document = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(quiet)? {
        if document.len() + chunk.len() > MAX_DOCUMENT_BYTES {
            return Err(ProviderError::TooLarge);
        }
        document.extend_from_slice(&chunk);
    }
    serde_json::from_slice(&document).map_err(|_| ProviderError::NotJson)
}

/// Removes the address from the error, because it may contain secrets that must not be logged.
fn quiet(error: reqwest::Error) -> ProviderError {
    ProviderError::Unavailable(error.without_url())
}

/// Time limit for a whole request. A user waits for at most four of them.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Time limit for a connection. A slower connection would not be useful either.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);

/// Real discovery documents and key sets have a few kilobytes.
const MAX_DOCUMENT_BYTES: usize = 256 * 1024;
