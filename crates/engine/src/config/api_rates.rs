//! Rates of API requests.

use std::num::NonZeroU32;

/// Requests per minute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ApiRates {
    /// Of one credential, with all tokens that come from it.
    pub per_credential: NonZeroU32,
    /// Of one project.
    pub per_project: NonZeroU32,
    /// Of one source, with tokens that are not valid.
    pub per_source: NonZeroU32,
}
