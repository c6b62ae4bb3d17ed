//! Checks of the certificates of a `svc up --public` or an engine on this machine.

use std::path::Path;
use std::time::Duration;

use engine::config::EngineConfig;

use super::check::{Check, Report};
use crate::commands::server::up::public::inspect::{self, CertificateReport};
use crate::context::Context;
use crate::failure::Failure;
use crate::process::environment;

/// Runs the checks for the engine with this configuration, or if the context belongs to a public
/// server on this machine.
pub(super) async fn run_checks(
    (context, engine_file): (Option<&Context>, Option<&Path>),
    limit: Duration,
    report: &mut Report,
) -> Result<(), Failure> {
    let data = context.and_then(|context| context.data_dir.as_deref());
    let looked_up = match (engine_file, data) {
        (Some(file), _) => {
            let config = match EngineConfig::load(Some(file), environment::variables()) {
                Ok(config) => config,
                Err(errors) => {
                    report.add(unreadable(file, &errors.to_string()))?;
                    return Ok(());
                }
            };
            tokio::time::timeout(limit, inspect::report_of_engine(&config)).await
        }
        (None, Some(data)) => tokio::time::timeout(limit, inspect::report(data)).await,
        (None, None) => return Ok(()),
    };
    match looked_up {
        Ok(Some(found)) => {
            report.add(issued(&found))?;
            report.add(caa(&found))?;
        }
        Ok(None) if engine_file.is_some() => {
            report.add(Check::skip(CERTIFICATES, "the engine orders none"))?;
        }
        Ok(None) => {}
        Err(_elapsed) => {
            let message = format!("the name servers did not answer in {limit:?}");
            report.add(Check::skip(CAA, message))?;
        }
    }
    Ok(())
}

fn unreadable(file: &Path, errors: &str) -> Check {
    let file = file.display();
    let message = format!("the configuration {file} cannot be used: {errors}");
    let next_step = format!("`svc engine --check -c {file}` lists the errors");
    Check::fail(CERTIFICATES, message).with_next_step(next_step)
}

fn issued(found: &CertificateReport) -> Check {
    if let Some(directory) = &found.unreadable {
        let message = format!("{} cannot be read", directory.display());
        return Check::warn(CERTIFICATES, message)
            .with_next_step("run this command as root, or as the user of the engine");
    }
    if !found.problems.is_empty() {
        let message = format!("the last order failed: {}", found.problems.join("; "));
        return Check::warn(CERTIFICATES, message)
            .with_next_step("it is tried again; correct the cause that the authority names");
    }
    if found.issued.is_empty() {
        return Check::warn(CERTIFICATES, "there is no certificate yet").with_next_step(
            "the output of `svc up`, or the log of the engine, has the state of the orders",
        );
    }
    Check::pass(CERTIFICATES, found.issued.join("; "))
}

fn caa(found: &CertificateReport) -> Check {
    if found.unreadable.is_some() {
        return Check::skip(CAA, "the accounts of this server cannot be read");
    }
    if let Some(problem) = &found.caa_problem {
        return Check::skip(CAA, format!("not checked: {problem}"));
    }
    if !found.changes.is_empty() {
        return Check::fail(
            CAA,
            "the CAA records do not allow every order of this server",
        )
        .with_next_step(found.changes.join("; "));
    }
    if found.suggestions.is_empty() {
        return Check::pass(CAA, "the CAA records allow the orders of this server");
    }
    let message = "the authority may issue certificates for this server to any account";
    Check::pass(CAA, message).with_next_step(format!(
        "with these records only this server can order them: {}",
        found.suggestions.join("; ")
    ))
}

const CERTIFICATES: &str = "certificates";
const CAA: &str = "caa";

#[cfg(test)]
mod tests {
    use super::super::check::Status;
    use super::*;

    fn words(text: &str) -> Vec<String> {
        vec![text.to_owned()]
    }

    #[test]
    fn a_failed_order_is_a_warning_with_its_reason() {
        let mut found = CertificateReport {
            issued: words("engine.example.com until 2026-06-01T00:00:00Z"),
            ..CertificateReport::default()
        };
        assert_eq!(issued(&found).status, Status::Pass);
        found.problems = words("engine.example.com: rateLimited");
        let check = issued(&found);
        assert_eq!(check.status, Status::Warn);
        assert!(check.message.contains("rateLimited"), "{check:?}");
        let none = issued(&CertificateReport::default());
        assert_eq!(none.status, Status::Warn);
    }

    #[test]
    fn records_and_a_directory_that_cannot_be_read_are_no_success() {
        let mut found = CertificateReport {
            caa_problem: Some("timeout".to_owned()),
            ..CertificateReport::default()
        };
        let check = caa(&found);
        assert_eq!(check.status, Status::Skip);
        assert_eq!(check.message, "not checked: timeout");
        found.unreadable = Some("/var/lib/svc/engine/acme".into());
        assert_eq!(caa(&found).status, Status::Skip);
        let check = issued(&found);
        assert_eq!(check.status, Status::Warn);
        assert!(check.message.contains("cannot be read"), "{check:?}");
        assert!(check.next_step.unwrap().contains("as root"));
    }

    #[test]
    fn records_that_forbid_an_order_fail_and_others_may_be_suggested() {
        let mut found = CertificateReport::default();
        assert_eq!(caa(&found).next_step, None);
        found.suggestions = words("engine.example.com. CAA 0 issue \"ca; accounturi=x\"");
        let check = caa(&found);
        assert_eq!(check.status, Status::Pass);
        assert!(check.next_step.unwrap().contains("accounturi=x"));
        found.changes = words("add     engine.example.com. CAA 0 issue \"ca\"");
        let check = caa(&found);
        assert_eq!(check.status, Status::Fail);
        assert!(check.next_step.unwrap().contains("0 issue"));
    }
}
