//! A build that has no keyring: nothing is kept, and nothing is found.

use crate::failure::{Code, Failure};

pub(super) fn ready() -> Result<(), Failure> {
    Err(absent().hint("leave --token-storage out: the file is for its owner alone"))
}

pub(super) fn keep(_account: &str, _token: &str) -> Result<(), Failure> {
    ready()
}

pub(super) fn read(_account: &str) -> Result<Option<String>, Failure> {
    Err(elsewhere())
}

pub(super) fn forget(_account: &str) -> Result<(), Failure> {
    Err(elsewhere())
}

/// The context was written by another build.
fn elsewhere() -> Failure {
    absent().hint(
        "the token of this context is in one: use the build that signed in, or give --token (or \
         SVC_TOKEN)",
    )
}

fn absent() -> Failure {
    Failure::new(
        Code::NotAvailable,
        "this build cannot keep tokens in a keyring",
    )
}
