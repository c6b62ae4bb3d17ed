//! Operations of the Engine API by their paths: answers that are JSON, and answers of any length.

use http::{Method, StatusCode};
use http_body_util::BodyExt as _;
use hyper::body::{Bytes, Incoming};
use serde_json::{Map, Value};
use tokio::time::timeout;

use super::{Api, ApiError, Asked, events::SILENCE, percent_encoded, read, target};
use crate::{ConnectError, error::Step};

/// An answer that is read as it comes.
#[derive(Debug)]
pub struct Download {
    body: Incoming,
}

impl Download {
    /// The next piece; `None` at the end. Cancel safe.
    ///
    /// # Errors
    /// The answer broke off, or nothing comes any more.
    pub async fn next(&mut self) -> Result<Option<Bytes>, ApiError> {
        loop {
            let frame = timeout(SILENCE, self.body.frame())
                .await
                .map_err(|_elapsed| ConnectError::TimedOut(Step::Exchange))?;
            let Some(frame) = frame else { return Ok(None) };
            // Trailers say nothing here.
            if let Ok(bytes) = frame?.into_data() {
                return Ok(Some(bytes));
            }
        }
    }
}

impl Api {
    /// Calls an operation. `params` go into the query as the Engine API takes them, a body goes
    /// along as JSON. The answer is `null` where there is none.
    ///
    /// # Errors
    /// As every call; what the engine refuses is [`ApiError::Refused`].
    pub async fn call(
        &self,
        method: Method,
        path: &str,
        params: Map<String, Value>,
        body: Option<&Value>,
    ) -> Result<Value, ApiError> {
        let body = body.map(Value::to_string).map(Bytes::from);
        let response = self
            .ask(Asked {
                method,
                target: target(path, params),
                accept: "application/json",
                body,
                expected: StatusCode::is_success,
            })
            .await?;
        let body = read(response.into_body()).await?;
        if body.is_empty() {
            return Ok(Value::Null);
        }
        serde_json::from_slice(&body)
            .map_err(|error| ApiError::Unexpected(format!("not JSON: {error}")))
    }

    /// Reads an answer of any length.
    ///
    /// # Errors
    /// As every call; what the engine refuses is [`ApiError::Refused`].
    pub async fn download(
        &self,
        path: &str,
        params: Map<String, Value>,
    ) -> Result<Download, ApiError> {
        let response = self.get(path, params, "*/*").await?;
        let body = response.into_body();
        Ok(Download { body })
    }
}

/// A path of the API with its parameters, each as one segment: `{id}` becomes the value of `id`.
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
            // Dots alone are another place to whoever normalises the path.
            Some((_, value)) if value.bytes().all(|byte| byte == b'.') => {
                path.push_str(&"%2E".repeat(value.len()));
            }
            Some((_, value)) => path.push_str(&percent_encoded(value)),
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
