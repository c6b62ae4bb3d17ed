//! Errors of handlers, which are problems that become a response.

use axum::response::{IntoResponse, Response};
use credentials::MintError;
use types::filter::ParamError;
use types::problem::Problem;

/// Reason that a handler refuses. It is boxed to keep the results small.
#[derive(Debug)]
pub struct Refusal(Box<Problem>);

/// Result of a handler or a service function.
pub type HandlerResult<T> = Result<T, Refusal>;

impl Refusal {
    /// The problem for the caller.
    pub fn problem(&self) -> &Problem {
        &self.0
    }
}

/// A field of the request has an invalid value.
pub(crate) fn bad(field: &str, detail: impl Into<String>) -> Refusal {
    Problem::invalid_request(detail.into())
        .with_field(field)
        .into()
}

impl From<Problem> for Refusal {
    fn from(problem: Problem) -> Self {
        Self(Box::new(problem))
    }
}

impl From<ParamError> for Refusal {
    fn from(error: ParamError) -> Self {
        Problem::from(error).into()
    }
}

/// The database's error is only logged. The caller is informed if a retry makes sense.
impl From<store::Error> for Refusal {
    fn from(error: store::Error) -> Self {
        match error {
            store::Error::Conflict(conflict) => {
                Problem::conflict().with_detail(sentence(conflict)).into()
            }
            store::Error::Unavailable { .. } => {
                tracing::error!(
                    error = &error as &dyn std::error::Error,
                    "the database is not available"
                );
                Problem::unavailable()
                    .with_retry_after(RETRY_AFTER_SECONDS)
                    .into()
            }
            store::Error::Bug(_) => {
                tracing::error!(
                    error = &error as &dyn std::error::Error,
                    "the database refused a statement"
                );
                Problem::internal().into()
            }
        }
    }
}

impl From<MintError> for Refusal {
    fn from(error: MintError) -> Self {
        match error {
            MintError::Param(error) => error.into(),
            MintError::Signing => {
                tracing::error!("a signing key could not sign");
                Problem::internal().into()
            }
        }
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        daemon::problem::response(&self.0, None)
    }
}

/// An operator needs seconds at best to restore a database.
const RETRY_AFTER_SECONDS: u32 = 2;

fn sentence(conflict: store::Conflict) -> String {
    let mut text = conflict.to_string();
    if let Some(first) = text.get_mut(0..1) {
        first.make_ascii_uppercase();
    }
    text.push('.');
    text
}
