//! Responses that the edge generates.

pub(super) mod error_format;
pub(super) mod local_response;
