//! The program as its users meet it: a process, its output, its exit code.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test ends where it fails"
)]

mod platform;
mod program;
mod refusals;
mod token;
mod up;
