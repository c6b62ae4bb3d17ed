//! The states of a custom domain, and the times of its checks. Pure: the time and the findings are
//! arguments.
//!
//! ```text
//! pending ──found──▶ verified ──missing──▶ warned ──3 days──▶ suspended ──14 days──▶ quarantined
//!    │                  ▲ ▲                   │                   │                       │   │
//!    │                  │ └───────found───────┘                   │                       │   │
//!    │                  └─────────────────────found───────────────┘                       │   │
//!    │                  └─────────────────────found, on the project's request─────────────┘   │
//!    └──30 days──▶ deleted ◀──────────────────────────────────────────────────────30 days─────┘
//! ```

use jiff::{SignedDuration, Timestamp};
use store::domains::{Domain, State};

/// State of the records of a domain, as a check found it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RecordState {
    /// All records are there.
    Found,
    /// A record is not there.
    Missing,
    /// The name servers could not be asked, or do not agree.
    Unknown,
    /// The platform has no access to the DNS. However long this lasts, it is not the domain's
    /// fault.
    Unchecked,
}

/// Change of the state of a domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// It is verified, for the first time or again.
    Verified,
    /// Its records are missing.
    Warned,
    /// It is not served any more.
    Suspended,
    /// Its project lost it.
    Released,
}

/// A domain after a check.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum LifecycleStep {
    /// It has this state.
    Keep(Box<Domain>, Option<Change>),
    /// It expired without having been verified, or at the end of its quarantine.
    Delete,
}

/// The domain after a check with this finding. `jitter` distributes later checks over time.
pub(crate) fn after_check(
    domain: &Domain,
    finding: RecordState,
    now: Timestamp,
    jitter: u16,
) -> LifecycleStep {
    let mut next = Domain {
        last_checked_at: Some(now),
        ..domain.clone()
    };
    // An attacker, or the former owner, cannot keep a domain forever with servers that do not
    // respond.
    let last_found = domain.last_found_at.unwrap_or(domain.created_at);
    let is_overdue = now.duration_since(last_found) >= UNKNOWN_LIMIT;
    let finding = match finding {
        RecordState::Unknown if is_overdue => RecordState::Missing,
        finding => finding,
    };
    let change = match (domain.state, finding) {
        (_, RecordState::Found) => {
            next.state = State::Verified;
            next.last_found_at = Some(now);
            next.failing_since = None;
            next.suspended_at = None;
            next.quarantine_until = None;
            let is_new = domain.state != State::Verified;
            if is_new {
                next.verified_at = Some(now);
            }
            is_new.then_some(Change::Verified)
        }
        (State::Pending, _) if now >= pending_until(domain) => return LifecycleStep::Delete,
        (State::Quarantined, _) if Some(now) >= domain.quarantine_until => {
            return LifecycleStep::Delete;
        }
        (State::Verified, RecordState::Missing) => {
            next.state = State::Warned;
            next.failing_since = Some(now);
            Some(Change::Warned)
        }
        (State::Warned, RecordState::Missing)
            if suspends_at(domain).is_some_and(|at| now >= at) =>
        {
            next.state = State::Suspended;
            next.suspended_at = Some(now);
            Some(Change::Suspended)
        }
        (State::Suspended, RecordState::Missing)
            if releases_at(domain).is_some_and(|at| now >= at) =>
        {
            next.state = State::Quarantined;
            next.quarantine_until = Some(later(now, QUARANTINE));
            Some(Change::Released)
        }
        _ => None,
    };
    next.next_check_at = next_check(&next, finding, now, jitter);
    LifecycleStep::Keep(Box::new(next), change)
}

/// End of a domain that is never verified.
pub(crate) fn pending_until(domain: &Domain) -> Timestamp {
    later(domain.created_at, PENDING)
}

/// Time from which a warned domain is suspended.
pub(crate) fn suspends_at(domain: &Domain) -> Option<Timestamp> {
    let since = domain.failing_since?;
    (domain.state == State::Warned).then(|| later(since, SUSPENDED_AFTER))
}

/// Time from which a suspended domain is released.
pub(crate) fn releases_at(domain: &Domain) -> Option<Timestamp> {
    let since = domain.suspended_at?;
    (domain.state == State::Suspended).then(|| later(since, RELEASED_AFTER))
}

/// Time of the next check. It is not after the next change of the state that time causes.
fn next_check(domain: &Domain, finding: RecordState, now: Timestamp, jitter: u16) -> Timestamp {
    let wait = match domain.state {
        // Often at first, because the owner is entering the records.
        State::Pending => {
            let age = now.duration_since(domain.created_at);
            let quarter = age.checked_div(4).unwrap_or(FIRST_CHECK);
            quarter.clamp(FIRST_CHECK, DAILY)
        }
        State::Verified if matches!(finding, RecordState::Unknown | RecordState::Unchecked) => {
            UNKNOWN_RETRY
        }
        State::Verified => DAILY,
        State::Warned | State::Suspended => FAILING,
        State::Quarantined => return domain.quarantine_until.unwrap_or(now),
    };
    let at = later(now, shorter(wait, jitter));
    let limit = match domain.state {
        State::Pending => Some(pending_until(domain)),
        State::Warned => suspends_at(domain),
        State::Suspended => releases_at(domain),
        State::Verified | State::Quarantined => None,
    };
    // An overdue change that the findings do not allow yet must not cause a loop of checks.
    match limit {
        Some(limit) if limit > now => at.min(limit),
        _ => at,
    }
}

