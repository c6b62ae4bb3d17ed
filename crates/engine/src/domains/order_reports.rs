//! Reports to the platform about the certificates that the engine orders for domains of projects.

use std::collections::HashMap;
use std::time::Duration;

use acme::Certificate;
use api::link::{CertificateOrderRecord, MAX_PROBLEM_BYTES};
use jiff::Timestamp;
use tokio::time::Instant;
use types::domain_name::DomainName;

use super::{Domain, DomainCertificate, Domains};

/// The last report of each domain whose certificate is ordered.
#[derive(Debug, Default)]
pub(crate) struct OrderReports {
    reported: HashMap<DomainName, CertificateOrderRecord>,
    last_full_report: Option<Instant>,
}

impl OrderReports {
    /// The states that changed; periodically all of them.
    pub(crate) fn changes(&mut self, domains: &Domains) -> Vec<CertificateOrderRecord> {
        let is_full = self
            .last_full_report
            .is_none_or(|at| at.elapsed() >= FULL_REPORT);
        if is_full {
            self.last_full_report = Some(Instant::now());
            self.reported.clear();
        }
        let before = std::mem::take(&mut self.reported);
        let mut changes = Vec::new();
        for domain in domains.all() {
            let DomainCertificate::Ordered(certificate) = &domain.certificate else {
                continue;
            };
            let record = record(&domain, certificate);
            if before.get(&domain.name) != Some(&record) {
                changes.push(record.clone());
            }
            self.reported.insert(domain.name.clone(), record);
        }
        changes
    }
}

fn record(domain: &Domain, certificate: &Certificate) -> CertificateOrderRecord {
    let time = |seconds: i64| Timestamp::from_second(seconds).ok();
    let issued = certificate.current();
    let problem = certificate.problem().map(|mut text| {
        text.truncate(text.floor_char_boundary(MAX_PROBLEM_BYTES));
        text
    });
    CertificateOrderRecord {
        project_id: domain.project.to_string(),
        hostname: domain.name.to_string(),
        expires_at: issued.and_then(|issued| time(issued.validity().not_after)),
        problem,
        next_attempt_at: certificate.next_attempt().and_then(time),
    }
}

/// Interval for reporting all states again, in case a report was lost. The state of a domain rarely
/// changes.
const FULL_REPORT: Duration = Duration::from_hours(1);

#[cfg(test)]
mod tests {
    use super::*;

    fn domain(name: &str, project: &str, certificate: DomainCertificate) -> Domain {
        Domain {
            name: name.parse().unwrap(),
            project: project.into(),
            certificate,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn states_are_reported_when_they_change_and_every_hour() {
        let domains = Domains::default();
        let ordered = || DomainCertificate::Ordered(Certificate::default());
        for (name, certificate) in [
            ("app.example.com", ordered()),
            ("*.example.com", ordered()),
            ("own.example.com", DomainCertificate::Own),
        ] {
            domains.insert(domain(name, "prj_a", certificate)).unwrap();
        }
        let mut reports = OrderReports::default();
        let mut names = |domains: &Domains| {
            let records = reports.changes(domains).into_iter();
            let mut names: Vec<_> = records
                .map(|record| (record.hostname, record.project_id))
                .collect();
            names.sort();
            names
        };
        let of = |name: &str, project: &str| (name.to_owned(), project.to_owned());
        let all = [of("*.example.com", "prj_a"), of("app.example.com", "prj_a")];
        assert_eq!(names(&domains), all);
        assert!(names(&domains).is_empty());
        domains
            .insert(domain("app.example.com", "prj_b", ordered()))
            .unwrap();
        assert_eq!(names(&domains), [of("app.example.com", "prj_b")]);
        tokio::time::advance(FULL_REPORT).await;
        assert_eq!(names(&domains).len(), 2);
    }
}
