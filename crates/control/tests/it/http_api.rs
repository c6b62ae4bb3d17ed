//! Properties of every operation of the API.

mod bad_tokens;
mod callers;
mod contracts;
mod members;
mod rate_limit;
mod same_origin;
mod third_party_tools;
pub(crate) mod walk;
