//! Tests of the program as a process: its output and its exit code.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test ends where it fails"
)]

mod accounts;
mod hosted;
mod installed;
mod local_platform;
mod process;
mod program;
mod publishing;
mod terminal;
mod terminals;
