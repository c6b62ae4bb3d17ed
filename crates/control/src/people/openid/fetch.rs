//! Requests to the provider: bounded in time and size, never redirected.

use std::path::Path;
use std::time::Duration;

use daemon::files::read_bounded;
use reqwest::{Client, RequestBuilder, redirect};
use serde::de::DeserializeOwned;

use super::provider::ProviderError;

/// A client for one provider.
///
/// # Errors
/// A sentence for the operator: the file of authorities cannot be read or holds none.
pub(super) fn client(ca_file: Option<&Path>) -> Result<Client, String> {
    let mut builder = Client::builder()
        .timeout(TIMEOUT)
        .connect_timeout(CONNECT_TIMEOUT)
        // Whoever answers with another place is not asked there with our secret.
        .redirect(redirect::Policy::none())
        // What a process takes from its environment is in its configuration.
        .no_proxy();
    if let Some(path) = ca_file {
        let failed = |message: String| format!("{}: {message}", path.display());
        let pem = read_bounded(path, MAX_FILE_BYTES).map_err(|error| failed(error.to_string()))?;
        let authorities = reqwest::Certificate::from_pem_bundle(&pem)
            .ok()
            .filter(|authorities| !authorities.is_empty())
            .ok_or_else(|| failed("no certificates in PEM".to_owned()))?;
        builder = builder.tls_certs_merge(authorities);
    }
    builder.build().map_err(|error| error.to_string())
}

/// Sends a request and reads the JSON of a good answer. The status is told where it is not 200.
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

/// Without the address: what is in it is not for logs.
fn quiet(error: reqwest::Error) -> ProviderError {
    ProviderError::Away(error.without_url())
}

/// A whole request. A person waits for at most four of them.
const TIMEOUT: Duration = Duration::from_secs(5);

/// A connection that takes longer will not be quick either.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);

/// Real discovery documents and key sets have a few kilobytes.
const MAX_DOCUMENT_BYTES: usize = 256 * 1024;

/// Larger files are no certificates.
pub(super) const MAX_FILE_BYTES: u64 = 1024 * 1024;
