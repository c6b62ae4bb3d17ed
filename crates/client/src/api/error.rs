//! Errors of the Engine API.

use serde::Deserialize;

use crate::ConnectError;

/// A call to the Engine API failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ApiError {
    /// The engine refused the request with a reason.
    #[error("{0}")]
    Refused(Problem),
    /// The engine could not be reached, or the connection was lost.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The response is not valid HTTP.
    #[error("the engine's response cannot be read")]
    Http(#[from] HttpError),
    /// The response is HTTP, but not the expected one.
    #[error("the engine's response cannot be parsed: {0}")]
    Unexpected(String),
}

/// An error of the HTTP library.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct HttpError(#[from] pub(super) hyper::Error);

impl ApiError {
    /// True if the same call could succeed later without a change of its input.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Refused(problem) => problem.status >= 500 || problem.status == 429,
            Self::Connect(error) => error.is_transient(),
            Self::Http(_) => true,
            Self::Unexpected(_) => false,
        }
    }
}

/// A problem response (RFC 9457).
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[non_exhaustive]
pub struct Problem {
    /// The HTTP status.
    pub status: u16,
    /// The stable code of the problem; empty if the response did not come from an engine.
    #[serde(default)]
    pub code: String,
    /// Description as display text.
    #[serde(default)]
    pub detail: String,
    /// The invalid input, as a dotted path.
    #[serde(default)]
    pub field: Option<String>,
}

impl Problem {
    /// Parses a problem response; every body is accepted.
    pub fn parse(status: u16, body: &[u8]) -> Self {
        // The status line counts, not the status in the body.
        serde_json::from_slice(body).map_or_else(
            |_other| Self {
                status,
                code: String::new(),
                detail: String::new(),
                field: None,
            },
            |problem: Self| Self { status, ..problem },
        )
    }
}

impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.detail.is_empty() {
            write!(f, "the engine answered {}", self.status)?;
        } else {
            f.write_str(self.detail.trim_end_matches('.'))?;
        }
        if let Some(field) = &self.field {
            write!(f, " (`{field}`)")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_is_displayed_with_its_field() {
        let body = br#"{"type":"about:blank","title":"Bad Request","status":400,
            "detail":"Not a filter.","code":"invalid_request","error":"x","field":"filters.nam"}"#;
        let problem = Problem::parse(400, body);
        assert_eq!(problem.code, "invalid_request");
        assert_eq!(problem.to_string(), "Not a filter (`filters.nam`)");
    }

    #[test]
    fn a_foreign_body_leaves_the_status() {
        assert_eq!(
            Problem::parse(502, b"<html>").to_string(),
            "the engine answered 502"
        );
    }

    #[test]
    fn transient_and_lasting_errors_are_distinguished() {
        let refused = |status| ApiError::Refused(Problem::parse(status, b""));
        assert!(refused(503).is_transient() && refused(429).is_transient());
        assert!(!refused(401).is_transient() && !refused(400).is_transient());
    }
}
