//! The check of DNS and ports before anything is started. All problems are reported together, each
//! with its next step.

use std::fmt::Write as _;
use std::net::IpAddr;
use std::time::Duration;

use tokio::time::timeout;

use super::files::Layout;
use super::options::PublicOptions;
use super::ports::PublicPorts;
use super::progress::IssuedNames;
use super::records::{OrderValidations, RecordChange, WantedRecords};
use crate::failure::Failure;
use crate::output;

/// The consequence of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CheckOutcome {
    Start,
    /// Start, with a warning about the records.
    Warn,
    /// Check again later.
    Wait,
    Fail,
}

/// Succeeds when records and ports are right. Missing records are waited for, if the options say
/// so. A server that has its certificates starts without them.
pub(super) async fn run(
    options: &PublicOptions,
    ports: PublicPorts,
    layout: &Layout,
) -> Result<(), Failure> {
    let wanted = wanted_records(options, layout);
    let authority = &options.authority.directory;
    let certificates = IssuedNames::of_server(&options.host, layout, authority);
    let is_issued = certificates.iter().all(|names| names.info().is_some());
    let mut shown = String::new();
    loop {
        let problems = ports.problems(options);
        let checked = async { wanted.changes(&options.name_servers.answers(&wanted).await) };
        let changes = match (options.is_unchecked, is_issued) {
            (true, _) => Vec::new(),
            (false, false) => checked.await,
            (false, true) => timeout(RESTART_TIME, checked).await.unwrap_or_default(),
        };
        let mut lines = String::new();
        for problem in &problems {
            write!(lines, "\n  {problem}").ok();
        }
        for change in &changes {
            write!(lines, "\n  {}", output::plain(&change.to_string())).ok();
        }
        lines.push_str(&note(&options.addresses.public, &changes));
        let host = &options.host;
        let counts = (problems.len(), changes.len());
        match outcome(counts, is_issued, options.is_waiting) {
            CheckOutcome::Start => return Ok(()),
            CheckOutcome::Fail => return Err(failure(counts.0, counts.1, &lines)),
            CheckOutcome::Warn => {
                output::message(&format!(
                    "Certificates cannot be renewed, because DNS records of {host} are missing or \
                     wrong:{lines}"
                ));
                return Ok(());
            }
            CheckOutcome::Wait if lines != shown => {
                output::message(&format!("Waiting for these DNS records of {host}:{lines}"));
                shown = lines;
            }
            CheckOutcome::Wait => {}
        }
        tokio::time::sleep(INTERVAL).await;
    }
}

/// The consequence of these numbers of ports and records that are wrong.
fn outcome((ports, records): (usize, usize), is_issued: bool, is_waiting: bool) -> CheckOutcome {
    match (ports, records) {
        (0, 0) => CheckOutcome::Start,
        // A failure of name servers must not prevent the restart of a server.
        (0, _) if is_issued => CheckOutcome::Warn,
        (0, _) if is_waiting => CheckOutcome::Wait,
        // Another program does not leave a port automatically.
        _ => CheckOutcome::Fail,
    }
}

/// The usual causes of addresses that are not those of this server.
fn note(own: &[IpAddr], changes: &[RecordChange]) -> String {
    if !changes.iter().any(RecordChange::is_foreign_address) {
        return String::new();
    }
    let own: Vec<_> = own.iter().map(IpAddr::to_string).collect();
    format!(
        "\nThis server is {}. If another address leads to it (NAT), give all of them with \
         --public-address. If the DNS provider has a proxy for these names (CDN), switch it off.",
        own.join(" and ")
    )
}

fn failure(ports: usize, records: usize, lines: &str) -> Failure {
    let subject = match (ports, records) {
        (_, 0) => "ports of this server cannot be used",
        (0, _) => "DNS records are missing or wrong",
        _ => "ports cannot be used, and DNS records are missing or wrong",
    };
    let failure = Failure::usage(format!("{subject}:{lines}")).named("server_not_prepared");
    if records == 0 {
        failure.hint("follow the instruction in each line, and start again")
    } else {
        failure.hint(
            "change the records at your DNS provider and start again; --wait waits for them, and \
             --skip-dns-check starts without them",
        )
    }
}

/// The records of a server. The accounts exist after the first orders.
fn wanted_records(options: &PublicOptions, layout: &Layout) -> WantedRecords {
    WantedRecords {
        host: options.host.clone(),
        addresses: options.addresses.public.clone(),
        challenges: options.dns.records(),
        authority: options.authority.caa_name(),
        accounts: layout.accounts(),
        validations: OrderValidations::PUBLIC,
    }
}

/// The CAA records that allow only the accounts of this server, after the first orders.
pub(super) fn suggestions(options: &PublicOptions, layout: &Layout) -> Vec<String> {
    let records = wanted_records(options, layout).suggestions();
    records.iter().map(ToString::to_string).collect()
}

/// Interval between two checks. Name servers of providers take minutes for a change.
const INTERVAL: Duration = Duration::from_secs(5);
/// Time limit of the check of records when nothing depends on it yet. Most servers answer in
/// milliseconds.
const RESTART_TIME: Duration = Duration::from_secs(15);

#[cfg(test)]
mod tests {
    use super::super::records::{ChallengeRecords, RecordAnswers};
    use super::*;

    #[test]
    fn a_server_with_certificates_starts_without_records() {
        for (counts, is_issued, is_waiting, expected) in [
            ((0, 0), false, false, CheckOutcome::Start),
            ((0, 1), true, false, CheckOutcome::Warn),
            ((0, 1), true, true, CheckOutcome::Warn),
            ((0, 1), false, true, CheckOutcome::Wait),
            ((0, 1), false, false, CheckOutcome::Fail),
            ((1, 0), true, true, CheckOutcome::Fail),
            ((1, 1), false, true, CheckOutcome::Fail),
        ] {
            assert_eq!(
                outcome(counts, is_issued, is_waiting),
                expected,
                "{counts:?}"
            );
        }
    }

    #[test]
    fn foreign_addresses_have_usual_causes() {
        let own: IpAddr = "203.0.113.7".parse().unwrap();
        let wanted = WantedRecords {
            host: "engine.example.com".to_owned(),
            addresses: vec![own],
            challenges: ChallengeRecords::Elsewhere,
            authority: None,
            accounts: Vec::new(),
            validations: OrderValidations::PUBLIC,
        };
        let mut answers = RecordAnswers::default();
        assert_eq!(note(&[own], &wanted.changes(&answers)), "");
        let foreign = vec!["198.51.100.1".parse().unwrap()];
        answers.addresses.insert(wanted.host.clone(), Ok(foreign));
        let note = note(&[own], &wanted.changes(&answers));
        for part in ["203.0.113.7", "--public-address", "CDN"] {
            assert!(note.contains(part), "{note}");
        }
    }

    #[test]
    fn the_failure_lists_every_problem() {
        for (ports, records, expected) in [
            (1, 0, "ports of this server"),
            (0, 2, "DNS records are"),
            (1, 2, "ports cannot be used, and DNS records"),
        ] {
            let failure = failure(ports, records, "\n  add     a. A 192.0.2.1");
            let text = failure.to_string();
            assert!(text.contains(expected), "{text}");
            assert!(text.contains("\n  add     a. A 192.0.2.1"), "{text}");
            assert!(failure.next_step().is_some());
        }
    }
}
