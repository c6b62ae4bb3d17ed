//! Replacement for builds without a keyring: every call fails.

use crate::failure::{Code, Failure};

pub(super) fn ready() -> Result<(), Failure> {
    Err(absent().hint("leave --token-storage out: the file is readable only by its owner"))
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

/// The failure for a context that was written by a build with a keyring.
fn elsewhere() -> Failure {
    absent().hint(
        "the token of this context is in a keyring: use the build that signed in, or give --token \
         (or SVC_TOKEN)",
    )
}

fn absent() -> Failure {
    Failure::new(
        Code::NotAvailable,
        "this build cannot store tokens in a keyring",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_login_fails_before_it_starts() {
        for refused in [ready(), keep("account", "a.b.c")] {
            let failure = refused.unwrap_err();
            assert_eq!(failure.code(), Code::NotAvailable);
            let next = failure.next_step().unwrap_or_default();
            assert!(next.contains("--token-storage"), "{next}");
        }
    }

    #[test]
    fn a_context_with_a_keyring_token_is_reported_with_a_next_step() {
        for refused in [read("account").map(drop), forget("account")] {
            let failure = refused.unwrap_err();
            assert_eq!(failure.code(), Code::NotAvailable);
            let next = failure.next_step().unwrap_or_default();
            assert!(next.contains("SVC_TOKEN"), "{next}");
        }
    }
}
