//! Waiting until the records of a domain are found.

use std::pin::pin;
use std::time::Duration;

use api::control::domains::{Domain, DomainCheckResult, DomainStatus, VERIFY};

use super::{not_verified, word};
use crate::failure::Failure;
use crate::output;
use crate::platform::Session;

/// Checks the domain again and again until it is verified or the user interrupts. Progress is
/// printed to stderr, when it changes.
pub(super) async fn until_verified(
    session: &Session,
    project: &str,
    domain: &Domain,
) -> Result<Domain, Failure> {
    output::message("waiting until the records are found; Ctrl+C stops waiting");
    // One listener for the whole wait, so that no signal is missed.
    let mut interrupt = pin!(tokio::signal::ctrl_c());
    let mut last = domain.clone();
    let mut printed = Vec::new();
    let mut wait = FIRST_WAIT;
    loop {
        let check = session
            .platform
            .call(VERIFY, &[project, &domain.id])
            .repeatable();
        let checked: Result<Domain, Failure> = tokio::select! {
            checked = check.answer() => checked.map_err(Failure::from),
            _ = &mut interrupt => return Err(interrupted(&last)),
        };
        last = checked?;
        if last.status == DomainStatus::Verified {
            return Ok(last);
        }
        let lines = progress(&last);
        if lines != printed {
            for line in &lines {
                output::message(line);
            }
            printed = lines;
        }
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            _ = &mut interrupt => return Err(interrupted(&last)),
        }
        wait = wait.saturating_mul(2).min(LONGEST_WAIT);
    }
}

/// One line for each record.
fn progress(domain: &Domain) -> Vec<String> {
    let line = |check: &api::control::domains::DomainCheck| {
        let purpose = word(&check.purpose);
        if check.result == DomainCheckResult::Found {
            return format!("{purpose}: found");
        }
        let seen = if check.seen.is_empty() {
            String::new()
        } else {
            format!(" (found: {})", check.seen.join(", "))
        };
        let detail = &check.detail;
        output::plain(&format!("{purpose}: {detail}{seen}"))
    };
    domain.checks.iter().map(line).collect()
}

fn interrupted(domain: &Domain) -> Failure {
    not_verified(domain).hint(
        "the platform continues to check the records; `svc domain show` shows the result, and `svc \
         domain verify` checks them now",
    )
}

/// The platform checks a domain at most every five seconds.
const FIRST_WAIT: Duration = Duration::from_secs(6);

/// DNS providers publish a change within a minute.
const LONGEST_WAIT: Duration = Duration::from_secs(30);
