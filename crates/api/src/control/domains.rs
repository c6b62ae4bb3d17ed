//! Custom domains of a project: host names outside the platform under which its tunnels are published.

mod certificate;

use serde::{Deserialize, Serialize};
use serde_json::json;
use types::permission::{Permission, Rule};
use utoipa::ToSchema;

use super::{Access, Body, Method, Operation, Schemas, SuccessResponse, add, not_null};

pub use self::certificate::{
    DELETE_CERTIFICATE, DomainCertificate, DomainCertificateSource, MAX_CHAIN_BYTES, MAX_KEY_BYTES,
    PUT_CERTIFICATE, UploadCertificate,
};

/// The domains of a project.
pub const LIST: &Operation = &Operation::get(
    "list_project_domains",
    "/api/projects/tunnels/{project_id}/domains",
    "List the custom domains of a project",
    READ,
    "DomainList",
);

/// Adds a domain. A domain that the project has already is returned unchanged.
pub const CREATE: &Operation = &Operation {
    body: Some(Body::required(
        "CreateDomain",
        || json!({"hostname": "app.example.com"}),
    )),
    refusals: &[409],
    ..Operation::new(
        "create_project_domain",
        Method::Post,
        "/api/projects/tunnels/{project_id}/domains",
        "Add a custom domain; the response has the DNS records to enter",
        WRITE,
        SuccessResponse::json(201, "Domain"),
    )
};

/// One domain.
pub const GET: &Operation = &Operation::get(
    "get_project_domain",
    "/api/projects/tunnels/{project_id}/domains/{domain_id}",
    "Get a custom domain",
    READ,
    "Domain",
);

/// Removes a domain.
pub const DELETE: &Operation = &Operation {
    id: "delete_project_domain",
    method: Method::Delete,
    summary: "Remove a custom domain",
    access: WRITE,
    answer: SuccessResponse::NO_CONTENT,
    ..*GET
};

/// Checks the records of a domain at its authoritative name servers.
pub const VERIFY: &Operation = &Operation {
    refusals: &[409],
    ..Operation::new(
        "verify_project_domain",
        Method::Post,
        "/api/projects/tunnels/{project_id}/domains/{domain_id}/verify",
        "Check the DNS records of a custom domain",
        WRITE,
        SuccessResponse::json(200, "Domain"),
    )
};

/// Support of the domain's DNS provider for Domain Connect.
pub const DOMAIN_CONNECT: &Operation = &Operation::get(
    "get_project_domain_connect",
    "/api/projects/tunnels/{project_id}/domains/{domain_id}/domain-connect",
    "Find out whether the DNS provider of a custom domain supports Domain Connect",
    READ,
    "DomainConnect",
);

/// The operations of this module.
pub const OPERATIONS: &[&Operation] = &[
    LIST,
    CREATE,
    GET,
    DELETE,
    VERIFY,
    DOMAIN_CONNECT,
    PUT_CERTIFICATE,
    DELETE_CERTIFICATE,
];

pub(super) fn schemas(schemas: &mut Schemas) {
    add::<DomainList>(schemas);
    add::<CreateDomain>(schemas);
    add::<DomainConnect>(schemas);
    add::<UploadCertificate>(schemas);
}

const READ: Access = Access::Permitted(Permission::AccountProjectsReadOnly, &[rule(&["read"])]);
const WRITE: Access = Access::Permitted(Permission::AccountProjectsReadWrite, &[rule(&["update"])]);

/// The part of the permission that an operation uses.
const fn rule(actions: &'static [&'static str]) -> Rule {
    Rule {
        resource: "projects",
        actions,
    }
}

/// Kind of a domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum DomainKind {
    /// One host name.
    Hostname,
    /// All names directly below a host name.
    Wildcard,
}

/// How certificate authorities validate a domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub enum DomainCertificateValidation {
    /// On the listener of the engine (RFC 8737).
    #[serde(rename = "tls_alpn_01")]
    TlsAlpn01,
    /// With a record in the DNS (RFC 8555 section 8.4). Wildcards need it.
    #[serde(rename = "dns_01")]
    Dns01,
}

/// Status of a domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum DomainStatus {
    /// Its records have not been found yet. It is not served.
    Pending,
    /// Its records were found. It is served.
    Verified,
    /// Its records are missing. It is still served, until `suspendsAt`.
    Warned,
    /// Its records have been missing for days. It is not served, and the project holds it until
    /// `releasesAt`.
    Suspended,
    /// The project lost it. Only this project can verify it again, until `quarantineUntil`.
    Quarantined,
}

