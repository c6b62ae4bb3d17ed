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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_login_is_refused_before_it_begins() {
        for refused in [ready(), keep("account", "a.b.c")] {
            let failure = refused.unwrap_err();
            assert_eq!(failure.code(), Code::NotAvailable);
            let next = failure.next_step().unwrap_or_default();
            assert!(next.contains("--token-storage"), "{next}");
        }
    }

    #[test]
    fn a_context_of_another_build_names_the_way_to_pass_its_token() {
        for refused in [read("account").map(drop), forget("account")] {
            let failure = refused.unwrap_err();
            assert_eq!(failure.code(), Code::NotAvailable);
            let next = failure.next_step().unwrap_or_default();
            assert!(next.contains("SVC_TOKEN"), "{next}");
        }
    }
}
