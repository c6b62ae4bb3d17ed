//! Properties of every operation of the API.

mod bad_tokens;
mod callers;
mod contracts;
mod judged;
mod members;
mod rate_limit;
mod same_origin;
pub(crate) mod walk;
