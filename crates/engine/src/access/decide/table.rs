//! The decision table: selects the next step from the tunnel's rules and the proofs in a request.
//!
//! It only depends on the presence of proofs, before anything is verified. The step that the table
//! selects verifies its proof, and an invalid proof is never skipped for another one.

use api::control::settings::PublicAccessPolicy;

use super::super::policy::RequiredProofs;
use super::outcome::TokenForm;

/// The next step for a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Action {
    /// The project forbids visits.
    VisitsForbidden,
    /// The project requires a proof, and the tunnel does not.
    ProofRequired,
    /// Two proofs.
    Ambiguous,
    /// The query credential is malformed.
    BadQuery,
    /// A token identifies the visitor; an invalid one is refused.
    Token(TokenForm),
    /// A token replaces the challenge; an invalid one is refused. The table is then used again.
    BypassChallenge(TokenForm),
    /// The challenge must be passed first.
    Challenge,
    /// The client certificate identifies the visitor.
    Certificate,
    /// The link password admits the visitor; a wrong one is refused.
    Password,
    /// The session identifies the visitor; without a valid one the visitor has to sign in.
    Session,
    /// No proof is presented, and a browser can sign in.
    SignIn,
    /// No proof is presented, and the tunnel has a link password.
    PasswordRequired,
    /// No proof is presented.
    Unauthenticated,
    /// No proof is required.
    Open,
}

use Action::{
    Ambiguous, BadQuery, BypassChallenge, Certificate, Challenge, Open, Password, PasswordRequired,
    ProofRequired, Session, SignIn, Token, Unauthenticated, VisitsForbidden,
};
use TokenForm::{Header, Query};

/// The first row that matches decides. `1`: set; `0`: not set; `.`: either.
///
/// | column | rules of the tunnel | | column | proofs in the request |
/// |---|---|---|---|---|
/// | `T` | token authentication | | `X` | a client certificate |
/// | `S` | browser sessions | | `Q` | a query credential, well formed |
/// | `M` | mTLS | | `F` | a malformed query credential |
/// | `C` | challenge mode | | `B` | a bearer, valid or not |
/// | `L` | a link password | | `K` | our session cookie |
/// | `P` | the project requires a proof | | `U` | Basic credentials, valid or not |
/// | `N` | the project forbids visits | | `W` | the challenge passed |
const TABLE: &[DecisionRow] = &[
    //  TSMCL PN XQFBKUW
    row("..... .1 .......", VisitsForbidden), // ED-8
    row("000.. 1. .......", ProofRequired),   // ED-8
    row("..1.. .. 11.....", Ambiguous),       // ED-5
    row("..1.. .. 1.1....", Ambiguous),       // ED-5
    row("1.1.. .. 1..1...", Ambiguous),       // ED-5
    row("0.11. .. 1..1..0", Ambiguous),       // ED-5: the bearer could replace the challenge
    row("..1.. .. 1...1..", Ambiguous),       // ED-5
    row("....1 .. .1...1.", Ambiguous),       // a link password is used alone
    row("....1 .. ...1.1.", Ambiguous),       // also beside a bearer that is otherwise data
    row(".1..1 .. ....11.", Ambiguous),
    row("..1.1 .. 1....1.", Ambiguous),
    row("..... .. ..1....", BadQuery),                // ED-1b
    row("....1 0. .....1.", Password),                // like a token, it replaces the challenge
    row("1.... .. .1.....", Token(Query)),            // ED-1a, ED-4: the bearer behind it is data
    row("1.... .. .0.1...", Token(Header)), // ED-1, ED-4: before the session; ED-6: and the challenge
    row("0..1. .. .1....0", BypassChallenge(Query)), // ED-6
    row("0..1. .. .0.1..0", BypassChallenge(Header)), // ED-6
    row("...1. .. ......0", Challenge),     // ED-6: before session and certificate
    row("..1.. .. 1......", Certificate),   // ED-3
    row(".1... .. ....1..", Session),       // ED-2
    row(".1... .. ....0..", SignIn),        // ED-2
    row("....1 0. .......", PasswordRequired), // with P it proves no identity (ED-8)
    row("1.... .. .......", Unauthenticated), // ED-1
    row("..1.. .. .......", Unauthenticated), // ED-3
    row("000.0 .. .......", Open),
];

/// The conditions of a request, one bit per column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ConditionBits(u16);

/// The proofs that are present in a request.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct PresentedProofs {
    pub(super) certificate: bool,
    pub(super) query: QueryProof,
    pub(super) bearer: bool,
    pub(super) session: bool,
    pub(super) password: bool,
    pub(super) challenge_passed: bool,
}

/// The credential in a request's query.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum QueryProof {
    #[default]
    Absent,
    WellFormed,
    Malformed,
}

impl ConditionBits {
    pub(super) fn of(
        guards: RequiredProofs,
        project: PublicAccessPolicy,
        has: PresentedProofs,
    ) -> Self {
        let columns = [
            guards.token,
            guards.session,
            guards.certificate,
            guards.challenge,
            guards.password,
            project == PublicAccessPolicy::AuthRequired,
            project == PublicAccessPolicy::Forbidden,
            has.certificate,
            has.query == QueryProof::WellFormed,
            has.query == QueryProof::Malformed,
            has.bearer,
            has.session,
            has.password,
            has.challenge_passed,
        ];
        Self(
            columns
                .into_iter()
                .fold(0, |bits, is_set| bits << 1 | u16::from(is_set)),
        )
    }

    /// The same conditions with the challenge passed.
    pub(super) fn with_challenge_passed(self) -> Self {
        Self(self.0 | 1)
    }

    /// The step of the first row that matches. A test checks that every combination has a row;
    /// without one the visitor would be refused.
    pub(super) fn step(self) -> Action {
        let matching = TABLE.iter().find(|row| self.0 & row.mask == row.expected);
        matching.map_or(VisitsForbidden, |row| row.step)
    }
}

struct DecisionRow {
    /// Columns whose value matters.
    mask: u16,
    /// Columns that must be set.
    expected: u16,
    step: Action,
}

/// Parses a row at compile time.
const fn row(columns: &str, step: Action) -> DecisionRow {
    let (mut mask, mut expected, mut count) = (0, 0, 0);
    let mut rest = columns.as_bytes();
    while let [first, behind @ ..] = rest {
        rest = behind;
        if *first == b' ' {
            continue;
        }
        count += 1;
        mask <<= 1;
        expected <<= 1;
        assert!(
            matches!(*first, b'1' | b'0' | b'.'),
            "a column is one of 1, 0 and ."
        );
        if *first != b'.' {
            mask |= 1;
        }
        if *first == b'1' {
            expected |= 1;
        }
    }
    assert!(count == COLUMNS, "a row has a mark in every column");
    DecisionRow {
        mask,
        expected,
        step,
    }
}

const COLUMNS: u32 = 14;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_combination_has_a_row_and_every_row_a_combination() {
        let mut used = vec![false; TABLE.len()];
        for bits in 0..1_u16 << COLUMNS {
            let row = TABLE.iter().position(|row| bits & row.mask == row.expected);
            used[row.unwrap_or_else(|| panic!("no row for {bits:014b}"))] = true;
        }
        assert!(
            used.into_iter().all(|used| used),
            "a row that never matches"
        );
    }
}
