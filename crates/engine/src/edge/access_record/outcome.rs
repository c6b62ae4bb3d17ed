//! Results of visits.

use serde::Serialize;

/// Result of a visit, for the metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Outcome {
    /// The service responded completely.
    Served,
    /// The edge responded; the service was not contacted.
    Refused,
    /// The visitor was allowed, and got no complete response of the service: no agent was online, the
    /// service could not be reached, closed the connection early, took too long, or sent something
    /// invalid.
    Failed,
    /// The visitor disconnected before the end.
    Abandoned,
}

impl Outcome {
    /// Name in the metrics and the log.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Served => "served",
            Self::Refused => "refused",
            Self::Failed => "failed",
            Self::Abandoned => "abandoned",
        }
    }
}