/// Purpose of a DNS record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum DomainRecordPurpose {
    /// It proves that the project controls the domain.
    Ownership,
    /// It directs visitors to the engine.
    Traffic,
    /// It delegates the challenges of certificate authorities to the engine, for a domain that is
    /// validated in the DNS.
    Delegation,
}

/// A DNS record that the owner of a domain enters.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct DomainRecord {
    /// Purpose.
    pub purpose: DomainRecordPurpose,
    /// Type. Instead of a CNAME record, the name may have ALIAS, A or AAAA records with the addresses
    /// of the value, as is necessary at the apex of a zone.
    #[serde(rename = "type")]
    #[schema(example = "TXT")]
    pub kind: String,
    /// Complete name.
    #[schema(example = "_svc-challenge.app.example.com")]
    pub name: String,
    /// Value.
    #[schema(example = "svc-domain-verification=mzxw6ytboi")]
    pub value: String,
}

/// Result of the check of one record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum DomainCheckResult {
    /// Every name server that responded has the record.
    Found,
    /// No name server has the record.
    Missing,
    /// The record has another value.
    Different,
    /// The name servers do not agree, for example shortly after a change.
    Inconsistent,
    /// No name server of the zone responded.
    Unreachable,
}

/// Check of one record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct DomainCheck {
    /// Purpose of the record.
    pub purpose: DomainRecordPurpose,
    /// Result.
    pub result: DomainCheckResult,
    /// Values that the name servers have instead, at most ten.
    pub seen: Vec<String>,
    /// Description of the result with the next step, as display text.
    pub detail: String,
}

/// A custom domain of a project. Members without a value are absent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Domain {
    /// Id.
    #[schema(example = "dom_01h455vb4pex5vsknk084sn02q")]
    pub id: String,
    /// The project.
    pub project_id: String,
    /// The name in A-labels, with the `*.` of a wildcard.
    #[schema(example = "app.example.com")]
    pub hostname: String,
    /// Kind.
    pub kind: DomainKind,
    /// How certificate authorities validate the domain.
    pub certificate_validation: DomainCertificateValidation,
    /// The certificate that visitors get.
    #[serde(default)]
    pub certificate: DomainCertificate,
    /// Status.
    pub status: DomainStatus,
    /// The records to enter.
    pub records: Vec<DomainRecord>,
    /// Checks of the records, in the same order; empty before the first check.
    pub checks: Vec<DomainCheck>,
    /// Time of the addition.
    #[schema(format = DateTime)]
    pub created_at: String,
    /// Time since when the domain has been verified, or was last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, format = DateTime)]
    pub verified_at: Option<String>,
    /// Time of the latest check.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, format = DateTime)]
    pub last_checked_at: Option<String>,
    /// Time since when the records have been missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, format = DateTime)]
    pub failing_since: Option<String>,
    /// Time from which a warned domain is suspended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, format = DateTime)]
    pub suspends_at: Option<String>,
    /// Time from which a suspended domain is released.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, format = DateTime)]
    pub releases_at: Option<String>,
    /// End of the quarantine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, format = DateTime)]
    pub quarantine_until: Option<String>,
}

/// All custom domains of a project, oldest first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct DomainList {
    /// The domains.
    pub domains: Vec<Domain>,
}

/// A domain to add.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CreateDomain {
    /// The host name, `*.` and a host name for a wildcard. Internationalised names are converted to
    /// A-labels.
    #[schema(example = "app.example.com", min_length = 1, max_length = 1012)]
    pub hostname: String,
    /// Kind; absent: the one of the name. With `wildcard`, the `*.` may be left out.
    #[serde(default, with = "not_null", skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub kind: Option<DomainKind>,
    /// How certificate authorities validate the domain; absent: `tls_alpn_01`, for a wildcard
    /// `dns_01`.
    #[serde(default, with = "not_null", skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub certificate_validation: Option<DomainCertificateValidation>,
}

/// Support of a DNS provider for Domain Connect, by which it enters records at the user's request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct DomainConnect {
    /// True if the zone of the domain names a Domain Connect service.
    pub supported: bool,
    /// Host and path of the service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = "domainconnect.example.net")]
    pub service: Option<String>,
    /// Description of the result with the next step, as display text.
    pub detail: String,
}
