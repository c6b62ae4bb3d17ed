//! Conversion of a domain into an API response.

use api::control::domains::{
    Domain, DomainCertificate, DomainCertificateSource, DomainCertificateValidation, DomainCheck,
    DomainKind, DomainStatus,
};
use jiff::Timestamp;
use serde::{Deserialize as _, Serialize};
use store::domains::{self, CertificateValidation, State};

use super::lifecycle::{releases_at, suspends_at};
use super::records::ExpectedRecords;
use crate::http_api::wire::date;

/// The domain with the records to enter.
pub(super) fn view(domain: &domains::Domain, expected: &ExpectedRecords) -> Domain {
    let shown = |at: Option<Timestamp>| at.map(date);
    Domain {
        id: domain.id.to_string(),
        project_id: domain.project_id.to_string(),
        hostname: domain.hostname.clone(),
        kind: if domain.hostname.starts_with("*.") {
            DomainKind::Wildcard
        } else {
            DomainKind::Hostname
        },
        certificate_validation: match domain.certificate_validation {
            CertificateValidation::TlsAlpn01 => DomainCertificateValidation::TlsAlpn01,
            CertificateValidation::Dns01 => DomainCertificateValidation::Dns01,
        },
        certificate: certificate(domain),
        status: status(domain.state),
        records: expected.to_api(),
        checks: checks(domain),
        created_at: date(domain.created_at),
        verified_at: shown(domain.verified_at),
        last_checked_at: shown(domain.last_checked_at),
        failing_since: shown(domain.failing_since),
        suspends_at: shown(suspends_at(domain)),
        releases_at: shown(releases_at(domain)),
        quarantine_until: shown(domain.quarantine_until),
    }
}

fn certificate(domain: &domains::Domain) -> DomainCertificate {
    if let Some(expires_at) = domain.certificate_expires_at {
        return DomainCertificate {
            source: DomainCertificateSource::Uploaded,
            expires_at: Some(date(expires_at)),
            ..DomainCertificate::default()
        };
    }
    DomainCertificate {
        source: DomainCertificateSource::Engine,
        expires_at: domain.ordered_expires_at.map(date),
        problem: domain.order_problem.clone(),
        next_attempt_at: domain.next_order_at.map(date),
    }
}

/// The stored form of checks.
pub(super) fn stored(checks: &[DomainCheck]) -> Option<serde_json::Value> {
    // Strings and enums always serialise.
    serde_json::to_value(StoredChecks { checks }).ok()
}

#[derive(Serialize)]
struct StoredChecks<'a> {
    checks: &'a [DomainCheck],
}

/// The checks that were stored. Those of another version that cannot be read are left out until the
/// next check.
fn checks(domain: &domains::Domain) -> Vec<DomainCheck> {
    let list = domain
        .report
        .as_ref()
        .and_then(|report| report.get("checks"));
    list.and_then(|list| Vec::deserialize(list).ok())
        .unwrap_or_default()
}

fn status(state: State) -> DomainStatus {
    match state {
        State::Pending => DomainStatus::Pending,
        State::Verified => DomainStatus::Verified,
        State::Warned => DomainStatus::Warned,
        State::Suspended => DomainStatus::Suspended,
        State::Quarantined => DomainStatus::Quarantined,
    }
}
