//! The check of DNS and ports before anything is started. All problems are reported at once, each
//! with its next step.

use std::fmt::Write as _;
use std::time::Duration;

use super::files::Layout;
use super::options::PublicOptions;
use super::ports::PublicPorts;
use super::records::WantedRecords;
use crate::failure::Failure;
use crate::output;

/// Succeeds when records and ports are right. Missing records are waited for, if the options say so.
pub(super) async fn run(
    options: &PublicOptions,
    ports: PublicPorts,
    layout: &Layout,
) -> Result<(), Failure> {
    let wanted = wanted(options, layout);
    let mut shown = String::new();
    loop {
        let problems = ports.problems(options);
        let changes = if options.is_unchecked {
            Vec::new()
        } else {
            wanted.changes(&options.name_servers.answers(&wanted).await)
        };
        if problems.is_empty() && changes.is_empty() {
            return Ok(());
        }
        let mut lines = String::new();
        for problem in &problems {
            write!(lines, "\n  {problem}").ok();
        }
        for change in &changes {
            write!(lines, "\n  {}", output::plain(&change.to_string())).ok();
        }
        // Another program does not leave a port by itself.
        if !problems.is_empty() || !options.is_waiting {
            return Err(failure(problems.len(), changes.len(), &lines));
        }
        if lines != shown {
            let message = format!("Waiting for these DNS records of {}:{lines}", options.host);
            output::message(&message);
            shown = lines;
        }
        tokio::time::sleep(INTERVAL).await;
    }
}

fn failure(ports: usize, records: usize, lines: &str) -> Failure {
    let subject = match (ports, records) {
        (_, 0) => "ports of this server cannot be used",
        (0, _) => "DNS records are missing or wrong",
        _ => "ports cannot be used, and DNS records are missing or wrong",
    };
    let failure = Failure::usage(format!("{subject}:{lines}")).named("server_not_prepared");
    if records == 0 {
        failure.hint("free the ports, or give others")
    } else {
        failure.hint(
            "change the records at your DNS provider and start again; --wait waits for them, and \
             --skip-dns-check starts without them",
        )
    }
}

/// The records of a server. The accounts exist after the first orders.
fn wanted(options: &PublicOptions, layout: &Layout) -> WantedRecords {
    WantedRecords {
        host: options.host.clone(),
        addresses: options.addresses.public.clone(),
        challenges: options.dns.records(),
        authority: options.authority.caa_name(),
        accounts: layout.accounts(),
    }
}

/// The CAA records that allow only the accounts of this server, after the first orders.
pub(super) fn suggestions(options: &PublicOptions, layout: &Layout) -> Vec<String> {
    let records = wanted(options, layout).suggestions();
    records.iter().map(ToString::to_string).collect()
}

/// Interval between two checks. Name servers of providers take minutes for a change.
const INTERVAL: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::*;

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
