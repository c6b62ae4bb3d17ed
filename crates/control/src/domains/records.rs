//! The DNS records that a custom domain needs.

use api::control::domains::{DomainRecord, DomainRecordPurpose};
use store::domains::{CertificateValidation, Domain};
use store::projects::Project;
use types::domain_name::CHALLENGE_PREFIX;
use types::problem::Problem;

use crate::app::App;
use crate::http_api::problem::HandlerResult;
use crate::projects::region_of;

/// The records of one domain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ExpectedRecords {
    /// Name of the ownership record (TXT).
    pub(super) challenge: String,
    /// Value of the ownership record. It is random for each domain of a project, so that the record
    /// of one project proves nothing for another one.
    pub(super) proof: String,
    /// Name of the traffic record: the domain, with the `*.` of a wildcard.
    pub(super) host: String,
    /// Host of the project's engine, the target of the traffic record.
    pub(super) target: String,
    /// The delegation of the challenges of authorities, if they validate the domain in the DNS and
    /// the engines have a zone for them.
    pub(super) delegation: Option<Delegation>,
}

/// A CNAME record that delegates the challenges of certificate authorities.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Delegation {
    /// Its name: that of the challenges (RFC 8555 section 8.4).
    pub(super) name: String,
    /// Its target: the same for a name and its wildcard, and another one for each project.
    pub(super) target: String,
}

impl ExpectedRecords {
    /// The records of a stored domain.
    ///
    /// # Errors
    /// 503 if the platform has no engine.
    pub(super) fn new(app: &App, project: &Project, domain: &Domain) -> HandlerResult<Self> {
        let region = region_of(app, project).ok_or_else(Problem::unavailable)?;
        Ok(Self {
            challenge: format!("{CHALLENGE_PREFIX}{}", base_of(domain)),
            proof: format!("{PROOF_PREFIX}{}", domain.token),
            host: domain.hostname.clone(),
            target: format!("{}.{}", project.endpoint, region.domain),
            delegation: delegation(app, project, domain, &region.domain),
        })
    }

    /// The records as they are shown to the owner of the domain.
    pub(super) fn to_api(&self) -> Vec<DomainRecord> {
        let mut records = vec![
            DomainRecord {
                purpose: DomainRecordPurpose::Ownership,
                kind: "TXT".to_owned(),
                name: self.challenge.clone(),
                value: self.proof.clone(),
            },
            DomainRecord {
                purpose: DomainRecordPurpose::Traffic,
                kind: "CNAME".to_owned(),
                name: self.host.clone(),
                value: self.target.clone(),
            },
        ];
        records.extend(self.delegation.as_ref().map(|delegation| DomainRecord {
            purpose: DomainRecordPurpose::Delegation,
            kind: "CNAME".to_owned(),
            name: delegation.name.clone(),
            value: delegation.target.clone(),
        }));
        records
    }
}

fn delegation(app: &App, project: &Project, domain: &Domain, cluster: &str) -> Option<Delegation> {
    let domains = &app.config.domains;
    match domain.certificate_validation {
        CertificateValidation::TlsAlpn01 => None,
        CertificateValidation::Dns01 => Some(Delegation {
            name: acme::challenge_name(&domain.hostname),
            target: domains.challenge_alias(cluster, project.id, &domain.hostname)?,
        }),
    }
}

/// The host name of a stored domain without the `*.` of a wildcard. The name is not parsed again: a
/// newer list of public suffixes may contain it, and its project can still see and remove it.
pub(super) fn base_of(domain: &Domain) -> &str {
    domain
        .hostname
        .strip_prefix("*.")
        .unwrap_or(&domain.hostname)
}

const PROOF_PREFIX: &str = "svc-domain-verification=";