/// The wait without up to a tenth of it, so that domains that were added together are not all
/// checked together.
fn shorter(wait: SignedDuration, jitter: u16) -> SignedDuration {
    let seconds = wait.as_secs();
    let less = seconds * i64::from(jitter) / (10 * i64::from(u16::MAX));
    SignedDuration::from_secs(seconds - less)
}

fn later(at: Timestamp, by: SignedDuration) -> Timestamp {
    at.saturating_add(by).unwrap_or(Timestamp::MAX)
}

/// Time of the first check after the addition. The owner usually enters the records immediately,
/// and can request a check at any time.
pub(crate) const FIRST_CHECK: SignedDuration = SignedDuration::from_mins(5);
/// A domain that is not verified by then is deleted. Its owner can add it again.
const PENDING: SignedDuration = SignedDuration::from_hours(30 * 24);
const DAILY: SignedDuration = SignedDuration::from_hours(24);
/// After the name servers of a verified domain could not be asked.
const UNKNOWN_RETRY: SignedDuration = SignedDuration::from_hours(1);
/// Time without an answer after which records count as missing. It is longer than outages of DNS
/// providers.
const UNKNOWN_LIMIT: SignedDuration = SignedDuration::from_hours(7 * 24);
/// Short enough that a repaired record takes effect on the same day.
const FAILING: SignedDuration = SignedDuration::from_hours(6);
/// Long enough for a weekend.
const SUSPENDED_AFTER: SignedDuration = SignedDuration::from_hours(3 * 24);
const RELEASED_AFTER: SignedDuration = SignedDuration::from_hours(14 * 24);
/// Caches, links and bookmarks of the former project lead to the name for about this long.
const QUARANTINE: SignedDuration = SignedDuration::from_hours(30 * 24);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use store::domains::CertificateValidation;
    use types::id::{DomainId, ProjectId, UserId};

    use super::*;

    const HOUR: i64 = 3_600;
    const DAY: i64 = 24 * HOUR;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + seconds).unwrap()
    }

    fn domain(state: State) -> Domain {
        Domain {
            id: DomainId::new(1, [1; 10]),
            project_id: ProjectId::new(1, [1; 10]),
            hostname: "app.example.com".to_owned(),
            certificate_validation: CertificateValidation::TlsAlpn01,
            token: "token".to_owned(),
            state,
            created_by: UserId::new(1, [1; 10]),
            created_at: at(0),
            verified_at: None,
            last_checked_at: None,
            last_found_at: None,
            failing_since: None,
            suspended_at: None,
            quarantine_until: None,
            next_check_at: at(0),
            report: None,
            certificate_expires_at: None,
            ordered_expires_at: None,
            order_problem: None,
            next_order_at: None,
        }
    }

    fn kept(step: LifecycleStep) -> (Domain, Option<Change>) {
        match step {
            LifecycleStep::Keep(domain, change) => (*domain, change),
            LifecycleStep::Delete => panic!("the domain is deleted"),
        }
    }

    /// The whole way of a domain whose records disappear, and each limit of time exactly.
    #[test]
    fn a_domain_is_warned_suspended_released_and_deleted() {
        let mut domain = domain(State::Pending);
        for (seconds, finding, state, change) in [
            (10, RecordState::Missing, State::Pending, None),
            (20, RecordState::Unknown, State::Pending, None),
            (
                30,
                RecordState::Found,
                State::Verified,
                Some(Change::Verified),
            ),
            (DAY, RecordState::Found, State::Verified, None),
            (2 * DAY, RecordState::Unknown, State::Verified, None),
            (
                3 * DAY,
                RecordState::Missing,
                State::Warned,
                Some(Change::Warned),
            ),
            (6 * DAY - 1, RecordState::Missing, State::Warned, None),
            (6 * DAY, RecordState::Unknown, State::Warned, None),
            (
                7 * DAY,
                RecordState::Missing,
                State::Suspended,
                Some(Change::Suspended),
            ),
            (21 * DAY - 1, RecordState::Missing, State::Suspended, None),
            (
                21 * DAY,
                RecordState::Missing,
                State::Quarantined,
                Some(Change::Released),
            ),
            (51 * DAY - 1, RecordState::Missing, State::Quarantined, None),
        ] {
            let step = after_check(&domain, finding, at(seconds), 0);
            let (next, found) = kept(step);
            assert_eq!((next.state, found), (state, change), "at {seconds}");
            domain = next;
        }
        assert_eq!(domain.quarantine_until, Some(at(51 * DAY)));
        assert_eq!(domain.next_check_at, at(51 * DAY));
        let step = after_check(&domain, RecordState::Missing, at(51 * DAY), 0);
        assert_eq!(step, LifecycleStep::Delete);
    }

    #[test]
    fn records_that_return_verify_the_domain_from_every_state() {
        for state in [
            State::Pending,
            State::Warned,
            State::Suspended,
            State::Quarantined,
        ] {
            let lost = Domain {
                failing_since: Some(at(1)),
                suspended_at: Some(at(2)),
                quarantine_until: Some(at(DAY)),
                ..domain(state)
            };
            let (next, change) = kept(after_check(&lost, RecordState::Found, at(10), 0));
            assert_eq!(next.state, State::Verified, "{state}");
            assert_eq!(change, Some(Change::Verified), "{state}");
            assert_eq!(next.verified_at, Some(at(10)));
            assert_eq!(next.last_found_at, Some(at(10)));
            let ends = (next.failing_since, next.suspended_at, next.quarantine_until);
            assert_eq!(ends, (None, None, None));
        }
    }

    #[test]
    fn servers_that_do_not_respond_for_a_week_count_as_missing() {
        let verified = Domain {
            last_found_at: Some(at(0)),
            ..domain(State::Verified)
        };
        let (next, change) = kept(after_check(
            &verified,
            RecordState::Unknown,
            at(7 * DAY - 1),
            0,
        ));
        assert_eq!((next.state, change), (State::Verified, None));
        assert_eq!(next.next_check_at, at(7 * DAY - 1 + HOUR));
        let (next, change) = kept(after_check(&verified, RecordState::Unknown, at(7 * DAY), 0));
        assert_eq!((next.state, change), (State::Warned, Some(Change::Warned)));
    }

    /// For example, a firewall that drops the questions of the platform.
    #[test]
    fn a_platform_without_access_to_the_dns_suspends_no_domain() {
        for state in [State::Verified, State::Warned, State::Suspended] {
            let held = Domain {
                last_found_at: Some(at(0)),
                failing_since: Some(at(0)),
                suspended_at: Some(at(0)),
                ..domain(state)
            };
            let step = after_check(&held, RecordState::Unchecked, at(90 * DAY), 0);
            let (next, change) = kept(step);
            assert_eq!((next.state, change), (state, None));
            assert!(next.next_check_at > at(90 * DAY));
        }
    }

    #[test]
    fn a_pending_domain_is_checked_less_and_less_and_then_deleted() {
        let pending = domain(State::Pending);
        for (age, wait) in [
            (0, 300),
            (HOUR, 900),
            (DAY, 6 * HOUR),
            (10 * DAY, DAY),
            (30 * DAY - HOUR, HOUR),
        ] {
            let (next, _) = kept(after_check(&pending, RecordState::Missing, at(age), 0));
            assert_eq!(next.next_check_at, at(age + wait), "after {age} s");
        }
        let step = after_check(&pending, RecordState::Missing, at(30 * DAY), 0);
        assert_eq!(step, LifecycleStep::Delete);
        // The last check can still verify it.
        let step = after_check(&pending, RecordState::Found, at(30 * DAY), 0);
        assert_eq!(kept(step).1, Some(Change::Verified));
    }

    proptest! {
        /// A change of time and findings never skips a state, never loses a name early, and never
        /// causes a loop.
        #[test]
        fn every_history_keeps_the_rules(
            steps in prop::collection::vec((0..20 * DAY, 0..4_u8, any::<u16>()), 1..60)
        ) {
            let mut now = 0;
            let mut current = domain(State::Pending);
            for (wait, finding, jitter) in steps {
                now += wait;
                let finding = match finding {
                    0 => RecordState::Found,
                    1 => RecordState::Missing,
                    2 => RecordState::Unknown,
                    _ => RecordState::Unchecked,
                };
                let (next, change) = match after_check(&current, finding, at(now), jitter) {
                    LifecycleStep::Keep(next, change) => (*next, change),
                    LifecycleStep::Delete => {
                        prop_assert!(matches!(
                            current.state,
                            State::Pending | State::Quarantined
                        ));
                        break;
                    }
                };
                prop_assert!(next.next_check_at > at(now) || next.state == State::Quarantined);
                prop_assert!(next.next_check_at <= at(now + 30 * DAY));
                let allowed = match (current.state, next.state) {
                    (before, after) if before == after => change.is_none(),
                    (_, State::Verified) => {
                        finding == RecordState::Found && change == Some(Change::Verified)
                    }
                    (State::Verified, State::Warned) => change == Some(Change::Warned),
                    (State::Warned, State::Suspended) => change == Some(Change::Suspended),
                    (State::Suspended, State::Quarantined) => change == Some(Change::Released),
                    _ => false,
                };
                prop_assert!(allowed, "{:?} to {:?}", current.state, next.state);
                current = next;
            }
        }
    }
}
