//! The tools with an API that records its requests.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test ends where it fails"
)]

mod calls;
mod endpoint;
mod live;
mod platform;
mod sign_in;
mod terminals;
mod tools;
