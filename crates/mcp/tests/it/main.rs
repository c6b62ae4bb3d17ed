//! The tools over an API that writes down what it is asked.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test ends where it fails"
)]

mod calls;
mod endpoint;
mod live;
mod platform;
mod terminals;
mod tools;
