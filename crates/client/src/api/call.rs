//! Operations of the Engine API by path, with JSON responses or downloads.

use http::{Method, StatusCode};
use http_body_util::BodyExt as _;
use hyper::body::{Bytes, Incoming};
use serde_json::{Map, Value};
use tokio::time::timeout;
use types::percent::escaped;

use super::{Api, ApiError, ApiRequest, HttpError, events::SILENCE, read, target};
use crate::{ConnectError, error::Step};

/// A response body that is read in pieces.
#[derive(Debug)]
pub struct Download {
    body: Incoming,
}

impl Download {
    /// The next piece; `None` at the end.
    ///
    /// # Errors
    /// The response was truncated, or no more bytes arrive.
    ///
    /// # Cancellation
    /// Safe: a piece that was not returned is returned by the next call.
    pub async fn next(&mut self) -> Result<Option<Bytes>, ApiError> {
        loop {
            let frame = timeout(SILENCE, self.body.frame())
                .await
                .map_err(|_elapsed| ConnectError::TimedOut(Step::Exchange))?;
            let Some(frame) = frame else { return Ok(None) };
            // Trailers contain nothing of interest.
            if let Ok(bytes) = frame.map_err(HttpError)?.into_data() {
                return Ok(Some(bytes));
            }
        }
    }
}

/// One operation of the Engine API. Build its path with [`path`] if it has parameters.
#[derive(Clone, Debug)]
pub struct Call<'a> {
    method: Method,
    path: &'a str,
    params: Map<String, Value>,
    body: Option<&'a Value>,
}

impl<'a> Call<'a> {
    /// Creates a call of this operation.
    pub fn new(method: Method, path: &'a str) -> Self {
        Self {
            method,
            path,
            params: Map::new(),
            body: None,
        }
    }

    /// Creates a `GET` call.
    pub fn get(path: &'a str) -> Self {
        Self::new(Method::GET, path)
    }

    /// Sets the `params` of the query.
    #[must_use]
    pub fn with_params(self, params: Map<String, Value>) -> Self {
        Self { params, ..self }
    }

    /// Sets the JSON body.
    #[must_use]
    pub fn with_body(self, body: &'a Value) -> Self {
        Self {
            body: Some(body),
            ..self
        }
    }

    fn into_request(self, accept: &'static str) -> ApiRequest<'static, fn(&StatusCode) -> bool> {
        ApiRequest {
            method: self.method,
            target: target(self.path, self.params),
            accept,
            body: self.body.map(Value::to_string).map(Bytes::from),
            expected: StatusCode::is_success,
        }
    }
}

impl Api {
    /// Calls an operation. The result is `null` without a response body.
    ///
    /// # Errors
    /// [`ApiError::Refused`] with the engine's problem; [`ApiError::Connect`] if the engine cannot
    /// be reached or responds too late; other variants if the response is not HTTP or not JSON.
    ///
    /// # Cancellation
    /// Dropping the future closes the connection; the engine may have executed the operation.
    pub async fn call(&self, call: Call<'_>) -> Result<Value, ApiError> {
        let response = self
            .request_with_retry(call.into_request("application/json"))
            .await?;
        let body = read(response.into_body()).await?;
        if body.is_empty() {
            return Ok(Value::Null);
        }
        serde_json::from_slice(&body)
            .map_err(|error| ApiError::Unexpected(format!("not JSON: {error}")))
    }

    /// Downloads a response of any length.
    ///
    /// # Errors
    /// As [`call`](Self::call).
    ///
    /// # Cancellation
    /// Safe: dropping the future closes the connection.
    pub async fn download(&self, call: Call<'_>) -> Result<Download, ApiError> {
        let response = self.request_with_retry(call.into_request("*/*")).await?;
        let body = response.into_body();
        Ok(Download { body })
    }
}

/// Returns a path of the API with its parameters, each as one segment: `{id}` becomes the value of
/// `id`.
pub fn path(template: &str, parameters: &[(&str, &str)]) -> String {
    let mut path = String::with_capacity(template.len() + 64);
    for (number, segment) in template.split('/').enumerate() {
        if number > 0 {
            path.push('/');
        }
        let name = segment
            .strip_prefix('{')
            .and_then(|rest| rest.strip_suffix('}'));
        let value = name.and_then(|name| parameters.iter().find(|(known, _)| *known == name));
        match value {
            // A segment of dots only would change the path if it is normalised.
            Some((_, value)) if value.bytes().all(|byte| byte == b'.') => {
                path.push_str(&"%2E".repeat(value.len()));
            }
            Some((_, value)) => path.extend(escaped(value)),
            None => path.push_str(segment),
        }
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parameter_stays_one_segment() {
        let template = "/api/webtty/sessions/{id}/participants/{participant_id}";
        let named = |id| path(template, &[("id", id), ("participant_id", "wtp_1")]);
        assert_eq!(
            named("wts_1"),
            "/api/webtty/sessions/wts_1/participants/wtp_1"
        );
        assert_eq!(
            named("../a?b"),
            "/api/webtty/sessions/..%2Fa%3Fb/participants/wtp_1"
        );
        assert_eq!(
            named(".."),
            "/api/webtty/sessions/%2E%2E/participants/wtp_1"
        );
    }
}
