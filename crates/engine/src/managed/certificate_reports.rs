//! Reports to the platform about the certificates of the engine's own names.

use std::time::Duration;

use acme::{CertificateSource, CertificateState};
use api::link::{EngineCertificate, EngineCertificatesRecord, MAX_PROBLEM_BYTES};
use jiff::Timestamp;
use tokio::time::Instant;

/// The last report.
#[derive(Debug, Default)]
pub(super) struct CertificateReports {
    reported: Option<EngineCertificatesRecord>,
    reported_at: Option<Instant>,
}

impl CertificateReports {
    /// The states, if they changed since the last report, or it is too long ago.
    pub(super) fn change(
        &mut self,
        states: Vec<CertificateState>,
    ) -> Option<EngineCertificatesRecord> {
        let states = states.into_iter();
        let states = states.take(EngineCertificatesRecord::MAX_CERTIFICATES);
        let record = EngineCertificatesRecord {
            certificates: states.map(certificate).collect(),
        };
        let is_due = self
            .reported_at
            .is_none_or(|at| at.elapsed() >= FULL_REPORT);
        if !is_due && self.reported.as_ref() == Some(&record) {
            return None;
        }
        self.reported_at = Some(Instant::now());
        self.reported = Some(record.clone());
        Some(record)
    }
}

fn certificate(state: CertificateState) -> EngineCertificate {
    let source = match state.source {
        CertificateSource::Files => EngineCertificate::FILES,
        CertificateSource::Authority => EngineCertificate::ACME,
    };
    let names = state.names.into_iter();
    let names = names.filter(|name| name.len() <= EngineCertificate::MAX_NAME_BYTES);
    let time = |seconds: i64| Timestamp::from_second(seconds).ok();
    let problem = state.problem.map(|mut text| {
        text.truncate(text.floor_char_boundary(MAX_PROBLEM_BYTES));
        text
    });
    EngineCertificate {
        source: source.to_owned(),
        names: names.take(EngineCertificate::MAX_NAMES).collect(),
        expires_at: state.expires_at.and_then(time),
        problem,
        next_attempt_at: state.next_attempt.and_then(time),
    }
}

/// Interval for reporting an unchanged state. The platform shows a state for three times as long, so
/// that those of an engine that is gone disappear.
const FULL_REPORT: Duration = Duration::from_mins(5);

#[cfg(test)]
mod tests {
    use super::*;

    fn state(problem: Option<&str>) -> CertificateState {
        CertificateState {
            source: CertificateSource::Authority,
            names: vec!["engine.example.com".to_owned()],
            expires_at: Some(1_800_000_000),
            problem: problem.map(str::to_owned),
            next_attempt: problem.map(|_| 1_700_000_000),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn states_are_reported_when_they_change_and_every_five_minutes() {
        let mut reports = CertificateReports::default();
        let record = reports.change(vec![state(None)]).unwrap();
        let expected = EngineCertificate {
            source: "acme".to_owned(),
            names: vec!["engine.example.com".to_owned()],
            expires_at: Some("2027-01-15T08:00:00Z".parse().unwrap()),
            problem: None,
            next_attempt_at: None,
        };
        assert_eq!(record.certificates, [expected]);
        assert_eq!(reports.change(vec![state(None)]), None);
        let failed = reports.change(vec![state(Some("rateLimited"))]).unwrap();
        assert_eq!(
            failed.certificates[0].problem.as_deref(),
            Some("rateLimited")
        );
        tokio::time::advance(FULL_REPORT).await;
        assert!(reports.change(vec![state(Some("rateLimited"))]).is_some());
    }

    /// A report with longer texts would be refused with all of its records.
    #[test]
    fn texts_are_shortened_to_the_limits_of_the_platform() {
        let mut long = state(Some(&"\u{e9}".repeat(MAX_PROBLEM_BYTES)));
        long.names = vec!["a".repeat(254), "b".repeat(253)];
        long.names
            .extend((0..200).map(|number| format!("a{number}.example.com")));
        let reported = certificate(long);
        assert_eq!(reported.problem.unwrap().len(), MAX_PROBLEM_BYTES);
        assert_eq!(reported.names.len(), EngineCertificate::MAX_NAMES);
        assert_eq!(reported.names[0], "b".repeat(253));
    }
}
