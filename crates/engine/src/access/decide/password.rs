//! The decision about a link password. It identifies no user, so an admission has no proof.

use types::problem::Problem;

use super::outcome::{Admission, Decision, Outcome, Rule};
use crate::access::link_password::PasswordProof;
use crate::access::policy::RequiredProofs;

/// Decides about a request by its link password, at a tunnel with these rules.
pub(super) fn decide(password: PasswordProof, rules: RequiredProofs) -> Decision {
    let (mut problem, reason) = match password {
        PasswordProof::Valid => {
            let allowed = Admission {
                strip_authorization: true,
                ..Admission::default()
            };
            return Decision::allow(Rule::Password, allowed);
        }
        PasswordProof::Unchecked => {
            return Decision {
                outcome: Outcome::VerifyPassword,
                rule: Rule::Password,
                reason: None,
            };
        }
        PasswordProof::Wrong => (Problem::invalid_password(), "a wrong name or password"),
        PasswordProof::Malformed => (Problem::invalid_password(), "malformed Basic credentials"),
        PasswordProof::Limited { retry_after } => (
            Problem::too_many_requests()
                .with_detail("Too many wrong passwords were sent from this network.")
                .with_retry_after(retry_after),
            "too many wrong passwords from the source",
        ),
        PasswordProof::Busy => (
            Problem::unavailable().with_retry_after(BUSY_RETRY),
            "too many passwords wait for their check",
        ),
        // The table asks for a password that is present.
        PasswordProof::Absent => (Problem::password_required(), "no password"),
    };
    problem.accepts_token = rules.token;
    Decision::refuse(Rule::Password, problem, reason)
}

/// Seconds in `Retry-After` while many passwords wait.
const BUSY_RETRY: u32 = 1;
